"""Archives that do not exist: generated members, cut by the planner's rules.

Each published fixture is an archive with which somebody measured another tool, so that you can
compare a forecast with that figure.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import repeat
from typing import TYPE_CHECKING

from s3unzip import rates
from s3unzip.errors import UsageError
from s3unzip.forecast.workload import count_sizes, make_workload
from s3unzip.planning.cut import DEFLATED, STORED, TaskCutter, Totals, order_tasks
from s3unzip.zip import Member

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.forecast.workload import Workload
    from s3unzip.model import Task
    from s3unzip.settings import Tuning

HEADER = 80  # bytes: a local header of 30 (APPNOTE 4.3.7) and a name
KIB, MIB = 1024, 1024 * 1024


@dataclass(frozen=True, slots=True)
class Published:
    """A published measurement on AWS with such an archive; wall time in seconds."""

    seconds: float
    by: str


@dataclass(frozen=True, slots=True)
class Fixture:
    """An archive of equal members, and of `more`, which are equal, too; sizes in bytes."""

    name: str
    title: str
    members: int
    size: int
    compressed: int
    stored: bool = False
    published: Published | None = None
    more: Fixture | None = None  # its members come after these

    @property
    def groups(self) -> tuple[Fixture, ...]:
        """All groups of equal members."""
        return (self, *(self.more.groups if self.more else ()))


UNSPOOL = "s3-unspool 0.1.0-beta.6, one Lambda"

FIXTURES: dict[str, Fixture] = {
    fixture.name: fixture
    for fixture in (
        Fixture(
            "400k",
            "400,000 members of 10 KB",
            400_000,
            10_000,
            4_000,
            published=Published(24 * 60.0, "another tool; its setup is not published"),
        ),
        Fixture(
            "49k",
            "49,152 files of 64 KB",
            49_152,
            64 * KIB,
            int(1.37 * 1024 * MIB) // 49_152,
            published=Published(200.6, f"{UNSPOOL} of 1,024 MB"),
        ),
        Fixture(
            "1k",
            "1,000 files of 4.5 MB",
            1_000,
            4_506 * MIB // 1_000,
            2_071 * MIB // 1_000,
            published=Published(79.0, f"{UNSPOOL} of 512 MB"),
        ),
        Fixture("1", "one member of 2 KB", 1, 2_000, 800),
        Fixture("100", "100 members of 2 KB", 100, 2_000, 800),
        Fixture("100gb", "one deflated member of 100 GB", 1, 100 * rates.GB, 35 * rates.GB),
        Fixture(
            "100gb-stored",
            "one stored member of 100 GB",
            1,
            100 * rates.GB,
            100 * rates.GB,
            stored=True,
        ),
        Fixture(
            "symbols",
            "1,000 members of 20 KB and two of 1.1 GB, deflated to 400 MB",
            1_000,
            20_000,
            7_000,
            more=Fixture("", "", 2, 1_143 * rates.MB, 400 * rates.MB),
        ),
        Fixture("10m", "10,000,000 members of 4 KB", 10_000_000, 4_000, 1_600),
    )
}


ROWS_PIECE = 8_192  # members that are generated at a time


def find_fixture(name: str) -> Fixture:
    """Return the fixture with this name.

    Raises:
        UsageError: there is no such fixture.
    """
    try:
        return FIXTURES[name]
    except KeyError:
        known = ", ".join(FIXTURES)
        raise UsageError(f"there is no fixture {name!r}; use one of: {known}") from None


def make_tasks(fixture: Fixture, tuning: Tuning, *, copies: bool = True) -> list[Task]:
    """Return the tasks of `fixture` in the order they start; for `copies` see `TaskCutter`."""
    groups = fixture.groups
    totals = Totals(
        members=sum(one.members for one in groups),
        bytes_in=sum(one.members * one.compressed for one in groups),
        bytes_out=sum(one.members * one.size for one in groups),
    )
    cutter = TaskCutter(tuning, totals, copies=copies, inflates=True)
    index = offset = 0
    for group in groups:
        for piece in _list_members(group, index, offset):
            row = rates.MEMBER_ROW
            cutter.add(piece, range(index * row, (index + len(piece) + 1) * row, row))
            index += len(piece)
            offset = piece[-1].stop
    cutter.finish(index * rates.MEMBER_ROW)
    return order_tasks(cutter.tasks)


def _list_members(group: Fixture, index: int, offset: int) -> Iterator[list[Member]]:
    """Yield the members of a group in pieces; the first one has this index and this offset."""
    method = STORED if group.stored else DEFLATED
    pitch = HEADER + group.compressed
    for first in range(0, group.members, ROWS_PIECE):
        count = min(ROWS_PIECE, group.members - first)
        start = offset + first * pitch
        equal = map(repeat, (group.compressed, group.size, 0, method, 0, None, None))
        rows = zip(
            range(index + first, index + first + count),
            repeat(""),
            repeat(None),
            range(start, start + count * pitch, pitch),
            range(start + pitch, start + (count + 1) * pitch, pitch),
            *equal,
            strict=False,  # what repeats has no end
        )
        yield list(map(Member._make, rows))


def make_fixture(fixture: Fixture, tuning: Tuning, *, copies: bool = True) -> Workload:
    """Return the workload of `fixture`."""
    tasks = make_tasks(fixture, tuning, copies=copies)
    sizes = tuple(
        type(one)(one.start, one.stop, group.members)
        for group in fixture.groups
        for one in count_sizes([group.size])
    )
    return make_workload(tasks, tuning, title=fixture.title, sizes=sizes)
