"""The archives whose directories are read for the forecast of a backlog."""

from __future__ import annotations

import heapq
import math
import random
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.context import Context
from s3unzip.errors import ArchiveError, NotFoundError
from s3unzip.forecast import choose_way, make_workload
from s3unzip.forecast.backlog import SampledArchive, busy_seconds
from s3unzip.model import Location, Request
from s3unzip.planning.plan_writer import preview_plan
from s3unzip.stores.clock import LocalClock
from s3unzip.zip import Policy

if TYPE_CHECKING:
    from s3unzip.aws.environment import Capacity, RunDefaults
    from s3unzip.operate.backlog.look import LookedAt
    from s3unzip.stores.ports import Stores

MAX_ENTRIES = 500_000  # of a directory that is read for a forecast; a larger one takes much memory


class Sample:
    """Some archives of many, drawn at random by their sizes: the large ones cost most.

    Each has a random number to the power of 1 / size; the largest numbers are kept (A-Res of
    Efraimidis and Spirakis, 2006). The same archives give the same sample.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._dice = random.Random(1)  # noqa: S311 - a sample, not a secret
        self._kept: list[tuple[float, int, LookedAt]] = []
        self._offered = 0

    def offer(self, archive: LookedAt) -> None:
        """Take the archive if it is drawn."""
        self._offered += 1
        if not self._count or (archive.size.entries or 0) > MAX_ENTRIES:
            return
        weight = max(1, archive.size.size)
        entry = (math.log(1.0 - self._dice.random()) / weight, self._offered, archive)
        if len(self._kept) < self._count:
            heapq.heappush(self._kept, entry)
        else:
            heapq.heappushpop(self._kept, entry)

    @property
    def archives(self) -> list[LookedAt]:
        """The archives that were drawn, in the order in which they came."""
        return [archive for _, _, archive in sorted(self._kept, key=lambda entry: entry[1])]


class SampleResult(NamedTuple):
    """What the directories of a sample say."""

    archives: tuple[SampledArchive, ...]
    refused: int


def read_sample(
    sample: Sample, stores: Stores, orders: RunDefaults, scale: Capacity
) -> SampleResult:
    """Read the directories of a sample, one after the other, and forecast each archive.

    Raises:
        AccessDeniedError: a right is missing.
        StorageError, ServiceFaultError: an archive cannot be read.
    """
    options = orders.options
    policy = Policy(lenient=options.lenient, encoding=options.encoding)
    context = Context(stores, LocalClock(), policy, scale.tuning)
    platform = scale.platform.storing(options.objects)
    read: list[SampledArchive] = []
    refused = 0
    for one in sample.archives:
        source = Location("s3", orders.trigger.bucket, one.archive.key)
        try:
            preview = preview_plan(Request(source, orders.destination, options), context)
        except ArchiveError:
            refused += 1
            continue
        except NotFoundError:  # deleted after the listing
            continue
        workload = make_workload(preview.tasks, scale.tuning, title=str(source))
        made = choose_way(workload, platform, scale.tuning)
        amount = preview.reading.amount
        read.append(
            SampledArchive(
                archive=one.size,
                members=amount.members,
                bytes_in=amount.bytes_in,
                bytes_out=amount.bytes_out,
                way=made.way,
                dollars=made.forecast.dollars,
                seconds=made.forecast.duration,
                busy=busy_seconds(made, platform),
            )
        )
    return SampleResult(tuple(read), refused)
