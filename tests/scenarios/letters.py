"""Workers that write and read messages by plain files, as commands."""

# What a worker needs: a place to write to, and one to look at.
AGENT = """python3 - <<'EOF'
import json, os, pathlib, time
box = pathlib.Path(os.environ["HIVE_MAILBOX"])
def send(name, **message):
    (box / "outbox" / name).write_text(json.dumps(message))
def receive():
    while not (found := sorted((box / "inbox").glob("*.json"))):
        time.sleep(0.02)
    message = json.loads(found[0].read_text())
    found[0].rename(box / "inbox" / ".done" / found[0].name)
    return message
%s
EOF"""
