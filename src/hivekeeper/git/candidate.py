"""Making the commit that is to land: the change merged onto another commit, without a check-out.

What git calls a conflict is resolved by rules where they are sure. Everything here is made of objects that nothing
points to, so it may be repeated or given up at any moment.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hivekeeper.domain import rules
from hivekeeper.git.mirror import Conflict, Mirror, Version

Versions = Mapping[int, Version]
_FILES = ("100644", "100755")
_HUNK = re.compile(r"^<{7} .*?^>{7} [^\n]*", re.DOTALL | re.MULTILINE)
MAX_TEXT = 16_000


@dataclass(frozen=True, slots=True)
class Change:
    """What is to land: `commit` as it was handed in, `resolved` where a conflict of it was resolved by a run.

    `base` is what it changes where that is not simply where histories part; `landed_as` is the change whose name it
    bears once it has landed, where that is not its own. `task` is whose it is, as its commit says.
    """

    commit: str
    resolved: str | None
    message: str
    author: str
    at: str
    base: str | None = None
    landed_as: str | None = None
    task: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A commit ready to be verified; `changed` are the paths that the change itself changes.

    Where everything it changes is there already, the commit is its own base: nothing is added to the branch.
    """

    base: str
    commit: str
    tree: str
    tier: str
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unresolved:
    """The change cannot be merged: `tree` has the markers, in `paths`; `hunks` shows them."""

    tree: str
    paths: tuple[str, ...]
    are_files: bool
    hunks: str


@dataclass(frozen=True, slots=True)
class Empty:
    """Whoever resolved its conflict left nothing of it."""


@dataclass(frozen=True, slots=True)
class Strays:
    """The merge would change what the change itself did not: this must never be, and never lands."""

    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unsound:
    """A remote that checks what it is sent (`receive.fsckObjects`) would refuse it, and whatever comes after it.

    `path` is where, if that is known. What `can_be_mended` is a file; the others cannot even be checked out.
    """

    path: str
    words: str
    can_be_mended: bool


Unmergeable = Unresolved | Empty | Strays | Unsound
Made = Candidate | Unmergeable


def make_candidate(mirror: Mirror, onto: str, change: Change) -> Made:
    """Merge a change onto a commit, as a commit with one parent."""
    before = mirror.open_tree(onto)
    ours, theirs, tier = onto, change.resolved or change.commit, "clean"
    if change.base and not change.resolved:
        ours, theirs = _make_sides(mirror, change.base, (onto, change.commit), change.at)
    merged = mirror.merge(ours, theirs)
    adds_nothing = isinstance(merged, Conflict) or merged.tree == before
    if adds_nothing and (landed := mirror.find_landed(onto, change.landed_as or change.commit, change.task)):
        # The landing was not seen to its end, or an older ledger was put back: it does not land again.
        return Candidate(landed.parent, landed.commit, mirror.get_tree(landed.commit), tier)
    if isinstance(merged, Conflict):
        resolved = _resolve(mirror, merged)
        if isinstance(resolved, Unresolved):
            return resolved
        tree, tier = resolved, "rules"
    elif adds_nothing:
        return Empty() if change.resolved else Candidate(onto, onto, before, tier)
    else:
        tree = merged.tree
    changed = mirror.list_brought(ours, theirs) or ()
    if strays := _find_strays(mirror, ours, theirs, tree, changed):
        return Strays(strays)
    commit = mirror.commit_tree(tree, (onto,), change.message, change.at, change.author)
    if fault := mirror.find_fault(commit, onto):
        path, kind = mirror.find_path(tree, fault.object)
        return Unsound(path, fault.words, can_be_mended=kind == "blob")
    return Candidate(onto, commit, tree, tier, changed)


def find_holder(mirror: Mirror, head: str, change: Change) -> str:
    """Find the commit in which everything a change changes came to a branch that holds it: its head, if in doubt."""
    found = mirror.find_last_touched(head, mirror.list_brought(head, change.commit) or ())
    made = make_candidate(mirror, found, change) if found else None
    return made.commit if isinstance(made, Candidate) and made.commit == made.base else head


