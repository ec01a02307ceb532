"""Several archives on this machine: each is a run of its own; small ones share the workers.

A small archive is done whole by one worker, so many are done at once and none waits for workers
to start. After them each large one has all workers.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from s3unzip.api.after_success import parse_after_success
from s3unzip.api.extraction import Progress, extract_request, set_up
from s3unzip.api.options import judge_selection, make_policy, read_compared_records
from s3unzip.api.several import check_apart, find_archives
from s3unzip.errors import InterruptedRunError, S3UnzipError
from s3unzip.local.contexts import record_of
from s3unzip.local.locking import RunLocks
from s3unzip.local.machine import Machine, begin_run, check_cost
from s3unzip.local.nesting import run_nested
from s3unzip.local.processes.serial import SerialPool
from s3unzip.local.runner import run_archive
from s3unzip.local.worker import Failed, WholeArchive
from s3unzip.model import ArchiveEnd, Batch, Options, Request, Verdict
from s3unzip.runs.records import RunRecords
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.stores.home import runs_of_archive
from s3unzip.stores.locations import parse_destination

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from s3unzip.context import Context
    from s3unzip.local.machine import Setup
    from s3unzip.local.worker import Done, Job
    from s3unzip.model import Connections, Location, NestedRun, Outcome, PlanSummary, Report, Run
    from s3unzip.settings import Tuning


class BatchProgress(Progress):
    """Told of what happens to several archives."""

    def found(self, archives: int, size: int) -> None:
        """Learn how many archives there are, and how many bytes those have whose size is known."""

    def ended(self, end: ArchiveEnd) -> None:
        """Learn how one archive ended."""


def extract_all(  # noqa: PLR0913 - options of a public function
    sources: Sequence[str],
    destination: str,
    options: Options | None = None,
    *,
    password: bytes | None = None,
    workers: int | None = None,
    tuning: Tuning | None = None,
    max_cost: float | None = None,
    after_success: str | None = None,
    stores: StoreConfig | None = None,
    progress: BatchProgress | None = None,
) -> Batch:
    """Extract several archives; the failure of one does not stop the others.

    Args:
        sources: archives, folders, prefixes (``s3://bucket/in/``) and globs.
        destination: as of `extract`, for all.
        options: likewise.
        password: likewise.
        workers: likewise.
        tuning: `Tuning.small_archive` says which archives a worker does whole.
        max_cost: dollars of each archive.
        after_success: as of `extract`, for each archive.
        stores: likewise.
        progress: told of what happens.

    Raises:
        UsageError: a location or an option is wrong, or two archives have the same keys.
        NotFoundError: a folder, a prefix or a glob has no archive.
        StorageError, ServiceFaultError: archives cannot be listed.
        InterruptedRunError: Ctrl-C; finished members are on record.
    """
    told, config, chosen = (
        progress or BatchProgress(),
        stores or StoreConfig(),
        options or Options(),
    )
    target = parse_destination(destination)
    found = find_archives(sources, config)
    requests = [_make_request(one.source, target, chosen, after_success) for one in found]
    check_apart(requests)
    setup = set_up(config, make_policy(chosen, password, target), workers, tuning)
    told.found(len(found), sum(one.size or 0 for one in found))
    limit = setup.tuning.small_archive
    small = [one.source for one in found if one.size is not None and one.size <= limit]
    return _extract_requests(requests, frozenset(small), setup, max_cost, told)


def _make_request(
    source: Location, target: Location, options: Options, after_success: str | None
) -> Request:
    rule = parse_after_success(after_success, source) if after_success else None
    return Request(source, target, options, after_success=rule)


def _extract_requests(
    requests: Sequence[Request],
    small: Collection[Location],
    setup: Setup,
    max_cost: float | None,
    told: BatchProgress,
) -> Batch:
    """Extract the `small` archives by one worker each, then the others."""
    ends: dict[Location, ArchiveEnd] = {}

    def end(source: Location, result: ArchiveEnd) -> None:
        ends[source] = result
        told.ended(result)

    shared = [request for request in requests if request.source in small]
    try:
        if shared:
            _extract_small(shared, setup, max_cost, told, end)
        for request in requests:
            if request.source not in ends:
                end(request.source, _extract_large(request, setup, max_cost, told))
    except KeyboardInterrupt as interrupt:
        raise _interrupted(requests, ends, setup.stores) from interrupt
    listed = tuple(ends[request.source] for request in requests)
    return Batch(max(one.exit_code for one in listed), listed)


class _Inner(Progress):
    """Passes the counts of one large archive on."""

    def __init__(self, outer: BatchProgress) -> None:
        self._outer = outer
        self.runs: list[NestedRun] = []

    def finished(self, counts: Mapping[str, int]) -> None:
        """Pass increments on."""
        self._outer.finished(counts)

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Pass failed members on."""
        self._outer.failed(outcomes)

    def nested(self, run: NestedRun) -> None:
        """Keep what became of an archive inside the archive."""
        self.runs.append(run)


def _extract_large(
    request: Request, setup: Setup, max_cost: float | None, told: BatchProgress
) -> ArchiveEnd:
    """Extract one archive with all workers."""
    warnings: list[str] = []
    inner = _Inner(told)
    judge = judge_selection(request.options, warnings.append)
    try:
        report = extract_request(request, setup, max_cost, inner, judge)
    except S3UnzipError as error:
        return _failed(request, error)
    return _ended(request, report, inner.runs, warnings)


def _extract_small(
    requests: Sequence[Request],
    setup: Setup,
    max_cost: float | None,
    told: BatchProgress,
    end: Callable[[Location, ArchiveEnd], None],
) -> None:
    """Extract archives, each by one worker; `end` is called as they end."""
    connections = record_of(setup.stores)
    by_id = {f"archive-{number}": request for number, request in enumerate(requests)}
    jobs = [
        WholeArchive(name, partial(extract_here, request, setup.stores.work, connections, max_cost))
        for name, request in by_id.items()
    ]

    def follow(done: Done | Failed) -> Sequence[Job]:
        request = by_id[done.job]
        if isinstance(done, Failed):  # its workers died again and again
            end(request.source, _failed(request, done.error))
        elif isinstance(done.report, ArchiveEnd):
            end(request.source, done.report)
        return ()

    first = requests[0]
    with Machine(setup, first.source, first.destination, told) as machine:
        pool = machine.make_archive_pool(len(jobs))
        try:
            pool.work(jobs, follow)
        finally:
            pool.close()


def extract_here(
    request: Request,
    home: Location,
    connections: Connections,
    max_cost: float | None,
    context: Context,
) -> ArchiveEnd:
    """Extract one archive in this process, a worker's; what goes wrong is in the result."""
    warnings: list[str] = []
    try:
        with RunLocks(home.key) as locks:

            def planned(plan: PlanSummary) -> None:
                if max_cost is not None:
                    check_cost(plan, max_cost, context)
                is_outer = plan.run.source == request.source
                reached = connections if is_outer else connections.at_destination()
                begin_run(home.key, plan, context, reached)

            def make_pool(run: Run) -> SerialPool:
                return SerialPool(run, context)

            written = read_compared_records(home, request, context.stores)
            judge = judge_selection(request.options, warnings.append)
            claim = locks.claim(request, judge)
            report = run_archive(request, context, make_pool, planned, claim, written)
            nested: list[NestedRun] = []
            if request.options.nested_depth:
                nested = run_nested(report, context, make_pool, planned, locks)
    except S3UnzipError as error:
        return _failed(request, error)
    return _ended(request, report, nested, warnings)


def _ended(
    request: Request, report: Report, nested: Sequence[NestedRun], warnings: Sequence[str]
) -> ArchiveEnd:
    right = all(one.is_right for one in nested)
    code = report.verdict.exit_code or (0 if right else 1)
    source = str(request.source.public)
    return ArchiveEnd(source, code, report, nested=tuple(nested), warnings=tuple(warnings))


def _failed(request: Request, error: S3UnzipError) -> ArchiveEnd:
    return ArchiveEnd(str(request.source.public), error.exit_code, error=str(error))


def _interrupted(
    requests: Sequence[Request], ends: Mapping[Location, ArchiveEnd], config: StoreConfig
) -> InterruptedRunError:
    """Return the error that says how to go on."""
    left = [request for request in requests if request.source not in ends]
    begun = [run for request in left for run in _begun(request, config)]
    commands = "".join(f"\n  s3unzip resume {run}" for run in begun)
    rest = len(left) - len(begun)
    words = f"stopped: {len(ends):,} of {len(requests):,} archives ended"
    if commands:
        words += f"; continue those that had begun with:{commands}"
    if rest > 0:
        words += f"\n{rest:,} archives had not begun: start the same command again"
    return InterruptedRunError(words)


def _begun(request: Request, config: StoreConfig) -> Iterator[str]:
    """Yield the run of a request that has begun and has not ended."""
    stores = open_stores(config)
    for name in runs_of_archive(config.work, request.source):
        records = RunRecords.open(stores, name)
        summary, report = records.find_summary(), records.find_report()
        if summary is None or (report is not None and report.verdict is Verdict.COMPLETED):
            continue
        run = summary.run
        if (run.source, run.destination, run.options) == (
            request.source,
            request.destination,
            request.options,
        ):
            yield name
