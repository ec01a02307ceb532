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
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from s3unzip.api.options import at_endpoint, judge_selection, make_policy, parse_after_success
from s3unzip.api.several import check_apart, find_archives
from s3unzip.context import Progress
from s3unzip.errors import InterruptedRunError, S3UnzipError, UsageError
from s3unzip.local.extra import check_extra, clear_extra
from s3unzip.local.machine import Machine, Setup
from s3unzip.local.processors import available_processors
from s3unzip.model import ArchiveEnd, Batch, Location, NestedRun, Options, Outcome, Report, Request
from s3unzip.planning.plan import Plan
from s3unzip.settings import Tuning, make_tuning
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.stores.locations import parse_destination, parse_source
from s3unzip.stores.ports import ListedObject
from s3unzip.zip import Policy


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
    endpoint_url: str | None = None,
    stores: StoreConfig | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], object] | None = None,
    delete_extra: Callable[[Sequence[ListedObject]], bool] | None = None,
) -> Report:
    """Extract an archive with worker processes of this machine; return the run's report.

    Failed members are in the report; nothing is written before all options are checked.

    Args:
        source: ``s3://bucket/key``, a path, or an ``http://`` or ``https://`` URL.
        destination: ``s3://bucket/prefix`` or a folder.
        options: which members, under which keys, and what to do where a key exists.
        password: opens encrypted members. A string is used as UTF-8. It is not recorded.
        workers: worker processes. None: one for each processor.
        tuning: how the work is cut. None: the defaults, for so many workers.
        max_cost: dollars. A run whose estimate is above it writes nothing.
        after_success: ``delete`` or ``tag=NAME=VALUE``, done to the archive of a complete run.
        endpoint_url: URL of the S3 server. None: AWS, or the variable ``AWS_ENDPOINT_URL``.
        stores: how S3 and web servers are reached, and where records are kept.
        progress: told of what happens.
        warn: takes a sentence for each glob that matches no member.
        delete_extra: given the objects below the prefix that are no members; True deletes them.

    Raises:
        UsageError: a location or an option is wrong, nothing is selected, the cost is too high.
        StorageError, ServiceFaultError: a store refused, or failed while the run was planned.
        InterruptedRunError: Ctrl-C; finished members are on record.
    """
    options = _with_password(options or Options(), password)
    where, target = parse_source(_as_text(source)), parse_destination(_as_text(destination))
    request = _make_request(where, target, options, after_success)
    reached = at_endpoint(stores, endpoint_url)
    setup = set_up(reached, make_policy(options, password, target), workers, tuning)
    told = progress or Progress()
    if delete_extra is not None:
        check_extra(request, setup.stores.work, open_stores(setup.stores))
    with Machine(setup, told) as machine:
        return _extract_one(machine, request, max_cost, told, warn, delete_extra)


def _with_password(options: Options, password: bytes | str | None) -> Options:
    if password is None or options.password_ref is not None:
        return options
    return replace(options, password_ref="argument")  # noqa: S106 - says where it is


def _make_request(
    source: Location, destination: Location, options: Options, after_success: str | None
) -> Request:
    rule = parse_after_success(after_success, source, options) if after_success else None
    return Request(source, destination, options, after_success=rule)


def set_up(
    stores: StoreConfig, policy: Policy, workers: int | None, tuning: Tuning | None
) -> Setup:
    """Return how this machine performs runs."""
    processes = len(available_processors()) if workers is None else workers
    if processes < 1:
        raise UsageError(f"workers must be at least 1; it is {processes}")
    given = tuning or make_tuning({"max_workers": processes})
    return Setup(stores, policy, given, processes)


def _as_text(location: object) -> str:
    if not isinstance(location, (str, os.PathLike)):
        kind = type(location).__name__
        raise UsageError(f"extract takes a path or a URL, not a {kind}: workers cannot share it")
    return os.fspath(location)