def _make_sides(mirror: Mirror, base: str, sides: tuple[str, str], at: str) -> tuple[str, str]:
    """Have both sides part at a base of our choice: git 2.38 merges from where histories part and from nowhere else."""
    fork = mirror.commit_tree(mirror.get_tree(base), (), "base\n", at)
    ours, theirs = (mirror.commit_tree(mirror.get_tree(side), (fork,), "side\n", at) for side in sides)
    return ours, theirs


def _resolve(mirror: Mirror, conflict: Conflict) -> str | Unresolved:
    """Settle what rules can, file by file, as a tree; the rest stays unresolved."""
    resolved: dict[str, tuple[str, str]] = {}
    left: list[str] = []
    hunks: list[str] = []
    for path, versions in conflict.versions.items():
        text = mirror.read_blob(f"{conflict.tree}:{path}") if _is_file(versions) else ""
        by_rule = rules.resolve_file(read_sides(mirror, path, versions), text) if text else None
        if by_rule is None:
            left.append(path)
            hunks.append(f"--- {path}\n{_show_hunks(text)}" if text else f"--- {path} (no common file)")
        else:
            resolved[path] = (_find_mode(versions), by_rule.text)
    tree = mirror.replace_files(conflict.tree, resolved) if resolved else conflict.tree
    if left:
        # Names that no environment can carry are for a person.
        are_files = all(_is_file(conflict.versions[path]) and _is_text(path) and "\n" not in path for path in left)
        return Unresolved(tree, tuple(left), are_files, "\n".join(hunks)[:MAX_TEXT])
    return tree


def read_sides(mirror: Mirror, path: str, versions: Versions) -> rules.Sides:
    """Read the three versions of a file."""
    base, ours, theirs = (mirror.read_blob(versions[n].blob) if n in versions else None for n in (1, 2, 3))
    return rules.Sides(path, base, ours, theirs)


def _is_text(text: str) -> bool:
    return not any("\udc80" <= character <= "\udcff" for character in text)


def _show_hunks(text: str) -> str:
    return "\n".join(_HUNK.findall(text))


def _is_file(versions: Versions) -> bool:
    """Tell whether both sides have a file there, of one mode."""
    modes = {versions[number].mode for number in (2, 3) if number in versions}
    return 2 in versions and 3 in versions and len(modes) == 1 and modes.issubset(_FILES)  # noqa: PLR2004 - the sides


def _find_mode(versions: Versions) -> str:
    return str(versions[2].mode)


def _find_strays(mirror: Mirror, onto: str, theirs: str, tree: str, changed: Sequence[str]) -> tuple[str, ...]:
    """Find paths that the merge changes and the change does not; what was called otherwise meanwhile is the same."""
    strays = set(mirror.list_changed(onto, tree)) - set(changed)
    if strays and (fork := mirror.find_merge_base(onto, theirs)):
        strays -= {new for old, new in mirror.list_renames(fork, onto).items() if old in changed}
    return tuple(sorted(strays))


def check_resolution(mirror: Mirror, resolved: str, tree: str, paths: Sequence[str]) -> str | list[str]:
    """Check the resolution of a conflict: describe what is wrong with it, or list the lines that either side lost."""
    if strays := set(mirror.list_changed(tree, resolved)) - set(paths):
        return f"it changed {min(strays)}, which was no part of the conflict"
    lost: list[str] = []
    conflict = mirror.merge(*mirror.list_parents(resolved))
    for path in paths:
        result = mirror.read_blob(f"{resolved}:{path}") if mirror.find_object(f"{resolved}:{path}") else ""
        if rules.has_markers(result):
            return f"{path} still has conflict markers"
        if isinstance(conflict, Conflict) and path in conflict.versions and _is_file(conflict.versions[path]):
            sides = read_sides(mirror, path, conflict.versions[path])
            lost += (f"{path}: {line}" for line in rules.list_lost_lines(sides, result))
    return lost
