"""The demand of one task: requests by kind, and seconds that no concurrency shortens.

The simulation calls a `Task` a `Job`. The request counts are those of `extraction.task` and
`extraction.split`; `make bench-forecast` compares them with the counts of a run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from s3unzip import rates
from s3unzip.model import Requests, TaskKind

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from s3unzip.model import Task
    from s3unzip.platforms import Platform
    from s3unzip.settings import Tuning

TASK_GETS = 3  # the task's rows, and earlier outcomes and stop.json, which normally do not exist
MAX_PARTS = 10_000  # of a multipart upload: AmazonS3/latest/userguide/qfacts.html


class Job(NamedTuple):
    """One task, scan or segment as the simulation sees it; seconds and counts."""

    id: str
    kind: str
    floor: float  # lower bound by bandwidth and CPU
    fixed: float = 0.0  # in addition to `floor`: the last part's upload, the outcomes
    lanes: int = 1  # concurrent PUTs
    first_lanes: int = rates.FIRST_PUTS  # when it begins
    members: int = 0  # small members, one PUT for each
    body_seconds: float = 0.0  # of one such PUT, in addition to its latency
    gets: int = 0
    puts: int = 0  # members and outcomes
    creates: int = 0
    parts: int = 0
    copies: int = 0
    completes: int = 0
    shared: bool = False  # its member becomes visible only when the report completes all segments

    @property
    def writes(self) -> int:
        """Requests that count towards the write rate of a prefix."""
        return self.puts + self.creates + self.parts + self.copies + self.completes


class Demand:
    """Turns tasks into jobs for one platform and one degree of concurrency."""

    def __init__(self, platform: Platform, tuning: Tuning, at_once: int) -> None:
        self._platform = platform
        self._tuning = tuning
        self._in, self._out = platform.worker_bandwidth(at_once)
        self._member_seconds = (
            tuning.member_seconds if platform.member_seconds is None else platform.member_seconds
        )

    def job_of(self, task: Task) -> Job:
        """Return the demand of `task`."""
        if task.kind is TaskKind.BATCH:
            return self._batch(task)
        if task.kind is TaskKind.COPY:
            return self._copy(task)
        return self._upload(task)

    def scan_of(self, task: Task) -> Job:
        """Return the demand of scanning the segment of `task`."""
        length = task.span[1] - task.span[0]
        cpu = rates.SCAN_INFLATES * task.size / self._platform.inflate_rate
        return Job(
            id=f"scan-{task.id}",
            kind="scan",
            floor=max(length / self._download(), cpu + 2 * rates.BOUNDARY_SECONDS),
            fixed=2 * self._platform.put.mean,  # what was found, then the report
            gets=TASK_GETS + math.ceil(length / self._tuning.read_piece),
            puts=2,
        )

    def _batch(self, task: Task) -> Job:
        length = task.span[1] - task.span[0]
        platform, tuning = self._platform, self._tuning
        cpu = task.members * self._member_seconds + task.size / platform.inflate_rate
        mean = task.size / task.members
        lanes = min(tuning.puts_in_flight, max(1, int(tuning.bytes_in_flight // max(1.0, mean))))
        reading = length / min(
            self._in, platform.download_rate
        )  # one request reads the whole range
        return Job(
            id=task.id,
            kind=task.kind.value,
            floor=max(reading, task.size / self._out, cpu),
            fixed=platform.put.mean,  # the outcomes
            lanes=lanes,
            members=task.members,
            body_seconds=mean / platform.upload_rate,
            gets=TASK_GETS + 1,
            puts=task.members + 1,
        )

    def _upload(self, task: Task) -> Job:
        """Return the demand of a stream or a segment, which reads pieces and writes parts.

        A stream also reads the record of an earlier upload and the local header; a segment its link
        and its window.
        """
        tuning, platform = self._tuning, self._platform
        length = task.span[1] - task.span[0]
        part = max(tuning.part_bytes, math.ceil(task.size * task.parts / MAX_PARTS))
        at_once = max(1, tuning.part_bytes * tuning.parts_in_flight // part)
        upload = min(self._out, min(tuning.parts_in_flight, at_once) * platform.upload_rate)
        first = int(task.part == 0)
        return Job(
            id=task.id,
            kind=task.kind.value,
            floor=max(
                length / self._download(), task.size / upload, task.size / platform.inflate_rate
            ),
            fixed=min(part, task.size) / platform.upload_rate + self._around(task),
            gets=TASK_GETS + 2 + max(1, math.ceil(length / tuning.read_piece)),
            puts=2 if task.parts == 1 else 1,
            creates=first,
            parts=max(1, math.ceil(task.size / part)),
            completes=first,
            shared=task.parts > 1,
        )

    def _copy(self, task: Task) -> Job:
        tuning, platform = self._tuning, self._platform
        copies = max(1, math.ceil(task.size / tuning.copy_part_bytes))
        rounds = math.ceil(copies / tuning.parts_in_flight)
        first = int(task.part == 0)
        return Job(
            id=task.id,
            kind=task.kind.value,
            floor=rounds * (task.size / copies) / platform.copy_rate,
            fixed=self._around(task),
            gets=TASK_GETS + 2,
            puts=2 if task.parts == 1 else 1,
            creates=first,
            copies=copies,
            completes=first,
            shared=task.parts > 1,
        )

    def _around(self, task: Task) -> float:
        """Return the sum of the latencies before and after the data of a large member.

        These are: the record or the link, the header, the last part and the outcomes; for a whole
        member also create, record and complete.
        """
        get, put = self._platform.get.mean, self._platform.put.mean
        return 2 * get + (5 if task.parts == 1 else 2) * put

    def _download(self) -> float:
        return min(self._in, self._tuning.reads_ahead * self._platform.download_rate)


def put_seconds(job: Job, platform: Platform, rng: random.Random) -> float:
    """Draw the seconds that the job's small PUTs take without throttling.

    This is a closed form for lognormal PUTs on `lanes` lanes. All PUTs but the last of each lane
    share the lanes evenly. The slowest of the last PUTs ends the job. The first PUTs run while the
    limiter still raises the concurrency, at the speed of quick PUTs.
    """
    count = job.members
    if not count:
        return 0.0
    put = platform.put
    lanes = min(count, job.lanes)
    mean = put.mean * (1 + put.variation * rng.gauss(0.0, 1.0) / math.sqrt(count))
    one = max(put.p50 / 2, mean) + job.body_seconds
    slowest = put.quantile((rng.random() * 0.999_998 + 1e-6) ** (1 / lanes)) + job.body_seconds
    ramp = 0.0
    if lanes > job.first_lanes:
        grown = min(count, lanes - job.first_lanes)
        ramp = max(
            0.0,
            (put.p50 + job.body_seconds) * (math.log2(lanes / job.first_lanes) - grown / lanes),
        )
    return ramp + (count - lanes) * one / lanes + slowest


def requests_of(jobs: Iterable[Job]) -> Requests:
    """Return the sum of the requests of `jobs`."""
    get = put = create = part = copy = complete = 0
    for job in jobs:
        get += job.gets
        put += job.puts
        create += job.creates
        part += job.parts
        copy += job.copies
        complete += job.completes
    return Requests(get=get, put=put, create=create, part=part, copy=copy, complete=complete)
