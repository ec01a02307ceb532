"""Commands for a deployed environment: ``submit``, ``doctor``."""

import sys
import time
from collections import Counter
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.cli.arguments import DAY, Arguments
from s3unzip.cli.commands import SERVER_OPTIONS, command
from s3unzip.cli.terminal import confirm, print_json
from s3unzip.errors import InterruptedRunError, S3UnzipError, UsageError
from s3unzip.model import Location
from s3unzip.operate.checks import CheckResult, CheckStatus
from s3unzip.operate.doctor import diagnose
from s3unzip.operate.runs import DeployedRuns
from s3unzip.operate.submit import (
    MissingArchives,
    find_ended,
    find_missing,
    list_archives,
    send_events,
    start_missing,
)
from s3unzip.pricing import price_archives
from s3unzip.printable import printable, show_bytes, show_count, show_dollars, show_time

REPORT_EVERY = 10_000  # number of archives between two progress lines
MISSING_DAYS = 7.0  # default of --days
REQUIRED = {"required": True}


class Submission(Struct, frozen=True):
    """The result of ``s3unzip submit``."""

    environment: str
    archives: int
    size: int  # total size in bytes
    outside: int  # archives skipped because no trigger of the environment covers them
    ended: int  # archives skipped because they have a verdict
    dollars: float  # cost estimated from the sizes
    queued: int = 0
    routes: dict[str, int] = {}  # number of archives for each route


class Diagnosis(Struct, frozen=True):
    """All results of one environment, as ``s3unzip doctor --json`` prints them."""

    environment: str
    checks: tuple[CheckResult, ...]


@command(
    f"sources env {SERVER_OPTIONS} missing days max_cost dry_run yes json",
    env=REQUIRED,
    sources={"help": "s3://bucket/prefix/, a glob, or an archive."},
    dry_run={"help": "Print what was found; queue nothing."},
)
def submit(arguments: Arguments) -> int:
    """Queue archives that are already in the ingest bucket.

    It is safe to repeat the command: no second run starts for an archive whose run has begun or
    ended.

    With --missing, compares the ingest bucket with the runs, queues the archives whose events never
    arrived, and resumes the runs that never reached a verdict. Also finds archives that should have
    been deleted or tagged after their runs (``[after_success]``), but were not. SRC may be left
    out.

    Exit code: 0 queued, 1 the user declined, 2 invalid request or above --max-cost. With --missing:
    0 if every archive has a verdict, is being extracted or has just been started; 1 if some
    archives remain.
    """
    if arguments.days is not None and not arguments.missing:
        raise UsageError("submit: --days can be given only with --missing")
    if not arguments.sources and not arguments.missing:
        raise UsageError("submit: name archives (SRC), or give --missing")
    if not (arguments.yes or arguments.dry_run or sys.stdin.isatty()):
        raise UsageError(
            "submit: standard input is no terminal, so nobody can be asked; look with "
            "--dry-run first, then add --yes"
        )
    runs = arguments.deployed()
    if arguments.missing:
        return _submit_missing(arguments, runs)
    return _submit_named(arguments, runs)


def _submit_named(arguments: Arguments, runs: DeployedRuns) -> int:
    """Queue the archives that the arguments name, if the user agrees; return the exit code."""
    submission, keys = _prepare_submission(arguments.sources, runs)
    if not arguments.json:
        _print_submission(submission)
    may_queue = _may_start("Queue", arguments, count=len(keys), dollars=submission.dollars)
    if may_queue:
        submission = replace(submission, queued=_queue(runs, keys))
    else:
        explanation = ""  # with --dry-run, or if the user declined
        if not keys and submission.ended:
            explanation = (
                ": every archive already has a verdict; to list the runs, use: "
                f"s3unzip runs{runs.env_options}"
            )
        elif not keys:
            explanation = f": no archive was found that {runs.environment} accepts"
        sys.stderr.write(f"nothing is queued{explanation}\n")
    if arguments.json:
        print_json(submission)
    was_declined = bool(keys) and not may_queue and not arguments.dry_run
    return int(was_declined)


def _prepare_submission(names: Sequence[str], runs: DeployedRuns) -> tuple[Submission, list[str]]:
    """Return the figures of a submission, and the keys of the archives that have no verdict."""
    sizes, uncovered_count = list_archives(names, runs)
    ended = find_ended(runs, list(sizes))
    for key in ended:
        del sizes[key]
    size = sum(sizes.values())
    routes = (runs.config.request(key).route for key in sizes)
    submission = Submission(
        runs.environment,
        len(sizes),
        size,
        outside=uncovered_count,
        ended=len(ended),
        dollars=price_archives(len(sizes), size),
        routes=dict(Counter(route.name for route in routes if route is not None)),
    )
    return submission, list(sizes)


def _print_submission(submission: Submission) -> None:
    text = (
        f"{show_count(submission.archives, 'archive')} to extract, "
        f"{show_bytes(submission.size)}, about {show_dollars(submission.dollars)} "
        "(estimated from their sizes)"
    )
    if submission.routes:
        text += "; by route: " + ", ".join(
            f"{name} {count:,}" for name, count in sorted(submission.routes.items())
        )
    if submission.ended:
        text += f"; left out: {submission.ended:,} with a verdict"
    if submission.outside:
        text += f"; left out: {submission.outside:,} that {submission.environment} does not accept"
    sys.stdout.write(f"{text}\n")


