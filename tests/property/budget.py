"""How often each property is tried: quickly in every test run, and as many times more in a soak as it has more time."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings

from tests.budget import SOAK, TIMES

SOAKING = bool(SOAK)

# What pytest allows a test, as many times as the test has more to do.
PATIENCE = pytest.mark.timeout(120 * max(1.0, 3 * TIMES))

# In memory where there is such a place: thousands of commits, and none of them about the disk.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


def tries(examples: int, *, steps: int = 50) -> settings:
    """Say how many examples, and how many steps in each: the same ones in every test run, new ones in every soak.

    Only a soak has the time to make a failing example small.
    """
    return settings(
        max_examples=max(1, round(examples * TIMES)),
        stateful_step_count=steps,
        derandomize=not SOAKING,
        suppress_health_check=[HealthCheck.too_slow],
        phases=[Phase.generate, Phase.shrink] if SOAKING else [Phase.generate],
    )
