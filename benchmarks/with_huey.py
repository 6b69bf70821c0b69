"""Tiny tasks through huey: `python with_huey.py DIRECTORY COUNT WORKERS`.

Its storage is SQLite with huey's own defaults: a write-ahead log that is synced at each commit, like the ledger.
"""

import subprocess
import sys
import threading
import time
from pathlib import Path

from huey import SqliteHuey


def main(directory: str, count: str, workers: str) -> None:
    """Hand in so many tasks, have threads do them, and print how long that took."""
    huey, ended = SqliteHuey(filename=str(Path(directory) / "huey.db")), threading.Semaphore(0)

    def run() -> int:
        code = subprocess.run(("sh", "-c", ":"), check=True).returncode
        ended.release()
        return code

    task, started = huey.task()(run), time.perf_counter()
    for _ in range(int(count)):
        task()
    consumer = huey.create_consumer(workers=int(workers))
    consumer.start()
    for _ in range(int(count)):
        ended.acquire()
    sys.stdout.write(f"{time.perf_counter() - started}\n")
    consumer.stop(graceful=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