def _extract_one(
    machine: Machine,
    request: Request,
    max_cost: float | None,
    told: Progress,
    warn: Callable[[str], object] | None,
    confirm: Callable[[Sequence[ListedObject]], bool] | None = None,
) -> Report:
    """Extract an archive, and the archives inside it."""

    def planned(plan: Plan) -> None:
        if max_cost is not None:
            machine.check_cost(plan, max_cost)
        told.planned(plan.summary)

    report = machine.run(request, judge_selection(request.options, warn), planned)
    if confirm is not None:
        report = clear_extra(report, machine.context, confirm)
    told.reported(report)
    for one in machine.run_nested(report):
        told.nested(one)
    return report


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
    progress: Progress | None = None,
) -> Batch:
    """Extract several archives, one after the other; the failure of one does not stop the others.

    Args:
        sources: archives, folders, prefixes (``s3://bucket/in/``) and globs.
        destination: as of `extract`.
        options: as of `extract`.
        password: as of `extract`.
        workers: as of `extract`.
        tuning: as of `extract`.
        max_cost: dollars of each archive.
        after_success: as of `extract`.
        stores: as of `extract`.
        progress: told of what happens.

    Raises:
        UsageError: a location or an option is wrong, or two archives have the same keys.
        StorageError, ServiceFaultError: a word names no archive, or they cannot be listed.
        InterruptedRunError: Ctrl-C; finished members are on record.
    """
    told, config = progress or Progress(), stores or StoreConfig()
    chosen = _with_password(options or Options(), password)
    target = parse_destination(destination)
    found = find_archives(sources, config)
    requests = [_make_request(one, target, chosen, after_success) for one in found]
    check_apart(requests)
    setup = set_up(config, make_policy(chosen, password, target), workers, tuning)
    told.found(len(found), sum(size or 0 for size in found.values()))
    ends: list[ArchiveEnd] = []
    inner = _Inner(told)
    with Machine(setup, inner) as machine:
        for request in requests:
            try:
                ends.append(_end_one(machine, request, max_cost, inner))
            except (InterruptedRunError, KeyboardInterrupt) as interrupt:
                raise _interrupted(len(ends), len(requests), interrupt) from interrupt
            told.ended(ends[-1])
    return Batch(max(one.exit_code for one in ends), tuple(ends))


class _Inner(Progress):
    """Passes the counts of each of several archives on."""

    def __init__(self, outer: Progress) -> None:
        self._outer = outer
        self.runs: list[NestedRun] = []

    def finished(self, counts: Mapping[str, int]) -> None:
        self._outer.finished(counts)

    def failed(self, outcomes: Sequence[Outcome]) -> None:
        self._outer.failed(outcomes)

    def trouble(self, message: str) -> None:
        self._outer.trouble(message)

    def nested(self, run: NestedRun) -> None:
        self.runs.append(run)


def _end_one(
    machine: Machine, request: Request, max_cost: float | None, inner: _Inner
) -> ArchiveEnd:
    """Extract one of several archives; what goes wrong is in the result."""
    warnings: list[str] = []
    inner.runs = []
    source = str(request.source.public)
    try:
        report = _extract_one(machine, request, max_cost, inner, warnings.append)
    except InterruptedRunError:
        raise
    except S3UnzipError as error:
        return ArchiveEnd(source, error.exit_code, error=str(error))
    right = all(one.is_right for one in inner.runs)
    code = report.verdict.exit_code or (0 if right else 1)
    return ArchiveEnd(source, code, report, nested=tuple(inner.runs), warnings=tuple(warnings))


def _interrupted(ended: int, archives: int, interrupt: BaseException) -> InterruptedRunError:
    """Return the error that says how to go on."""
    begun = isinstance(interrupt, InterruptedRunError)
    words = f"stopped: {ended:,} of {archives:,} archives ended"
    if begun:
        words += f"; of the next one: {interrupt}"
    if archives - ended - begun > 0:
        words += (
            f"\n{archives - ended - begun:,} archives had not begun: start the same command again"
        )
    return InterruptedRunError(words)
