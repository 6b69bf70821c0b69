"""Tasks that cannot be done as they are said: prompts, commands, runners and outputs of the wrong kind."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.prime import Acceptance, PrimeFacts, Who, prime
from hivekeeper.domain.states import TaskState
from hivekeeper.errors import InputError
from tests.hostile.conftest import PATIENT, Deed, Person, Theatre, by_id, open_theatre

RUNNERS = """
[runners.file]
command = "wc -c < {prompt} > by-file; true"
[runners.stdin]
command = "wc -c > by-stdin"
prompt = "stdin"
[runners.argument]
command = "/bin/echo"
prompt = "argument"
[runners.worker]
command = "cp {prompt} told; true"
"""
LONG = "x" * (5 << 20)
DEEP = """python3 -c "import os
for _ in range(3000): os.mkdir('d'); os.chdir('d')
open('f', 'w').write('f')" """


def makes(name: str, command: str, *outputs: str, ends: str = "") -> Deed:
    return Deed(name, command, f"it ended with exit code 0 but {ends}" if ends else "", PATIENT, None, outputs)


def says(name: str, command: str, ends: str) -> Deed:
    return Deed(name, command, ends, repo=None)


SOCKET = "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('socket')\""
DEEDS = [
    says(
        "missing",
        "no-such-command --x",
        "exit code 127; last output: sh: 1: no-such-command: not found",
    ),
    says("directory", "/etc", "exit code 126; last output: sh: 1: /etc: Permission denied"),
    says("huge", f"true {'x' * 200_000}", "the command could not be started: it is longer than this system allows"),
    makes("nested", "mkdir -p a/b; echo x > a/b/out", "a/b/out"),
    makes("none", "true", "none/out", ends="there is no none/out"),
    makes("half", "echo x > one", "one", "two", ends="there is no two"),
    makes("link", "ln -s /etc/passwd link", "link", ends="link is a link, or lies behind one"),
    makes(
        "behind",
        "mkdir real; echo x > real/x; ln -s real behind",
        "behind/x",
        ends="behind/x is a link, or lies behind one",
    ),
    makes("pipe", "mkfifo pipe", "pipe", ends="pipe is no plain file"),
    makes("socket", SOCKET, "socket", ends="socket is no plain file"),
    makes("mixed", "mkdir mixed; mkfifo mixed/pipe", "mixed", ends="mixed holds pipe, which is no plain file"),
    makes("tree", "mkdir -p tree/er; echo x > tree/er/x", "tree"),
    makes("slash", "mkdir slash; echo x > slash/x", "slash/"),
    makes("dotted", "mkdir dotted; echo x > dotted/x", "./dotted//x"),
    makes("shut", "echo x > shut; chmod 000 shut", "shut"),
    makes("spaces", "echo x > 'a b'; echo y > 'ü ñ'; echo z > ./-rf", "a b", "ü ñ", "-rf"),
    makes("empty", ": > empty", "empty"),
    makes("thousand", "mkdir t; for i in $(seq 1000); do echo $i > t/$i; done", *(f"t/{n}" for n in range(1, 1001))),
    makes("deep", f"mkdir deep; cd deep; {DEEP}", "deep", ends="deep is nested too deep to be brought out"),
    makes("over-file", "mkdir over-file; echo x > over-file/x", "over-file"),
    makes("over-tree", "echo x > over-tree", "over-tree", ends="there is a directory where over-tree belongs"),
    makes("whole", "echo whole > whole", "whole"),
]


def prompts(name: str, *outputs: str, runner: str = "", repo: str | None = None) -> TaskSpec:
    said = "do it" if repo else LONG
    return TaskSpec(name, prompt=said, runner=runner or name, attempts=1, outputs=outputs, repo=repo, limits=PATIENT)


@pytest.fixture(scope="module")
def theatre(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theatre]:
    directory = tmp_path_factory.mktemp("tasks")
    person = Person(directory / "app")
    with open_theatre(directory / "hive", RUNNERS) as theatre:
        # What an earlier run left, and files of the person's where outputs are to be.
        (theatre.root / "over-file").write_text("of the person")
        (theatre.root / "over-tree").mkdir()
        (theatre.root / "over-tree" / "mine").write_text("of the person")
        (theatre.root / "whole").write_text("old")
        (theatre.root / "whole.hive-new").write_text("hal")
        told = [
            prompts("file", "by-file"),
            prompts("stdin", "by-stdin"),
            prompts("argument"),
        ]
        good = TaskSpec("GOOD", "echo good > good", outputs=("good",))
        theatre.play(*(deed.spec() for deed in DEEDS), *told, prompts("unknown"), good, repos=(person.spec(),))
        yield theatre


