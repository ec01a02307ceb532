"""The records of one run: every object of its run store, read and written as values.

docs/run-files.md says what each record holds. `read_*` methods raise `NotFoundError` where the
record is missing, `find_*` methods return None. All raise `ServiceFaultError` where the store does
not answer, and `UsageError` where another version wrote the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from s3unzip import run_files
from s3unzip.model import Connections, Report, Stop, Task
from s3unzip.runs.object_records import join_lines
from s3unzip.runs.plan_records import PlanRecords
from s3unzip.runs.task_records import TaskRecords

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from s3unzip.model import NestedRun, Requests
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Stores


class RunRecords(PlanRecords, TaskRecords):
    """The typed records of one run over its run store; threads may share it."""

    @classmethod
    def open(cls, stores: Stores, run: str, calls: Calls | None = None) -> RunRecords:
        """Return the records of `run`; `calls` retries and counts their requests."""
        return cls(stores.run_store(run, calls), calls)

    def find_stop(self) -> Stop | None:
        """Return why the run must end, None if it need not."""
        return self._find(run_files.STOP, Stop)

    def write_stop(self, stop: Stop) -> None:
        """Let no further task of the run begin."""
        self._write(run_files.STOP, stop)

    def delete_stop(self) -> None:
        """Let tasks begin again."""
        self._store.delete([run_files.STOP])

    def find_connections(self) -> Connections:
        """Return how the run's stores were reached; without a record, as the options say."""
        return self._find(run_files.CONNECTIONS, Connections) or Connections()

    def write_connections(self, connections: Connections) -> None:
        """Keep how the run's stores are reached, instead of what an earlier process kept."""
        if connections == Connections():
            self._store.delete([run_files.CONNECTIONS])
        else:
            self._write(run_files.CONNECTIONS, connections)

    def redo(self) -> Iterator[Task]:
        """Yield the tasks that the last report found unfinished."""
        return self._lines(run_files.REDO, Task)

    def write_redo(self, tasks: Iterable[Task]) -> None:
        """List the tasks that are left."""
        self._store.write(run_files.REDO, join_lines(tasks))

    def list_retries(self) -> list[str]:
        """Return the names of the retries so far, the first one first."""
        return [name.removesuffix(".jsonl") for name in self._store.names(run_files.RETRIES)]

    def retry_tasks(self, retry: str) -> Iterator[Task]:
        """Yield the tasks of one retry."""
        return self._lines(run_files.retry_tasks(retry), Task)

    def write_retry(self, retry: str, tasks: Iterable[Task]) -> None:
        """Write the tasks of one retry."""
        self._store.write(run_files.retry_tasks(retry), join_lines(tasks))

    def find_report(self) -> Report | None:
        """Return the report of a run that ended; None if it has none yet, or if it continues."""
        report = self.find_latest_report()
        return None if report is None or report.continues else report

    def find_latest_report(self) -> Report | None:
        """Return the same, or the report between two rounds of a run that continues."""
        return self._find(run_files.REPORT, Report)

    def write_report(self, report: Report) -> None:
        """Write the run's report, which has its page already."""
        self._write(run_files.REPORT, report)

    def write_page_and_report(
        self, make: Callable[[Requests], Report], page: Callable[[Report], bytes]
    ) -> Report:
        """Write the run's page and, last, its report; return the report.

        Args:
            make: gives the report by the requests of the step that writes it.
            page: gives the HTML page of a report.
        """

        def write(report: Report) -> None:
            self._store.write(run_files.PAGE, [page(report)])
            self._write(run_files.REPORT, report)

        return self._write_counted(make, write, puts=2)

    def rewrite_report(self, make: Callable[[Requests], Report], *, remote: bool) -> Report:
        """Write the run's report again, without its page; return it.

        Args:
            make: gives the report by the requests of the step that writes it.
            remote: whether a write is a request.
        """
        self._is_remote = remote
        return self._write_counted(make, self.write_report)

    def read_page(self) -> bytes:
        """Return the HTML page of the report."""
        return self._store.read(run_files.PAGE)

    def write_nested(self, nested: Iterable[NestedRun]) -> None:
        """Write what became of the nested archives of the run."""
        self._store.write(run_files.NESTED, join_lines(nested))

    def find_failure(self) -> dict[str, Any] | None:
        """Return how the last execution of the run ended that did not end well; None: none did."""
        return self._find(run_files.FAILED, dict[str, Any])

    def write_failure(self, failure: Mapping[str, Any]) -> None:
        """Write how an execution of the run ended that did not end well."""
        self._write(run_files.FAILED, failure)

    def exists(self) -> bool:
        """Say whether anything is on record of the run."""
        return any(True for _ in self._store.names(""))

    def forget(self) -> None:
        """Delete what an earlier run of the same archive and options left besides the plan."""
        keep = run_files.outcomes(run_files.INDEX_TASK)
        names = [name for prefix in run_files.LEAVINGS for name in self._store.names(prefix)]
        names = [name for name in names if name != keep]
        if names:
            self._store.delete(names)
