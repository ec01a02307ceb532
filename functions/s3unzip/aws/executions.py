"""Executions of the state machine, and the steps that follow the report of a run.

The rules:

- The first execution of a run is named RUN. Later executions, RUN-r2, RUN-r3, ..., continue the
  run. The input of an execution contains the request and the version of the archive. If an
  execution with the same name belongs to another archive, an error is raised.
- Only one execution of a run is running at a time. Before another execution is started, the states
  of the existing executions are read. No execution is started while another one is running. If all
  executions have ended, with or without a report, the execution with the next number is started. If
  two callers try concurrently, only one execution is started.
- The history of an execution contains the tasks of the first rounds (`INLINE_ROUNDS`). The tasks of
  later rounds have histories of their own, so that each history is bounded.
- StartExecution with the name and the input of a running execution succeeds without starting
  anything. Any other use of an existing name raises ExecutionAlreadyExists
  (API_StartExecution). DescribeExecution is eventually consistent: it may not find an execution
  that has just started.
- `end_run` is called after each verdict is written. A step may find the report of a run for
  which `end_run` has not completed. The step then calls `end_run` again, perhaps late or
  concurrently. The event may therefore be sent twice: receivers recognize the run by its id.
- With a malware gate, a newer version is opened only if its tag is NO_THREATS_FOUND. Without the
  tag, the run is started by the event for that version: see `s3unzip.aws.events`.
- After the end of every run, the extracted version is compared with the current version of the
  archive. If the versions differ, another run extracts the current version, and overwrites the
  objects of the first run. The id of the new run ends in -again.
- The functions of a stopped execution keep running for at most `WORKER_SECONDS`, and may write
  members of an older version. Therefore an execution RUN-w1, RUN-w2, ... waits that long, then
  compares the versions once more.
"""

import json
from typing import Any, NamedTuple

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from s3unzip.aws.environment import LambdaConfig, open_client
from s3unzip.aws.events import CLEAN, publish_run_event, read_scan_tag
from s3unzip.aws.telemetry import add_archive_metrics, add_source_metrics, bind_run, logger
from s3unzip.context import Context
from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    StorageError,
    UsageError,
)
from s3unzip.model import (
    Location,
    Next,
    OnConflict,
    Options,
    Pin,
    Report,
    Request,
    Run,
    Verdict,
    decode,
)
from s3unzip.planning.reading import read_tail
from s3unzip.run_ids import (
    ArchiveVersion,
    check_same_archive,
    execution_name,
    execution_number,
    run_id,
)
from s3unzip.runs.records import RUNS, RunRecords, round_name
from s3unzip.settling.loop import look_up_run, repeat_request
from s3unzip.settling.nested import has_nested, nested_requests
from s3unzip.settling.report import finish_source
from s3unzip.stores.calls import Calls
from s3unzip.stores.ports import Tail

MAX_RESUMED = 100  # maximum number of executions of one run, including the first
# The history of an execution has at most 25,000 events, including those of the tasks in an inline
# Map: tests/infra/test_dashboard.py counts the events.
INLINE_ROUNDS = 2  # number of inline rounds; later rounds of a run go through a Distributed Map
WORKER_SECONDS = 900  # Lambda stops each function after this time


class RunInput(Struct, frozen=True):
    """The input of an execution; the request may be missing if the execution continues a run."""

    run: str = ""  # id of the run
    request: Request | None = None
    pin: Pin | None = None  # the version of the archive
    failed: bool = False  # whether failed members are extracted again
    wait: int = 0  # seconds until an execution without tasks compares versions; otherwise 0


class Execution(NamedTuple):
    """One execution, from the response to DescribeExecution."""

    status: str
    began: float  # start in Unix seconds, or the time of the redrive if there was one
    input: RunInput


def machine_data(state: Next, config: LambdaConfig) -> dict[str, Any]:
    """Return the data for the state machine: the fields of `state`, and the key of the task list.

    The key is included only for a round with many tasks, because only a Distributed Map reads the
    list. From round `INLINE_ROUNDS` on, a round with few tasks also uses a Distributed Map, to
    bound the history.
    """
    if state.next == "few" and state.round >= INLINE_ROUNDS:
        state = replace(state, next="many", tasks=())
    # The state machine needs these two fields. `to_builtins` omits fields with default values.
    data: dict[str, Any] = {"tasks": [], "workers": 1, **to_builtins(state)}
    if state.next == "many":
        data["list"] = f"{config.work.key}{RUNS}{state.run}/{round_name(state.round)}"
    return data


def find_execution(config: LambdaConfig, name: str) -> Execution | None:
    """Return an execution by its name; None if it does not exist or has only just started."""
    states = open_client("stepfunctions")
    try:
        response = states.describe_execution(
            executionArn=config.state_machine.replace(":stateMachine:", ":execution:") + f":{name}"
        )
    except states.exceptions.ExecutionDoesNotExist:  # DescribeExecution is eventually consistent
        return None
    began = response.get("redriveDate") or response["startDate"]
    return Execution(response["status"], began.timestamp(), decode(response["input"], RunInput))


