"""Every function with real events, over moto's S3, SQS, Step Functions and EventBridge."""

from __future__ import annotations

import json
import random
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from s3unzip.handlers import extract, link, report

from s3unzip.aws.environment import open_worker
from s3unzip.aws.events import NESTED
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.model import Report, Verdict, decode
from s3unzip.runs.records import RunRecords
from s3unzip.settings import EXPRESS_SECONDS, MIB, Variable
from tests.unit.aws.contexts import Invocation
from tests.unit.handlers.pipeline import MEMBERS, Functions, archive, object_created
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.account import Account


def start_run(functions: Functions) -> str:
    """Put an archive and let the plan function start its run; return that."""
    functions.account.put("a.zip", archive())
    functions.plan(object_created("a.zip"))
    (run,) = functions.account.executions()
    return run


def test_an_archive_from_event_to_verdict(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Plan, extract and report of one archive give members, verdict and event."""
    functions = deploy()
    heard = account.listen()
    account.put("a b.zip", archive())
    assert functions.plan(object_created("a b.zip")) == []
    (run,) = account.executions()
    assert all(answer["failed"] == 0 for answer in functions.extract(run))
    assert functions.report(run)["verdict"] == "COMPLETED"
    members = account.objects("members")
    assert members == {f"out/a b/{name}": body for name, body in MEMBERS.items()}
    (event,) = account.receive(heard)
    assert event["detail-type"] == "Archive Extracted"
    assert (event["detail"]["run"], event["detail"]["extracted"]) == (run, 20)
    assert event["resources"] == ["arn:aws:s3:::arrivals/a b.zip"]


def test_a_worker_without_time_leaves_its_task_to_a_round(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """The child ends without a failure, and the report says how many tasks are left."""
    functions = deploy()
    run = start_run(functions)
    begun = datetime.fromtimestamp(time.time() - EXPRESS_SECONDS, UTC).isoformat()
    answers = functions.extract(run, entered=begun)
    assert [answer["unfinished"] for answer in answers] == [20]
    assert functions.report(run)["left"] == 1
    assert functions.extract(run)[0]["unfinished"] == 0
    assert functions.report(run)["verdict"] == "COMPLETED"


def test_an_event_that_comes_twice(deploy: Callable[..., Functions], account: Account) -> None:
    """The second one starts nothing and is consumed, because the run is known."""
    functions = deploy()
    account.put("a.zip", archive())
    event = object_created("a.zip")
    functions.plan(event)
    assert functions.plan(event) == []
    assert len(account.executions()) == 1


def test_an_archive_that_is_gone(deploy: Callable[..., Functions], account: Account) -> None:
    """Its message is consumed, because a missing archive cannot be planned."""
    assert deploy().plan(object_created("gone.zip")) == []
    assert account.executions() == []


def test_a_message_without_sense_comes_back_alone(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Of a batch only the message that failed must come again."""
    functions = deploy()
    account.put("a.zip", archive())
    assert functions.plan(object_created("a.zip"), '{"Hello": 1}') == ['{"Hello": 1}']
    assert len(account.executions()) == 1


def test_a_rejected_archive(deploy: Callable[..., Functions], account: Account) -> None:
    """It has a report, an event and a place in the list of refusals, and no execution."""
    functions = deploy()
    heard = account.listen()
    account.put("bad.zip", b"no archive at all")
    assert functions.plan(object_created("bad.zip")) == []
    assert account.executions() == []
    (event,) = account.receive(heard)
    assert (event["detail-type"], event["detail"]["verdict"]) == ("Archive Rejected", "REJECTED")
    assert RunRecords(functions.run_store(event["detail"]["run"])).find_report()
    (noted,) = account.objects("work", "runs/-refused/")
    assert noted.endswith(event["detail"]["run"])


def test_a_rejected_archive_is_announced_once_an_event(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """The same event twice is one refusal; the archive put again is refused again."""
    functions = deploy()
    heard = account.listen()
    account.put("bad.zip", b"no archive at all")
    event = object_created("bad.zip")
    functions.plan(event, event)
    functions.plan(event)
    assert len(account.receive(heard)) == 1
    assert len(account.objects("work", "runs/-refused/")) == 1
    account.put("bad.zip", b"no archive at all either")
    functions.plan(object_created("bad.zip"))
    assert len(account.receive(heard)) == 1


@pytest.mark.parametrize(("limit", "started"), [("0.0000001", False), ("1000", True), ("", True)])
def test_the_cost_limit(
    deploy: Callable[..., Functions], account: Account, limit: str, *, started: bool
) -> None:
    """A run above runs.max_cost is refused before its first PUT, others are not."""
    functions = deploy(**{Variable.MAX_COST: limit})
    heard = account.listen()
    account.put("a.zip", archive())
    functions.plan(object_created("a.zip"))
    assert bool(account.executions()) is started
    if started:
        assert account.receive(heard) == []
        return
    (event,) = account.receive(heard)
    assert event["detail"]["reason"] == "budget"
    assert "raise runs.max_cost of the environment dev" in event["detail"]["message"]
    assert account.objects("members") == {}


def test_an_execution_that_failed_is_settled(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """EventBridge sends its name; the report says what is missing, and a redrive may begin."""
    functions = deploy()
    heard = account.listen()
    run = start_run(functions)
    functions.run_store(run).write(
        "stop.json", [b'{"verdict":"FAILED","reason":"x","message":"y"}']
    )
    assert functions.report_failure(run)["verdict"] == "FAILED"
    report = decode(functions.run_store(run).read("report.json"), Report)
    assert (report.verdict, report.missing) == (Verdict.FAILED, 20)
    with pytest.raises(NotFoundError):  # or no task of a redrive would begin
        functions.run_store(run).read("stop.json")
    (event,) = account.receive(heard)
    assert event["detail-type"] == "Archive Failed"


def test_a_run_with_tasks_left_is_not_announced(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """The state machine repeats them; then the verdict is announced."""
    functions = deploy()
    heard = account.listen()
    run = start_run(functions)
    records = RunRecords(functions.run_store(run))
    first = functions.report(run)
    assert first["left"] > 0
    assert account.receive(heard) == []
    between = records.find_latest_report()
    assert between is not None
    assert (between.continues, between.message) == (True, "tasks left: 1; the run continues")
    assert b"s3unzip watch " in records.read_page()
    assert records.find_report() is None
    functions.extract(run, "redo")
    again = functions.report(
        run, earlier={name: first[name] for name in ("left", "wait", "rounds")}
    )
    assert (again["left"], again["verdict"]) == (0, "COMPLETED")
    assert len(account.receive(heard)) == 1
    last = records.find_report()
    assert last is not None
    assert last.settling.put > between.settling.put  # the report between is counted


def test_a_run_that_fails_between_two_rounds(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """No later round does what is left, so the report after the failure is the last one."""
    functions = deploy()
    run = start_run(functions)
    assert functions.report(run)["left"] == functions.report_failure(run)["left"] == 1
    last = RunRecords(functions.run_store(run)).find_report()
    assert last is not None
    assert (last.verdict, last.reason) == (Verdict.FAILED, "tasks-failed")


def test_nested_archives_are_queued(deploy: Callable[..., Functions], account: Account) -> None:
    """The report queues the archives among the members, and the planner takes them."""
    functions = deploy(**{Variable.OPTIONS: '{"nested_depth": 1}'})
    account.put("a.zip", archive(Entry("in.zip", build(Entry("deep.txt", b"deep")))))
    functions.plan(object_created("a.zip"))
    (run,) = account.executions()
    functions.extract(run)
    functions.report(run)
    (message,) = account.receive(account.variables[Variable.QUEUE])
    assert functions.plan(message) == []
    assert NESTED in message
    (inner,) = set(account.executions()) - {run}
    functions.extract(inner)
    functions.report(inner)
    assert account.objects("members", "out/a/in/") == {"out/a/in/deep.txt": b"deep"}


def test_a_huge_member_is_scanned_linked_and_extracted(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Extract scans and extracts the slices of a member, link fits them together."""
    tuning = {"split_from": 6 * MIB, "segment_bytes": 3 * MIB, "part_bytes": 5 * MIB}
    tuning["max_direct_members"] = 0
    functions = deploy(**{Variable.TUNING: json.dumps(tuning)})
    content = random.Random(1).randbytes(8 * MIB).hex().encode()
    account.put("huge.zip", build(Entry("huge.txt", content, DEFLATE)))
    functions.plan(object_created("huge.zip"))
    (run,) = account.executions()
    assert functions.link(run)["left"] > 0  # nothing is scanned yet
    answers = functions.scan(run)
    assert len(answers) > 1
    assert all(answer["found"] for answer in answers[1:])
    assert functions.link(run)["left"] == 0
    functions.extract(run)
    assert functions.report(run)["verdict"] == "COMPLETED"
    assert account.objects("members") == {"out/huge/huge.txt": content}


@pytest.mark.parametrize("handler", [extract, report])
def test_a_call_that_only_starts_an_environment(
    deploy: Callable[..., Functions], account: Account, handler: ModuleType
) -> None:
    """It answers at once, and reads and writes nothing."""
    deploy()
    assert handler.handler({"warm": True}, Invocation()) == {}
    assert account.objects("work") == {}


@pytest.mark.parametrize(("handler", "name"), [(extract, "task"), (link, "run")])
def test_an_event_that_lacks_something(
    deploy: Callable[..., Functions], handler: object, name: str
) -> None:
    """A function that is called by hand names the missing field."""
    deploy()
    event = {} if name == "run" else {"run": RUN}
    with pytest.raises(UsageError, match=f"the event has no '{name}'"):
        handler.handler(event, Invocation())  # type: ignore[attr-defined]  # a module


RUN = {
    "id": "a-0",
    "source": {"scheme": "s3", "bucket": "arrivals", "key": "a.zip"},
    "pin": {"size": 1},
    "destination": {"scheme": "s3", "bucket": "members", "key": "out/"},
    "options": {},
    "key_prefix": "out/a/",
    "created": 1.0,
}


def test_a_worker_is_made_once(deploy: Callable[..., Functions]) -> None:
    """The environment is read at the first call only."""
    deploy()
    assert open_worker() is open_worker()
