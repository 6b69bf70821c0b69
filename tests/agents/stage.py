"""A hive whose agent programs are real and whose model is scripted: clean environment, dummy key, loopback only."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.budget import SEED, SOAK
from tests.fakemodel.server import FakeModel, Script
from tests.stage import Stage
from tests.typing_in import type_in

ROOT = Path(__file__).parents[2]
INSTALLED = (ROOT / "build" / "agents" / "node_modules").resolve()
PROGRAMS = ("goose", "codex", "gemini", "pi", "claude")
# Each fault is met by one program, another with every commit; who starts quickly comes more often.
RING = ("goose", "claude", "pi", "goose", "codex", "claude", "goose", "pi", "claude", "gemini")
# What takes long is tried with one of them, another with every commit; a soak tries it with all.
ROTATING = PROGRAMS if SOAK else (PROGRAMS[SEED % len(PROGRAMS)],)
DEADLINE_S = 300.0
LOOK_AGAIN_S = 0.2

Step = dict[str, Any]
DO_IT: list[Step] = [
    {"write": {"path": "{{file}}", "content": "made by {{tag}}\n"}},
    {"shell": "git add -A && git commit -qm 'create {{file}}'"},
    {"say": "Created {{file}}.", "usage": {"input": 5000, "output": 120}},
]
# A task says `create FILE`; whoever is resumed is told to go on, and does what was asked before.
CREATE = {"name": "create", "when": {"prompt": r"create (?P<file>[\w-]+\.txt)"}, "steps": DO_IT}


def find_path() -> str:
    """Find the PATH on which the installed programs, git and the hive are."""
    node = shutil.which("node") or str(ROOT / "build" / "node" / "bin" / "node")
    places = [INSTALLED / ".bin", INSTALLED / "@aaif" / "goose-binary-linux-x64" / "bin", Path(sys.executable).parent]
    return os.pathsep.join([*map(str, places), str(Path(node).parent), "/usr/local/bin", "/usr/bin", "/bin"])


def is_installed(program: str) -> bool:
    return shutil.which(program, path=find_path()) is not None


def fail_with(fault: str, **more: object) -> list[Step]:
    """Answer every request with a fault."""
    return [{"when": {"prompt": "."}, "loop": True, "steps": [{"fault": fault, **more}]}]


def fail_first(times: int, fault: str, **more: object) -> Step:
    """Answer so many requests with a fault."""
    return {"when": {"prompt": "."}, "times": times, "steps": [{"fault": fault, **more}]}


def make_environment(home: Path, url: str, tag: str = "agent") -> dict[str, str]:
    """Make the environment of a person whose programs talk to a model of ours, and nothing else of the machine's."""
    base = f"{url}/@{tag}"
    model = {"id": "fake-1", "name": "fake-1", "contextWindow": 100_000, "maxTokens": 4000, "input": ["text"]}
    cost = {"input": 1, "output": 2, "cacheRead": 0, "cacheWrite": 0}
    provider = {"baseUrl": f"{base}/v1", "api": "openai-completions", "apiKey": "OPENAI_API_KEY"}
    provider["models"] = [{**model, "cost": cost, "reasoning": False}]  # type: ignore[assignment]
    codex = [
        'model = "fake-1"',
        'model_provider = "fake"',
        "[model_providers.fake]",
        'name = "fake"',
        f'base_url = "{base}/v1"',
        'env_key = "OPENAI_API_KEY"',
        'wire_api = "responses"',
    ]
    files = {
        ".codex/config.toml": "\n".join(codex),
        ".gemini/settings.json": json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}),
        ".pi/agent/models.json": json.dumps({"providers": {"fake": provider}}),
        ".pi/agent/settings.json": json.dumps({"defaultProvider": "fake", "defaultModel": "fake-1"}),
    }
    for name, text in files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    someone = {f"GIT_{role}_{what}": word for role in ("AUTHOR", "COMMITTER")
               for what, word in (("NAME", "a"), ("EMAIL", "a@localhost"))}  # fmt: skip
    return {
        **someone,
        "PATH": find_path(),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GOOSE_PROVIDER": "openai",
        "GOOSE_MODEL": "fake-1",
        "OPENAI_API_KEY": "test-key",
        "OPENAI_HOST": url,
        "OPENAI_BASE_PATH": f"@{tag}/v1/chat/completions",
        "GEMINI_API_KEY": "test-key",
        "GOOGLE_GEMINI_BASE_URL": base,
        "GEMINI_MODEL": "gemini-2.5-flash",
        "ANTHROPIC_API_KEY": "test-key",
        "ANTHROPIC_BASE_URL": base,
        "ANTHROPIC_MODEL": "claude-sonnet-4-5",
    }


