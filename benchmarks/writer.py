"""One of several processes that write to one ledger at once: `python writer.py LEDGER NAME COUNT`."""

import sys
import time
from pathlib import Path

from hivekeeper.domain.events import ConvoySubmitted
from hivekeeper.store.ledger import ByPerson, open_ledger


def main(path: str, name: str, count: str) -> None:
    """Append so many events, each durable, and say how long that took."""
    ledger = open_ledger(Path(path))
    started = time.perf_counter()
    for index in range(int(count)):
        with ledger.write(ByPerson("bench")) as tx:
            tx.record(ConvoySubmitted(f"convoy-{name}-{index}", f"pipeline-{name}-{index}"))
    sys.stdout.write(f"{time.perf_counter() - started}\n")
    ledger.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
