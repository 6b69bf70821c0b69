"""Programs that lie in hidden places: what has to be seen so that they run, without the credentials beside them.

Rules:
1. A directory of the search path comes back, and its prefix too: of X/bin, X/sbin and X/shims all of X. Not when X
   is a home, `.local`, or holds a hidden place: beside that bin lies much that is no program.
2. So does what the links in such a directory lead to: the prefix of a program, the packages it lies among, or the file.
3. So do the running interpreter, this package, and the file that says where names are resolved. An import lists the
   directory around a package, so that comes back too where nothing else lies in it, or packages only: a worker's `hive`
   needs what this one depends on.
4. So does what hive.toml names (runners, MCP servers): every word that is the path of a file brings back its
   installation: the prefix of X/bin, the npm package, or its directory; of a file that lies in a home itself, in its
   .config or the like, or beside a hive, only the file. A directory that is named comes back as it is, but never one
   that holds a hidden place.
"""

# ruff: noqa: PTH110, PTH112, PTH113, PTH116, PTH119, PTH120, PTH208
# Links are followed by their text, one at a time; pathlib follows all or none.

import os
import sys
from functools import lru_cache
from pathlib import Path

from hivekeeper.sandbox.layout import ALWAYS_HIDDEN, Mode, Traced, is_within, trace

_PACKAGE = str(Path(__file__).parents[1])
_RESOLVER = "/etc/resolv.conf"
_PACKAGES = ("site-packages", "dist-packages")
_BINS = ("bin", "sbin", "shims")
_COMPANIONS = {".cargo": ".rustup"}  # what lies in ~/.cargo/bin only starts what lies in ~/.rustup
_CREDENTIALS = (
    *("credentials", "credentials.toml", "credentials.json", "auth.json", "auth.toml", ".env"),
    *(".npmrc", "etc/npmrc", ".pypirc", ".netrc", "_netrc", ".git-credentials", ".yarnrc.yml"),
    *(".ssh", ".gnupg", ".aws", ".docker/config.json", ".m2/settings.xml"),
)


def find_toolchain(search_path: str, home: str, named: tuple[str, ...] = ()) -> tuple[tuple[Traced, Mode], ...]:
    """Find what has to be seen again of hidden places; `named` are the paths in hive.toml's commands."""
    # An agent that updates itself moves a link in such a directory: that is seen, and costs a microsecond each.
    directories = tuple((path, _changed_at(path)) for path in search_path.split(":") if path.startswith("/"))
    return _find(home, directories, tuple((path, _changed_at(path)) for path in named))


def find_secret(path: str, home: str, hive: str = "") -> str | None:
    """Find what nobody may see that would be seen if a path were: a home, its credentials, what a hive keeps."""
    real, home = trace(path).real, trace(home).real
    if is_within(home, real):
        return home
    places = [*(f"{home}/{name}" for name in _CREDENTIALS), *([trace(hive).real] if hive else [])]
    return next((place for place in places if is_within(real, place)), None)


@lru_cache(maxsize=32)
def _find(
    home: str, directories: tuple[tuple[str, int], ...], named: tuple[tuple[str, int], ...]
) -> tuple[tuple[Traced, Mode], ...]:
    search = _Search(home)
    for path, _ in directories:
        search.visit_bin(path)
    for path, _ in named:
        search.visit_named(path)
    for path in (sys.prefix, sys.base_prefix):
        search.add_prefix(path)
        search.visit_bin(f"{path}/bin")
    around = os.path.dirname(_PACKAGE)
    is_plain = os.path.basename(around) in _PACKAGES or all(
        name.startswith("hivekeeper") for name in os.listdir(around)
    )
    search.add(trace(around if is_plain else _PACKAGE))
    search.add(trace(_RESOLVER))
    return tuple(search.found.values())


class _Search:
    """What was found so far."""

    def __init__(self, home: str) -> None:
        self.found: dict[tuple[str, Mode], tuple[Traced, Mode]] = {}
        self._hidden = [trace(path).real for path in (home, *ALWAYS_HIDDEN)]
        self._home = home
        self._visited: set[str] = set()

    def visit_bin(self, path: str) -> None:
        """Bring back a directory of programs, its prefix, and what its links lead to."""
        traced = trace(path)
        self.add(traced)
        if traced.real in self._visited or not os.path.isdir(traced.real):
            return
        self._visited.add(traced.real)
        prefix, _, name = traced.real.rpartition("/")
        if name in _BINS and os.path.basename(prefix) != ".local":
            self.add_prefix(prefix)
        for link in _find_links(traced.real):
            self._follow(trace(link))

    def visit_named(self, path: str) -> None:
        """Bring back the installation of a file, or a directory."""
        traced, directory = trace(path), os.path.dirname(path)
        if find_secret(path, self._home):
            return
        if os.path.isdir(traced.real):
            self.add_prefix(path)
            return
        if os.path.basename(directory) in _BINS:
            self.visit_bin(directory)  # as it is written: the python of a venv is a link to another's
        interpreter = _read_interpreter(traced.real)
        if interpreter and interpreter != path:
            self.visit_named(interpreter)
        self._follow(traced)
        root = self._find_package(traced.real)
        is_shared = os.path.dirname(root) == trace(self._home).real and os.path.basename(root).startswith(".")
        if not is_shared and not os.path.lexists(f"{root}/.hive"):
            self.add_prefix(root)

    def add_prefix(self, path: str) -> None:
        """Bring back a program's whole directory, without credentials, and what it cannot do without."""
        traced = trace(path)
        if self.add(traced):
            for name in _CREDENTIALS:
                if os.path.lexists(f"{traced.real}/{name}"):
                    secret = trace(f"{traced.real}/{name}")
                    self.found[secret.real, Mode.HIDE] = secret, Mode.HIDE
            above, _, name = traced.real.rpartition("/")
            if name in _COMPANIONS:
                self.add_prefix(f"{above}/{_COMPANIONS[name]}")

    def add(self, traced: Traced) -> bool:
        """Bring back one path, if it is hidden, is there, and brings nothing back that is meant to be hidden."""
        if not any(is_within(traced.real, place) for place in self._hidden):
            return False
        if any(is_within(place, traced.real) for place in self._hidden) or not os.path.exists(traced.real):
            return False
        self.found.setdefault((traced.real, Mode.READ), (traced, Mode.READ))[0].links.update(traced.links)
        return True

    def _find_package(self, file: str) -> str:
        """Find the npm package that a file belongs to, or else its directory."""
        directory = above = os.path.dirname(file)
        while above not in ("/", *self._hidden):
            if os.path.isfile(f"{above}/package.json"):
                return above
            above = os.path.dirname(above)
        return directory

    def _follow(self, program: Traced) -> None:
        if self.add(program):
            directory = os.path.dirname(program.real)
            above, modules, _ = program.real.partition("/node_modules/")
            if modules:  # what a package needs lies beside it
                self.add(trace(f"{above}/node_modules"))
            elif os.path.basename(directory) in _BINS:
                self.visit_bin(directory)


def _read_interpreter(file: str) -> str | None:
    """Read which program a script is for."""
    try:
        with open(file, "rb") as script:  # noqa: PTH123 - see above
            line = script.readline(256)
    except OSError:
        return None
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!/") else []
    return words[0] if words else None


def _find_links(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return [entry.path for entry in entries if entry.is_symlink()]
    except OSError:  # not ours to read
        return []


def _changed_at(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return 0
