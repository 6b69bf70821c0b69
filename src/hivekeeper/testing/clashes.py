"""Tasks of the demo that get in each other's way, one pair for every way a conflict ends, and a hotfix.

The two of a pair begin on the same branch: each waits a little for the other before it works.
"""

import json
import shlex
import subprocess
from pathlib import Path

from hivekeeper.testing.scratch import git

RESOLVER = "peacemaker"
# The scripted resolver keeps what both sides say.
_KEEP_BOTH = "/^<<<<<<< /d; /^||||||| /,/^=======$/d; /^>>>>>>> /d"
INDEX = "ls extra-*.txt > index.txt"
_BOTH = "! { test -e semantic-a.txt && test -e semantic-b.txt; }  # each is well without the other\n"

# Who works on what, and what becomes of the pair's second: by rules, made anew by command, by the resolver, by another
# attempt on today's branch, and two that git merges cleanly and that are wrong together.
PAIRS: dict[str, tuple[str, str]] = {
    "rules": ("echo '- a' >> CHANGELOG.md", "echo '- b' >> CHANGELOG.md"),
    "regenerate": (f"echo a > extra-a.txt; {INDEX}", f"echo b > extra-b.txt; {INDEX}"),
    "resolver": ("echo 'hello from a' > greeting.txt", "echo 'hello from b' > greeting.txt"),
    "anew": ("rm old.txt", "if test -e old.txt; then echo more >> old.txt; else echo new > new.txt; fi"),
    "semantic": (
        "if test -e semantic-b.txt; then echo a > semantic-c.txt; else echo a > semantic-a.txt; fi",
        "if test -e semantic-a.txt; then echo b > semantic-c.txt; else echo b > semantic-b.txt; fi",
    ),
}


def prepare_clashes(repository: Path) -> None:
    """Put into a new repository what the pairs work on, and into its gate what they must keep true."""
    files = {"CHANGELOG.md": "# Changes\n", "greeting.txt": "hello\n", "old.txt": "old\n", "index.txt": ""}
    for name, text in files.items():
        (repository / name).write_text(text)
    with (repository / "check.sh").open("a") as check:
        check.write(_BOTH)


def describe_resolver() -> str:
    """Say in hive.toml who settles conflicts."""
    script = f'for file in $HIVE_CONFLICTS; do sed -i "{_KEEP_BOTH}" "$file"; done; : '.replace("$/d", "\\$/d")
    return f"[queue]\nresolver = {json.dumps(RESOLVER)}\n\n[runners.{RESOLVER}]\ncommand = {json.dumps(script)}\n"


def list_clashes(marks: Path, signs: Path) -> list[str]:
    """Write the pairs' tasks as lines of a plan."""
    lines: list[str] = []
    for pair, commands in PAIRS.items():
        for who, command in zip("ab", commands, strict=True):
            other = "b" if who == "a" else "a"
            mark = f'echo "$HIVE_CONVOY/$HIVE_TASK $HIVE_ATTEMPT" >> {shlex.quote(str(marks))}'
            here, there = (shlex.quote(str(signs / f"{pair}-{name}")) for name in (who, other))
            meet = f"touch {here}; for i in $(seq 20); do test -e {there} && break; echo waiting; sleep 0.1; done"
            lines += [
                f"  - id: {pair}-{who}",
                "    repo: shop",
                f"    title: One of two that meet ({pair})",
                f"    command: {json.dumps(f'{mark}; {meet}; {command}')}",
            ]
    return lines


def make_hotfix(repository: Path) -> None:
    """Make a branch by hand, as a person would."""
    git("-C", str(repository), "checkout", "--quiet", "-b", "hotfix")
    (repository / "hotfix.txt").write_text("mended\n")
    git("-C", str(repository), "add", ".")
    git("-C", str(repository), "commit", "--quiet", "-m", "A hotfix")
    git("-C", str(repository), "checkout", "--quiet", "main")


def check_every_commit(repository: Path, branch: str, worktree: Path) -> list[str]:
    """Lay every commit out alone and run its gate; tell which of them do not pass."""
    commits = git("-C", str(repository), "rev-list", "--reverse", branch).splitlines()
    wrong: list[str] = []
    for commit in commits:
        git("-C", str(repository), "worktree", "add", "--quiet", "--detach", str(worktree), commit)
        if subprocess.run(("sh", "check.sh"), cwd=worktree, check=False).returncode != 0:
            wrong.append(f"{commit[:10]} does not pass alone")
        git("-C", str(repository), "worktree", "remove", "--force", str(worktree))
    return wrong
