"""The index of excerpts: documents are whole or not there, questions are answered in order, damage is not kept."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from hivekeeper.domain.excerpt import Excerpt, Role
from hivekeeper.errors import UnavailableError
from hivekeeper.store.excerpts import ExcerptIndex, find_words


def said(*texts: str) -> list[Excerpt]:
    return [Excerpt(Role.SAID, text, number) for number, text in enumerate(texts, 1)]


def write(index: ExcerptIndex, *texts: str, name: str = "s.jsonl", task: str = "c/a", attempt: int = 1) -> None:
    for _ in index.put(task, attempt, name, str(len(texts)), said(*texts)):
        pass


@pytest.fixture
def index(tmp_path: Path) -> Iterator[ExcerptIndex]:
    with ExcerptIndex(tmp_path / "seance.db") as opened:
        yield opened


def find(index: ExcerptIndex, question: str, *attempts: tuple[str, int]) -> list[str]:
    documents = index.list_documents(attempts or [("c/a", 1)])
    return [f"{cited.excerpt.text} {cited.citation}" for cited in index.search(question, documents, 10)]


def test_what_has_all_words_comes_before_what_has_some(index: ExcerptIndex) -> None:
    write(index, "the port is 7431", "nothing at all", "the heron listens on a port", "ports of herons")
    found = find(index, "Which port does the heron use?")
    assert sorted(found[:2]) == ["ports of herons [s.jsonl:4]", "the heron listens on a port [s.jsonl:3]"]
    assert found[2:] == ["the port is 7431 [s.jsonl:1]"]


def test_only_the_documents_of_these_attempts_are_searched(index: ExcerptIndex) -> None:
    write(index, "heron one")
    write(index, "heron two", attempt=2)
    write(index, "heron three", task="c/b")
    assert find(index, "heron") == ["heron one [s.jsonl:1]"]
    assert find(index, "heron", ("c/b", 1), ("c/a", 2)) == ["heron two [s.jsonl:1]", "heron three [s.jsonl:1]"]
    assert find(index, "heron", ("c/x", 1)) == []


def test_a_document_that_is_written_again_is_in_place_of_what_it_was(index: ExcerptIndex) -> None:
    write(index, "heron one")
    write(index, "heron one", "heron two")
    assert sorted(find(index, "heron")) == ["heron one [s.jsonl:1]", "heron two [s.jsonl:2]"]
    assert [document.stamp for document in index.list_documents([("c/a", 1)])] == ["2"]


def test_a_document_left_half_way_is_not_there(index: ExcerptIndex, tmp_path: Path) -> None:
    half = index.put("c/a", 1, "s.jsonl", "1", said(*["heron"] * 2000))
    assert next(half)
    with ExcerptIndex(tmp_path / "seance.db", read_only=True) as other:
        assert find(other, "heron") == []
    half.close()  # type: ignore[attr-defined]  # a generator
    assert find(index, "heron") == []
    write(index, "heron")
    assert find(index, "heron") == ["heron [s.jsonl:1]"]


SYNTAX = ('"', "NEAR(a b)", "a AND", "x' OR 1=1 --", "text:heron", "*", "^heron", "heron\0", "{a b} : c", "-heron", "")


@pytest.mark.parametrize("question", SYNTAX)
def test_a_question_is_words_and_never_syntax(index: ExcerptIndex, question: str) -> None:
    write(index, "heron one")
    assert find(index, question) in ([], ["heron one [s.jsonl:1]"])


def test_common_words_say_nothing_unless_there_are_no_others() -> None:
    assert find_words("Which port does the heron use in src/app.py:17?") == ["port", "heron", "use", "src/app.py:17"]
    assert find_words("what is it") == ["what", "is", "it"]


def test_words_that_nearly_all_excerpts_have_find_the_newest(index: ExcerptIndex) -> None:
    write(index, *(f"common {number}" for number in range(11_000)))
    assert find(index, "common")[0] == "common 10999 [s.jsonl:11000]"
    assert find(index, "common 17")[0] == "common 17 [s.jsonl:18]"


@pytest.mark.parametrize("content", [b"", b"nonsense" * 1000, b"SQLite format 3\0" + b"x" * 5000])
def test_a_file_that_is_no_index_is_made_again_by_who_writes_and_refused_by_who_reads(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "seance.db"
    path.write_bytes(content)
    with pytest.raises(UnavailableError, match="hive doctor --fix"), ExcerptIndex(path, read_only=True) as index:
        find(index, "heron")
    with ExcerptIndex(path) as index:
        write(index, "heron")
        assert find(index, "heron") == ["heron [s.jsonl:1]"]
        assert index.find_progress() == 0
        index.note_progress(17)
    with ExcerptIndex(path) as index:
        assert index.find_progress() == 17
        index.make_again()
        assert (find(index, "heron"), index.find_progress()) == ([], 0)
