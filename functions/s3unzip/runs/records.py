"""The records of one run: every object below ``runs/<run id>/``, read and written as values.

=================  ===========================================================
run.json           `PlanSummary`; written last of the plan, so a plan is whole where it exists
members.jsonl      `PlannedMember`, one a line
folders.jsonl      the archive's folders, a key a line; only for a folder as destination
rounds/NN.jsonl    `Task`, one a line: what one Map does
outcomes/<task>    `TaskReport`, then an `Outcome` a line; of a split member ``member-<index>``
split/             segments of split members: scanned, and linked with their windows
stop.json          `Stop`: why no further task may begin
nested.jsonl       `NestedRun`, one a line
report.json        `Report`; report.html is its page
=================  ===========================================================

The rules of the records:

- Each step writes a record whole, and may write it again: the bytes of a version of an archive make
  the same members, so two writers of a record, late or at once, say the same. Nothing is locked.
- A fault never replaces the record of a whole task, and `settling.verdicts` alone writes a report:
  never a worse or an older one over another.
- A record that cannot be read counts as one that is not there. What a repeated step writes anew is
  None: outcomes, segments, the report. What only a plan writes raises `UnreadableRecordError`:
  run.json, the members, the rounds, the outcomes of the plan. Then the run begins anew.
- Another version of s3unzip may have written `run.json`: its number says so, and it is unreadable.
- An equal id is no proof: the archive of the record is compared with that of the request.

`read_*` methods raise `NotFoundError` where the record is missing, `find_*` methods return None.
All raise `ServiceFaultError` where the store does not answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import Literal, NamedTuple, TypeVar

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
from s3unzip.stages import gives_outcome
from s3unzip.stores import Stores
from s3unzip.stores.ahead import map_ahead
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import RunStore

T = TypeVar("T")

RUNS = "runs/"  # below the work prefix; an id begins with the archive's date
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

RECORD_UNREADABLE = "record-unreadable"  # the reason of a run that begins anew when it goes on
PLAN_TASK = "plan"  # the id of the outcomes of members that the plan refuses
# All records, but not the lock of one machine. `RUN` is first: without it a run has no plan.
RECORDS = (RUN, MEMBERS, FOLDERS, ROUNDS, OUTCOMES, SPLIT, STOP, NESTED, REPORT, PAGE)
PIECE = 1024 * 1024  # bytes of lines that are gathered before they are written
READERS = 32  # records that are read at once
_ROUND = re.compile(r"rounds/\d\d+\.jsonl")


class TaskOutcomes(Struct, frozen=True):
    """What is on record of one task."""

    report: TaskReport
    outcomes: list[Outcome]

    @property
    def complete(self) -> bool:
        """Whether the task left nothing to do."""
        return self.report.unfinished == 0


class RecordsFormat(Struct, frozen=True):
    """What every version reads of ``run.json``."""

    format: int = 3


class RecordedReport(NamedTuple):
    """What is stored under the report's name: bytes, and the report if they can be read."""

    data: bytes | None = None
    report: Report | None = None


