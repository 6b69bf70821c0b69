"""Workers that turn their clone against the keeper: nothing of it runs there, and history stays what it was.

Git reads a worker's tree outside of the sandbox, so the level changes nothing here.
"""

from collections.abc import Iterator

import pytest

from hivekeeper.domain.states import TaskState
from tests.hostile.conftest import GOOD, Deed, Played, by_id, play

NO_SUCH = "1234567812345678123456781234567812345678"
PLANTS = """
canary="$PWD/.git/canary"; printf '#!/bin/sh\\ntouch {fired}\\n' > $canary; chmod +x $canary; mkdir -p .git/hooks
for hook in post-checkout pre-commit post-commit reference-transaction pre-push post-index-change fsmonitor-watchman \\
    pre-auto-gc post-rewrite proc-receive update pre-receive post-receive post-update post-merge; do
  cp $canary .git/hooks/$hook
done
printf '* filter=evil diff=evil merge=evil\\n' > .gitattributes
mkdir -p .git/info; cp .gitattributes .git/info/attributes
printf '[core]\\n\\tfsmonitor = %s\\n\\tpager = %s\\n' $canary $canary > .git/included
for key in core.fsmonitor core.sshCommand core.alternateRefsCommand core.gitProxy core.editor core.pager \\
    filter.evil.clean filter.evil.smudge filter.evil.process diff.evil.textconv diff.evil.command merge.evil.driver \\
    uploadpack.packObjectsHook remote.origin.uploadpack remote.origin.vcs gpg.program credential.helper \\
    protocol.ext.allow trace2.eventTarget; do git config $key $canary; done
git config filter.evil.required true; git config core.hooksPath $PWD/.git/hooks; git config core.worktree /etc
git config include.path included; git config 'includeIf.gitdir:/.path' included
cp .git/config $HOME/.gitconfig; mkdir -p $HOME/.config/git; cp .git/config $HOME/.config/git/config
"""


def commit(name: str) -> str:
    return f"echo x > {name} && git add {name} && git commit -qm {name}"


# So it ends too when nobody can say what its history was: that is kept, but does not land.
SHARES_NOTHING = "its work shares no history with the integration branch"
DEEDS = [
    Deed("amends", f"git commit -q --amend -m other; {commit('amends')}"),
    Deed("rewrites", f"git reset -q --hard HEAD~1; {commit('rewrites')}"),
    Deed("switches", f"git checkout -q -b elsewhere; {commit('switches')}"),
    Deed("detaches", f"git checkout -q --detach; {commit('detaches')}"),
    Deed("orphan", f"git checkout -q --orphan o; {commit('orphan')}", SHARES_NOTHING),
    Deed(
        "gitlink",
        f"mkdir link; git update-index --add --cacheinfo 160000,{NO_SUCH},link; git commit -qm l; {commit('gitlink')}",
    ),
    Deed(
        "modules",
        "printf '[submodule \"x\"]\\n\\tpath = x\\n\\turl = --upload-pack=touch\\n' > .gitmodules",
        "a git server that checks pushed objects would refuse it "
        "(.gitmodules: gitmodulesUrl: disallowed submodule url: --upload-pack=touch)",
    ),
    Deed("replaces", f"git replace HEAD $(git commit-tree -m x HEAD^{{tree}}); {commit('replaces')}"),
    Deed("shallow", f"git rev-parse HEAD > .git/shallow; {commit('shallow')}"),
    Deed("headless", "echo 'ref: refs/heads/../../../../../etc/passwd' > .git/HEAD; echo x > headless", SHARES_NOTHING),
    Deed("refless", "rm -rf .git/refs .git/packed-refs; mkdir .git/refs; echo x > refless", SHARES_NOTHING),
    Deed("locks", "touch .git/index.lock .git/HEAD.lock .git/refs/heads/main.lock; echo x > locks"),
    Deed("moved", 'mv .git $TMPDIR/moved; echo "gitdir: $TMPDIR/moved" > .git; echo x > moved', SHARES_NOTHING),
    Deed("borrows", f"echo /etc >> .git/objects/info/alternates; {commit('borrows')}", SHARES_NOTHING),
    Deed(
        "impossible",
        "b=$(echo x | git hash-object -w --stdin); t=$(printf '100644 blob %s\\t.git\\n' $b | git mktree); "
        "git update-ref HEAD $(git commit-tree -p HEAD -m bad $t)",
        "its work could not be saved: exit code 128; last output: error: invalid path '.git'",
    ),
    Deed(
        "branches",
        f"for i in $(seq 300); do echo create refs/heads/b$i HEAD; done | git update-ref --stdin; {commit('branches')}",
    ),
    Deed("nothing", "exit 0", "it ended with exit code 0 but changed nothing"),
]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    directory = tmp_path_factory.mktemp("git")
    # The canary is told to leave its sign beside the hive, which only what is outside of the sandbox can.
    plants = PLANTS.format(fired=directory / "fired")
    planted = [
        Deed("plants", f"{plants} echo x > plants"),
        Deed("plants-fails", f"{plants} echo x > p; exit 1", "exit"),
    ]
    with play(directory, [*planted, *DEEDS], '[sandbox]\nsnapshot_every = "1s"\n') as played:
        yield played


@pytest.mark.parametrize("deed", DEEDS, ids=by_id)
def test_it_ends_as_it_should(played: Played, deed: Deed) -> None:
    assert played.theatre.ending(deed.id) == deed.ends
    if not deed.ends:
        assert f"A\t{deed.id}" in played.person.changed()
    elif deed.ends == SHARES_NOTHING:
        assert played.show(deed.id, deed.id) == "x", "it is kept"


def test_nothing_that_was_planted_runs_outside_of_the_sandbox(played: Played) -> None:
    assert played.theatre.ending("plants") == ""
    assert played.theatre.ending("plants-fails") == "exit code 1"
    assert played.show("plants", "plants") == "x"
    assert not (played.person.path.parent / "fired").exists()


def test_no_commit_of_the_person_is_missing_from_the_published_branch(played: Played) -> None:
    played.person.git("merge-base", "--is-ancestor", "main", "hive/main")


def test_who_behaves_beside_them_lands(played: Played) -> None:
    assert played.theatre.task(GOOD).state is TaskState.COMPLETE
    assert "A\tgood" in played.person.changed()


def test_no_pass_of_the_keeper_failed_and_no_sandbox_was_made_twice(played: Played) -> None:
    played.theatre.assert_unimpressed()


def test_what_the_person_was_in_the_middle_of_is_as_it_was(played: Played) -> None:
    assert played.person.look() == played.before
