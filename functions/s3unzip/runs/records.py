"""The records of one run: each object below ``runs/<run id>/``, read and written as values.

=================  ===========================================================
run.json           `PlanSummary`, the last record of a plan: if it exists, the plan is complete
members.jsonl      `PlannedMember`, one per line
folders.jsonl      keys of the archive's folders, one per line; only if the destination is a folder
rounds/NN.jsonl    `Task`, one per line: the work of one Map
outcomes/<task>    `TaskReport`, then `Outcome`, one per line; ``member-<index>`` for a split member
split/             segments of split members: scanned, and linked with their windows
stop.json          `Stop`: why no further task may begin
nested.jsonl       `NestedRun`, one per line
report.json        `Report`; report.html shows it as a page
=================  ===========================================================

Rules for the records:

- Each step writes a record as a whole, and may write it again. One version of an archive always
  produces the same members, so two writers write the same record. No record is locked.
- A fault never replaces the record of a complete task. Only `settling.report` writes reports, and
  it never replaces a report with a worse or older one.
- A damaged record is treated as missing. For a task's outcomes, a segment or the report, methods
  return None, because a repeated step can write the record again. Only a new plan can replace a
  damaged run.json, member list, round or list of refused members. For these records, methods raise
  `UnreadableRecordError`, and the run begins anew.
- A `run.json` with another format number was written by another version of s3unzip. Such a record
  counts as unreadable.
- Two archives can have the same run id, so the archive in a record is checked against the request.

If a record is missing, `read_*` methods raise `NotFoundError` and `find_*` methods return None. All
methods raise `ServiceFaultError` if the store does not answer.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Literal, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from s3unzip import errors
from s3unzip.model import (
    RECORDS_FORMAT,
    NestedRun,
    Outcome,
    PlannedMember,
    PlanSummary,
    Report,
    Stop,
    Task,
    TaskReport,
    Verdict,
    decode,
    decode_lines,
    encode,
)
from s3unzip.run_ids import check_same_archive
from s3unzip.stages import Stage, gives_outcome
from s3unzip.stores import Stores
from s3unzip.stores.calls import Calls, map_ahead
from s3unzip.stores.run_store import RunStore

T = TypeVar("T")
SegmentState = Literal["scanned", "linked"]

RUNS = "runs/"  # below the work prefix; followed by the id of a run, which begins with a date
RUN = "run.json"
MEMBERS = "members.jsonl"
FOLDERS = "folders.jsonl"
ROUNDS = "rounds/"
OUTCOMES = "outcomes/"
SPLIT = "split/"
STOP = "stop.json"
NESTED = "nested.jsonl"
REPORT = "report.json"
PAGE = "report.html"

RECORD_UNREADABLE = "record-unreadable"  # reason code of a run that `resume` plans anew
PLAN_TASK = "plan"  # task id in the record of the members that the plan refuses
# All records except the lock, which exists only for runs on one machine. `RUN` is first, because a
# run without it has no plan.
RECORDS = (RUN, MEMBERS, FOLDERS, ROUNDS, OUTCOMES, SPLIT, STOP, NESTED, REPORT, PAGE)
READERS = 32  # maximum number of records to read concurrently
_ROUND = re.compile(r"rounds/(\d\d+)\.jsonl")


class TaskOutcomes(Struct, frozen=True):
    """The record of one task."""

    report: TaskReport
    outcomes: list[Outcome]

    @property
    def is_complete(self) -> bool:
        """Whether all members of the task have outcomes."""
        return self.report.unfinished == 0


class RunRecords:
    """The typed records of one run in its run store; threads can share this object."""

    def __init__(self, store: RunStore, run: str = "") -> None:
        self.store = store
        self.run = run

    @classmethod
    def open(cls, stores: Stores, run: str, calls: Calls | None = None) -> Self:
        """Return the records of `run`; `calls` retries and counts their requests."""
        return cls(stores.run_store(run, calls), run)

    # The plan

    def read_plan(self) -> PlanSummary:
        """Return the summary of the plan.

        Raises:
            UnreadableRecordError: the summary is damaged or written by another version.
        """
        data = self.store.read(RUN)
        # Records of format 3 do not contain their format.
        format_number = self._decode(RUN, data, dict).get("format", 3)
        if format_number != RECORDS_FORMAT:
            raise errors.UnreadableRecordError(
                f"{self.run}: another version of s3unzip wrote its records: they have format "
                f"{format_number}, but this version reads format {RECORDS_FORMAT}"
            )
        return self._decode(RUN, data, PlanSummary)

    def find_plan(self) -> PlanSummary | None:
        """Return the summary of the plan; None if the plan is not complete yet."""
        try:
            return self.read_plan()
        except errors.NotFoundError:
            return None

    def require_plan(self) -> PlanSummary:
        """Return the summary of the plan, which must exist.

        Raises:
            UnreadableRecordError: the summary is missing, damaged or written by another version.
        """
        try:
            return self.read_plan()
        except errors.NotFoundError as error:
            raise self._unreadable(RUN, error) from error

    def write_plan(self, plan: PlanSummary) -> None:
        """Write the summary of the plan, after all other records of the plan.

        Raises:
            UsageError: the recorded plan is for another archive whose run has the same id.
        """
        data = encode(replace(plan, format=RECORDS_FORMAT))
        try:
            self.store.create(RUN, data)
        except errors.ConflictError:  # a plan is already recorded
            recorded = None
            with suppress(errors.UnreadableRecordError, errors.NotFoundError):
                recorded = self.read_plan().run
            check_same_archive(plan.run.id, plan.run.source, plan.run.pin, recorded)
            self.store.write(RUN, [data])

    def read_rows(self, span: tuple[int, int], key_prefix: str) -> list[PlannedMember]:
        """Return the members in a span of bytes of the member list.

        Args:
            span: the offsets at which the span begins and ends.
            key_prefix: the beginning of the run's keys. If a row has no key, the key is this prefix
                and the path of the member.
        """
        try:
            rows = decode_lines(self.store.read(MEMBERS, span), PlannedMember)
        except (errors.NotFoundError, errors.UsageError) as error:
            raise self._unreadable(MEMBERS, error) from error
        return [
            row if row.key else PlannedMember(row.member, key_prefix + row.member.path)
            for row in rows
        ]

    def folders(self) -> Iterator[str]:
        """Yield the keys of the archive's folders, or none if the destination is not a folder."""
        with suppress(errors.NotFoundError):
            for line in split_lines(self.store.stream(FOLDERS)):
                yield self._decode(FOLDERS, line, str)

    # Rounds

    def list_rounds(self) -> list[int]:
        """Return the numbers of all rounds so far."""
        matches = map(_ROUND.fullmatch, self.store.names(ROUNDS))
        return sorted(int(match[1]) for match in matches if match is not None)

    def write_round(self, number: int, tasks: Iterable[Task]) -> None:
        """Write the tasks of one round."""
        self.store.write(round_name(number), join_lines(tasks))

    def read_round(self, number: int) -> Iterator[Task]:
        """Yield the tasks of one round."""
        name = round_name(number)
        try:
            for line in split_lines(self.store.stream(name)):
                yield self._decode(name, line, Task)
        except errors.NotFoundError as error:
            raise self._unreadable(name, error) from error

    def tasks(self) -> Iterator[Task]:
        """Yield each task once, from the last round that contains it."""
        yielded: set[str] = set()
        for number in reversed(self.list_rounds()):
            for task in self.read_round(number):
                if task.id not in yielded:
                    yielded.add(task.id)
                    yield task

    # Outcomes

    def find_outcomes(self, task: str) -> TaskOutcomes | None:
        """Return the record of a task; None if it is missing or damaged."""
        return _parse_outcomes(self._find_bytes(outcomes_name(task)))

    def plan_outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes of the members that the plan refuses; there can be millions."""
        name = outcomes_name(PLAN_TASK)
        count = 0
        try:
            lines = split_lines(self.store.stream(name))
            report = self._decode(name, next(lines, b""), TaskReport)
            for line in lines:
                yield self._decode(name, line, Outcome)
                count += 1
        except errors.NotFoundError as error:
            raise self._unreadable(name, error) from error
        if count != report.failed:
            raise self._unreadable(name, f"it has {count:,} of {report.failed:,} outcomes")

    def write_outcomes(self, report: TaskReport, outcomes: Iterable[Outcome]) -> None:
        """Write a task's report and the outcomes of its members as one object."""
        self.store.write(outcomes_name(report.task), join_lines(chain((report,), outcomes)))

    def write_encoded(self, name: str, data: bytes) -> None:
        """Write a record that is already encoded, but do not replace complete outcomes."""
        if name == RUN:  # `write_plan` does not replace the plan of another archive
            self.write_plan(self._decode(RUN, data, PlanSummary))
        elif not name.startswith(OUTCOMES):
            self.store.write(name, [data])
        else:
            try:
                self.store.create(name, data)
            except errors.ConflictError:  # another writer has recorded outcomes of this task
                recorded = _parse_outcomes(self._find_bytes(name))
                if recorded is None or not recorded.is_complete:
                    self.store.write(name, [data])

    def delete_outcomes(self, task: str) -> None:
        """Delete the record of a task."""
        self.store.delete([outcomes_name(task)])

    def recorded_task_ids(self) -> list[str]:
        """Return the ids of all tasks that have a record, including `PLAN_TASK`, the plan."""
        return [
            name.removeprefix(OUTCOMES).removesuffix(".jsonl")
            for name in self.store.names(OUTCOMES)
        ]

    def read_outcomes(self, tasks: Iterable[str]) -> Iterator[tuple[str, TaskOutcomes | None]]:
        """Yield each task's id with its record or None; several records are read concurrently."""

        def find(task: str) -> tuple[str, bytes | None]:
            return task, self._find_bytes(outcomes_name(task))

        # Records that are read ahead are kept as bytes, which need less memory than values.
        for task, data in map_ahead(find, tasks, READERS):
            yield task, _parse_outcomes(data)

    def effective_outcomes(self, tasks: Iterable[str]) -> Iterator[tuple[str, TaskOutcomes | None]]:
        """Yield what `read_outcomes` yields, but without the outcomes that settling has replaced.

        If settling has recorded the outcome of a split member, the outcome of a stream that ended
        later is left out. The record of settling is read first, because "member-" sorts before
        "stream-".
        """
        settled_members: set[int | None] = set()  # the indexes of members that settling recorded
        for task, recorded in self.read_outcomes(sorted(tasks)):
            effective = recorded
            if recorded is not None and recorded.report.stage is Stage.DONE:  # from settling
                settled_members.add(recorded.report.member)
            elif recorded is not None and recorded.report.member in settled_members:
                effective = replace(recorded, outcomes=[])
            yield task, effective

    def final_outcomes(self) -> Iterator[tuple[str, Outcome]]:
        """Yield the outcome of each member once, with the id of the task that recorded it."""
        with suppress(errors.UnreadableRecordError):  # yields the outcomes before the damage
            yield from ((PLAN_TASK, outcome) for outcome in self.plan_outcomes())
        for task, recorded in self.effective_outcomes({*self.recorded_task_ids()} - {PLAN_TASK}):
            if recorded is not None and gives_outcome(recorded.report.stage):
                yield from ((task, outcome) for outcome in recorded.outcomes)

    def all_outcomes(self) -> Iterator[Outcome]:
        """Yield all outcomes except those of the plan; a member may have several."""
        # The plan refuses members, perhaps millions. These members have no objects.
        names = [name for name in self.store.names(OUTCOMES) if name != outcomes_name(PLAN_TASK)]
        for name, data in zip(names, map_ahead(self.store.read, names, READERS), strict=True):
            for line in filter(None, data.splitlines()[1:]):  # the first line is the task's report
                yield self._decode(name, line, Outcome)

    def find_task_report(self, task: str) -> TaskReport | None:
        """Return a task's report without its outcomes; None if it is missing or damaged."""
        try:
            first_line = next(split_lines(self.store.stream(outcomes_name(task))), b"")
            return decode(first_line, TaskReport)
        except (errors.NotFoundError, errors.UsageError):
            return None

    # Members that are split into several tasks

    def find_segment(self, member: int, part: int, state: SegmentState) -> bytes | None:
        """Return a segment's record, or None; the record of a linked segment has a window."""
        return self._find_bytes(f"{SPLIT}{member:08d}-{part:04d}-{state}.bin")

    def write_segment(self, member: int, part: int, state: SegmentState, data: bytes) -> None:
        """Write the record of a segment."""
        self.store.write(f"{SPLIT}{member:08d}-{part:04d}-{state}.bin", [data])

    # Stop and report

    def find_stop(self) -> Stop | None:
        """Return why the run must end, or None; a damaged ``stop.json`` also ends the run."""
        data = self._find_bytes(STOP)
        if data is None:
            return None
        try:
            return self._decode(STOP, data, Stop)
        except errors.UnreadableRecordError as error:
            return Stop(Verdict.FAILED, RECORD_UNREADABLE, str(error))

    def write_stop(self, stop: Stop) -> None:
        """Record why no further task of the run may begin."""
        self.store.write(STOP, [encode(stop)])

    def read_report(self) -> Report:
        """Return the report of a run that has ended."""
        return self._decode(REPORT, self.store.read(REPORT), Report)

    def find_report(self) -> Report | None:
        """Return the report of a run that has ended; None if it has no readable report."""
        return self.look_up_report()[1]

    def look_up_report(self) -> tuple[bytes | None, Report | None]:
        """Return the bytes of the report, and the decoded report.

        Both are None if the run has no report. If the bytes cannot be decoded, the report is None.
        """
        data = self._find_bytes(REPORT)
        if data is None:
            return None, None
        try:
            return data, decode(data, Report)
        except errors.UsageError:
            return data, None

    def put_report(self, report: Report, over: bytes | None) -> None:
        """Write a report on the condition that no other writer has changed the record.

        Args:
            report: the new report.
            over: bytes of the report to overwrite, from `look_up_report`; None if there was none.

        Raises:
            ConflictError: another writer has changed the record.
        """
        if over is None:
            self.store.create(REPORT, encode(report))
        else:
            self.store.replace(REPORT, over, encode(report))

    def write_nested(self, nested: Sequence[NestedRun]) -> None:
        """Write the results of the nested archives of the run."""
        self.store.write(NESTED, join_lines(nested))

    def delete_records(self, *, keep: Sequence[str] = ()) -> None:
        """Delete the records of the run that are listed in `RECORDS`, except those in `keep`."""
        self.store.delete(
            [name for prefix in RECORDS if prefix not in keep for name in self.store.names(prefix)]
        )

    def _decode(self, name: str, data: bytes, kind: type[T]) -> T:
        try:
            return decode(data, kind)
        except errors.UsageError as error:
            raise self._unreadable(name, error) from error

    def _unreadable(self, name: str, cause: object) -> errors.UnreadableRecordError:
        return errors.UnreadableRecordError(
            f"{self.run}: its record {name} is damaged or lost: {cause}"
        )

    def _find_bytes(self, name: str) -> bytes | None:
        try:
            return self.store.read(name)
        except errors.NotFoundError:
            return None


