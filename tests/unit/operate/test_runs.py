"""Runs of a deployed environment over moto's CloudFormation, Step Functions and S3."""

import json
from collections.abc import Callable

import pytest
from botocore.exceptions import ClientError
from moto.backends import get_backend

from s3unzip.errors import NotFoundError, S3UnzipError, UsageError
from s3unzip.model import Location, Verdict
from s3unzip.operate.runs import DeployedRuns, find_end
from s3unzip.run_ids import execution_name
from s3unzip.settings import Variable
from s3unzip.stores.config import StoreConfig
from tests.support.account import Account
from tests.support.zips import Entry, build
from tests.unit.operate.site import GOOD, Site, make_bad


def test_all_runs_are_one_list(site: Site) -> None:
    """Those at work and those that ended, also without an execution, as many as asked for."""
    first, second = site.begin("first.zip"), site.begin("second.zip")
    site.work(first)
    site.begin("bad.zip", b"no archive")
    runs = site.runs
    found = {run: state for run, state, _ in runs.recent(10)}
    assert list(found) == sorted(found, reverse=True)
    assert {run[18:].rsplit("-", 1)[0] for run in found} == {"first", "second", "bad"}
    assert (found[first], found[second]) == ("", "RUNNING")
    assert len(list(runs.recent(1))) == 1


def test_a_run_that_ended_is_at_work_no_more(site: Site) -> None:
    """The execution that waits for the functions of a stopped one is not listed as the run."""
    run = site.begin("a.zip")
    site.work(run)
    machine = site.account.outputs["StateMachineArn"]
    site.account.client("stepfunctions").start_execution(
        stateMachineArn=machine, name=f"{execution_name(run)}-w1", input="{}"
    )
    assert [(recent.run, recent.state) for recent in site.runs.recent(5)] == [(run, "")]


def test_more_runs_are_at_work_than_one_answer_lists(site: Site) -> None:
    """ListExecutions gives 100 at a time, unless it is asked for more."""
    client = site.account.client("stepfunctions")
    for number in range(101):
        client.start_execution(
            stateMachineArn=site.account.outputs["StateMachineArn"],
            name=f"2026-01-01-000000-a-{number:016x}",
            input="{}",
        )
    assert [recent.state for recent in site.runs.recent(200)] == ["RUNNING"] * 101


def test_a_run_is_found_by_its_beginning(site: Site) -> None:
    """`latest`, an id, an execution's name, the beginning of an id or of the archive's name."""
    runs = site.runs
    with pytest.raises(NotFoundError, match="no run of dev has begun yet"):
        runs.find("latest")
    one, two = site.begin("same-a.zip"), site.begin("same-b.zip")
    site.work(one)
    assert runs.find("same-a") == runs.find(one) == runs.find(execution_name(one)) == one
    assert runs.find(f"{execution_name(two)}-r2") == two
    assert runs.find("latest") in {one, two}
    for beginning in ("same-", one[:11]):
        with pytest.raises(UsageError, match="2 runs begin with it"):
            runs.find(beginning)
    with pytest.raises(NotFoundError, match="no such run in dev"):
        runs.find("other")


def test_the_runs_of_an_archive(site: Site) -> None:
    """Those of the version that is there now."""
    run = site.begin("in/a.zip")
    site.begin("in/b.zip")
    assert site.runs.of_archive(Location("s3", "arrivals", "in/a.zip")) == [run]


def test_a_stop_that_comes_too_late(site: Site) -> None:
    """A run that ends just before its stop was not stopped; a refusal of any other is an error."""
    run, runs = site.begin("a.zip"), site.runs
    backend = get_backend("stepfunctions")["123456789012"]["us-east-1"]
    (execution,) = backend.state_machines[0].executions
    refusal = ClientError({"Error": {"Code": "ValidationException"}}, "StopExecution")

    def refuse(**_: object) -> None:
        raise refusal

    def end_and_refuse(**_: object) -> None:
        execution.status = "SUCCEEDED"
        raise refusal

    events = runs.client("stepfunctions").meta.events
    events.register_first("before-call.sfn.StopExecution", refuse)
    with pytest.raises(S3UnzipError, match="states:StopExecution"):
        runs.stop(run)
    events.unregister("before-call.sfn.StopExecution", refuse)
    events.register_first("before-call.sfn.StopExecution", end_and_refuse)
    assert runs.stop(run) is False
    assert runs.state(run) == "SUCCEEDED"


def test_a_stopped_run_is_resumed(site: Site) -> None:
    """By an execution of its own, and not while it is at work; its report is the last one."""
    run, runs = site.begin("a.zip"), site.runs
    with pytest.raises(UsageError, match="is running; wait for its end: s3unzip watch"):
        runs.resume(run)
    assert (runs.state(run), runs.stop(run), runs.stop(run)) == ("RUNNING", True, False)
    assert runs.state(run) == "ABORTED"
    assert runs.state("2026-01-01/000000-nothing-0") is None
    assert runs.map_counts("2026-01-01/000000-nothing-0") is None
    runs.resume(run)
    assert set(site.account.executions()) == {execution_name(run), f"{execution_name(run)}-r2"}
    assert (runs.state(run), find_end(runs, run)) == ("RUNNING", None)
    site.work(run, 2)
    report = find_end(runs, run)
    assert report is not None
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, 2)


