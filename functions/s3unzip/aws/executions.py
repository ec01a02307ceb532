"""Executions of the state machine: how they are started, and what follows the end of a run.

An execution is named by its run, so it starts once. StartExecution with the name and the input of
an execution that is at work starts nothing either, and says nothing (API_StartExecution).
"""

import json
from typing import Any

import msgspec
from msgspec.structs import replace

from s3unzip.aws.environment import LambdaConfig, open_client
from s3unzip.aws.events import announce
from s3unzip.aws.telemetry import bind_run, logger, record_archive, record_source
from s3unzip.context import Context
from s3unzip.errors import AccessDeniedError, NotFoundError, S3UnzipError
from s3unzip.model import Next, OnConflict, Pin, Report, Request, execution_name, run_id
from s3unzip.planning.plan import read_tail
from s3unzip.runs.records import RUNS, RunRecords
from s3unzip.settling.nested import has_nested, nested_requests
from s3unzip.settling.source_actions import finish_source

MAX_RESUMED = 100  # executions that go on with one run


def state_of(step: Next, config: LambdaConfig) -> dict[str, Any]:
    """Return the data of the state machine: every field, and the list by its key in the bucket."""
    values: dict[str, Any] = {"tasks": [], "workers": 1, **msgspec.to_builtins(step)}
    if step.list:
        values["list"] = f"{config.work.key}{RUNS}{step.run}/{step.list}"
    return values


def request_of(run: str, request: Request, pin: Pin | None = None) -> dict[str, Any]:
    """Return the input of an execution that begins with Plan; `pin` is the version of the run."""
    return {"run": run, "request": msgspec.to_builtins(request), "pin": msgspec.to_builtins(pin)}


def start(config: LambdaConfig, name: str, given: dict[str, Any]) -> bool:
    """Start the execution `name` with this input; say whether there was none of this name."""
    states = open_client("stepfunctions")
    try:
        states.start_execution(
            stateMachineArn=config.state_machine,
            name=execution_name(name),
            input=json.dumps(given, sort_keys=True),
        )
    except states.exceptions.ExecutionAlreadyExists:
        logger.info("execution is known", execution=name)
        return False
    return True


def start_again(config: LambdaConfig, run: str, request: Request, pin: Pin) -> None:
    """Let a run go on whose report says FAILED, by an execution ``<run>-r2``, ``-r3``, ...

    A second event for the run starts no second execution while one is at work: the input is equal.
    """
    untimed = replace(request, event_time=None)
    for number in range(2, MAX_RESUMED):
        if start(config, f"{run}-r{number}", request_of(run, untimed, pin)):
            logger.info("run goes on", run=run, number=number)
            return
    logger.error("run was resumed too often", run=run)


def end_run(
    report: Report, config: LambdaConfig, context: Context, *, check_replaced: bool = True
) -> None:
    """Do what follows the end of a run whose report is written; it may be repeated.

    Args:
        context: of the step that ended the run; its stores have the run's records.
        check_replaced: whether the archive may have been replaced while the run was at work.
    """
    bind_run(report.run, str(report.source))
    if has_nested(report):
        records = RunRecords.open(context.stores, report.run, context.calls())
        requests = list(nested_requests(records.read_plan().run, report, context))
        for request in requests:
            _start_nested(request, config, context)
        logger.info("nested archives", started=len(requests))
    if check_replaced:
        _follow_newer(report, config, context)
    record_archive(report)
    announce(open_client("events"), config, report)
    if report.archive_left:  # it never fails the step: the run has ended, its verdict stays
        stored = replace(context, stores=config.stores)  # the report is written by now
        try:
            result = finish_source(config.after_success, report, stored).after_success
        except S3UnzipError:
            logger.exception("the report cannot be written again")
            return
        if result is not None:
            record_source(result)


def _start_nested(request: Request, config: LambdaConfig, context: Context) -> None:
    """Start the run of an archive that a run extracted; its id is that of the version there."""
    source, calls = config.stores.source(request.source), context.calls()
    try:
        tail = read_tail(source, request.source, context, calls)
    except NotFoundError:
        logger.info("archive is gone", source=str(request.source))
        return
    run = run_id(request, tail.pin, tail.modified)
    start(config, run, request_of(run, request, tail.pin))


def _follow_newer(report: Report, config: LambdaConfig, context: Context) -> None:
    """Start a run over the newest version of an archive that was replaced during its run.

    Members of the older version may lie where those of the newer one were. With ``never`` the first
    run that wrote a key keeps it. Members that are right stay as they are, so most of the requests
    of that run are HEADs. Nested archives are done again with the one that they are in.
    """
    source, options = report.source, report.options
    in_scope = config.trigger.covers(source.bucket, source.key)
    if report.pin is None or not in_scope or options.on_conflict is OnConflict.NEVER:
        return
    calls, store = context.calls(), config.stores.source(source)
    try:
        found = calls.run("head", lambda: store.head(source))
    except NotFoundError:
        return
    except AccessDeniedError as error:
        logger.warning("cannot tell whether the archive was replaced", error=str(error))
        return
    if found.etag == report.pin.etag:
        return
    again = replace(
        config.request(source.key),
        options=replace(options, on_conflict=OnConflict.SKIP_UNCHANGED),
        again=f"{report.run} {report.rounds}",  # a resumed run that ends is followed once more
    )
    logger.info("archive was replaced during the run", run=report.run)
    _start_nested(again, config, context)