def find_recorded_run(config: LambdaConfig, run: str) -> Run | Report | None:
    """Return the run in the recorded plan, or else the recorded report; None if there is neither.

    The plan and the report contain the route and the options with which the run began. The
    environment may have changed since then.
    """
    return look_up_run(RunRecords.open(config.stores, run)).run_or_report


class ArrivedArchive(NamedTuple):
    """The current version of an archive, and its run."""

    request: Request
    run: str
    tail: Tail  # the version of the archive and its last bytes
    calls: Calls  # counts all requests about the archive
    refusal: str | None = None  # why the store returns no bytes; the tail then contains no bytes


def find_archive(request: Request, context: Context) -> ArrivedArchive | None:
    """Return the current version of an archive, or None if the archive is gone.

    If the store refuses to return the archive's bytes, `refusal` says why.
    """
    source = context.stores.source(request.source)
    calls = context.calls()
    refusal = None
    try:
        tail = read_tail(source, request.source, context, calls)
    except NotFoundError:
        logger.info("archive is gone", source=str(request.source))
        return None
    except AccessDeniedError:  # permission may be granted before the step is retried
        raise
    except StorageError as error:  # a lasting refusal, unlike `ServiceFaultError`
        refusal = str(error)
        # `stat` returns a tail with the version of the archive, but without bytes.
        tail = calls.run("head", lambda: source.stat(request.source))
    return ArrivedArchive(
        request, run_id(request, tail.pin, tail.modified), tail, calls, refusal=refusal
    )


def start_run(
    config: LambdaConfig,
    archive: ArrivedArchive,
    *,
    state: Next | None = None,
    report: Report | None = None,
) -> None:
    """Start an execution of a run, unless one is already running; calling this again is safe.

    Args:
        config: the configuration of the environment.
        archive: the current version of the archive, and its run.
        state: the state for the first round of a run that is already planned. Only the first
            execution needs the state; later executions read the records.
        report: the FAILED report of the run to resume. An execution that began earlier than this
            failure counts as ended.
    """
    run = archive.run
    data = to_builtins({"run": run, "request": archive.request, "pin": archive.tail.pin})
    planned = {} if state is None else machine_data(state, config)
    if _start_execution(config, execution_name(run), data | planned):  # the first execution
        return
    name = next_execution_name(
        config, run, since=report.finished if report else 0.0, archive=archive
    )
    if name is not None:  # no execution is running
        # The run may have ended while the executions were looked up: read its report again.
        latest = RunRecords.open(config.stores, run, archive.calls).find_report()
        is_final = latest is not None and latest.verdict is not Verdict.FAILED
        if not is_final and _start_execution(config, name, data):
            logger.info("run continues", execution=name)
            return
    logger.info("an execution is running, or the run has ended", run=run)


def next_execution_name(
    config: LambdaConfig,
    run: str,
    *,
    since: float,
    failed_number: int = MAX_RESUMED,
    archive: ArrivedArchive | None = None,
) -> str | None:
    """Return the name of the next execution of a run, or None if an execution is running.

    Args:
        config: the configuration of the environment.
        run: the id of the run.
        since: the time at which the run failed, in Unix seconds; 0 if the run has not failed.
            Executions that began earlier have ended or are about to end, so they do not count as
            running.
        failed_number: the number of the execution that failed. An execution with a higher number
            counts as running even if it began before `since`: the failed execution may have been
            redriven. The default is the highest number of all executions.
        archive: the archive to which every execution must belong; None skips this check.

    Raises:
        UsageError: there are too many executions, or one belongs to another archive.
    """
    for number in range(1, MAX_RESUMED + 1):
        name = execution_name(run, number)
        execution = find_execution(config, name)
        if execution is None:
            return name
        earlier = execution.input
        if archive is not None and earlier.request is not None:
            check_same_archive(
                run,
                archive.request.source,
                archive.tail.pin,
                ArchiveVersion(earlier.request.source, earlier.pin),
            )
        # An execution that began before `since` is about to end, unless its number is higher than
        # `failed_number`.
        if execution.status == "RUNNING" and (execution.began >= since or number > failed_number):
            return None
    raise UsageError(f"{run}: it has had {MAX_RESUMED} executions; find out why it fails")


def _start_execution(config: LambdaConfig, name: str, data: dict[str, Any]) -> bool:
    """Start the execution `name` with this input; return False if the name is already taken."""
    states = open_client("stepfunctions")
    try:
        states.start_execution(
            stateMachineArn=config.state_machine,
            name=name,
            input=json.dumps(data),
        )
    except states.exceptions.ExecutionAlreadyExists:
        return False
    return True


