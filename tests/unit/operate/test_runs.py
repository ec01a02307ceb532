"""Runs of a deployed environment over moto, and archives that have no verdict."""

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import ModuleType

import pytest
from moto.backends import get_backend
from msgspec import structs

from infra import deployment
from infra.environment_file import load_environment
from s3unzip.aws import extract, plan, settle
from s3unzip.aws.environment import load_config
from s3unzip.aws.telemetry import logger
from s3unzip.errors import NotFoundError, StorageError, UsageError
from s3unzip.model import (
    Location,
    NestedRun,
    SourceAction,
    SourceResult,
    SourceState,
    Verdict,
    decode,
    encode,
)
from s3unzip.operate.canary import Canary
from s3unzip.operate.checks import OK
from s3unzip.operate.runs import DeployedRuns
from s3unzip.operate.submit import find_missing, list_archives, start_missing
from s3unzip.pricing import aws, price_run
from s3unzip.run_ids import execution_name, time_of_run
from s3unzip.settings import Variable
from s3unzip.stores.config import StoreConfig
from tests.support.account import Account
from tests.support.servers import Reply, set_variables
from tests.support.zips import Entry, build, build_split, part_names
from tests.unit.operate.conftest import GOOD, Site, answering, make_bad

MACHINES = get_backend("stepfunctions")  # of moto, by account and region


@pytest.fixture
def run(site: Site) -> str:
    """The run of the archive ``a.zip``, which has begun."""
    return site.begin("a.zip")


def test_all_runs_are_one_list(site: Site) -> None:
    """Those at work and those that ended, also without an execution, as many as asked for."""
    first, second = site.extract("first.zip"), site.begin("second.zip")
    site.begin("bad.zip", b"no archive")
    site.start(f"{execution_name(first)}-w1")  # waits for the functions of a stopped execution
    states = {recent.run: recent.state for recent in site.runs.recent(10)}
    archives = {run[18:].rsplit("-", 1)[0] for run in states}
    assert archives == {"first", "second", "bad"}
    assert list(states) == sorted(states, reverse=True)
    assert (states[first], states[second], len(list(site.runs.recent(1)))) == ("", "RUNNING", 1)


def test_more_runs_are_at_work_than_one_answer_lists(runs: DeployedRuns) -> None:
    """An answer of ListExecutions may have fewer than it was asked for, and even none.

    The name of an execution that a person started tells no time, so it is the last one.
    """
    pages = iter(
        [
            b'{"executions": [{"name": "2026-01-01-000000-a-0"}], "nextToken": "1"}',
            b'{"executions": [{"name": "by-hand"}], "nextToken": "1a"}',
            b'{"executions": [], "nextToken": "2"}',
            b'{"executions": [{"name": "2026-01-01-000001-b-0"}]}',
        ]
    )
    with answering(runs, lambda _: Reply(200, next(pages)), "stepfunctions"):
        ids = [listed.run for listed in runs.recent(2)]
        assert ids == ["2026-01-01/000001-b-0", "2026-01-01/000000-a-0"]


def test_a_run_is_found_by_its_beginning(site: Site) -> None:
    """`latest`, an id, an execution's name, the archive, the beginning of an id or of its name."""
    runs = site.runs
    with pytest.raises(NotFoundError, match="no run of dev has begun yet"):
        runs.find("latest")
    one, two = site.extract("same-a.zip"), site.begin("same-b.zip")
    assert runs.find("same-a") == runs.find(one) == runs.find(execution_name(one)) == one
    assert runs.find(f"{execution_name(two)}-r2") == two
    assert runs.find("latest") in {one, two}
    for beginning in ("same-", one[:11]):
        with pytest.raises(
            UsageError, match="2 runs begin with this name; see s3unzip runs --env dev"
        ):
            runs.find(beginning)
    with pytest.raises(NotFoundError, match="no such run in dev; see s3unzip runs --env dev"):
        runs.find("other")
    # An archive in pieces may have a run of the next day: the date is that of the last piece.
    tomorrow = datetime.fromtimestamp(time_of_run(two) + 86_400, UTC)
    next_run = f"{tomorrow:%Y-%m-%d}/000000-same-b-0"
    site.account.put(f"runs/{next_run}/run.json", b"", "work")
    assert runs.of_archive(Location("s3", "arrivals", "same-b.zip")) == [two, next_run]