class RunRecords:
    """The typed records of one run over its run store; threads may share it."""

    def __init__(self, store: RunStore, run: str = "") -> None:
        self.store = store
        self.run = run

    @classmethod
    def open(cls, stores: Stores, run: str, calls: Calls | None = None) -> RunRecords:
        """Return the records of `run`; `calls` retries and counts their requests."""
        return cls(stores.run_store(run, calls), run)

    # The plan

    def read_plan(self) -> PlanSummary:
        """Return what the plan found; `UnreadableRecordError` also for one of another version."""
        data = self.store.read(RUN)
        number = self._decode(RUN, data, RecordsFormat).format
        if number != RECORDS_FORMAT:
            raise errors.UnreadableRecordError(
                f"{self.run}: another version of s3unzip wrote its records: they have format "
                f"{number}, this version reads {RECORDS_FORMAT}"
            )
        return self._decode(RUN, data, PlanSummary)

    def find_plan(self) -> PlanSummary | None:
        """Return what the plan found, None while there is no whole plan."""
        try:
            return self.read_plan()
        except errors.NotFoundError:
            return None

    def require_plan(self) -> PlanSummary:
        """Return what the plan of a run found that is at work: it has been planned."""
        try:
            return self.read_plan()
        except errors.NotFoundError as error:
            raise self._unreadable(RUN, error) from error

    def write_plan(self, plan: PlanSummary) -> None:
        """Write what the plan found, last of the plan; `UsageError`: it is another archive's id."""
        data = encode(replace(plan, format=RECORDS_FORMAT))
        try:
            self.store.create(RUN, data)
        except errors.ConflictError:
            with suppress(errors.UnreadableRecordError, errors.NotFoundError):
                check_same_archive(plan.run.id, plan.run.source, plan.run.pin, self.read_plan().run)
            self.store.write(RUN, [data])

    def read_rows(self, span: tuple[int, int], key_prefix: str) -> list[PlannedMember]:
        """Return the rows in bytes [start, stop) of the member list.

        Args:
            span: as a task has it.
            key_prefix: the run's, with which a key is made that the file leaves out.
        """
        try:
            rows = decode_lines(self.store.read(MEMBERS, span), PlannedMember)
        except (errors.NotFoundError, errors.UsageError) as error:
            raise self._unreadable(MEMBERS, error) from error
        return [
            row if row.key else PlannedMember(row.member, key_prefix + row.member.path)
            for row in rows
        ]

    def write_rows(self, pieces: Iterable[bytes]) -> None:
        """Write the member list; its lines come encoded, for there may be millions."""
        self.store.write(MEMBERS, pieces)

    def folders(self) -> Iterator[str]:
        """Yield the keys of the archive's folders; none if the destination has no folders."""
        try:
            for line in split_lines(self.store.stream(FOLDERS)):
                yield self._decode(FOLDERS, line, str)
        except errors.NotFoundError:
            return

    def write_folders(self, keys: Iterable[str]) -> None:
        """Write the keys of the archive's folders."""
        self.store.write(FOLDERS, join_lines(keys))

    # Rounds

    def list_rounds(self) -> list[int]:
        """Return the numbers of the rounds so far."""
        names = [name for name in self.store.names(ROUNDS) if _ROUND.fullmatch(name)]
        return sorted(int(name[len(ROUNDS) : -len(".jsonl")]) for name in names)

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
        """Yield each task of all rounds once, as the last round has it."""
        yielded: set[str] = set()
        for number in reversed(self.list_rounds()):
            for task in self.read_round(number):
                if task.id not in yielded:
                    yielded.add(task.id)
                    yield task

    # Outcomes

    def find_outcomes(self, task: str) -> TaskOutcomes | None:
        """Return what is on record of `task`, None: nothing yet."""
        data = self._find_bytes(outcomes_name(task))
        if data is None:
            return None
        return _parse_outcomes(data)

    def plan_outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes of the members that the plan refuses; maybe one for every member."""
        name = outcomes_name(PLAN_TASK)
        number = 0
        try:
            lines = split_lines(self.store.stream(name))
            report = self._decode(name, next(lines, b""), TaskReport)
            for line in lines:
                number += 1
                yield self._decode(name, line, Outcome)
        except errors.NotFoundError as error:
            raise self._unreadable(name, error) from error
        if number != report.failed:
            raise self._unreadable(name, f"{number:,} of {report.failed:,} outcomes are there")

    def write_outcomes(self, report: TaskReport, outcomes: Iterable[Outcome]) -> None:
        """Write a task's report and the outcomes of its members, as one object."""
        self.store.write(outcomes_name(report.task), join_lines(chain((report,), outcomes)))

    def keep(self, name: str, data: bytes) -> None:
        """Write a record that another invocation may have written; complete outcomes stay."""
        if name == RUN:
            self.write_plan(self._decode(RUN, data, PlanSummary))
            return
        if not name.startswith(OUTCOMES):
            self.store.write(name, [data])
            return
        try:
            self.store.create(name, data)
        except errors.ConflictError:
            recorded = _parse_outcomes(self._find_bytes(name) or b"")
            if recorded is None or not recorded.complete:
                self.store.write(name, [data])

    def delete_outcomes(self, task: str) -> None:
        """Delete what is on record of `task`."""
        self.store.delete([outcomes_name(task)])

    def list_outcomes(self) -> list[str]:
        """Return the ids of all tasks with outcomes."""
        names = self.store.names(OUTCOMES)
        return [name.removeprefix(OUTCOMES).removesuffix(".jsonl") for name in names]

    def read_outcomes(self, tasks: Iterable[str]) -> Iterator[tuple[str, TaskOutcomes | None]]:
        """Yield ids of tasks with what is on record of each, several read at once."""

        def find(task: str) -> tuple[str, bytes | None]:
            return task, self._find_bytes(outcomes_name(task))

        # As bytes: the outcomes of tasks that wait for their turn need less memory so.
        for task, data in map_ahead(find, tasks, READERS):
            outcomes = None
            if data is not None:
                outcomes = _parse_outcomes(data)
            yield task, outcomes

    def each_outcome(self) -> Iterator[tuple[str, Outcome]]:
        """Yield the outcome of each member on record, with the id of its task."""
        for task, recorded in self.read_outcomes(self.list_outcomes()):
            if recorded is not None and gives_outcome(recorded.report.stage):
                yield from ((task, outcome) for outcome in recorded.outcomes)

    def outcome_lines(self) -> Iterator[Outcome]:
        """Yield the outcomes of all tasks, without the tasks' own reports in the first lines."""
        names = list(self.store.names(OUTCOMES))
        for name, data in zip(names, map_ahead(self.store.read, names, READERS), strict=True):
            for line in filter(None, data.splitlines()[1:]):
                yield self._decode(name, line, Outcome)

    def find_task_report(self, task: str) -> TaskReport | None:
        """Return a task's report without its outcomes, None where it is being written again."""
        try:
            return decode(
                next(split_lines(self.store.stream(outcomes_name(task))), b""), TaskReport
            )
        except (errors.NotFoundError, errors.UsageError):
            return None

    # Members that are split over several tasks

    def find_segment(
        self, member: int, part: int, state: Literal["scanned", "linked"]
    ) -> bytes | None:
        """Return the record of a segment: as a scan found it, or linked, with its window."""
        return self._find_bytes(f"{SPLIT}{member:08d}-{part:04d}-{state}.bin")

    def write_segment(
        self, member: int, part: int, state: Literal["scanned", "linked"], data: bytes
    ) -> None:
        """Write the record of a segment."""
        self.store.write(f"{SPLIT}{member:08d}-{part:04d}-{state}.bin", [data])

    # Stop and report

    def find_stop(self) -> Stop | None:
        """Return why the run must end, None if it need not; a damaged record stops it, too."""
        data = self._find_bytes(STOP)
        if data is None:
            return None
        try:
            return self._decode(STOP, data, Stop)
        except errors.UnreadableRecordError as error:
            return Stop(Verdict.FAILED, RECORD_UNREADABLE, str(error))

    def write_stop(self, stop: Stop) -> None:
        """Let no further task of the run begin."""
        self._write(STOP, stop)

    def delete_stop(self) -> None:
        """Let tasks begin again."""
        self.store.delete([STOP])

    def read_report(self) -> Report:
        """Return the report of a run that ended."""
        return self._decode(REPORT, self.store.read(REPORT), Report)

    def find_report(self) -> Report | None:
        """Return the report of a run that ended; None if it has none that can be read."""
        return self.look_up_report().report

    def look_up_report(self) -> RecordedReport:
        """Return what is stored under the report's name."""
        data = self._find_bytes(REPORT)
        if data is None:
            return RecordedReport()
        try:
            return RecordedReport(data, decode(data, Report))
        except errors.UsageError:
            return RecordedReport(data)

    def put_report(self, report: Report, over: RecordedReport) -> None:
        """Replace what was looked up with a report; `ConflictError`: something else is stored."""
        if over.data is None:
            self.store.create(REPORT, encode(report))
        else:
            self.store.replace(REPORT, over.data, encode(report))

    def write_page(self, page: bytes) -> None:
        """Write the HTML page of the report."""
        self.store.write(PAGE, [page])

    def read_page(self) -> bytes:
        """Return the HTML page of the report."""
        return self.store.read(PAGE)

    def nested(self) -> list[NestedRun]:
        """Return what became of the nested archives of the run."""
        lines = (self._find_bytes(NESTED) or b"").splitlines()
        return [self._decode(NESTED, line, NestedRun) for line in lines]

    def write_nested(self, nested: Sequence[NestedRun]) -> None:
        """Write what became of the nested archives of the run."""
        if nested:
            self.store.write(NESTED, join_lines(nested))

    def forget(self, *, keep: Sequence[str] = ()) -> None:
        """Delete all that is on record of an earlier run of the same archive and options."""
        prefixes = [prefix for prefix in RECORDS if prefix not in keep]
        names = [name for prefix in prefixes for name in self.store.names(prefix)]
        if names:
            self.store.delete(names)

    def _decode(self, name: str, data: bytes, kind: type[T]) -> T:
        try:
            return decode(data, kind)
        except errors.UsageError as error:
            raise self._unreadable(name, error) from error

    def _unreadable(self, name: str, cause: object) -> errors.UnreadableRecordError:
        fault = "damaged, lost or of another version" if name == RUN else "damaged or lost"
        return errors.UnreadableRecordError(f"{self.run}: its record {name} is {fault}: {cause}")

    def _find_bytes(self, name: str) -> bytes | None:
        try:
            return self.store.read(name)
        except errors.NotFoundError:
            return None

    def _write(self, name: str, value: object) -> None:
        self.store.write(name, [encode(value)])