def _may_start(verb: str, arguments: Arguments, *, count: int, dollars: float) -> bool:
    """Return whether the runs of `count` archives may start; ask the user if no option decides.

    Raises:
        UsageError: the estimate is above ``--max-cost``.
    """
    limit = arguments.max_cost
    if limit is not None and dollars > limit:
        # Both amounts are shown with enough digits to tell them apart.
        raise UsageError(
            f"the estimate is {show_dollars(dollars, limit)} for {show_count(count, 'archive')}, "
            f"above the limit of {show_dollars(limit, dollars)}. Nothing is queued: raise "
            "--max-cost, or name fewer archives"
        )
    if arguments.dry_run or not count:
        return False
    return arguments.yes or confirm(f"{verb} {show_count(count, 'archive')}?")


def _queue(runs: DeployedRuns, keys: list[str]) -> int:
    """Queue an event for each key of the ingest bucket; return the number of events queued.

    `send_events` writes the current time into each event. A run's duration begins at this time, not
    at the upload of the archive.
    """
    queued = 0
    try:
        for sent in send_events(
            runs.client("sqs"),
            runs.outputs["QueueUrl"],
            [Location("s3", runs.config.environment_defaults.ingest_bucket, key) for key in keys],
        ):
            if sent // REPORT_EVERY > queued // REPORT_EVERY:  # another progress line is due
                sys.stderr.write(f"queued {sent:,} archives\n")
            queued = sent
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"stopped after {queued:,} of {show_count(len(keys), 'archive')}; the same command "
            "queues them all again, and none is extracted twice"
        ) from None
    except S3UnzipError as error:
        raise type(error)(
            f"stopped after {queued:,} of {show_count(len(keys), 'archive')}: {error}"
        ) from None
    sys.stderr.write(f"queued {show_count(queued, 'archive')}: s3unzip runs{runs.env_options}\n")
    return queued


def _submit_missing(arguments: Arguments, runs: DeployedRuns) -> int:
    """Start runs for the archives without a verdict, if the user agrees; return the exit code."""
    days = arguments.days
    if days is None:
        days = MISSING_DAYS
    missing = find_missing(runs, time.time() - days * DAY, arguments.sources)
    if not arguments.json:
        _print_missing(missing, runs.env_options)
    startable = missing.startable
    count = len(startable)
    if _may_start(
        "Start",
        arguments,
        count=count,
        dollars=price_archives(count, sum(archive.size for archive in startable)),
    ):
        try:
            start_missing(runs, startable)
        except KeyboardInterrupt:
            raise InterruptedRunError(
                f"stopped; some of {show_count(count, 'archive')} may have been started: repeat "
                "the command to list and start the others"
            ) from None
        missing = replace(missing, started=count)
        sys.stderr.write(f"{count:,} started: s3unzip runs{runs.env_options}\n")
    if arguments.json:
        print_json(missing)
    return int(missing.started < len(missing.unsettled))  # 1 if some archives remain


def _print_missing(missing: MissingArchives, env_options: str) -> None:
    """Print archives without a verdict, archives not deleted or tagged after success, and counts.

    `env_options` contains the options that select the environment in the printed commands.
    """
    for archive in missing.unsettled:
        if archive.state == "no run":
            detail = ""
        elif archive.state == "not readable":
            detail = f"  {printable(archive.message)}"
        else:
            detail = f"  s3unzip resume {archive.run}{env_options}"
        sys.stdout.write(
            f"{show_time(archive.put)}  {archive.state:12}  "
            f"{show_bytes(archive.size):>9}  {printable(str(archive.source))}{detail}\n"
        )
    left_after_success = sum(archive.state == "archive left" for archive in missing.unsettled)
    counts = (
        f"{show_count(missing.archives, 'archive')}: {missing.running:,} running, "
        f"{len(missing.unsettled) - left_after_success:,} without a verdict"
    )
    if left_after_success:
        counts += f", {left_after_success:,} not deleted or tagged after success"
    sys.stdout.write(f"{counts}\n")


@command(f"env {SERVER_OPTIONS} no_canary wait json", env=REQUIRED)
def doctor(arguments: Arguments) -> int:
    """Check a deployed environment, and advise how to fix problems.

    Exit code: 0 all checks passed, perhaps with warnings; 1 a check failed.
    """
    checks = []
    for check in diagnose(
        arguments.deployed(), arguments.wait, with_canary=not arguments.no_canary
    ):
        checks.append(check)
        if not arguments.json:
            sys.stdout.write(f"{check.status:8} {check.name:19} {printable(check.message)}\n")
            if check.advice:
                sys.stdout.write(f"{'':8} -> {printable(check.advice)}\n")
            sys.stdout.flush()
    counts = Counter(check.status for check in checks)
    failures = counts[CheckStatus.FAILURE]
    if arguments.json:
        print_json(Diagnosis(arguments.env or "", tuple(checks)))
    else:
        sys.stdout.write(
            f"{counts[CheckStatus.OK]} ok, {show_count(counts[CheckStatus.WARNING], 'warning')}, "
            f"{show_count(failures, 'failure')}\n"
        )
    return int(failures > 0)
