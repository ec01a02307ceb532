"""What the functions measure: each metric by name, unit and dimensions; what X-Ray receives."""

import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import botocore.session
import pytest
from msgspec.structs import replace

from s3unzip.aws.events import admit
from s3unzip.aws.telemetry import (
    CLIENT_LIBRARIES,
    ENDS,
    STOPPED_RUNS,
    add_metrics,
    metrics,
    record_archive,
    record_plan,
    record_source,
    record_task,
    timed,
)
from s3unzip.model import (
    Report,
    Requests,
    SourceAction,
    SourceResult,
    SourceState,
    TaskKind,
    TaskReport,
    Verdict,
)
from s3unzip.runs.step import STOPPED
from s3unzip.settings import METRICS, NAMESPACE, SERVICE
from tests.support.reports import PLAN, REPORT, RUN

REQUESTS = Requests(get=5, head=1, put=3, list=2, part=4, throttled=7)
PLANNED = replace(PLAN, run=replace(RUN, event_time=1.0), requests=REQUESTS)
TASK = TaskReport(
    "batch-1", TaskKind.BATCH, members=3, extracted=3, requests=REQUESTS, put_seconds=0.14
)

EVERY_END = (*ENDS.values(), STOPPED_RUNS)


def report_of(verdict: Verdict) -> Report:
    """Return the report of a run that took 10 s, 12 s after the archive was put."""
    return replace(REPORT, verdict=verdict, event_time=1_000.0, started=1_002.0, finished=1_012.0)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No test leaves metrics to the next one."""
    metrics.clear_metrics()
    yield
    metrics.clear_metrics()


def _emitted() -> dict[str, list[float]]:
    line: dict[str, Any] = dict(metrics.serialize_metric_set())
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == NAMESPACE
    assert sorted(directive["Dimensions"][0]) == ["environment", "service"]
    for metric in directive["Metrics"]:
        assert metric["Unit"] == METRICS[metric["Name"]]
    return {metric["Name"]: line[metric["Name"]] for metric in directive["Metrics"]}


def test_every_metric_is_emitted() -> None:
    """A run with every step emits all that `METRICS` names."""
    record_plan(PLANNED)
    record_task(TASK)
    add_metrics(DirectHandovers=1)
    assert not admit(RUN.source, "THREATS_FOUND", ("EICAR-Test-File (not a virus)",))
    with timed("SettleDuration"):
        record_archive(report_of(Verdict.COMPLETED))
    record_source(SourceResult(SourceAction.DELETE, SourceState.DONE))
    assert _emitted().keys() == METRICS.keys()


REQUESTED = {"BytesRead", "ReadRequests", "WriteRequests", "S3Throttles"}
PLAN_METRICS = {"PlanDuration", "MembersFailed", *REQUESTED}
TASK_METRICS = {
    "TaskDuration",
    "MembersExtracted",
    "MembersFailed",
    "MembersUnchanged",
    "BytesWritten",
    "PutLatency",
    *REQUESTED,
}


@pytest.mark.parametrize(
    ("record", "names"),
    [
        (lambda: record_plan(PLANNED), PLAN_METRICS | {"QueueDelay"}),
        (lambda: record_plan(PLAN), PLAN_METRICS),
        (lambda: record_task(TASK), TASK_METRICS),
        (lambda: record_archive(REPORT), {*EVERY_END, "RunDuration"}),
        (lambda: record_archive(report_of(Verdict.COMPLETED), first=False), {*EVERY_END}),
    ],
    ids=["plan", "no event", "task", "no event of an archive", "resumed days later"],
)
def test_each_step_emits_its_metrics(record: Callable[[], None], names: set[str]) -> None:
    """A run without an event waited for none; a resumed one was not slow."""
    record()
    assert _emitted().keys() == names


@pytest.mark.parametrize(
    "record", [lambda: record_plan(PLANNED), lambda: record_task(TASK)], ids=["plan", "task"]
)
def test_steps_count_their_requests(record: Callable[[], None]) -> None:
    """Plan and extract each emit what they read, wrote and waited for."""
    record()
    counts = {"ReadRequests": [6.0], "WriteRequests": [9.0], "S3Throttles": [7.0]}
    assert counts.items() <= _emitted().items()


@pytest.mark.parametrize(("puts", "latency"), [(0, None), (4, [35.0])])
def test_mean_latency_of_puts(puts: int, latency: list[float] | None) -> None:
    """The latency is the mean of PUTs, parts and copies in milliseconds; without any, none."""
    record_task(replace(TASK, requests=Requests(put=puts)))
    assert (METRICS["PutLatency"], _emitted().get("PutLatency")) == ("Milliseconds", latency)


@pytest.mark.parametrize(
    ("verdict", "reason", "metric"),
    [
        *((verdict, None, ENDS[verdict]) for verdict in Verdict),
        (Verdict.FAILED, STOPPED, STOPPED_RUNS),  # by somebody: no alarm of failures rings
    ],
)
def test_one_end_is_counted(
    verdict: Verdict, reason: str | None, metric: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The metric of the verdict is 1, the others are 0; failures are logged by reason."""
    caplog.set_level(logging.INFO, SERVICE)
    record_archive(replace(report_of(verdict), reason=reason, reasons={"crc-mismatch": 2}))
    expected = {name: [float(name == metric)] for name in EVERY_END}
    expected |= {"ArchiveDuration": [12.0], "RunDuration": [10.0]}
    assert expected.items() <= _emitted().items()
    assert caplog.messages == ["archive", "failures"]


