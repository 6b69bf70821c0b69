"""Workers that take too much, never end, or spoil what is theirs: each ends in words, and nobody else notices.

At the strongest level this machine has (namespaces, as a rule): limits hold at every level, and the trees are spoilt in
the same way at each.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from hivekeeper.domain.states import RunState, TaskState
from tests.hostile.conftest import GOOD, PATIENT, Deed, Played, by_id, play

MB = 1 << 20
SMALL_DISK = replace(PATIENT, disk_bytes=4 * MB)
TOO_MUCH_DISK = "it wrote more to disk than its limit and was stopped"
FILL = "i=0; while :; do i=$((i+1)); head -c 500000 /dev/zero > {place}/f$i; done"
DEEP = """python3 -c "import os
for _ in range(3000): os.mkdir('d'); os.chdir('d')
open('f', 'w').write('f')" """
# Three times the limit, and then long enough for a look at it.
HOARD = "for i in $(seq 24); do head -c 500000 /dev/zero > {place}/f$i || exit 7; done; sleep 2.5; echo x > hoard-{id}"
HOARDS = [
    Deed(f"hoards-{name}", HOARD.format(place=place, id=name), limits=SMALL_DISK)
    for name, place in {"slash-tmp": "/tmp", "var-tmp": "/var/tmp", "shm": "/dev/shm"}.items()  # noqa: S108
]

GREEDY = [
    Deed("one-file", "head -c 40000000 /dev/zero > big", TOO_MUCH_DISK, SMALL_DISK),
    Deed("files", FILL.format(place="."), TOO_MUCH_DISK, SMALL_DISK),
    Deed("tiny-files", "for i in $(seq 1500); do echo > t$i; done; sleep 20", TOO_MUCH_DISK, SMALL_DISK),
    Deed("home", FILL.format(place="$HOME"), TOO_MUCH_DISK, SMALL_DISK),
    Deed("tmpdir", FILL.format(place="$TMPDIR"), TOO_MUCH_DISK, SMALL_DISK),
    Deed(
        "bomb",
        # Of at most some thousand processes: should nobody end it, this machine must live to say so.
        "bomb() { [ $1 -gt 0 ] && { bomb $(($1 - 1)) & bomb $(($1 - 1)) & }; sleep 20; }; bomb 10",
        "it started more processes than its limit and was stopped",
        replace(PATIENT, processes=40),
    ),
    Deed("flood", "yes", "it wrote more output than its limit and was stopped", replace(PATIENT, output_bytes=100_000)),
    Deed(
        "memory",
        "exec python3 -c 'held = bytearray(300 << 20); import time; time.sleep(20)'",
        "it used more memory than its limit and was stopped",
        replace(PATIENT, memory_bytes=100 * MB),
    ),
    Deed(
        "deaf",
        "trap '' TERM INT HUP QUIT; while :; do sleep 0.1; done",
        "it ran longer than its time limit and was stopped",
        replace(PATIENT, wall_s=1.0),
    ),
    Deed(
        "silent",
        "sleep 20",
        "it said nothing for longer than its silence limit and was stopped",
        replace(PATIENT, silence_s=0.5),
    ),
    Deed("mute", "exec >&- 2>&-; echo x > mute"),
    Deed("signal", "kill -SEGV $$", "the command was killed by SIGSEGV"),
]
SHARES_NOTHING = "its work shares no history with the integration branch"
TIMES = "echo x > old; echo y > new; touch -d 1970-01-01T00:00:00Z old README; touch -d 2100-01-01 new"
NAMES = "echo x > ./-rf; echo x > ./--; printf x > \"$(printf 'a\\nb')\"; printf x > \"$(printf '\\377')\""
LINKS = "rm README; ln -s /etc/passwd README; ln -s loop loop; ln -s / root"
SPOILING = [
    Deed("no-tree", "rm -rf ./* ./.[a-z]* ../work ..; exit 0", SHARES_NOTHING),
    Deed("no-files", "rm -rf ./*; exit 0", "it ended with exit code 0 but deleted everything", repo="doomed"),
    Deed("no-git", "echo x > no-git; git add no-git; git commit -qm x; rm -rf .git", SHARES_NOTHING),
    Deed("shut", "echo x > shut; mkdir closed; echo y > closed/y; chmod 000 shut closed; chmod 000 ."),
    Deed("deep", f"echo x > deep; mkdir well; cd well; {DEEP}"),
    Deed("odd", f"{TIMES}; {NAMES}; {LINKS}"),
    Deed("pipes", "rm piped; mkfifo piped pipe; echo x > pipes"),
    Deed("swapped", "rm swapped; mkdir swapped; echo x > swapped/inside"),
    Deed("daemon", "echo x > daemon; (setsid sh -c 'while :; do echo y >> late; sleep 0.01; done' >/dev/null 2>&1 &)"),
]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    with play(tmp_path_factory.mktemp("workers"), [*HOARDS, *GREEDY, *SPOILING]) as played:
        yield played


