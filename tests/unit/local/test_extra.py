"""What is extra at a destination, and when that is not certain."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from s3unzip.errors import ServiceFaultError, UsageError
from s3unzip.local.extra import check_extra, clear_extra
from s3unzip.model import Location, Options, Request, Verdict
from s3unzip.stores.ports import ListedObject, ObjectFacts
from tests.memory import MemoryStores
from tests.runs import World
from tests.zips import Entry, build

ARCHIVE = build(Entry("a", b"1"), Entry("d/b", b"2"))
SOURCE = Location("s3", "in", "x/archive.zip")
FACTS = ObjectFacts("text/plain", {})


def agree(found: Sequence[ListedObject]) -> bool:
    """Agree to whatever is found."""
    del found
    return True


def refused(request: Request, home: Path) -> str:
    """Return why it is not certain what is extra."""
    with pytest.raises(UsageError) as caught:
        check_extra(request, Location("file", "", f"{home}/"), MemoryStores())
    return str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        Options(include=("*.txt",)),
        Options(exclude=("*.txt",)),
        Options(names=("a",)),
        Options(limit=1),
    ],
)
def test_a_selection_is_refused(options: Options, tmp_path: Path) -> None:
    """What is not selected would be deleted."""
    request = Request(SOURCE, Location("s3", "out", ""), options)
    assert "leave out --include, --exclude, --member and --limit" in refused(request, tmp_path)


def test_nested_archives_are_refused(tmp_path: Path) -> None:
    """Their members are extra to the outer archive."""
    request = Request(SOURCE, Location("s3", "out", ""), Options(nested_depth=1))
    assert "leave out --nested" in refused(request, tmp_path)


@pytest.mark.parametrize(
    ("destination", "template", "said"),
    [
        (Location("s3", "out", ""), "{member}", "in the whole bucket s3://out/"),
        (Location("file", "", "/srv/"), "{member}", "in the whole folder /srv/"),
        (Location("s3", "out", "site/"), "v1-{member}", "the keys begin with 'site/v1-'"),
        (Location("s3", "in", "x/"), "{member}", "the archive (s3://in/x/archive.zip) is below x/"),
    ],
)
def test_a_prefix_that_is_not_the_archives(
    destination: Location, template: str, said: str, tmp_path: Path
) -> None:
    """Neither everything, nor the beginning of other names, nor where the archive is."""
    request = Request(SOURCE, destination, Options(key_template=template))
    assert said in refused(request, tmp_path)


@pytest.mark.parametrize(
    ("destination", "template"),
    [
        (Location("s3", "out", ""), "{archive_stem}/{member}"),
        (Location("s3", "out", "site/"), "{member}"),
        (Location("s3", "other", "x/"), "{member}"),
        (Location("file", "", "/srv/"), "site/{member}"),
    ],
)
def test_a_prefix_of_its_own_is_taken(destination: Location, template: str, tmp_path: Path) -> None:
    """A folder in a bucket, and a folder below the destination's."""
    home = Location("file", "", f"{tmp_path}/")
    check_extra(Request(SOURCE, destination, Options(key_template=template)), home, MemoryStores())


def test_runs_that_cannot_be_read_have_no_say(tmp_path: Path) -> None:
    """A run that was never planned wrote nothing."""
    (tmp_path / "runs/2026-11-23/101112-archive-01234567").mkdir(parents=True)
    home = Location("file", "", f"{tmp_path}/")
    check_extra(Request(SOURCE, Location("s3", "out", "")), home, MemoryStores())


def test_nothing_is_asked_where_nothing_is_extra() -> None:
    """The caller hears only of what is there."""
    world = World()
    report = world.run(ARCHIVE)
    world.out.put("elsewhere/x", b"", FACTS, if_absent=False)

    def fail(found: Sequence[ListedObject]) -> bool:
        raise AssertionError(found)

    cleared = clear_extra(report, world.context, fail)
    assert cleared.requests.list > report.requests.list  # the second report counts the LIST
    assert cleared.requests.delete == report.requests.delete
    assert cleared.verdict is Verdict.COMPLETED
    assert world.contents("archive/").keys() == {"a", "d/b", "elsewhere/x"}


def test_extra_objects_go() -> None:
    """They come in the order of their keys, with their sizes."""
    world = World()
    for key in ("archive/z", "archive/d/b.old", "archive/d/c"):
        world.out.put(key, b"123", FACTS, if_absent=False)
    report = world.run(ARCHIVE)
    seen: list[tuple[str, int]] = []

    def note(found: Sequence[ListedObject]) -> bool:
        seen.extend((one.key, one.size) for one in found)
        return True

    clear_extra(report, world.context, note)
    assert seen == [("archive/d/b.old", 3), ("archive/d/c", 3), ("archive/z", 3)]
    assert world.contents().keys() == {"a", "d/b"}


def test_a_run_that_is_not_completed_deletes_nothing() -> None:
    """Neither is anything listed."""
    world = World()
    world.out.put("archive/z", b"123", FACTS, if_absent=False)
    bad = Entry("bad", b"x", local={"crc32": 1}, central={"crc32": 1})
    report = world.run(build(Entry("a", b"1"), bad))
    assert clear_extra(report, world.context, agree) is report
    assert "archive/z" in world.out.objects


def test_records_that_lack_a_member_delete_nothing() -> None:
    """Lost outcomes must not make a member extra."""
    world = World()
    report = world.run(ARCHIVE)
    wrong = replace(report, extracted=report.extracted + 1)
    with pytest.raises(ServiceFaultError, match="do not have all members"):
        clear_extra(wrong, world.context, agree)
    assert len(world.out.objects) == 2