def test_a_stop_that_comes_too_late(runs: DeployedRuns, run: str) -> None:
    """A run that ends just before its stop was not stopped; its execution keeps its status."""

    def end(**_: object) -> None:
        MACHINES["123456789012"]["us-east-1"].state_machines[0].executions[0].status = "SUCCEEDED"

    runs.client("stepfunctions").meta.events.register("after-call.sfn.StopExecution", end)
    assert (runs.stop(run), runs.state(run)) == (False, "SUCCEEDED")


def test_an_execution_may_have_any_name(site: Site, run: str) -> None:
    """Somebody started it anew in the console: its failure is that of the run in its input."""
    site.end(execution_name(run))
    site.start("by-hand", json.dumps({"run": run, "failed": False}))
    site.fail_execution("by-hand")
    assert site.runs.records(run).read_report().verdict is Verdict.FAILED


def test_a_resumed_run_is_at_work_before_it_can_be_described(
    site: Site, runs: DeployedRuns, run: str
) -> None:
    """DescribeExecution may be late, and `watch` would print the report of the last execution.

    To another person, who resumes it at the same time, the new execution is not shown either.
    """
    site.fail(run)
    failed = Reply(200, b'{"status": "FAILED"}')
    running = Reply(200, b'{"status": "RUNNING"}')
    gone = Reply(400, b'{"__type": "ExecutionDoesNotExist"}')
    answers = iter(
        [
            *(failed, gone, running, gone, running),  # the third answer is that of StartExecution
            *(failed, running, gone),
            *(failed, gone, Reply(400, b'{"__type": "ExecutionAlreadyExists"}')),
        ]
    )
    with answering(runs, lambda _: next(answers), "stepfunctions"):
        runs.resume(run)
        assert runs.state(run) == "RUNNING"
        with pytest.raises(UsageError, match="has already started it: follow it"):
            runs.resume(run, failed=True)


def test_a_stopped_run_is_resumed(site: Site, runs: DeployedRuns, run: str) -> None:
    """By an execution of its own, and not while any is at work; its report is the last one."""
    with pytest.raises(UsageError, match=f"for it to end: s3unzip watch {run} --env dev"):
        runs.resume(run)
    assert runs.state(run) == "RUNNING"
    assert [runs.stop(run), runs.stop(run)] == [True, False]
    assert runs.state(run) == "ABORTED"
    nothing = "2026-01-01/000000-nothing-0"
    assert (runs.state(nothing), runs.map_counts(nothing)) == (None, {})
    runs.resume(run)
    assert set(site.account.executions()) == {execution_name(run), f"{execution_name(run)}-r2"}
    assert (runs.state(run), runs.find_final_report(run)) == ("RUNNING", None)
    site.work(run, 2)
    assert runs.find_final_report(run) == site.report(run)
    assert (site.report(run).verdict, site.report(run).extracted) == (Verdict.COMPLETED, 2)
    # Step Functions redrives the first execution.
    MACHINES["123456789012"]["us-east-1"].state_machines[0].executions[0].status = "RUNNING"
    with pytest.raises(UsageError, match="for it to end: s3unzip watch"):
        runs.resume(run)
    assert (runs.stop(run), runs.state(run)) == (True, "ABORTED")


def test_failed_members_are_done_again(site: Site) -> None:
    """With `failed` they are tried once more; each time by the next execution."""
    run = site.extract("a.zip", make_bad())
    for number in (2, 3):
        site.runs.resume(run, failed=True)
        assert site.given(f"{execution_name(run)}-r{number}") == {"failed": True, "run": run}
        site.work(run, number)
        report = site.runs.find_final_report(run)
        assert report == site.report(run)
        assert (report.verdict, report.failed) == (Verdict.COMPLETED_WITH_ERRORS, 1)