def end_run(
    report: Report,
    config: LambdaConfig,
    context: Context,
    *,
    check_replaced: bool = True,
    is_first: bool = True,
) -> None:
    """Perform the steps that follow the report of a run; calling this again is safe.

    The archive is deleted or tagged last, after `extract_if_replaced` has compared the versions.

    Args:
        report: the recorded report.
        config: the configuration of the environment.
        context: the context of the step that ended the run, made for the route of the run.
        check_replaced: whether the archive might have been replaced during the run.
        is_first: whether the run had no report before.
    """
    bind_run(report.run, str(report.source))
    if has_nested(report):
        run = RunRecords.open(context.stores, report.run, context.calls()).read_plan().run
        requests = list(nested_requests(run, report, context))
        for request in requests:
            _start_current_version(request, config, context)
        logger.info("nested archives", started=len(requests))
    if check_replaced:
        extract_if_replaced(report, config, context)
    add_archive_metrics(report, is_first=is_first)
    publish_run_event(open_client("events"), config, report)
    if report.archive_left:
        try:
            finished = finish_source(config.after_success, report, context)
        # If the action fails, the report says so. An error means that the report was not written.
        except S3UnzipError:
            logger.exception("the report cannot be written again")
        else:
            if finished.after_success is not None:
                add_source_metrics(finished.after_success)


def _start_current_version(request: Request, config: LambdaConfig, context: Context) -> None:
    """Start the run of the current version of an archive, even if no event announces it.

    The archive is nested, or was replaced during a run. Nothing is started if the run has ended
    without failing, if the archive is gone or cannot be read, or if the malware gate does not allow
    the version to be opened.
    """
    try:
        archive = find_archive(request, context)
    except AccessDeniedError:  # permission may be granted before the step is retried
        raise
    except StorageError as error:  # the store refuses even a HEAD
        logger.warning("archive cannot be read", error=str(error))
        return
    if archive is None:
        return
    if archive.refusal is not None:  # `intake` reports the refusal: each version has an event
        logger.warning("archive cannot be read", error=archive.refusal)
        return
    pin = archive.tail.pin
    is_gated = bool(config.scan) and config.covers(request.source)
    if is_gated and read_scan_tag(request.source, pin, config, archive.calls) != CLEAN:
        logger.info("the current version waits for its scan", source=str(request.source))
        return
    report = RunRecords.open(config.stores, archive.run, archive.calls).find_report()
    check_same_archive(archive.run, request.source, pin, report)
    if report is None or report.verdict is Verdict.FAILED:
        start_run(config, archive, report=report)


def extract_if_replaced(
    report: Report, config: LambdaConfig, context: Context, *, functions_ended: bool = False
) -> None:
    """If an archive was replaced during its run, start a run of the current version.

    Args:
        report: the report of the run.
        config: the configuration of the environment.
        context: the context of the step that compares the versions.
        functions_ended: whether all functions of the run have ended. This comparison is then the
            last one.
    """
    if report.pin is None or not is_extracted_again(config, report.source, report.options):
        return
    try:
        current = context.calls().run(
            "head", lambda: config.stores.source(report.source).stat(report.source).pin
        )
    except NotFoundError:
        return
    except AccessDeniedError as error:
        logger.warning("cannot tell whether the archive was replaced", error=str(error))
        return
    if current.etag == report.pin.etag:
        return
    logger.info("archive was replaced during the run", run=report.run)
    # Each cause starts at most one run, so a repeated comparison does not start a second run. If
    # the run is resumed, it has more rounds, and the comparison after its end has another cause.
    cause = f"{report.run} {report.rounds}"
    if functions_ended:  # functions may have overwritten newer members since the first comparison
        cause += " late"
    extract_current_version(repeat_request(report, config.after_success), cause, config, context)


def extract_current_version(
    request: Request, cause: str, config: LambdaConfig, context: Context
) -> None:
    """Extract the current version, because a run of an older version may have overwritten members.

    Call this only if `is_extracted_again` is True. The run leaves correct members unchanged, so
    most of its requests are HEADs. The run also extracts nested archives again.

    Args:
        request: the request for the archive.
        cause: a part of the identity of the run, so that one cause starts only one run.
        config: the configuration of the environment.
        context: the context of the step that starts the run.
    """
    _start_current_version(
        replace(
            request,
            options=replace(request.options, on_conflict=OnConflict.SKIP_UNCHANGED),
            event_time=None,  # no event starts this run
            again=cause,
        ),
        config,
        context,
    )


def compare_later(report: Report, config: LambdaConfig, execution: str) -> None:
    """Start an execution that waits until all functions have ended, then looks for a newer version.

    Nothing is started if newer versions of the archive are not extracted.

    Args:
        report: the report of the run.
        config: the configuration of the environment.
        execution: the name of the execution that failed. For RUN-r2, the new execution is RUN-w2.
    """
    if is_extracted_again(config, report.source, report.options):
        _start_execution(
            config,
            f"{execution_name(report.run)}-w{execution_number(execution)}",
            {"run": report.run, "wait": WORKER_SECONDS},
        )


def is_extracted_again(config: LambdaConfig, source: Location, options: Options) -> bool:
    """Return whether a run of a newer version may overwrite what a run of an older version wrote.

    If no trigger covers the archive, its newer versions do not start runs. With `OnConflict.NEVER`,
    a run does not overwrite objects.
    """
    return config.covers(source) and options.on_conflict is not OnConflict.NEVER