@pytest.mark.parametrize(
    ("size", "pace"),
    [
        ({}, 12.0),
        ({"members": 400_000}, 3.0),
        ({"bytes_in": 20_000_000_000, "bytes_out": 60_000_000_000}, 2.0),
    ],
)
def test_the_pace_of_an_archive(size: dict[str, Any], pace: float) -> None:
    """A large one may take longer: its seconds are for each 10 GB or 100,000 members."""
    record_archive(replace(report_of(Verdict.COMPLETED), **size))
    assert _emitted()["ArchivePace"] == [pace]


def test_a_step_that_fails_has_no_duration() -> None:
    """Only what ended well says how long the step takes."""
    with pytest.raises(ValueError, match="no link"), timed("SettleDuration"):
        raise ValueError("no link")
    assert metrics.metric_set == {}


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_client_libraries_log_warnings_only(caplog: pytest.LogCaptureFixture, level: int) -> None:
    """With the root logger at Lambda's level a client adds no line; its warnings come through."""
    caplog.set_level(level)
    session = botocore.session.get_session()
    session.set_credentials("id", "secret")
    session.create_client("sqs", region_name="eu-west-1")
    logging.getLogger("another.library").info("heard")
    for name in CLIENT_LIBRARIES:
        logging.getLogger(f"{name}.part").warning("warned")
    heard = [(record.name, record.message) for record in caplog.records]
    warned = [(f"{name}.part", "warned") for name in CLIENT_LIBRARIES]
    assert heard == [("another.library", "heard"), *warned]


@pytest.mark.parametrize(
    ("level", "lines"),
    [("DEBUG", ["info", "error"]), ("INFO", ["info", "error"]), ("ERROR", ["error"])],
)
def test_metrics_survive_every_log_level(level: str, lines: list[str]) -> None:
    """The level of the environment filters the logger's lines, and never a line of metrics."""
    code = (
        "from s3unzip.aws.telemetry import logger, metrics\n"
        "logger.info('info'); logger.error('error')\n"
        "metrics.add_metric('ArchivesFailed', 'Count', 1); metrics.flush_metrics()\n"
    )
    lambda_level = "DEBUG" if level == "DEBUG" else "INFO"  # as infra/functions.py sets it
    variables = {"AWS_LAMBDA_LOG_LEVEL": lambda_level, "POWERTOOLS_LOG_LEVEL": level}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=True,
    )
    *logged, measured = map(json.loads, done.stdout.splitlines())
    assert ([line["message"] for line in logged], measured["ArchivesFailed"]) == (lines, [1.0])


ROOT = "1-5759e988-bd862e3fe1be46a994272793"
# Lambda's mode of the SDK is chosen when it is imported, so the functions have their own process.
FUNCTION = """
import os, sys
from s3unzip.aws.telemetry import bind_run, lambda_function
from tests.support.contexts import Invocation

@lambda_function
def handler(event, context):
    bind_run(event)
    if event == "bad":
        raise ValueError(event)
    return event

def invoke(event, header):
    if header is None:
        os.environ.pop("_X_AMZN_TRACE_ID", None)
    else:
        os.environ["_X_AMZN_TRACE_ID"] = header
    try:
        print(handler(event, Invocation()), "aws_xray_sdk" in sys.modules)
    except ValueError as error:
        print("raised", error)

for event, header in HEADERS:
    invoke(event, header)
"""


def _header(sampled: str) -> str:
    return f"Root={ROOT};Parent=53995c3f42cd8ad8;Sampled={sampled};Lineage=1:a87bd80c:0"


def run(invocations: list[tuple[str, str | None]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Invoke a traced function in a new process; return its answers and the subsegments sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
        daemon.bind(("127.0.0.1", 0))
        daemon.setblocking(False)  # noqa: FBT003 - its only argument
        told = os.environ | {
            "AWS_XRAY_DAEMON_ADDRESS": f"127.0.0.1:{daemon.getsockname()[1]}",
            "LAMBDA_TASK_ROOT": "/var/task",
        }
        told.pop("POWERTOOLS_TRACE_DISABLED", None)
        code = FUNCTION.replace("HEADERS", repr(invocations))
        done = subprocess.run(
            [sys.executable, "-c", code], env=told, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        sent = []
        with suppress(BlockingIOError):
            while True:
                sent.append(daemon.recv(65_536))
    return done.stdout.splitlines(), [json.loads(one.partition(b"\n")[2]) for one in sent]


def test_only_a_sampled_invocation_imports_the_sdk() -> None:
    """Nothing is sent if the header says no, nothing, or is missing; a later one is not cold."""
    answers, sent = run(
        [("a", _header("0")), ("b", _header("?")), ("c", None), ("d", _header("1"))]
    )
    assert answers == ["a False", "b False", "c False", "d True"]
    assert [one["annotations"] for one in sent] == [
        {"run": "d", "ColdStart": False, "Service": "s3unzip"}
    ]


def test_a_sampled_invocation_is_a_subsegment_with_its_run() -> None:
    """It is named after the handler, says that the start was cold, and has the error, if any."""
    answers, (good, bad) = run([("a", _header("1")), ("bad", _header("1"))])
    assert answers == ["a True", "raised bad"]
    assert (good["name"], good["trace_id"]) == ("## handler", ROOT)
    assert good["annotations"] == {"run": "a", "ColdStart": True, "Service": "s3unzip"}
    assert bad["fault"] is True
    assert "bad" in json.dumps(bad["cause"])