def test_a_run_without_records(site: Site, runs: DeployedRuns, run: str) -> None:
    """While a large directory is read it is listed; stopped, its execution is repeated."""
    for key in site.account.objects("work"):
        site.account.client("s3").delete_object(Bucket="work", Key=key)
    assert ([(recent.run, recent.state) for recent in runs.recent(5)], runs.find(run[:14])) == (
        [(run, "RUNNING")],
        run,
    )
    runs.stop(run)
    runs.resume(run)
    first, second = (site.given(f"{execution_name(run)}{more}") for more in ("", "-r2"))
    assert {name: first[name] for name in ("run", "request", "pin")} == second
    site.begin("bad.zip", b"no archive")
    for name, reason in (
        ("2026-01-01/000000-nothing-0", "there is no record of it"),
        (runs.find("bad"), r"the archive was refused \(no-eocd\), so nothing rem"),
    ):
        with pytest.raises(NotFoundError, match=reason):
            runs.resume(name)


@pytest.mark.parametrize(
    ("env", "profile", "error", "words"),
    [
        ("dev", None, NotFoundError, "no stack s3unzip-dev here; check --env"),
        ("", None, NotFoundError, "no stack s3unzip- here; check --env"),
        ("dev", "nobody", UsageError, "nobody"),
        ("other", None, NotFoundError, "is CREATE_COMPLETE and lacks .*; if it belongs to s3unzip"),
    ],
)
def test_stacks_that_are_not_as_they_should_be(
    account: Account, env: str, profile: str | None, error: type[Exception], words: str
) -> None:
    """A stack or a profile that is not there is named, and so is a stack of another program."""
    account.make_stack("s3unzip-other", {"Other": "x"})
    with pytest.raises(error, match=words):
        DeployedRuns(env, StoreConfig(endpoint_url=account.url, profile=profile))


def test_settings_of_another_version_are_refused_with_both_versions(runs: DeployedRuns) -> None:
    """The variable is one of the functions, not of the operator's shell.

    Functions of other sources may have the same version, so a deployment is the first advice.
    """
    runs.variables[Variable.OPTIONS] = '{"on_conflict": "merge"}'
    with pytest.raises(
        UsageError, match=r"of s3unzip-dev: .*'merge'.* are of version 0\.0\.0.*: deploy again, or"
    ):
        list_archives(["s3://arrivals/"], runs)


def test_a_small_run_records_the_nested_archives_that_it_refuses(
    deploy: Callable[..., Site],
) -> None:
    """Its other records were written before: these are written to the run store, too."""
    site = deploy(**{Variable.OPTIONS: json.dumps({"nested_depth": 1}), Variable.TUNING: "{}"})
    assert site.begin("outer.zip", build(Entry("a.zip", GOOD), Entry("a/b.txt", b"x"))) == ""
    (listed,) = site.runs.recent(5)
    nested = decode(site.runs.records(listed.run).store.read("nested.jsonl"), NestedRun)
    assert nested.reason == "nested-prefix-taken"


def test_a_nested_archive_stays_when_its_run_is_resumed(deploy: Callable[..., Site]) -> None:
    """It is a member of another archive, which alone is deleted; also without its first plan."""
    site = deploy(
        **{
            Variable.OPTIONS: '{"nested_depth": 1}',
            Variable.AFTER_SUCCESS: '{"action": "delete"}',
        }
    )
    outer = site.extract("outer.zip", build(Entry("a.zip", GOOD)))
    inner = next(listed.run for listed in site.runs.recent(5) if listed.run != outer)
    site.fail(inner)
    site.runs.resume(inner)
    site.work(inner, 2)
    report = site.report(inner)
    assert (report.verdict, report.after_success) == (Verdict.COMPLETED, None)


