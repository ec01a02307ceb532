"""What tasks write: the outcomes of their members, and the uploads that they begin."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from msgspec import Struct

from s3unzip import rates, run_files
from s3unzip.errors import NotFoundError
from s3unzip.model import Outcome, Task, TaskReport, UploadRecord, decode
from s3unzip.runs.object_records import ObjectRecords, join_lines, split_lines
from s3unzip.stores.readahead import map_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from s3unzip.model import Requests

T = TypeVar("T")


class TaskOutcomes(Struct, frozen=True):
    """What is on record of one task."""

    report: TaskReport
    outcomes: list[Outcome]

    @property
    def complete(self) -> bool:
        """Whether the task left nothing to do."""
        return self.report.unfinished == 0


class TaskRecords(ObjectRecords):
    """The records of tasks."""

    def find_outcomes(self, task: str) -> TaskOutcomes | None:
        """Return what is on record of `task`, None: nothing yet."""
        return _parse_outcomes(self._find_bytes(run_files.outcomes(task)))

    def write_outcomes(
        self, make: Callable[[Requests], TaskReport], outcomes: Sequence[Outcome]
    ) -> TaskReport:
        """Write a task's report and the outcomes of its members, as one object; return the report.

        Args:
            make: gives the report by the requests of the attempt.
            outcomes: of the task's members.
        """
        return self._write_counted(
            make, lambda report: self._write_outcomes(report.task, report, outcomes)
        )

    def outcomes_of(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, TaskOutcomes | None]]:
        """Yield tasks with what is on record of them, None: nothing.

        The records are listed first: of a run that stopped early most tasks have none.
        """

        def find(task: Task) -> tuple[Task, bytes | None]:
            name = run_files.outcomes(task.id)
            return task, self._find_bytes(name) if name in known.result() else None

        with ThreadPoolExecutor(1, thread_name_prefix="names") as beside:  # the tasks are read
            known = beside.submit(lambda: set(self._store.names(run_files.OUTCOMES)))
            # As bytes: the outcomes of tasks that wait for their turn need less memory so.
            for task, data in map_ahead(find, tasks, rates.OUTCOMES_AT_ONCE):
                yield task, _parse_outcomes(data)

    def undone(self, tasks: Iterable[Task]) -> Iterator[Task]:
        """Yield those of `tasks` that left something to do."""
        for task, found in self.outcomes_of(tasks):
            if found is None or not found.complete:
                yield task

    def each_outcome(self) -> Iterator[tuple[str, Outcome]]:
        """Yield every outcome on record, with the id of its task."""
        for name in self._store.names(run_files.OUTCOMES):
            lines = split_lines(self._store.stream(name))
            head = next(lines, None)
            if head is not None:
                task = decode(head, TaskReport).task
                yield from ((task, decode(line, Outcome)) for line in lines)

    def outcome_lines(self, kind: type[T]) -> Iterator[T]:
        """Yield each line of all outcomes as a `kind`, the tasks' own lines among them."""
        names = self._store.names(run_files.OUTCOMES)
        for data in map_ahead(self._store.read, names, rates.OUTCOMES_AT_ONCE):
            yield from (decode(line, kind) for line in data.splitlines() if line)

    def list_tasks(self) -> list[str]:
        """Return the ids of the tasks with outcomes, the index not among them."""
        names = self._store.names(run_files.OUTCOMES)
        ids = (name.removeprefix(run_files.OUTCOMES).removesuffix(".jsonl") for name in names)
        return [task for task in ids if task != run_files.INDEX_TASK]

    def find_task_report(self, task: str) -> TaskReport | None:
        """Return a task's report without its outcomes, None where it is being written again."""
        head = b""
        try:
            for piece in self._store.stream(run_files.outcomes(task)):
                head += piece
                if b"\n" in head:
                    break
        except NotFoundError:
            return None
        line, end, _ = head.partition(b"\n")
        return decode(line, TaskReport) if end else None

    def write_upload(self, owner: str, record: UploadRecord, attempt: str | None = None) -> str:
        """Write that `owner` begins an upload; return the attempt, to write it again with its id.

        Each attempt has a record of its own: a task may be done twice at once, and
        neither may drop the other's upload.
        """
        attempt = attempt or uuid4().hex[:12]
        self._write(f"{run_files.uploads(owner)}{attempt}.json", record)
        return attempt

    def has_uploads(self, owner: str) -> bool:
        """Say whether `owner` ever began an upload."""
        return any(True for _ in self._store.names(run_files.uploads(owner)))

    def list_uploads(self) -> list[str]:
        """Return the names of the records of uploads, for `read_uploads`."""
        return list(self._store.names(run_files.UPLOADS))

    def read_uploads(self, names: Collection[str]) -> list[UploadRecord]:
        """Return the records of uploads by name; one that is gone is left out."""
        found = self._read_all(names, lambda name: self._find(name, UploadRecord))
        return [record for record in found if record is not None]

    def write_index_outcomes(self, report: TaskReport, outcomes: Iterable[Outcome]) -> None:
        """Write the outcomes of the members that the index itself refuses."""
        self._write_outcomes(run_files.INDEX_TASK, report, outcomes)

    def index_outcomes(self) -> Iterator[Outcome]:
        """Yield the outcomes of the members that the index refuses; maybe one for every member."""
        try:
            lines = split_lines(self._store.stream(run_files.outcomes(run_files.INDEX_TASK)))
            next(lines, None)  # the task's report
            yield from (decode(line, Outcome) for line in lines)
        except NotFoundError:
            return

    def _write_outcomes(self, task: str, report: TaskReport, outcomes: Iterable[Outcome]) -> None:
        def values() -> Iterator[object]:
            yield report
            yield from outcomes

        self._store.write(run_files.outcomes(task), join_lines(values()))


def _parse_outcomes(data: bytes | None) -> TaskOutcomes | None:
    if data is None:
        return None
    head, *lines = data.splitlines()
    return TaskOutcomes(decode(head, TaskReport), [decode(line, Outcome) for line in lines if line])