def round_name(number: int) -> str:
    """Return the name of the task list of one round."""
    return f"{ROUNDS}{number:02d}.jsonl"


def outcomes_name(task: str) -> str:
    """Return the name of the record with a task's report and outcomes."""
    return f"{OUTCOMES}{task}.jsonl"


def join_lines(values: Iterable[object]) -> Iterator[bytes]:
    """Yield each of `values` as a line of JSON; a run store joins the lines into an object."""
    for value in values:
        yield encode(value) + b"\n"


def split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the non-empty lines of a stream; memory holds only one piece and one line at a time."""
    begun_line = b""
    for data in pieces:
        lines = (begun_line + data).split(b"\n")
        begun_line = lines.pop()  # continued in the next piece
        yield from filter(None, lines)
    if begun_line:
        yield begun_line


def _parse_outcomes(data: bytes | None) -> TaskOutcomes | None:
    """Return the outcomes in a record; None if the record is missing or damaged."""
    if data is None:
        return None
    first_line, *lines = data.splitlines() or [b""]  # an empty first line also counts as damaged
    try:
        report = decode(first_line, TaskReport)
        outcomes = [decode(line, Outcome) for line in lines if line]
    except errors.UsageError:
        return None
    # A truncated record has too few outcomes.
    if len(outcomes) != report.extracted + report.unchanged + report.failed:
        return None
    return TaskOutcomes(report, outcomes)
