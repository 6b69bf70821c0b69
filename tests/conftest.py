"""What holds for every test: nobody's git configuration, no hive around it, and a count for each tier at the end."""

import os
import signal
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.crash.budget import LINES, SEED, TALLY

# How long an example takes says something about the machine, nothing about the property.
settings.register_profile("hive", deadline=None, print_blob=True)
settings.load_profile("hive")

OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


# Started in the background of a shell we would be deaf to Ctrl-C, and with us every command that is tried here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _plain_environment() -> Iterator[None]:
    """Give git an author and nobody's settings, and hide the hive a test run may itself be a worker of."""
    with pytest.MonkeyPatch.context() as patch:
        for name in os.environ:
            if name.startswith(("GIT_", "HIVE_")):
                patch.delenv(name)
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        patch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
        for role in ("AUTHOR", "COMMITTER"):
            patch.setenv(f"GIT_{role}_NAME", "A Test")
            patch.setenv(f"GIT_{role}_EMAIL", "test@localhost")
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell how each tier went, above pytest's own last line."""
    tiers: dict[str, Counter[str]] = {}
    for outcome in OUTCOMES:
        for report in terminalreporter.stats.get(outcome, ()):
            tier = report.nodeid.removeprefix("tests/").partition("/")[0]
            tiers.setdefault(tier, Counter())[outcome] += 1
    for tier, counts in sorted(tiers.items()):
        told = ", ".join(f"{counts[outcome]} {outcome}" for outcome in OUTCOMES if counts[outcome])
        terminalreporter.write_line(f"{tier:<14}{told}")
    for line in LINES:
        terminalreporter.write_line(line)
    for what, count in TALLY.items():
        terminalreporter.write_line(f"{what}: {count}")
    if TALLY:
        again = f"the same choice again: HIVE_SEED={SEED} make test; another: HIVE_SEED=random make test"
        terminalreporter.write_line(f"Chosen by seed {SEED}; {again}")
