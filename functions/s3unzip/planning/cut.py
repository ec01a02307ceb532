"""Cut the work into tasks: choose how each member is extracted, and which members share a task.

Members are processed in the order of their offsets in the archive. Small members are grouped into
batches. A batch ends when it reaches one of its limits: members, bytes read, bytes written or
estimated seconds. A large member has one or more tasks of its own. This module does no I/O.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from s3unzip import rates
from s3unzip.model import StoreKind, Task, TaskKind
from s3unzip.settings import MIB, Tuning
from s3unzip.zip import Member
from s3unzip.zip.records import FLAG_ENCRYPTED, METHOD_DEFLATE, METHOD_STORED

MAX_SLICES = 1_000  # maximum number per member; a multipart upload may have 10,000 parts
FEW_SEGMENTS = 16  # so few that an inline Map can also run other tasks
# Minimum length of a segment, in compressed bytes. In a shorter segment, finding the boundary takes
# most of the time.
MIN_SEGMENT = 16 * MIB
TASK_OVERHEAD = 0.15  # seconds to start a task, receive the first byte and write the outcomes
# A batch of an inline Map may take this many times an equal share of the work. A batch contains
# only whole members, so it is often smaller than allowed; without this factor, there would be one
# batch too many.
INLINE_SPARE = 1.05
# If the destination is not a server, the work is multiplied by this factor, so that less work
# justifies a second process. A process does not wait for such a destination: 20,000 small members
# take 2.2 s in one process and 1.1 s in two.
CPU_BOUND_FACTOR = 5.0


class Load(NamedTuple):
    """Sums over members."""

    members: int
    bytes_in: int  # compressed size
    bytes_out: int


def small_seconds(load: Load, tuning: Tuning) -> float:
    """Return the estimated seconds that one worker needs for small members.

    PUTs, computing, reading and writing overlap, so the slowest of them determines the time.
    """
    return max(
        load.members * tuning.put_seconds / tuning.puts_in_flight,
        load.members * tuning.member_seconds,
        load.bytes_in / tuning.worker_bandwidth,
        load.bytes_out / tuning.worker_bandwidth,
    )


def _inline_batch_seconds(seconds: float, tuning: Tuning) -> float:
    """Return the duration of a batch, in seconds, if an inline Map runs all batches concurrently.

    Returns 0 if an inline Map cannot run all batches concurrently, or if a Distributed Map would be
    faster.

    Args:
        seconds: estimated seconds that one worker needs for all small members.
        tuning: the settings; `max_few_tasks` is the maximum number of tasks in an inline Map.
    """
    max_batches = tuning.max_few_tasks
    if max_batches == 0 or max_batches > tuning.max_workers:
        return 0.0
    batch_seconds = INLINE_SPARE * seconds / max_batches  # slightly more than an equal share
    # A Distributed Map needs `MAP_SECONDS` to start and end, but can have shorter batches.
    if batch_seconds > tuning.batch_min_seconds + rates.MAP_SECONDS:
        return 0.0
    return batch_seconds


class TaskCutter:
    """Cuts members, in archive order, into tasks.

    Args:
        tuning: the settings with the sizes of tasks.
        work: the totals over all members. In a small archive, batches are smaller, so that each
            worker gets several batches.
        can_copy: whether the destination can copy from the source.
        inflates_members: whether workers inflate the members; otherwise, members stay compressed.
    """

    def __init__(
        self, tuning: Tuning, work: Load, *, can_copy: bool, inflates_members: bool = True
    ) -> None:
        self.work = work
        self._tuning = tuning
        self._can_copy = can_copy
        self._inflates_members = inflates_members
        # In a small archive, segments are shorter, so that each worker gets a segment. There are at
        # most `FEW_SEGMENTS` such segments, because finding each boundary takes time.
        equal_share = math.ceil(work.bytes_in / min(FEW_SEGMENTS, tuning.max_workers))
        # The maximum length of a segment, in compressed bytes.
        self._max_segment = min(tuning.segment_bytes, max(MIN_SEGMENT, equal_share))
        self._max_batch = _choose_max_batch(work, tuning)
        self.tasks: list[Task] = []
        self.copies: list[Task] = []  # slices of stored members that several tasks copy
        self.members_by_kind: Counter[TaskKind] = Counter()
        self._batch_count = 0
        # The current batch. Its members are in bytes [start, stop) of the archive.
        self._batch = Load(0, 0, 0)
        self._row_start = 0  # offset of its first row in members.jsonl
        self._start = 0
        self._stop = 0

    def add(self, added: Sequence[Member], row_bounds: Sequence[int]) -> None:
        """Add small members to batches, and make the tasks of large members.

        Args:
            added: the next members, in archive order.
            row_bounds: the offset of each member's row in members.jsonl, followed by the offset at
                which the last row ends.
        """
        large_from = self._tuning.small_member  # minimum size of a large member, in bytes
        max_members, max_in, max_out = self._max_batch
        # The sums of the batch are local variables, because this loop runs once per member.
        members, bytes_in, bytes_out = self._batch
        for index, member in enumerate(added):
            compressed = member.compressed_size
            size = member.size
            is_large = size >= large_from or compressed >= large_from
            # An empty batch has room for any small member.
            has_room = members == 0 or (
                members < max_members
                and bytes_in + compressed <= max_in
                and bytes_out + size <= max_out
            )
            if is_large or not has_room:
                self._batch = Load(members, bytes_in, bytes_out)
                self.end_batch(row_bounds[index])  # does nothing if the batch is empty
                members, bytes_in, bytes_out = self._batch
                self._row_start = row_bounds[index]
            if is_large:
                self._add_large(member, (row_bounds[index], row_bounds[index + 1]))
                self._row_start = row_bounds[index + 1]  # the next batch begins after this member
            else:
                if not members:  # the first member of its batch
                    self._start = member.offset
                self._stop = member.stop
                members += 1
                bytes_in += compressed
                bytes_out += size
        self._batch = Load(members, bytes_in, bytes_out)

    def end_batch(self, row_stop: int) -> None:
        """Make the task of the current batch, unless the batch is empty; begin an empty batch.

        Args:
            row_stop: the offset in members.jsonl at which the rows of the batch end.
        """
        batch = self._batch
        if not batch.members:
            return
        self.tasks.append(
            Task(
                id=f"batch-{self._batch_count:07d}",
                kind=TaskKind.BATCH,
                rows=(self._row_start, row_stop),
                members=batch.members,
                span=(self._start, self._stop),
                size=batch.bytes_out,
                seconds=round(TASK_OVERHEAD + small_seconds(batch, self._tuning), 3),
            )
        )
        self._batch_count += 1
        self.members_by_kind[TaskKind.BATCH] += batch.members
        self._batch = Load(0, 0, 0)

    def _add_large(self, member: Member, rows: tuple[int, int]) -> None:
        """Make the task of a large member, or one task for each of its slices.

        `rows` contains the offsets in members.jsonl at which the row of the member begins and ends.
        """
        kind, slices = self._choose_kind_and_slices(member)
        self.members_by_kind[kind] += 1
        is_sliced = len(slices) > 1
        tasks = self.tasks
        # The slices of a copy are parts of a multipart upload, which must be created first.
        if is_sliced and kind is TaskKind.COPY:
            tasks = self.copies
        for part, (start, stop) in enumerate(slices):
            task_id = f"{kind}-{member.index:08d}"
            if is_sliced:
                task_id += f"-{part:04d}"
            length = stop - start
            # The slice's share of the content; `max` avoids a division by 0.
            size = member.size * length // max(1, member.compressed_size)
            bytes_moved = max(length, size)  # reading and writing overlap
            # S3 copies several parts concurrently, and copies each part as fast as a worker moves
            # bytes.
            if kind is TaskKind.COPY:
                bytes_moved = length // self._tuning.parts_in_flight
            tasks.append(
                Task(
                    id=task_id,
                    kind=kind,
                    rows=rows,
                    members=1,
                    span=(start, stop),
                    size=size,
                    seconds=round(TASK_OVERHEAD + bytes_moved / self._tuning.worker_bandwidth, 3),
                    part=part,
                    parts=len(slices),
                    member=member.index,
                )
            )

    def _choose_kind_and_slices(self, member: Member) -> tuple[TaskKind, list[tuple[int, int]]]:
        """Return the kind of a large member's tasks, and the bytes [start, stop) of each task."""
        tuning = self._tuning
        compressed = member.compressed_size
        min_length = math.ceil(compressed / MAX_SLICES)
        # A member that is encrypted, or that stays compressed, is extracted by a single stream.
        can_cut_or_copy = self._inflates_members and not member.flags & FLAG_ENCRYPTED
        is_plain = member.method == METHOD_STORED and member.size == compressed
        if can_cut_or_copy and is_plain and self._can_copy and member.size >= tuning.copy_from:
            return TaskKind.COPY, _slice_evenly(compressed, max(tuning.copy_task_bytes, min_length))
        if can_cut_or_copy and member.method == METHOD_DEFLATE and compressed >= tuning.split_from:
            slices = _slice_evenly(compressed, max(self._max_segment, min_length))
            if len(slices) > 1:  # scanning a single slice would bring no benefit
                return TaskKind.SCAN, slices
        return TaskKind.STREAM, [(0, compressed)]