def test_failed_members_are_done_again(site: Site) -> None:
    """With `failed` they are tried once more; each time by the next execution."""
    run, runs = site.begin("a.zip", make_bad()), site.runs
    site.work(run)
    for number in (2, 3):
        runs.resume(run, failed=True)
        assert site.given(f"{execution_name(run)}-r{number}") == {"failed": True, "run": run}
        site.work(run, number)
        report = find_end(runs, run)
        assert report is not None
        assert (report.verdict, report.failed) == (Verdict.COMPLETED_WITH_ERRORS, 1)


def test_a_run_without_records(site: Site) -> None:
    """While a large directory is read it is listed; stopped, its execution is repeated."""
    run = site.begin("a.zip")
    for key in site.account.objects("work"):
        site.account.client("s3").delete_object(Bucket="work", Key=key)
    assert [one[:2] for one in site.runs.recent(5)] == [(run, "RUNNING")]
    assert site.runs.find(run[:14]) == run
    site.runs.stop(run)
    site.runs.resume(run)
    first, second = (site.given(f"{execution_name(run)}{more}") for more in ("", "-r2"))
    assert {name: first[name] for name in ("run", "request", "pin")} == second
    with pytest.raises(NotFoundError, match="nothing is on record of it"):
        site.runs.resume("2026-01-01/000000-nothing-0")


def test_stacks_that_are_not_as_they_should_be(account: Account) -> None:
    """A stack of its own name is found and may be too old; what is not there is named."""
    with pytest.raises(NotFoundError, match="no stack s3unzip-dev here; check --env"):
        DeployedRuns("dev", StoreConfig(endpoint_url=account.url))
    with pytest.raises(UsageError, match="nobody"):
        DeployedRuns("dev", StoreConfig(endpoint_url=account.url, profile="nobody"))
    account.make_stack("s3unzip-dev", {"Other": "x"})
    with pytest.raises(NotFoundError, match="stack s3unzip-dev has no outputs"):
        DeployedRuns("dev", StoreConfig(endpoint_url=account.url))
    outputs = {"StateMachineArn": "arn:aws:states:us-east-1:1:stateMachine:m", "WorkBucket": "w"}
    account.make_stack("mine", outputs)
    runs = DeployedRuns("mine", StoreConfig(endpoint_url=account.url))
    assert runs.stack["StackName"] == "mine"
    with pytest.raises(UsageError, match="too old"):
        _ = runs.variables


def test_a_small_run_records_the_nested_archives_that_it_refuses(
    deploy: Callable[..., Site],
) -> None:
    """Its other records were written before: these are written to the run store, too."""
    options = json.dumps({"nested_depth": 1})
    site = deploy(**{Variable.OPTIONS: options, Variable.TUNING: "{}"})
    body = build(Entry("a.zip", GOOD), Entry("a/b.txt", b"x"))
    assert site.begin("outer.zip", body) == ""
    (run,) = site.runs.begun(5)
    assert [nested.reason for nested in site.runs.records(run).nested()] == ["nested-prefix-taken"]


def test_a_nested_archive_stays_when_its_run_is_resumed(deploy: Callable[..., Site]) -> None:
    """It is a member of another archive, which alone is deleted; also without its first plan."""
    rule = json.dumps({"action": "delete"})
    site = deploy(
        **{Variable.OPTIONS: json.dumps({"nested_depth": 1}), Variable.AFTER_SUCCESS: rule}
    )
    outer = site.begin("outer.zip", build(Entry("a.zip", GOOD)))
    site.work(outer)
    inner = next(run for run in site.runs.begun(5) if run != outer)
    site.fail(inner)
    site.runs.resume(inner)
    site.work(inner, 2)
    report = site.runs.records(inner).read_report()
    assert (report.verdict, report.after_success) == (Verdict.COMPLETED, None)


def test_a_failed_execution_that_has_handed_over_is_no_end(site: Site) -> None:
    """The execution with the next rounds is at work, though it began before the other one ended."""
    run = site.begin("a.zip")
    machine = site.account.outputs["StateMachineArn"]
    site.account.client("stepfunctions").start_execution(
        stateMachineArn=machine, name=f"{execution_name(run)}-r2", input='{"round": 16}'
    )
    site.fail(run)
    assert site.runs.records(run).find_report() is None
    site.end(f"{execution_name(run)}-r2")
    site.fail(run, number=2)
    assert site.runs.records(run).read_report().verdict is Verdict.FAILED
