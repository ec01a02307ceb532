"""Cut the work: choose how each member is extracted, and which members share a task.

Members come sorted by their offset in the archive. Small ones are gathered
into batches, balanced by bytes read, bytes written, member count and forecast
seconds, whichever is reached first; each larger one is a task of its own, or
several. Nothing here reads or writes.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from s3unzip.model import Task, TaskKind
from s3unzip.settings import MIB, Tuning
from s3unzip.zip import Member

STORED, DEFLATED = 0, 8
ENCRYPTED = 0x1  # general purpose bit 0, APPNOTE 4.4.4
MAX_SEGMENTS = 1_000  # of one member; a multipart upload has 10,000 parts for them
FEW_SEGMENTS = 16  # scans and slices of so many fit into inline Maps, beside 40 other tasks
MIN_SEGMENT = 16 * MIB  # of a short list: below, the search for boundaries takes the longest
TASK_OVERHEAD = 0.15  # seconds: dispatch, outcomes, the first byte
MAP_SECONDS = 7.0  # start and end of a Distributed Map; an assumption
INLINE_SPARE = 1.05  # batches end at whole members, so some stay below the share


def small_seconds(members: int, bytes_in: int, bytes_out: int, tuning: Tuning) -> float:
    """Forecast the seconds that one worker needs for so many small members."""
    return max(
        members * tuning.put_seconds / tuning.puts_in_flight,
        members * tuning.member_seconds,
        bytes_in / tuning.worker_bandwidth,
        bytes_out / tuning.worker_bandwidth,
    )


def _paid_workers(seconds: float, tuning: Tuning) -> int:
    """Return how many workers have so much of a forecast to do that their starts pay."""
    if not tuning.min_worker_seconds:
        return tuning.max_workers
    return max(1, min(tuning.max_workers, int(seconds / tuning.min_worker_seconds)))


def _inline_share(seconds: float, tuning: Tuning) -> float:
    """Return the seconds of a batch by which an inline Map does all batches at once.

    0 if there are fewer workers, or if a Distributed Map would do smaller batches sooner.
    """
    if not 0 < tuning.max_few_tasks <= tuning.max_workers:
        return 0.0
    share = INLINE_SPARE * seconds / tuning.max_few_tasks
    return share if share <= tuning.batch_min_seconds + MAP_SECONDS else 0.0


def _segment_length(bytes_in: int, tuning: Tuning) -> int:
    """Return the compressed bytes of a segment; it is shorter if the archive has few of them.

    Each worker begins with the search for boundaries, so with few workers it stays long.
    """
    share = math.ceil(bytes_in / min(FEW_SEGMENTS, tuning.max_workers))
    return min(tuning.segment_bytes, max(MIN_SEGMENT, share))


class TaskCutter:
    """Cuts members, in archive order, into tasks.

    Args:
        tuning: the sizes to cut by.
        work: members, bytes in and bytes out of all: a small archive is still spread.
        copies: whether the destination can copy from the source.
        inflates: whether members are inflated; False keeps them compressed.
    """

    def __init__(
        self, tuning: Tuning, work: tuple[int, int, int], *, copies: bool, inflates: bool = True
    ) -> None:
        self.work = work
        self._tuning = tuning
        self._copies = copies
        self._inflates = inflates
        whole = small_seconds(*work, tuning)
        workers = _paid_workers(whole, tuning)
        turns = 4 * workers if workers > 1 else 1  # the last tasks of several end at about one time
        share = max(whole / turns, _inline_share(whole, tuning))
        self._segment = _segment_length(work[1], tuning)
        self._seconds = min(tuning.batch_seconds, max(tuning.batch_min_seconds, share))
        # One member adds to each of the four sums; each sum has its own bound.
        self._max_members = max(
            1,
            min(
                tuning.batch_members,
                int(self._seconds * tuning.puts_in_flight / tuning.put_seconds),
                int(self._seconds / tuning.member_seconds),
            ),
        )
        moved = int(self._seconds * tuning.worker_bandwidth)
        self._max_in = min(tuning.batch_bytes, moved)
        self._max_out = min(tuning.batch_output, moved)
        self.tasks: list[Task] = []
        self.copies: list[Task] = []  # slices of stored members that are copied over several tasks
        self.members_by_kind: Counter[TaskKind] = Counter()
        self._batches = 0
        self._row_start = 0
        self._members = 0
        self._in = 0
        self._out = 0
        self._start = 0
        self._stop = 0

    def add(self, added: Sequence[Member], starts: Sequence[int]) -> None:
        """Take the next members.

        Args:
            starts: where the row of each begins in members.jsonl, and where the last one ends.
        """
        large = self._tuning.small_member
        max_members, max_in, max_out = self._max_members, self._max_in, self._max_out
        members, bytes_in, bytes_out = self._members, self._in, self._out
        # The sums are local variables, because this loop runs once for each member.
        for place, member in enumerate(added):
            compressed, size = member.compressed_size, member.size
            is_large = size >= large or compressed >= large
            if is_large or (
                members
                and (
                    members >= max_members
                    or bytes_in + compressed > max_in
                    or bytes_out + size > max_out
                )
            ):
                self._members, self._in, self._out = members, bytes_in, bytes_out
                self.finish(starts[place])
                if is_large:
                    self._add_large(member, (starts[place], starts[place + 1]))
                self._row_start = starts[place + is_large]
                members = bytes_in = bytes_out = 0
            if not is_large:
                if not members:
                    self._start = member.offset
                self._stop = member.stop
                members += 1
                bytes_in += compressed
                bytes_out += size
        self._members, self._in, self._out = members, bytes_in, bytes_out

    def finish(self, row_stop: int) -> None:
        """Close the batch, the last one at the end; `row_stop` is where its rows end."""
        if not self._members:
            return
        seconds = small_seconds(self._members, self._in, self._out, self._tuning)
        self.tasks.append(
            Task(
                id=f"batch-{self._batches:07d}",
                kind=TaskKind.BATCH,
                rows=(self._row_start, row_stop),
                members=self._members,
                span=(self._start, self._stop),
                size=self._out,
                seconds=round(TASK_OVERHEAD + seconds, 3),
            )
        )
        self._batches += 1
        self.members_by_kind[TaskKind.BATCH] += self._members

    def _add_large(self, member: Member, rows: tuple[int, int]) -> None:
        index, compressed, size = member.index, member.compressed_size, member.size
        tuning = self._tuning
        kind, slices = self._way(compressed, size, member.method, member.flags)
        self.members_by_kind[kind] += 1
        for part, (start, stop) in enumerate(slices):
            share = size * (stop - start) // max(1, compressed)
            moved = max(stop - start, share)
            if kind is TaskKind.COPY:  # S3 copies parts at about the rate of uploads, in parallel
                moved = (stop - start) // tuning.parts_in_flight
            task = Task(
                id=f"{kind}-{index:08d}" + (f"-{part:04d}" if len(slices) > 1 else ""),
                kind=kind,
                rows=rows,
                members=1,
                span=(start, stop),
                size=share,
                seconds=round(TASK_OVERHEAD + moved / tuning.worker_bandwidth, 3),
                part=part,
                parts=len(slices),
            )
            is_slice = kind is TaskKind.COPY and len(slices) > 1
            (self.copies if is_slice else self.tasks).append(task)

    def _way(
        self, compressed: int, size: int, method: int, flags: int
    ) -> tuple[TaskKind, list[tuple[int, int]]]:
        """Return how a large member is extracted, and the slices of its compressed data."""
        tuning = self._tuning
        plain = self._inflates and not flags & ENCRYPTED
        if (
            plain
            and method == STORED
            and size == compressed
            and self._copies
            and size >= tuning.copy_from
        ):
            return TaskKind.COPY, _slices(compressed, tuning.copy_task_bytes)
        if plain and method == DEFLATED and compressed >= tuning.split_from:
            max_length = max(self._segment, math.ceil(compressed / MAX_SEGMENTS))
            slices = _slices(compressed, max_length)
            if len(slices) > 1:
                return TaskKind.SCAN, slices
        return TaskKind.STREAM, [(0, compressed)]


def _slices(length: int, max_length: int) -> list[tuple[int, int]]:
    """Cut [0, length) into equal slices of at most `most` bytes."""
    count = max(1, math.ceil(length / max_length))
    step = math.ceil(length / count)
    return [(at, min(at + step, length)) for at in range(0, max(1, length), max(1, step))]


def order_tasks(tasks: Iterable[Task]) -> list[Task]:
    """Return the order in which tasks start.

    The longest first, for they decide when the run ends; batches then spread,
    because neighbours in the archive are siblings in the bucket and would all
    ask one partition of the destination at once.
    """
    large = [task for task in tasks if task.kind is not TaskKind.BATCH]
    batches = [task for task in tasks if task.kind is TaskKind.BATCH]
    large.sort(key=lambda task: -task.seconds)
    width = max(1, math.isqrt(len(batches)))
    spread = [batches[at] for first in range(width) for at in range(first, len(batches), width)]
    return large + spread


def choose_workers(tasks: Sequence[Task], tuning: Tuning) -> int:
    """Return how many tasks run at once.

    The destination takes the PUTs of so many workers, and each has enough to do to pay for its
    start.
    """
    if not tasks:
        return 1
    puts = sum(task.members for task in tasks if task.kind is TaskKind.BATCH)
    seconds = sum(task.seconds for task in tasks)
    rate = puts / seconds if seconds else 0.0  # of one worker, over the whole run
    allowed = tuning.prefix_put_rate * tuning.rate_headroom
    by_rate = math.ceil(allowed / rate) if rate else tuning.max_workers
    return max(1, min(_paid_workers(seconds, tuning), len(tasks), by_rate))
