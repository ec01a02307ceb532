"""Direct runs whose function is killed: SIGKILL to a process of its own, at points of its time."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from s3unzip.handlers import plan

from s3unzip.model import Verdict
from s3unzip.runs.records import RunRecords
from s3unzip.settings import Variable
from tests.patience import HANG_SECONDS
from tests.unit.aws.contexts import Invocation
from tests.unit.handlers.pipeline import MEMBERS, Functions, object_created
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.account import Account

LIMIT = 1.5  # seconds that the function has: until then nobody takes its run over
TUNING = json.dumps({"margin_seconds": 0.1})
POINTS = 6
# Lambda imports the functions before the invocation, so each process is a fork of one that did.
# They write their log to stdout.
ENVIRONMENTS = f"""
import json, os, signal, sys, time
from s3unzip.handlers import plan
from tests.unit.aws.contexts import Invocation

for line in sys.stdin:
    event, seconds = json.loads(line)
    began = time.monotonic()
    process = os.fork()
    if not process:
        os.dup2(2, 1)
        plan.handler(event, Invocation({LIMIT}))
        os._exit(0)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(process, signal.SIGKILL)
    status = os.waitpid(process, 0)[1]
    print(json.dumps([status, time.monotonic() - began]), flush=True)
"""
Invoke = Callable[[dict[str, Any], float | None], float]


@pytest.fixture
def functions(account: Account, monkeypatch: pytest.MonkeyPatch) -> Functions:
    """The functions of an account that counts the versions of its members."""
    account.deploy(**{Variable.TUNING.value: TUNING})
    for name, value in account.variables.items():
        monkeypatch.setenv(name, value)
    s3 = account.client("s3")
    s3.put_bucket_versioning(Bucket="members", VersioningConfiguration={"Status": "Enabled"})
    return Functions(account, Invocation())


@pytest.fixture
def invoke(functions: Functions) -> Iterator[Invoke]:
    """A function that lets a process take a message, and kills it after so many seconds.

    It returns what the process took.
    """
    del functions  # deployed
    with subprocess.Popen(
        [sys.executable, "-c", ENVIRONMENTS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdin is not None

        def take(record: dict[str, Any], seconds: float | None) -> float:
            assert parent.stdin is not None
            assert parent.stdout is not None
            parent.stdin.write(json.dumps([{"Records": [record]}, seconds]) + "\n")
            parent.stdin.flush()
            status, taken = json.loads(parent.stdout.readline())
            assert status in {0, None if seconds is None else signal.SIGKILL}
            return float(taken)

        yield take
        parent.stdin.close()
        assert parent.wait(HANG_SECONDS) == 0


def receive(account: Account) -> dict[str, Any]:
    """Queue an archive's event; return what Lambda makes of the message."""
    sqs, url = account.client("sqs"), account.variables[Variable.QUEUE]
    sqs.send_message(QueueUrl=url, MessageBody=json.dumps(object_created("a.zip")))
    (message,) = sqs.receive_message(QueueUrl=url, VisibilityTimeout=600)["Messages"]
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": {"ApproximateReceiveCount": "1"},
    }


def deliver_again(account: Account, record: dict[str, Any]) -> None:
    """Deliver the message again, and the copy that replaces it until it is done, as SQS does."""
    again = {**record, "attributes": {"ApproximateReceiveCount": "2"}}
    assert plan.handler({"Records": [again]}, Invocation()) == {"batchItemFailures": []}
    sqs, url = account.client("sqs"), account.variables[Variable.QUEUE]
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=600)
    (body,) = (one["Body"] for one in found["Messages"] if record["messageId"] in one["Body"])
    copy = {**record, "messageId": "copy", "body": body}
    deadline = time.monotonic() + HANG_SECONDS
    while plan.handler({"Records": [copy]}, Invocation())["batchItemFailures"]:
        assert time.monotonic() < deadline
        time.sleep(LIMIT / 3)


def test_every_kill_ends_in_the_same_state(
    functions: Functions, invoke: Invoke, account: Account
) -> None:
    """Wherever it is killed, the archive is whole, its run has a report, and no upload is left."""
    account.put("a.zip", make_archive(MEMBERS))
    heard = account.listen()
    whole = invoke(receive(account), None)
    assert len(account.receive(heard)) == 1
    for point in range(POINTS):
        members = {**MEMBERS, "version": b"%d" % point}
        account.put("a.zip", make_archive(members))
        check_kill(functions, invoke, members, whole * point / POINTS, heard)


def make_archive(members: dict[str, bytes]) -> bytes:
    """Return an archive of small members."""
    return build(*(Entry(name, body, DEFLATE) for name, body in members.items()))


def check_kill(
    functions: Functions,
    invoke: Invoke,
    members: dict[str, bytes],
    seconds: float,
    heard: str,
) -> None:
    """Kill one invocation, let the others do what is left, and look at what there is then."""
    account = functions.account
    before = set(account.objects("work"))
    versions = len(account.client("s3").list_object_versions(Bucket="members").get("Versions", []))
    record = receive(account)
    invoke(record, seconds)
    reported = any(key.endswith("report.json") for key in set(account.objects("work")) - before)
    started = set(account.executions())
    deliver_again(account, record)
    for run in set(account.executions()) - started:
        functions.plan_run(run)
        functions.extract(run)
        functions.report(run)
    (key,) = (k for k in set(account.objects("work")) - before if k.endswith("/report.json"))
    report = RunRecords(functions.run_store(key.split("/")[1])).find_report()
    assert report is not None
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, len(members))
    assert account.objects("members") == {f"out/a/{name}": members[name] for name in members}
    s3 = account.client("s3")
    assert not s3.list_multipart_uploads(Bucket="members").get("Uploads")
    written = len(s3.list_object_versions(Bucket="members")["Versions"]) - versions
    assert len(members) <= written <= 2 * len(members)
    # Killed between its report and its end, a function may have sent the event already.
    assert 1 <= len(account.receive(heard)) <= 1 + reported
