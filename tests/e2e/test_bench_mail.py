"""The benchmark of mail, in small: every message that a worker sends lies in an inbox, and in the ledger as handled."""

import json
import subprocess
import sys

from tests.architecture.sources import ROOT


def test_messages_are_carried_from_outboxes_to_inboxes_and_measured() -> None:
    options = (
        "--mailboxes",
        "30",
        "--messages",
        "20",
        "--seconds",
        "0.2",
        "--idle",
        "0.1",
        "--history",
        "100",
        "--json",
    )
    argv = (sys.executable, "-m", "benchmarks", "mail", *options)
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    figures = {figure["name"]: figure for figure in json.loads(done.stdout)}
    assert figures["send to inbox, 30 mailboxes, p50"]["value"] > 0
    assert figures["messages/s, 29 mailboxes / synced files alone"]["goal"] == "≥ 0.6"
    assert figures["CPU of the keeper a message, 30 mailboxes / 20"]["goal"] == "≤ 1.5"
