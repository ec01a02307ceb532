"""What is extra at a destination, and when that is not certain."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest
from msgspec.structs import replace

from s3unzip.errors import ServiceFaultError, UsageError
from s3unzip.local.extra import check_extra, clear_extra
from s3unzip.model import Location, Options, Request, Verdict
from s3unzip.stores.ports import ListedObject, ObjectFacts
from tests.support.memory import MemoryStores
from tests.support.runs import World
from tests.support.zips import Entry, build

ARCHIVE = build(Entry("a", b"1"), Entry("d/b", b"2"))
SOURCE = Location("s3", "in", "x/archive.zip")
FACTS = ObjectFacts("text/plain", {})


def _check(destination: Location, options: Options, home: Path) -> None:
    request = Request(SOURCE, destination, options)
    check_extra(request, Location("file", "", f"{home}/"), MemoryStores())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (Options(include=("*.txt",)), "leave out --include, because"),
        (Options(exclude=("*.txt",)), "leave out --exclude, because"),
        (Options(names=("a",)), "leave out --member, because"),
        (Options(limit=1), "leave out --limit, because"),
        (Options(nested_depth=1), "leave out --nested"),
    ],
)
def test_a_selection_is_refused(options: Options, said: str, tmp_path: Path) -> None:
    """What is not selected would be deleted, and so would the members of archives inside."""
    with pytest.raises(UsageError, match=said):
        _check(Location("s3", "out", ""), options, tmp_path)


@pytest.mark.parametrize(
    ("destination", "template", "said"),
    [
        (Location("s3", "out", ""), "{member}", "in the whole bucket s3://out/"),
        (Location("file", "", "/srv/"), "{member}", "in the whole folder /srv/"),
        (Location("s3", "out", "site/"), "v1-{member}", "the keys begin with 'site/v1-'"),
        (Location("s3", "out", ""), "{archive_stem}/{member}", ""),
        (Location("s3", "out", "site/"), "{member}", ""),
        (Location("s3", "other", "x/"), "{member}", ""),
        (Location("file", "", "/srv/"), "site/{member}", ""),
    ],
)
def test_a_prefix_must_be_the_archives_own(
    destination: Location, template: str, said: str, tmp_path: Path
) -> None:
    """Neither everything nor a beginning of names; a run that was not planned has no say."""
    (tmp_path / "runs/2026-11-23/101112-archive-01234567").mkdir(parents=True)
    with pytest.raises(UsageError, match=said) if said else nullcontext():
        _check(destination, Options(key_template=template), tmp_path)


def fail(found: Sequence[ListedObject]) -> bool:
    """Be asked where nobody should."""
    raise AssertionError(found)


def test_nothing_is_asked_where_nothing_is_extra(world: World) -> None:
    """The caller hears only of what is there."""
    report = world.run(ARCHIVE)
    world.out.put("elsewhere/x", b"", FACTS, if_absent=False)
    cleared = clear_extra(report, world.context, fail)
    assert cleared.requests.list > report.requests.list  # the second report counts the LIST
    assert cleared.requests.delete == report.requests.delete
    assert cleared.verdict is Verdict.COMPLETED
    assert world.contents("archive/").keys() == {"a", "d/b", "elsewhere/x"}


def test_records_that_lack_a_member_delete_nothing(world: World) -> None:
    """Lost outcomes must not make a member extra."""
    report = world.run(ARCHIVE)
    wrong = replace(report, extracted=report.extracted + 1)
    with pytest.raises(ServiceFaultError, match="do not have all members"):
        clear_extra(wrong, world.context, fail)
    assert len(world.out.objects) == 2