class Desk(Stage):
    """One hive, one repository `app`, one scripted model, and somebody who types."""

    def __init__(self, directory: Path, rules: Sequence[Step]) -> None:
        self.model = FakeModel({"rules": [*rules, CREATE]}, keep_bodies=True)
        self.model.__enter__()
        self.environment = make_environment(directory / "home", self.model.url)
        super().__init__(directory / "hive", self.environment)
        self.directory, self.hive = directory, self.root
        self.make_repository()
        self.hive.mkdir()
        self.say("init")

    def close(self) -> None:
        self.say("down", check=False)
        self.model.__exit__(None, None, None)

    def play(self, *rules: Step) -> None:
        """Give the model another script."""
        self.model.script = Script({"rules": [*rules, CREATE]})

    def set(self, toml: str) -> None:
        """Add to hive.toml."""
        with (self.hive / "hive.toml").open("a") as file:
            file.write(toml)

    def replace_setting(self, old: str, new: str) -> None:
        """Change hive.toml: a line that init wrote."""
        path = self.hive / "hive.toml"
        text = path.read_text()
        first, _, rest = text.partition(old)
        path.write_text(first + new + rest)

    def rest(self, seconds: float) -> None:
        """Do nothing at all for a while."""
        time.sleep(seconds)  # real time: an idle hive is watched

    def say(self, *arguments: str, check: bool = True, timeout: float = DEADLINE_S) -> str:
        """Type a hive command; give what it says."""
        code, said = type_in(arguments, self.hive, timeout_s=timeout, environment=self.environment)
        assert not check or code == 0, said
        return said

    def ask(self, *arguments: str) -> Any:  # noqa: ANN401 - JSON
        """Type a hive command; give the JSON it says."""
        return json.loads(self.say(*arguments, "--json"))

    def write_plan(self, *tasks: Mapping[str, object], verify: str = "true", **more: object) -> None:
        """Write plan.yaml: tasks on `app`."""
        listed = [{"repo": "app", "silence": "40s", **task} for task in tasks]
        plan = {"convoy": "c", "repos": {"app": {"path": "../app", "verify": verify}}, "tasks": listed, **more}
        (self.hive / "plan.yaml").write_text(yaml.safe_dump(plan, sort_keys=False))

    @contextlib.contextmanager
    def running(self, *arguments: str) -> Iterator["Kept"]:
        """Keep the hive in another process, as somebody who attends to it would: not by `hive run`."""
        self.say("convoy", "submit", "plan.yaml")
        argv = (sys.executable, "-m", "hivekeeper", "up", *arguments)
        with (self.directory / "said").open("w") as said:
            keeper = subprocess.Popen(argv, cwd=self.hive, env=self.environment, stdout=said, stderr=said, text=True)
        try:
            self.wait("kept", lambda: self.ask("status")["keeper"]["state"] == "ACTIVE", 30.0)
            yield Kept(self, keeper)
        finally:
            if keeper.poll() is None:
                keeper.send_signal(signal.SIGINT)
                keeper.wait(30)

    def wait(self, what: str, is_so: Callable[[], bool], within_s: float = 180.0) -> None:
        deadline = time.monotonic() + within_s
        while not is_so():
            assert time.monotonic() < deadline, f"{what}: not in {within_s} s\n{self.say('log', check=False)[-3000:]}"
            time.sleep(LOOK_AGAIN_S)  # real time: other processes work

    def list_states(self) -> dict[str, str]:
        said = self.say("convoy", "show", "c", "--json", check=False)  # it may not be there yet
        tasks = json.loads(said)["task_list"] if said.startswith("{") else []
        return {task["task"]: task["state"] for task in tasks}

    def list_runs(self, task: str) -> list[dict[str, Any]]:
        return [run for attempt in self.ask("task", "show", task)["attempts"] for run in attempt["runs"]]

    def count_kinds(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for line in self.say("log", "--since", "0", "-n", "100000", "--json").splitlines():
            kind = json.loads(line)["kind"]
            counted[kind] = counted.get(kind, 0) + 1
        return counted

    def count_requests(self) -> int:
        return int(self.model.stats()["requests"])

    def list_landed(self) -> list[str]:
        """List the files that landed, by the branch the hive publishes."""
        return self.git("ls-tree", "-r", "--name-only", "hive/main").splitlines()


class Kept:
    """A hive that is kept in another process until its convoy has ended."""

    def __init__(self, stage: Desk, keeper: subprocess.Popen[str]) -> None:
        self._stage, self._keeper = stage, keeper

    def kill(self) -> None:
        """Kill the keeper; workers go on."""
        self._keeper.kill()
        self._keeper.wait()

    def poll(self) -> int | None:
        """Tell how the convoy ended and was published: 0 is well; None while it goes on."""
        assert self._keeper.poll() is None, "the keeper is gone"
        status = self._stage.ask("status")
        state = next(row["state"] for row in status["convoys"] if row["convoy"] == "c")
        if state == "ACTIVE" or any(repo["integration"] != repo["published"] for repo in status["repos"]):
            return None
        return 0 if state == "COMPLETE" else 1

    def wait(self, seconds: float) -> int:
        """Wait until it has ended."""
        self._stage.wait("ended", lambda: self.poll() is not None, seconds)
        return self.poll() or 0