def _choose_max_batch(work: Load, tuning: Tuning) -> Load:
    """Return the maximum number of members, of bytes read and of bytes written for a batch.

    In a small archive, each worker gets about four batches, or a single batch if an inline Map runs
    all batches.
    """
    total_seconds = small_seconds(work, tuning)  # with a single worker
    wanted_seconds = max(
        total_seconds / (4 * tuning.max_workers),
        _inline_batch_seconds(total_seconds, tuning),  # 0 if no inline Map is used
    )
    seconds = min(tuning.batch_seconds, max(tuning.batch_min_seconds, wanted_seconds))
    members = min(
        tuning.batch_members,
        int(seconds * tuning.puts_in_flight / tuning.put_seconds),  # as many as can be PUT
        int(seconds / tuning.member_seconds),  # as many as the CPU can process
    )
    max_bytes = int(seconds * tuning.worker_bandwidth)
    return Load(
        max(1, members),
        bytes_in=min(tuning.batch_bytes, max_bytes),
        bytes_out=min(tuning.batch_output, max_bytes),
    )


def _slice_evenly(length: int, max_length: int) -> list[tuple[int, int]]:
    """Cut [0, length) into equal slices of at most `max_length` bytes, or into one empty slice."""
    count = max(1, math.ceil(length / max_length))
    width = max(1, math.ceil(length / count))
    return [(start, min(start + width, length)) for start in range(0, max(1, length), width)]


