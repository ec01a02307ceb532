"""What every work store promises a run."""

from collections.abc import Iterator

import pytest

from s3unzip.errors import ConflictError, NotFoundError, UnreadableRecordError
from tests.contract.places import Place

LINE = b'{"member": 1}\n'


def test_write_and_read(place: Place) -> None:
    """Pieces become one object, read whole, by range and as a stream; none make an empty one."""
    work = place.work
    assert work.write("plan.jsonl", (LINE for _ in range(1_000))) == 1_000 * len(LINE)
    assert work.read("plan.jsonl") == LINE * 1_000
    assert work.read("plan.jsonl", (len(LINE), 2 * len(LINE))) == LINE
    assert work.read("plan.jsonl", (3, 3)) == b""
    assert b"".join(work.stream("plan.jsonl")) == LINE * 1_000
    assert work.write("outcomes/index.jsonl", []) == 0
    assert work.read("outcomes/index.jsonl") == b"".join(work.stream("outcomes/index.jsonl")) == b""
    assert list(work.names("outcomes/")) == ["outcomes/index.jsonl"]


def test_create(place: Place) -> None:
    """Only the first one writes, also where the other one is another process."""
    place.work.create("report.json", b"1")
    with pytest.raises(ConflictError, match=r"report\.json"):
        place.stores.run_store("run-1").create("report.json", b"2")
    assert place.work.read("report.json") == b"1"
    place.work.delete(["report.json"])
    place.work.create("report.json", b"3")
    assert place.work.read("report.json") == b"3"


def test_replace(place: Place) -> None:
    """Only what was looked at is replaced: not what came in between, and not nothing."""
    other = place.stores.run_store("run-1")
    place.work.create("report.json", b"1")
    other.replace("report.json", b"1", b"2")
    assert place.work.read("report.json") == b"2"
    with pytest.raises(ConflictError, match=r"report\.json"):
        place.work.replace("report.json", b"1", b"3")
    assert place.work.read("report.json") == b"2"
    place.work.delete(["report.json"])
    with pytest.raises(ConflictError, match=r"report\.json"):
        place.work.replace("report.json", b"2", b"3")
    assert list(place.work.names("")) == []


def test_a_range_that_is_not_there(place: Place) -> None:
    """An object that ends before the range is damaged: a run's rows are never fewer than asked."""
    place.work.write("members.jsonl", [b"12345"])
    place.work.write("empty.jsonl", [])
    for name, span in (
        ("members.jsonl", (3, 8)),
        ("members.jsonl", (7, 9)),
        ("empty.jsonl", (0, 1)),
    ):
        with pytest.raises(UnreadableRecordError, match=name):
            place.work.read(name, span)


def test_larger_than_one_request(place: Place) -> None:
    """The rows of a million members go in parts, and come back by range."""
    piece = bytes(range(256)) * 4_096
    assert place.work.write("members.jsonl", (piece for _ in range(36))) == 36 * len(piece)
    span = 20_000_000, 20_000_256
    assert place.work.read("members.jsonl", span) == (piece * 20)[slice(*span)]
    assert b"".join(place.work.stream("members.jsonl")) == piece * 36


def test_whole_or_not_at_all(place: Place) -> None:
    """A writer that fails leaves what was there, and no upload behind."""
    work = place.work
    work.write("report.json", [b"old"])

    def broken(count: int) -> Iterator[bytes]:
        yield from (b"x" * 1024**2 for _ in range(count))
        raise RuntimeError("the writer failed")

    for count in (1, 40):
        with pytest.raises(RuntimeError):
            work.write("report.json", broken(count))
    assert work.read("report.json") == b"old"
    assert list(work.names("")) == ["report.json"]
    assert list(place.destination.uploads("")) == []


def test_names_are_sorted_and_of_one_run(place: Place) -> None:
    """Names begin with the prefix and come in order; other runs are not seen."""
    work = place.work
    for name in ("outcomes/b.jsonl", "outcomes/a.jsonl", "plan.jsonl", "outcomes-not.json"):
        work.write(name, [b"1"])
    place.stores.run_store("run-2").write("outcomes/c.jsonl", [b"1"])
    assert list(work.names("outcomes/")) == ["outcomes/a.jsonl", "outcomes/b.jsonl"]
    assert list(work.names("outcomes/a")) == ["outcomes/a.jsonl"]
    assert len(list(work.names(""))) == 4
    assert list(place.stores.run_store("run-3").names("")) == []


def test_a_missing_object_is_named(place: Place) -> None:
    """The error names the missing object."""
    with pytest.raises(NotFoundError, match=r"stop\.json"):
        place.work.read("stop.json")
    with pytest.raises(NotFoundError, match=r"stop\.json"):
        place.work.read("stop.json", (0, 1))
    with pytest.raises(NotFoundError, match=r"stop\.json"):
        list(place.work.stream("stop.json"))
