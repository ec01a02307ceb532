"""Extract an archive on this machine.

>>> import tempfile, zipfile
>>> from pathlib import Path
>>> import s3unzip
>>> folder = tempfile.TemporaryDirectory()
>>> path = Path(folder.name, "a.zip")
>>> with zipfile.ZipFile(path, "w") as new:
...     new.writestr("hello.txt", "hello")
>>> report = s3unzip.extract(path, folder.name, s3unzip.Options(key_template="out/{member}"))
>>> report.verdict.value, report.extracted, report.failed
('COMPLETED', 1, 0)
>>> Path(folder.name, "out", "hello.txt").read_text()
'hello'
>>> folder.cleanup()
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.api.after_success import parse_after_success
from s3unzip.api.options import judge_selection, make_policy, read_compared_records
from s3unzip.errors import UsageError
from s3unzip.local.extra import check_extra, clear_extra
from s3unzip.local.machine import Machine, Setup
from s3unzip.local.nesting import run_nested
from s3unzip.local.processes.processors import available_processors
from s3unzip.local.runner import run_archive
from s3unzip.model import Options, Request
from s3unzip.settings import make_tuning
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.stores.locations import parse_destination, parse_source

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from s3unzip.model import NestedRun, Outcome, PlanSummary, Report
    from s3unzip.planning.reading import Reading
    from s3unzip.settings import Tuning
    from s3unzip.stores.ports import ListedObject
    from s3unzip.zip import Policy


class Progress:
    """Told of what happens in a run. Subclass it and override what you need.

    `finished` and `failed` may be called from any thread, the others from the thread of `extract`.
    """

    def planned(self, plan: PlanSummary) -> None:
        """Learn what there is to do, before the first task begins."""

    def finished(self, counts: Mapping[str, int]) -> None:
        """Take increments: extracted, unchanged, failed, and bytes read, copied, written and done.

        `bytes_done` goes up to `PlanSummary.work`. An increment is negative where a worker
        was lost, because its work is done again.
        """

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        """Learn of members that failed, as they fail."""

    def phase(self, name: str) -> None:
        """Learn that a phase of the run begins: plan, scan, link, extract or report."""

    def trouble(self, message: str) -> None:
        """Learn, in one line, that a store does not answer and is tried again."""

    def reported(self, report: Report) -> None:
        """Learn how the run ended, before the archives inside the archive begin."""

    def nested(self, run: NestedRun) -> None:
        """Learn what became of one archive inside the archive."""


def extract(  # noqa: PLR0913 - options of a public function
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    options: Options | None = None,
    *,
    password: bytes | str | None = None,
    workers: int | None = None,
    tuning: Tuning | None = None,
    max_cost: float | None = None,
    after_success: str | None = None,
    stores: StoreConfig | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], object] | None = None,
    delete_extra: Callable[[Sequence[ListedObject]], bool] | None = None,
) -> Report:
    """Extract an archive with worker processes of this machine; return the run's report.

    A member that fails does not raise: the report counts it. The run keeps records below
    `stores.work`, for ``s3unzip show``, ``redrive`` and ``retry``.

    Args:
        source: ``s3://bucket/key``, a path, or an ``http://`` or ``https://`` URL.
        destination: ``s3://bucket/prefix`` or a folder.
        options: which members, under which keys, and what to do where a key exists.
        password: opens encrypted members. A string is used as UTF-8. It is not recorded.
        workers: worker processes. None: one for each processor.
        tuning: how the work is cut. None: the defaults, for so many workers.
        max_cost: dollars. A run whose forecast is above it writes nothing.
        after_success: ``delete``, ``move=LOCATION`` or ``tag=NAME=VALUE``: done to the version that
            was extracted, after the report of a complete run; see `Report.after_success`.
        stores: how S3 and web servers are reached, and where records are kept.
        progress: told of what happens.
        warn: takes a sentence for each glob that no member fits.
        delete_extra: called after a complete run with the objects below its prefix that are no
            members (``key`` and ``size`` in bytes); if it returns True, they are deleted.

    Raises:
        NothingSelectedError: a name is no member's, or `options` select nothing.
        UsageError: a location or an option is wrong, or another process does this run.
        BudgetError: the forecast cost is above `max_cost`.
        StorageError: the archive cannot be read, or the destination cannot be written.
        ServiceFaultError: a store failed while the run was planned.
        InterruptedRunError: Ctrl-C; finished members are on record.
    """
    options = _with_password(options or Options(), password)
    request = _make_request(source, destination, options, after_success)
    policy = make_policy(options, password, request.destination)
    setup = set_up(stores or StoreConfig(), policy, workers, tuning)
    judge = judge_selection(options, warn)
    return extract_request(request, setup, max_cost, progress or Progress(), judge, delete_extra)


def _with_password(options: Options, password: bytes | str | None) -> Options:
    if password is None or options.password_ref is not None:
        return options
    return replace(options, password_ref="argument")  # noqa: S106 - says where it is


def _make_request(
    source: object, destination: object, options: Options, after_success: str | None
) -> Request:
    where = parse_source(_as_text(source))
    rule = parse_after_success(after_success, where) if after_success else None
    target = parse_destination(_as_text(destination))
    return Request(where, target, options, after_success=rule)


def set_up(
    stores: StoreConfig, policy: Policy, workers: int | None, tuning: Tuning | None
) -> Setup:
    """Return how this machine performs runs.

    Raises:
        UsageError: there are no workers.
    """
    processes = len(available_processors()) if workers is None else workers
    if processes < 1:
        raise UsageError(f"workers must be at least 1; it is {processes}")
    given = tuning or make_tuning({"max_workers": processes})
    # On one machine there are no Maps, so batches are not cut for one.
    return Setup(stores, policy, replace(given, max_inline_tasks=0), processes)


def _as_text(location: object) -> str:
    if not isinstance(location, (str, os.PathLike)):
        kind = type(location).__name__
        raise UsageError(f"extract takes a path or a URL, not a {kind}: workers cannot share it")
    return os.fspath(location)


def extract_request(
    request: Request,
    setup: Setup,
    max_cost: float | None,
    progress: Progress,
    judge: Callable[[Reading], None],
    confirm: Callable[[Sequence[ListedObject]], bool] | None = None,
) -> Report:
    """Extract an archive as `extract` does, with what its options came to."""
    if confirm is not None:
        check_extra(request, setup.stores.work, open_stores(setup.stores))
    with Machine(setup, request.source, request.destination, progress) as machine:

        def admit(plan: PlanSummary) -> None:
            machine.admit(plan, max_cost)

        def planned(plan: PlanSummary) -> None:
            admit(plan)
            progress.planned(plan)

        written = read_compared_records(setup.stores.work, request, machine.context.stores)
        claim = machine.locks.claim(request, judge)
        report = run_archive(request, machine.context, machine.make_pool, planned, claim, written)
        if confirm is not None:
            report = clear_extra(report, machine.context, confirm)
        progress.reported(report)
        if request.options.nested_depth:
            context, make_pool = machine.open_nested()
            for one in run_nested(report, context, make_pool, admit, machine.locks):
                progress.nested(one)
        return report
