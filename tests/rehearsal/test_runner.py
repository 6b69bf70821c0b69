"""The built-in runner `scripted`: a prompt that is a script, played to its end on a repository and without one."""

import json
import subprocess
import sys
from pathlib import Path

DEADLINE_S = 60.0
PLAN = """\
convoy: work
repos: {app: {path: app}}
defaults: {runner: scripted}
tasks:
  - {id: A, repo: app, prompt: '["think", {"edit": "a.txt"}, {"commit": "as told"}, {"append": "a.txt"}]'}
  - {id: B, prompt: '[{"edit": "out/b.txt"}]', output: out/b.txt, after: [A]}
  - {id: C, prompt: '["lie"]', output: out/c.txt, attempts: 1}
  - {id: D, repo: app, prompt: '["thnik"]', attempts: 1}
"""


def test_a_prompt_that_is_a_script_is_played(tmp_path: Path) -> None:
    def hive(*arguments: str) -> str:
        argv = (sys.executable, "-m", "hivekeeper", *arguments)
        done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        return done.stdout + done.stderr

    for arguments in (
        ("init", "-q", "-b", "main", "app"),
        ("-C", "app", "commit", "-q", "--allow-empty", "-m", "first"),
    ):
        subprocess.run(("git", *arguments), cwd=tmp_path, check=True)
    (tmp_path / "plan.yaml").write_text(PLAN)
    hive("init")
    said = hive("run", "plan.yaml")
    tasks = {task["task"]: task for task in json.loads(hive("convoy", "show", "work", "--json"))["task_list"]}
    states = {name: task["state"] for name, task in tasks.items()}
    assert states == {"A": "COMPLETE", "B": "COMPLETE", "C": "FAILED", "D": "FAILED"}, said
    shown = ("git", "-C", "app", "show", "hive/main:a.txt")
    landed = subprocess.run(shown, cwd=tmp_path, capture_output=True, check=True, text=True).stdout
    assert landed.count("work/A, attempt 1") == 2, "what it committed, and what it did not"
    assert (tmp_path / "out" / "b.txt").read_text().startswith("work/B, attempt 1")
    assert "there is no out/c.txt" in tasks["C"]["reason"]
    assert "there is no step 'thnik'. Did you mean 'think'?" in said
