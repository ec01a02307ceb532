"""Runs of a deployed environment over moto's CloudFormation, Step Functions and S3."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import botocore.session
import pytest
from botocore.exceptions import ClientError
from moto.backends import get_backend
from tests.unit.handlers.pipeline import Functions, object_created

from s3unzip.cli.main import main
from s3unzip.errors import NotFoundError, S3UnzipError, StorageError, UsageError
from s3unzip.operate.runs import DeployedRuns
from s3unzip.settings import Variable
from s3unzip.stores.factory import StoreConfig
from tests.zips import Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.account import Account


def put(functions: Functions, key: str, *, bad: bool = False) -> str:
    """Put an archive, plan it, and return its run."""
    body = bytearray(build(Entry("good", b"g" * 300), Entry("bad", b"x" * 500)))
    if bad:
        body[body.index(b"x" * 500)] ^= 1
    functions.account.put(key, bytes(body))
    before = set(functions.account.executions())
    functions.plan(object_created(key))
    (run,) = set(functions.account.executions()) - before
    return run


def end(functions: Functions, run: str) -> None:
    """Let Step Functions end the execution of a run."""
    machine = functions.account.outputs["StateMachineArn"]
    execution = f"{machine.replace(':stateMachine:', ':execution:')}:{run}"
    functions.account.client("stepfunctions").stop_execution(executionArn=execution)


def test_all_clients_have_one_session(
    functions: Functions, open_runs: Callable[[], DeployedRuns], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of S3 and of all other services come from one session, which reads the files once."""
    del functions  # deployed
    real, made = botocore.session.get_session, list[object]()

    def make() -> object:
        made.append(real())
        return made[-1]

    monkeypatch.setattr(botocore.session, "get_session", make)
    runs = open_runs()
    assert list(runs.recent(1)) == []
    runs.client("sqs")
    assert len(made) == 1