@pytest.mark.parametrize("deed", [*GREEDY, *SPOILING], ids=by_id)
def test_it_ends_in_words_a_person_understands(played: Played, deed: Deed) -> None:
    assert played.theatre.ending(deed.id) == deed.ends


@pytest.mark.parametrize("deed", HOARDS, ids=by_id)
def test_what_is_written_to_memory_counts_as_disk_or_finds_no_space(played: Played, deed: Deed) -> None:
    ending = played.theatre.ending(deed.id)
    assert ending == TOO_MUCH_DISK or ending.endswith("No space left on device")


def test_who_behaves_beside_them_lands(played: Played) -> None:
    assert played.theatre.task(GOOD).state is TaskState.COMPLETE
    assert "A\tgood" in played.person.changed()


def test_no_pass_of_the_keeper_failed_and_no_sandbox_was_made_twice(played: Played) -> None:
    played.theatre.assert_unimpressed()


def test_what_the_person_was_in_the_middle_of_is_as_it_was(played: Played) -> None:
    assert played.person.look() == played.before


@pytest.mark.parametrize("deed", [*GREEDY, *SPOILING], ids=by_id)
def test_nothing_of_it_goes_on_and_its_sandbox_is_gone(played: Played, deed: Deed) -> None:
    theatre = played.theatre
    assert theatre.list_processes(f"work/{deed.id}.1.agent") == []
    assert not theatre.hive.places.sandbox(f"work/{deed.id}", 1).exists()
    assert [run.state for run in theatre.runs(deed.id) if run.kind == "remove"] == [RunState.EXITED]


def test_what_was_cut_off_is_kept(played: Played) -> None:
    assert played.show("f1", "files")
    assert played.show("t1", "tiny-files") == ""
    assert played.show("no-git", "no-git") == "x"


def test_what_they_made_landed_as_they_left_it(played: Played) -> None:
    changed = set(played.person.changed())
    assert changed >= {
        "A\tmute",
        "A\tshut",
        "A\tclosed/y",
        "A\tdeep",
        "A\told",
        "A\tnew",
        "A\t-rf",
        "A\t--",
    }
    assert changed >= {'A\t"a\\nb"', 'A\t"\\377"', "A\tloop", "A\troot", "T\tREADME", "A\tpipes", "A\tdaemon"}
    assert {line for line in changed if line.startswith("D")} == {"D\tswapped"}


@pytest.mark.parametrize(("task", "name"), [("no-git", "its git directory"), ("pipes", "piped"), ("deep", "well/d/d")])
def test_what_could_not_be_kept_is_named(played: Played, task: str, name: str) -> None:
    said = (played.theatre.hive.places.runs / f"work/{task}.1.snapshot" / "output").read_text()
    assert f"not kept: {name}" in said


def test_the_last_words_of_a_run_are_told_from_their_beginning(played: Played) -> None:
    snapshot = next(run for run in played.theatre.runs("deep") if run.kind == "snapshot")
    assert not snapshot.reason.startswith(("d/", "/d"))