def order_tasks(tasks: Iterable[Task]) -> list[Task]:
    """Return tasks in the order in which they start.

    Tasks of large members come first, in descending order of duration, because the longest task can
    determine when the run ends. Batches that start at the same time are far apart in the archive,
    because neighbouring members have similar keys: the PUTs of neighbouring batches would all go to
    one partition of S3.
    """
    large = [task for task in tasks if task.kind is not TaskKind.BATCH]
    batches = [task for task in tasks if task.kind is TaskKind.BATCH]
    large.sort(key=lambda task: -task.seconds)
    # The order of the batches is 0, stride, 2 * stride, ..., 1, stride + 1, 2 * stride + 1, ...
    stride = max(1, math.isqrt(len(batches)))
    return large + [batch for first in range(stride) for batch in batches[first::stride]]


def choose_workers(tasks: Sequence[Task], tuning: Tuning, destination: StoreKind) -> int:
    """Return the number of tasks to run concurrently, which is also the number of workers.

    The destination must accept the PUTs of all these tasks, and each worker must have at least
    `tuning.min_worker_seconds` of work.
    """
    # Only batches send many PUTs. The rate is an average over the seconds of all tasks, because a
    # worker that runs another task sends few PUTs.
    puts = sum(task.members for task in tasks if task.kind is TaskKind.BATCH)
    seconds = sum(task.seconds for task in tasks)
    workers = min(tuning.max_workers, len(tasks))
    if puts and seconds:
        max_rate = tuning.prefix_put_rate * tuning.rate_headroom  # PUTs per second
        workers = min(workers, math.ceil(max_rate * seconds / puts))
    if tuning.min_worker_seconds:
        if not destination.takes_s3_options:
            seconds *= CPU_BOUND_FACTOR
        workers = min(workers, int(seconds / tuning.min_worker_seconds))
    return max(1, workers)