@pytest.mark.parametrize("deed", DEEDS, ids=by_id)
def test_it_ends_in_words_a_person_understands(theatre: Theatre, deed: Deed) -> None:
    assert theatre.ending(deed.id) == deed.ends


def test_outputs_that_were_promised_are_there_whole(theatre: Theatre) -> None:
    there = [output for deed in DEEDS if not deed.ends for output in deed.outputs]
    assert [output for output in there if not os.path.lexists(theatre.root / output)] == []
    assert (theatre.root / "whole").read_text() == "whole\n"
    assert (theatre.root / "t" / "1000").read_text() == "1000\n"
    assert (theatre.root / "tree" / "er" / "x").read_text() == "x\n"
    assert list(theatre.root.rglob("*.hive-new")) == []


def test_what_is_not_whole_is_kept_apart_and_what_a_person_has_there_stays(theatre: Theatre) -> None:
    assert not (theatre.root / "one").exists()
    assert (theatre.hive.places.kept("work/half", 1) / "one").read_text() == "x\n"
    assert (theatre.root / "over-tree" / "mine").read_text() == "of the person"


@pytest.mark.parametrize("way", ["file", "stdin"])
def test_a_prompt_of_five_million_bytes_arrives_by_file_and_by_stdin(theatre: Theatre, way: str) -> None:
    assert theatre.ending(way) == ""
    attempt = theatre.attempts(way)[-1]
    who, outputs = Who(str(attempt.agent), attempt.session), Acceptance(outputs=(f"by-{way}",))
    told = prime(PrimeFacts(LONG, who=who, acceptance=outputs, has_mailbox=True))
    assert int((theatre.root / f"by-{way}").read_text()) == len(told)


def test_a_prompt_too_long_for_an_argument_says_what_to_set_instead(theatre: Theatre) -> None:
    said = theatre.ending("argument")
    assert "the prompt is too long to be an argument" in said
    assert 'prompt = "file"' in said


def test_a_runner_that_is_not_known_is_named(theatre: Theatre) -> None:
    assert theatre.ending("unknown") == "there is no runner 'unknown'; name one of those that hive runner ls shows"


def test_who_behaves_beside_them_has_its_output(theatre: Theatre) -> None:
    assert theatre.task("GOOD").state is TaskState.COMPLETE
    assert (theatre.root / "good").read_text() == "good\n"


def test_no_pass_of_the_keeper_failed(theatre: Theatre) -> None:
    theatre.assert_unimpressed()


def test_a_prompt_without_a_title_on_a_repository_lands(tmp_path: Path) -> None:
    person = Person(tmp_path / "app")
    with open_theatre(tmp_path / "hive", RUNNERS) as theatre:
        theatre.submit(prompts("told", runner="worker", repo="app"), repos=(person.spec(),))
        theatre.wait(lambda: theatre.is_over() or bool(theatre.keeper and theatre.keeper.problems))
        theatre.assert_unimpressed()
        assert person.changed() == ["A\ttold"]


@pytest.mark.parametrize(
    "output", ["a\nb", "../a", "/a", ".hive/a", ".hive/ledger.db", "hive.toml", "a/.git/b", "", "."]
)
def test_an_output_that_could_never_be_is_refused_with_the_rule(tmp_path: Path, output: str) -> None:
    with open_theatre(tmp_path / "hive") as theatre:
        with pytest.raises(InputError, match=r"cannot promise .*\n?") as refused:
            theatre.submit(makes("A", "true", output).spec())
        assert json.dumps(output)[1:-1].replace('"', "") in repr(str(refused.value)) or not output.isprintable()
        assert theatre.states() == {}


def test_two_tasks_or_two_spellings_of_one_output_are_refused(tmp_path: Path) -> None:
    with open_theatre(tmp_path / "hive") as theatre:
        for first, second in (("a/b", "a//b"), ("a", "./a"), ("a", "a/"), ("a", "a/b")):
            with pytest.raises(InputError, match="promise"):
                theatre.submit(makes("A", "true", first).spec(), makes("B", "true", second).spec())
        assert theatre.states() == {}