def test_runs_and_refusals_are_one_list(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """Executions and rejected archives, the latest first, as many as asked for."""
    first = put(functions, "first.zip")
    functions.account.put("bad.zip", b"no archive")
    functions.plan(object_created("bad.zip"))
    runs = open_runs()
    found = list(runs.recent(10))
    assert {(one.id.rsplit("-", 1)[0], one.state) for one in found} == {
        ("first", "RUNNING"),
        ("bad", "REFUSED"),
    }
    assert [one.started for one in found] == sorted((o.started for o in found), reverse=True)
    assert len(list(runs.recent(1))) == 1
    assert runs.find(first) == first


def test_a_run_is_found_by_its_beginning(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """`latest`, a whole id, or a beginning that only one run has."""
    runs = open_runs()
    with pytest.raises(NotFoundError, match="no run of dev has begun yet"):
        runs.find("latest")
    one, two = put(functions, "same-a.zip"), put(functions, "same-b.zip")
    assert runs.find("same-a") == one
    assert runs.find(two) == two
    assert runs.find("latest") in {one, two}
    with pytest.raises(UsageError, match="2 runs begin with it"):
        runs.find("same-")
    with pytest.raises(NotFoundError, match="no such run in dev"):
        runs.find("other")


def test_a_run_is_found_before_it_has_a_plan(
    functions: Functions,
    open_runs: Callable[[], DeployedRuns],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An execution whose planner has written nothing yet is a run, which can be aborted once."""
    run, runs = put(functions, "a.zip"), open_runs()
    s3 = functions.account.client("s3")
    for key in functions.account.objects("work"):
        s3.delete_object(Bucket="work", Key=key)
    assert runs.find(run) == runs.find("a-") == run
    capsys.readouterr()  # the plan function's metrics
    for words in (f"execution stopped\n{run}: 0 incomplete uploads dropped\n", ""):
        with pytest.raises(SystemExit) as end:
            main(["abort", "a-", "--env", "dev", "--endpoint-url", functions.account.url])
        assert capsys.readouterr().out == words
        assert end.value.code == (0 if words else NotFoundError.exit_code)


def test_state_and_stop(functions: Functions, open_runs: Callable[[], DeployedRuns]) -> None:
    """A run is stopped once; a run without execution has no state."""
    run, runs = put(functions, "a.zip"), open_runs()
    assert runs.state("nothing-0") is None
    assert runs.items("nothing-0") is None
    assert runs.state(run) == "RUNNING"
    assert runs.stop(run) is True
    assert runs.state(run) == "ABORTED"
    assert runs.stop(run) is False


def test_a_stop_that_comes_too_late(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """A run that ends just before its stop was not stopped; a refusal of any other is an error."""
    run, runs = put(functions, "a.zip"), open_runs()
    backend = get_backend("stepfunctions")["123456789012"]["us-east-1"]
    (execution,) = backend.state_machines[0].executions
    refusal = ClientError({"Error": {"Code": "ValidationException"}}, "StopExecution")

    def refuse(**_: object) -> None:
        raise refusal

    def end_and_refuse(**_: object) -> None:
        execution.status = "SUCCEEDED"
        raise refusal

    events = runs._states.meta.events
    events.register_first("before-call.sfn.StopExecution", refuse)
    with pytest.raises(S3UnzipError, match="states:StopExecution"):
        runs.stop(run)
    events.unregister("before-call.sfn.StopExecution", refuse)
    events.register_first("before-call.sfn.StopExecution", end_and_refuse)
    assert runs.stop(run) is False
    assert runs.state(run) == "SUCCEEDED"


def test_a_retry_is_an_execution_of_its_own(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """Only the member that failed is tried, and only after the run's end."""
    run, runs = put(functions, "a.zip", bad=True), open_runs()
    functions.extract(run)
    functions.report(run)
    with pytest.raises(UsageError, match="is running"):
        runs.retry(run)
    end(functions, run)
    assert runs.retry(run) == 1
    retried = f"{run}-retry-0001"
    assert set(functions.account.executions()) == {run, retried}
    (task,) = functions.lines(functions.told(retried)["work"]["whole"])
    assert task["members"] == 1
    assert runs.find("latest") == run
    assert runs.state(run) == "RUNNING"  # that of the retry
    end(functions, retried)
    report = runs.records(run).find_report()
    assert report is not None
    assert report.failed == 1


def test_nothing_to_retry(functions: Functions, open_runs: Callable[[], DeployedRuns]) -> None:
    """Where no member failed, no execution is started."""
    run, runs = put(functions, "a.zip"), open_runs()
    functions.extract(run)
    functions.report(run)
    end(functions, run)
    assert runs.retry(run) == 0
    assert functions.account.executions() == [run]


def test_the_planner_says_what_runs_have_in_common(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """Its variables are those that the stack gave it."""
    assert open_runs().variables == functions.account.variables


def test_a_planner_that_is_gone(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """The call that was refused is named."""
    functions.account.client("lambda").delete_function(FunctionName="plan")
    with pytest.raises(StorageError, match="lambda:GetFunctionConfiguration"):
        _ = open_runs().variables


def test_a_stack_of_another_age(account: Account) -> None:
    """A stack without the planner's name is too old, and one by its own name is found."""
    outputs = {"StateMachineArn": "arn:aws:states:us-east-1:1:stateMachine:m", "WorkBucket": "w"}
    account.make_stack("mine", outputs)
    runs = DeployedRuns("mine", StoreConfig(endpoint_url=account.url))
    assert runs.stack.name == "mine"
    with pytest.raises(UsageError, match="too old"):
        _ = runs.variables


def test_no_stack(account: Account) -> None:
    """The line names the stack that was looked for, and where to look."""
    with pytest.raises(NotFoundError, match="no stack s3unzip-dev here; check --env"):
        DeployedRuns("dev", StoreConfig(endpoint_url=account.url))


def test_a_profile_that_is_not_there(account: Account) -> None:
    """The message is one line and names the profile."""
    with pytest.raises(UsageError, match="nobody"):
        DeployedRuns("dev", StoreConfig(endpoint_url=account.url, profile="nobody"))


def test_the_input_of_a_retry_is_the_runs_own(
    functions: Functions, open_runs: Callable[[], DeployedRuns]
) -> None:
    """It differs in what there is to do, and in nothing else."""
    run, runs = put(functions, "a.zip", bad=True), open_runs()
    functions.extract(run)
    functions.report(run)
    end(functions, run)
    runs.retry(run)
    before, after = functions.told(run), functions.told(f"{run}-retry-0001")
    assert after["work"]["whole"] == before["work"]["redo"]
    assert (after["inline"], after["split_members"], after["whole_at_once"]) == ({}, 0, 1)
    assert set(before["inline"]) == {"whole", "scan", "slices"}
    assert json.dumps(after["run"]) == json.dumps(before["run"])


def test_runs_that_wait_for_workers(
    functions: Functions,
    open_runs: Callable[[], DeployedRuns],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They are listed as WAITING, with what they wait for, and can be aborted."""
    monkeypatch.setenv(Variable.WORKERS, "1")
    for number in range(6):
        functions.account.put(f"{number}.zip", build(Entry("m", b"x" * 300)))
        functions.plan(object_created(f"{number}.zip"))
    runs = open_runs()
    waiting = [run.id for run in runs.recent(10) if run.state == "WAITING"]
    assert len(waiting) == 2
    assert [runs.state(run) for run in waiting] == ["WAITING", "WAITING"]
    assert runs.find(waiting[0][:-3]) == waiting[0]
    assert "waiting for workers: 2; at work: 4" in runs.explain_waiting()
    with pytest.raises(SystemExit, match="0"):
        main(["runs", "--env", "dev"])
    told = capsys.readouterr()
    assert told.out.count("WAITING") == 2
    assert "waiting for workers: 2" in told.err
    for run in waiting:
        assert runs.stop(run) is True
    assert runs.explain_waiting() == ""
    assert runs.state(waiting[0]) is None