def test_a_run_keeps_the_settings_that_it_began_with(
    deploy: Callable[..., Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is planned anew with its own options; an archive that it was to tag is never deleted."""
    site = deploy(
        **{
            Variable.OPTIONS: '{"lenient": true, "include": ["a"]}',
            Variable.AFTER_SUCCESS: '{"action": "tag", "tags": {"state": "done"}}',
        }
    )
    run = site.begin("twice.zip", build(Entry("a", b"1"), Entry("a", b"2"), Entry("b", b"3")))
    site.account.put(f"runs/{run}/rounds/00.jsonl", b"", "work")
    site.work(run)
    set_variables(
        monkeypatch, {Variable.OPTIONS: "{}", Variable.AFTER_SUCCESS: '{"action": "delete"}'}
    )
    load_config.cache_clear()
    site.runs.resume(run)
    site.work(run, 2)
    assert (
        site.report(run).verdict,
        site.report(run).after_success,
        set(site.account.objects("arrivals")),
    ) == (
        Verdict.COMPLETED,
        SourceResult(
            SourceAction.TAG,
            SourceState.KEPT,
            "after_success was changed in the environment after the run began",
        ),
        {"twice.zip"},
    )


def test_the_requests_of_a_run_are_measured_and_priced(
    deploy: Callable[..., Site], capsys: pytest.CaptureFixture[str]
) -> None:
    """The metrics have those of the state Plan, and the bill has each PUT that the server got."""
    site = deploy(**{Variable.TUNING: '{"tail_bytes": 100, "max_direct_members": 0}'})
    run = site.begin("a.zip")
    site.work(run)
    (planned,) = [
        json.loads(line) for line in capsys.readouterr().out.splitlines() if "PlanDuration" in line
    ]
    assert (planned["ReadRequests"] > [2], planned["WriteRequests"]) == (True, [2])
    report = site.report(run)
    writes, *_ = price_run(report, aws()).lines  # type: ignore[union-attr]  # it costs money
    assert writes.quantity - report.extracted - report.requests.list == sum(
        one.method == "PUT" and "runs/" in one.path for one in site.account.asked
    )


def test_each_archive_of_a_batch_is_taken_and_measured_for_itself(
    deploy: Callable[..., Site],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An archive that cannot be taken holds back no other one, and has the name of no other run."""
    site = deploy(**{Variable.TUNING: '{"max_direct_members": 2}'})
    for key, body in {
        "a.zip": GOOD,
        "b.zip": GOOD,
        "large.zip": build(*(Entry(str(number), b"x") for number in range(3))),
    }.items():
        site.account.put(key, body)
    site.account.client("stepfunctions").delete_state_machine(
        stateMachineArn=site.account.outputs["StateMachineArn"]
    )
    records = [
        {
            "eventName": "ObjectCreated:Put",
            "eventTime": "2026-01-01T00:00:01Z",
            "s3": {"bucket": {"name": "arrivals"}, "object": {"key": key}},
        }
        for key in ("a.zip", "gone.zip", "large.zip", "b.zip")
    ]
    monkeypatch.setattr(logger.registered_handler, "stream", sys.stdout)
    assert site.take(
        json.dumps({"Records": [*records[:3], 7, records[3]]}),
        "the next message, which is no event",
    ) == ["0", "1"]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    plans = {line["archive"][14:]: line["run"] for line in lines if "PlanDuration" in line}
    assert (set(site.account.objects("members")), list(plans)) == (
        {f"out/{archive}/{member}" for archive in "ab" for member in ("good", "other")},
        ["a.zip", "large.zip", "b.zip"],
    )
    assert [
        (line["message"], line.get("correlation_id"))
        for line in lines
        if line.get("message", "").startswith("archive ")
    ] == [
        ("archive is gone", None),
        ("archive not taken", None),  # the record 7
        ("archive not taken", plans["large.zip"]),
        ("archive not taken", None),
    ]


def test_a_failed_execution_that_has_handed_over_is_no_end(site: Site, run: str) -> None:
    """The execution with the next rounds is at work, though it began before the other one ended."""
    site.start(execution_name(run, 2), '{"round": 16}')
    site.fail(run)
    assert site.runs.records(run).find_report() is None
    site.end(execution_name(run, 2))
    site.fail(run, number=2)
    assert site.report(run).verdict is Verdict.FAILED


@pytest.mark.parametrize("function", [plan, extract, settle])
def test_an_input_of_another_form_is_refused(site: Site, function: ModuleType) -> None:
    """Somebody may call a function by hand, as with the sample event of the console."""
    with pytest.raises(UsageError, match="the input"):
        function.handler({"key1": "value1"}, site.invocation)


def _start_missing(site: Site, count: int) -> dict[str, tuple[str, bool]]:
    """Start the missing archives; return the state of each, and whether it has a message."""
    missing = find_missing(site.runs, 0.0)
    assert len(missing.startable) == count
    start_missing(site.runs, missing.startable)
    return {lost.source.key: (lost.state, bool(lost.message)) for lost in missing.unsettled}


def test_commands_pay_where_the_requester_pays(site: Site, tmp_path: Path) -> None:
    """Each request of `make put`, `submit` and the canary about an archive says so."""
    account = site.account
    template = {
        "Description": "s3unzip: archives",
        "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},
        "Outputs": {
            name: {"Value": value}
            for name, value in (account.outputs | {"IngestPayer": "requester"}).items()
        },
    }
    account.client("cloudformation").create_stack(
        StackName="paid", TemplateBody=json.dumps(template)
    )
    now = datetime.now(UTC)
    for begun in (now + timedelta(seconds=second) for second in range(120)):
        # `make put` finds that the run has begun, whenever it puts the archive.
        account.put(f"runs/{begun:%Y-%m-%d/%H%M%S}-paid-0/report.json", b"", "work")
    (tmp_path / "paid.zip").write_bytes(GOOD)
    account.asked.clear()
    environment = load_environment("dev", settings={"stack.name": "paid"})
    deployment.put(deployment.Arguments(environment, (), yes=True, archive=tmp_path / "paid.zip"))
    runs = DeployedRuns("paid", StoreConfig(endpoint_url=account.url))
    assert list_archives(["s3://arrivals/"], runs) == ({"paid.zip": len(GOOD)}, 0)
    assert find_missing(runs, 0.0).archives == 1
    canary = Canary(runs)
    assert (canary.put().status, canary.remove(keep_run=True).status) == (OK, OK)
    asked = [one for one in account.asked if one.path.startswith("/arrivals")]
    assert {one.method for one in asked} == {"GET", "HEAD", "POST", "PUT"}
    assert {one.headers.get("x-amz-request-payer") for one in asked} == {"requester"}


def test_every_archive_has_its_verdict(site: Site) -> None:
    """Of a run that ended nothing is told; one that goes on is counted."""
    site.extract("done.zip")
    site.begin("going.zip")
    site.begin("refused.zip", b"no archive")
    site.account.put("other.txt", b"starts nothing")
    found = find_missing(site.runs, 0.0)
    assert (found.archives, found.running, found.unsettled) == (3, 1, ())
    assert find_missing(site.runs, time.time() + 3_600).archives == 0  # only what was put since


def test_runs_under_earlier_settings_count(site: Site) -> None:
    """Other options make another run, but the archive has been extracted, or is at work.

    An archive that the earlier run should have deleted is not forgotten.
    """
    site.extract("done.zip")
    site.begin("going.zip")
    left = site.report(site.extract("left.zip"))
    left = structs.replace(left, after_success=SourceResult(SourceAction.TAG, SourceState.FAILED))
    site.account.put(f"runs/{left.run}/report.json", encode(left), "work")
    site.account.client("lambda").update_function_configuration(
        FunctionName="plan",
        Environment={"Variables": site.account.variables | {Variable.OPTIONS: '{"marker": true}'}},
    )
    site.account.put("lost.zip", GOOD)
    missing = find_missing(site.runs, 0.0)
    assert (
        [lost.source.key for lost in missing.unsettled],
        missing.unsettled[0].run,
        missing.running,
    ) == (["left.zip", "lost.zip"], left.run, 1)


def test_an_event_of_submit_that_was_a_dead_letter(site: Site) -> None:
    """Its first attempts may have written an older version over the members of the newest one."""
    run = site.extract("a.zip")
    site.take(
        json.dumps(
            {
                "detail-type": "Object Created",
                "source": "s3unzip.submit",
                "time": "2026-01-01T00:00:01Z",
                "detail": {"bucket": {"name": "arrivals"}, "object": {"key": "a.zip"}},
            }
        )
    )
    (again,) = {*site.account.executions()} - {execution_name(run)}
    assert again.endswith("-again")


def test_a_lost_event_is_queued_again(site: Site) -> None:
    """The intake takes what `start_missing` queues, and then the newest version has a run."""
    site.account.client("s3").put_bucket_versioning(
        Bucket="arrivals", VersioningConfiguration={"Status": "Enabled"}
    )
    for body in (b"an older version", GOOD):
        site.account.put("lost.zip", body)
    missing = find_missing(site.runs, 0.0)
    (lost,) = missing.unsettled
    assert (lost.source.key, lost.state, lost.size, len(missing.startable)) == (
        "lost.zip",
        "no run",
        len(GOOD),
        1,
    )
    # Its event has the time at which it is queued: the archive may be old, but its run is not slow.
    start_missing(site.runs, [structs.replace(lost, put=0.0)])
    site.take()
    assert site.account.executions() == [execution_name(lost.run)]
    site.work(lost.run)
    assert (site.report(lost.run).event_time or 0.0) > lost.put - 1
    assert find_missing(site.runs, 0.0).unsettled == ()


def _begin_split(site: Site) -> str:
    """Put a split archive of three parts; return its run if it is not done at once."""
    parts = build_split(Entry("a", b"a" * 500), sizes=[200, 200])
    names = part_names("split", 3)
    for name, part in zip(names, parts, strict=True):
        site.account.put(name, part)
    return site.notify(names[-1])


def test_a_split_archive_has_its_verdict(site: Site) -> None:
    """Its run is named by all of its parts."""
    run = _begin_split(site)
    missing = find_missing(site.runs, 0.0)
    assert (missing.running, missing.unsettled) == (1, ())
    site.work(run)
    assert find_missing(site.runs, 0.0).unsettled == ()


def test_the_limit_of_parts_is_the_environment_s(deploy: Callable[..., Site]) -> None:
    """A split archive with more parts is refused, and its verdict is found."""
    site = deploy(**{Variable.LIMITS: '{"parts": 2}'})
    assert not _begin_split(site)
    (listed,) = site.runs.recent(10)
    assert (site.report(listed.run).reason, find_missing(site.runs, 0.0).unsettled) == (
        "too-many-parts",
        (),
    )


@pytest.mark.parametrize("key", ["odd//a.zip", "/leading.zip", "a/../b.zip", "empty.zip"])
def test_keys_and_archives_that_are_read_by_their_size(site: Site, key: str) -> None:
    """The run of each is the one that the intake began: it has the date of the archive."""
    run = site.begin(key, b"" if key == "empty.zip" else GOOD)
    if run:
        assert not run.startswith("1970")
        site.work(run)
    found = find_missing(site.runs, 0.0)
    assert (found.archives, found.unsettled) == (1, ())


def test_unreadable_archives_and_records_are_listed(site: Site) -> None:
    """An archive that must be restored has no run; a run with damaged records has not finished."""
    damaged = site.begin("damaged.zip")
    site.end(execution_name(damaged))
    for record in ("report", "run"):
        site.account.put(f"runs/{damaged}/{record}.json", b"{", bucket="work")
    site.account.client("s3").put_object(
        Bucket="arrivals", Key="frozen.zip", StorageClass="DEEP_ARCHIVE", Body=GOOD
    )
    site.account.put("lost.zip", GOOD)
    assert _start_missing(site, 3) == {
        "damaged.zip": ("not finished", False),
        "frozen.zip": ("no run", False),
        "lost.zip": ("no run", False),
    }
    site.take()  # what `start_missing` queued
    assert find_missing(site.runs, 0.0).unsettled == ()


def test_an_archive_that_nobody_may_see_is_named(site: Site) -> None:
    """It hides no other one, and is not started."""
    for name in ("lost.zip", "secret.zip"):
        site.account.put(name, GOOD)
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": ["s3:GetObject", "s3:HeadObject"],  # moto's name of the right to HEAD
        "Resource": "arn:aws:s3:::arrivals/secret.zip",
    }
    site.account.client("s3").put_bucket_policy(
        Bucket="arrivals", Policy=json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    )
    assert _start_missing(site, 1) == {
        "lost.zip": ("no run", False),
        "secret.zip": ("not readable", True),
    }


def test_an_archive_that_must_be_restored_has_a_verdict(site: Site) -> None:
    """It has a run and an event, and no message that fails; once restored, `resume` extracts it."""
    s3, frozen = site.account.client("s3"), {"Bucket": "arrivals", "Key": "frozen.zip"}
    s3.put_object(**frozen, Body=GOOD, StorageClass="GLACIER")
    for _ in range(2):
        assert not site.notify("frozen.zip")
    (run,) = site.runs.of_archive(Location("s3", "arrivals", "frozen.zip"))
    report = site.report(run)
    assert (report.verdict, report.reason) == (Verdict.FAILED, "not-readable")
    assert "restore it" in (report.message or "")
    assert find_missing(site.runs, 0.0).unsettled == ()
    s3.restore_object(**frozen, RestoreRequest={"Days": 1})
    site.runs.resume(run)
    assert not site.notify("frozen.zip")  # its name is taken: no execution begins beside it
    site.work(run)
    assert site.report(run).verdict is Verdict.COMPLETED


def test_a_run_that_did_not_end(site: Site, run: str) -> None:
    """It is resumed, unless somebody else was faster; its archive needs no other event."""
    site.end(execution_name(run))
    missing = find_missing(site.runs, 0.0).startable
    assert [(lost.state, lost.message) for lost in missing] == [("not finished", "")]
    for _ in range(2):
        start_missing(site.runs, missing)
    site.work(run, 2)
    assert find_missing(site.runs, 0.0).unsettled == ()


def test_a_run_of_another_archive_is_no_verdict(site: Site) -> None:
    """Of two archives with one run id the second is named, and what to do with it."""
    run = site.extract("a.zip")
    (report,) = site.account.objects("work", f"runs/{run}/report.json").items()
    site.account.put(report[0], report[1].replace(b'"a.zip"', b'"b/a.zip"'), bucket="work")
    (lost,) = find_missing(site.runs, 0.0).unsettled
    assert (lost.state, lost.run) == ("not readable", run)
    assert all(
        words in str(lost.message)
        for words in (
            f'but a run of s3://arrivals/b/a.zip (version: {len(GOOD)} bytes, ETag "',
            "put the archive under another key",
        )
    )


def test_a_missing_queue_or_bucket_is_named(site: Site) -> None:
    """What cannot be queued is an error, not a number, and so is a bucket that is not there."""
    site.account.put("lost.zip", GOOD)
    runs = site.runs
    found = find_missing(runs, 0.0)
    site.account.client("sqs").delete_queue(QueueUrl=runs.outputs["QueueUrl"])
    with pytest.raises(StorageError, match="sqs:SendMessage"):
        start_missing(runs, found.startable)
    s3 = site.account.client("s3")
    s3.delete_object(Bucket="arrivals", Key="lost.zip")
    s3.delete_bucket(Bucket="arrivals")
    with pytest.raises(StorageError, match="s3:ListBucket s3://arrivals/: NoSuchBucket"):
        find_missing(runs, 0.0)
