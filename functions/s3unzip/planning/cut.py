"""Cut the work: choose how each member is extracted, and which members share a task.

Members come sorted by their offset in the archive. Small ones are gathered into batches. A batch
has bounds of bytes read, bytes written, members and estimated seconds, and ends at the first bound
that it reaches. A large member has one task, or several. Nothing here reads or writes.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from s3unzip.model import Task, TaskKind
from s3unzip.settings import MIB, Tuning
from s3unzip.zip import Member
from s3unzip.zip.records import METHOD_DEFLATE, METHOD_STORED, is_encrypted

MAX_SEGMENTS = 1_000  # of one member; a multipart upload has 10,000 parts for them
FEW_SEGMENTS = 16  # scans and slices of so many fit into inline Maps, beside 40 other tasks
# Of an archive with few segments. In a smaller one the search for boundaries takes the longest.
MIN_SEGMENT = 16 * MIB
TASK_OVERHEAD = 0.15  # seconds: dispatch, outcomes, the first byte
MAP_SECONDS = 7.0  # start and end of a Distributed Map; an assumption
INLINE_SPARE = 1.05  # batches end at whole members, so some stay below the share


class Load(NamedTuple):
    """Sums over members."""

    members: int
    bytes_in: int  # compressed
    bytes_out: int


def small_seconds(load: Load, tuning: Tuning) -> float:
    """Return about how many seconds one worker needs for small members: its slowest resource."""
    return max(
        load.members * tuning.put_seconds / tuning.puts_in_flight,
        load.members * tuning.member_seconds,
        load.bytes_in / tuning.worker_bandwidth,
        load.bytes_out / tuning.worker_bandwidth,
    )


def _inline_share(seconds: float, tuning: Tuning) -> float:
    """Return the seconds of a batch if an inline Map is to do all batches at once.

    Returns 0 if it should not: there are fewer workers, or a Distributed Map would end smaller
    batches sooner.
    """
    if not 0 < tuning.max_few_tasks <= tuning.max_workers:
        return 0.0
    share = INLINE_SPARE * seconds / tuning.max_few_tasks
    if share > tuning.batch_min_seconds + MAP_SECONDS:
        return 0.0
    return share


def _segment_length(bytes_in: int, tuning: Tuning) -> int:
    """Return the compressed bytes of a segment; it is shorter if the archive has few segments.

    Each segment begins with the search for a boundary, so few workers get few and long segments.
    """
    equal_share = math.ceil(bytes_in / min(FEW_SEGMENTS, tuning.max_workers))
    return min(tuning.segment_bytes, max(MIN_SEGMENT, equal_share))


class TaskCutter:
    """Cuts members, in archive order, into tasks.

    Args:
        tuning: the sizes to cut by.
        work: of all members. A small archive has smaller batches, so that all workers have one.
        copies: whether the destination can copy from the source.
        inflates: whether members are inflated; False keeps them compressed.
    """

    def __init__(self, tuning: Tuning, work: Load, *, copies: bool, inflates: bool = True) -> None:
        self.work = work
        self._tuning = tuning
        self._copies = copies
        self._inflates = inflates
        self._segment = _segment_length(work.bytes_in, tuning)
        self._max_batch = _choose_max_batch(work, tuning)
        self.tasks: list[Task] = []
        self.copies: list[Task] = []  # slices of stored members that are copied over several tasks
        self.members_by_kind: Counter[TaskKind] = Counter()
        self._batches = 0
        self._batch = Load(0, 0, 0)  # the one that is not full yet
        self._row_start = 0
        self._start = 0
        self._stop = 0

    def add(self, added: Sequence[Member], starts: Sequence[int]) -> None:
        """Take the next members.

        Args:
            added: the members, in archive order.
            starts: where the row of each begins in members.jsonl, and where the last one ends.
        """
        large = self._tuning.small_member
        max_members, max_in, max_out = self._max_batch
        members, bytes_in, bytes_out = self._batch
        # The sums are local variables, because this loop runs once for each member.
        for index, member in enumerate(added):
            compressed = member.compressed_size
            size = member.size
            is_large = size >= large or compressed >= large
            if is_large or (
                members
                and (
                    members >= max_members
                    or bytes_in + compressed > max_in
                    or bytes_out + size > max_out
                )
            ):
                self._batch = Load(members, bytes_in, bytes_out)
                self.finish(starts[index])
                if is_large:
                    self._add_large(member, (starts[index], starts[index + 1]))
                # A large member has a task of its own: the next batch begins after it.
                self._row_start = starts[index + is_large]
                members = bytes_in = bytes_out = 0
            if not is_large:
                if not members:
                    self._start = member.offset
                self._stop = member.stop
                members += 1
                bytes_in += compressed
                bytes_out += size
        self._batch = Load(members, bytes_in, bytes_out)

    def finish(self, row_stop: int) -> None:
        """Make the task of the batch, unless it is empty; `row_stop` is where its rows end."""
        batch = self._batch
        if not batch.members:
            return
        self.tasks.append(
            Task(
                id=f"batch-{self._batches:07d}",
                kind=TaskKind.BATCH,
                rows=(self._row_start, row_stop),
                members=batch.members,
                span=(self._start, self._stop),
                size=batch.bytes_out,
                seconds=round(TASK_OVERHEAD + small_seconds(batch, self._tuning), 3),
            )
        )
        self._batches += 1
        self.members_by_kind[TaskKind.BATCH] += batch.members

    def _add_large(self, member: Member, rows: tuple[int, int]) -> None:
        kind, slices = self._choose_kind_and_slices(member)
        self.members_by_kind[kind] += 1
        is_sliced = len(slices) > 1
        tasks = self.tasks
        if is_sliced and kind is TaskKind.COPY:
            tasks = self.copies
        for part, (start, stop) in enumerate(slices):
            task_id = f"{kind}-{member.index:08d}"
            if is_sliced:
                task_id += f"-{part:04d}"
            length = stop - start
            size = member.size * length // max(1, member.compressed_size)
            moved = max(length, size)
            if kind is TaskKind.COPY:  # S3 copies parts at about the rate of uploads, in parallel
                moved = length // self._tuning.parts_in_flight
            tasks.append(
                Task(
                    id=task_id,
                    kind=kind,
                    rows=rows,
                    members=1,
                    span=(start, stop),
                    size=size,
                    seconds=round(TASK_OVERHEAD + moved / self._tuning.worker_bandwidth, 3),
                    part=part,
                    parts=len(slices),
                    member=member.index,
                )
            )

    def _choose_kind_and_slices(self, member: Member) -> tuple[TaskKind, list[tuple[int, int]]]:
        tuning = self._tuning
        compressed = member.compressed_size
        can_divide = self._inflates and not is_encrypted(member.flags)
        is_plain = member.method == METHOD_STORED and member.size == compressed
        if can_divide and is_plain and self._copies and member.size >= tuning.copy_from:
            return TaskKind.COPY, _slices(compressed, tuning.copy_task_bytes)
        if can_divide and member.method == METHOD_DEFLATE and compressed >= tuning.split_from:
            max_length = max(self._segment, math.ceil(compressed / MAX_SEGMENTS))
            slices = _slices(compressed, max_length)
            if len(slices) > 1:
                return TaskKind.SCAN, slices
        return TaskKind.STREAM, [(0, compressed)]


def _choose_max_batch(work: Load, tuning: Tuning) -> Load:
    """Return the bounds of a batch, so that each worker gets about four of a small archive."""
    whole = small_seconds(work, tuning)
    share = max(whole / (4 * tuning.max_workers), _inline_share(whole, tuning))
    seconds = min(tuning.batch_seconds, max(tuning.batch_min_seconds, share))
    members = min(
        tuning.batch_members,
        int(seconds * tuning.puts_in_flight / tuning.put_seconds),
        int(seconds / tuning.member_seconds),
    )
    moved = int(seconds * tuning.worker_bandwidth)
    return Load(
        max(1, members),
        bytes_in=min(tuning.batch_bytes, moved),
        bytes_out=min(tuning.batch_output, moved),
    )


def _slices(length: int, max_length: int) -> list[tuple[int, int]]:
    """Cut [0, length) into equal slices of at most `max_length` bytes."""
    count = max(1, math.ceil(length / max_length))
    width = max(1, math.ceil(length / count))
    return [(start, min(start + width, length)) for start in range(0, max(1, length), width)]


def order_tasks(tasks: Iterable[Task]) -> list[Task]:
    """Return the order in which tasks start.

    The longest tasks are first, because they determine when the run ends. The batches are spread,
    because neighbours in the archive have similar keys: at once they would all use one partition of
    the destination.
    """
    large = [task for task in tasks if task.kind is not TaskKind.BATCH]
    batches = [task for task in tasks if task.kind is TaskKind.BATCH]
    large.sort(key=lambda task: -task.seconds)
    width = max(1, math.isqrt(len(batches)))
    return large + [batch for first in range(width) for batch in batches[first::width]]


def choose_workers(tasks: Sequence[Task], tuning: Tuning) -> int:
    """Return how many tasks run at once.

    The destination accepts the PUTs of so many workers, and each worker has enough work to pay for
    its start.
    """
    puts = sum(task.members for task in tasks if task.kind is TaskKind.BATCH)
    seconds = sum(task.seconds for task in tasks)
    workers = min(tuning.max_workers, len(tasks))
    if puts and seconds:
        worker_rate = puts / seconds  # PUTs a second, over the whole run
        max_rate = tuning.prefix_put_rate * tuning.rate_headroom
        workers = min(workers, math.ceil(max_rate / worker_rate))
    if tuning.min_worker_seconds:
        workers = min(workers, int(seconds / tuning.min_worker_seconds))
    return max(1, workers)
