"""Only a sampled invocation imports the X-Ray SDK, and X-Ray's daemon receives its subsegment."""

import json
import os
import socket
import subprocess
import sys
from typing import Any

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
        while True:
            try:
                sent.append(daemon.recv(65_536))
            except BlockingIOError:
                break
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