def round_name(number: int) -> str:
    """Return the name of the task list of one round."""
    return f"{ROUNDS}{number:02d}.jsonl"


def outcomes_name(task: str) -> str:
    """Return the name of a task's report and outcomes."""
    return f"{OUTCOMES}{task}.jsonl"


def join_lines(values: Iterable[object]) -> Iterator[bytes]:
    """Yield `values` as JSON lines, in pieces that are worth a write."""
    gathered: list[bytes] = []
    pending = 0
    for value in values:
        line = encode(value)
        gathered.append(line)
        pending += len(line) + 1
        if pending >= PIECE:
            yield b"\n".join(gathered) + b"\n"
            gathered.clear()
            pending = 0
    if gathered:
        yield b"\n".join(gathered) + b"\n"


def split_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut a stream of pieces into its lines, empty ones left out; memory: a piece and a line."""
    begun_line = b""
    for data in pieces:
        lines = (begun_line + data).split(b"\n")
        begun_line = lines.pop()
        yield from filter(None, lines)
    if begun_line:
        yield begun_line


def _parse_outcomes(data: bytes) -> TaskOutcomes | None:
    """Return what is on record of a task, None where it is damaged: the task is done again."""
    first_line, *lines = data.splitlines() or [b""]
    try:
        report = decode(first_line, TaskReport)
        outcomes = [decode(line, Outcome) for line in lines if line]
    except errors.UsageError:
        return None
    counted = report.extracted + report.unchanged + report.failed
    if len(outcomes) != counted:
        return None
    return TaskOutcomes(report, outcomes)
