"""After success in the functions: the archive is deleted, moved or tagged once its report is there.

Over moto's services, in this process. What the stores do is in tests/contract/test_disposal.py.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from s3unzip.aws.environment import open_worker
from s3unzip.model import Report, SourceState, Verdict, decode, encode
from s3unzip.operate.reconcile import ACTION_SECONDS, reconcile, start
from s3unzip.operate.runs import DeployedRuns
from s3unzip.runs.records import RunRecords
from s3unzip.settings import Variable
from s3unzip.stores.factory import StoreConfig
from tests.processes import Program
from tests.unit.aws.contexts import Invocation
from tests.unit.handlers.pipeline import Functions, object_created
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.account import Account

ARCHIVE = build(*(Entry(f"d/{n}", b"%d" % n * 50, DEFLATE) for n in range(3)))
WRONG = {"crc32": 1}
PARTLY = build(Entry("good", b"x"), Entry("bad", b"x" * 99, DEFLATE, central=WRONG, local=WRONG))
DELETE = {"action": "delete"}
TAG = {"action": "tag", "tags": {"state": "extracted"}}
DIRECT, MACHINE = "{}", '{"max_direct_members": 0}'


@pytest.fixture(params=[DIRECT, MACHINE], ids=["direct", "machine"])
def deploy(
    request: pytest.FixtureRequest, account: Account, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Functions]:
    """A function that deploys the account with a rule, and returns its functions."""

    def make(rule: dict[str, object]) -> Functions:
        account.deploy(
            **{
                Variable.TUNING.value: request.param,
                Variable.AFTER_SUCCESS.value: json.dumps(rule),
                Variable.TRIGGER_PREFIX.value: "in/",
            }
        )
        for name, value in account.variables.items():
            monkeypatch.setenv(name, value)
        return Functions(account, Invocation())

    return make


def versions(account: Account, status: str = "Enabled") -> None:
    """Let the ingest bucket keep versions."""
    account.client("s3").put_bucket_versioning(
        Bucket="arrivals", VersioningConfiguration={"Status": status}
    )


def extract(functions: Functions, account: Account, key: str = "in/t/a.zip") -> Report:
    """Send the event of an archive, do what the state machine would; return the report."""
    assert functions.plan(object_created(key)) == []
    for execution in account.executions():
        functions.extract(execution)
        functions.report(execution)
    return find_report(account)


def find_report(account: Account) -> Report:
    """Return the report of the only run."""
    ((name, body),) = (
        (name, body)
        for name, body in account.objects("work", "runs/").items()
        if name.endswith("/report.json")
    )
    report = decode(body, Report)
    assert name == f"runs/{report.run}/report.json"
    return report


def state(report: Report) -> SourceState | None:
    """Return what became of the archive."""
    return report.after_success.state if report.after_success is not None else None


@pytest.mark.parametrize("versioned", [True, False])
def test_an_archive_is_deleted(
    deploy: Callable[..., Functions], account: Account, *, versioned: bool
) -> None:
    """It is gone when the report says so, and its members are there."""
    functions = deploy(DELETE)
    if versioned:
        versions(account)
    account.put("in/t/a.zip", ARCHIVE)
    report = extract(functions, account)
    assert (report.verdict, state(report)) == (Verdict.COMPLETED, SourceState.DONE)
    assert account.objects("arrivals") == {}
    assert len(account.objects("members")) == 3
    assert report.requests.delete == 1


def test_an_archive_is_tagged(deploy: Callable[..., Functions], account: Account) -> None:
    """The tag is on the version that was extracted."""
    functions = deploy(TAG)
    versions(account)
    account.put("in/t/a.zip", ARCHIVE)
    report = extract(functions, account)
    assert state(report) is SourceState.DONE
    tags = account.client("s3").get_object_tagging(Bucket="arrivals", Key="in/t/a.zip")["TagSet"]
    assert tags == [{"Key": "state", "Value": "extracted"}]


def test_an_archive_with_failed_members_stays(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Only a COMPLETED run is followed by the action."""
    functions = deploy(DELETE)
    account.put("in/t/a.zip", PARTLY)
    report = extract(functions, account)
    assert (report.verdict, state(report)) == (Verdict.COMPLETED_WITH_ERRORS, None)
    assert account.objects("arrivals") == {"in/t/a.zip": PARTLY}


def extract_in_the_way(functions: Functions, account: Account) -> Report:
    """Extract an archive that cannot be moved: another object is there."""
    account.put("in/t/a.zip", ARCHIVE)
    account.put("done/t/a.zip", b"in the way", "work")
    return extract(functions, account)


def leave_archive(functions: Functions, account: Account) -> Report:
    """Extract an archive, and leave what a function leaves that is killed before the action.

    That is the archive, whose bytes are put again, and a report that says "pending".
    """
    account.put("in/t/a.zip", ARCHIVE)
    report = extract(functions, account)
    assert state(report) is SourceState.DONE
    account.put("in/t/a.zip", ARCHIVE)
    assert report.after_success is not None
    pending = replace(report.after_success, state=SourceState.PENDING)
    changed = replace(report, after_success=pending)
    name = f"runs/{report.run}/report.json"
    account.put(name, encode(changed), "work")
    assert state(find_report(account)) is SourceState.PENDING
    return changed


def test_a_killed_function_leaves_the_action_to_a_repeated_event(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """The run is known, and its report says "pending": the archive is deleted."""
    functions = deploy(DELETE)
    leave_archive(functions, account)
    assert functions.plan(object_created("in/t/a.zip")) == []
    assert account.objects("arrivals") == {}
    assert state(find_report(account)) is SourceState.DONE


def test_reconcile_finds_the_archive_that_a_killed_function_left(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Not while the function may be at work; later, its event is sent again and the action done."""
    functions = deploy(DELETE)
    runs = DeployedRuns("dev", StoreConfig(endpoint_url=account.url))
    report = leave_archive(functions, account)
    found = reconcile(runs, 0.0)
    assert (found.running, found.unsettled) == (1, ())
    cut_off = replace(report, finished=report.finished - 2 * ACTION_SECONDS)
    account.put(f"runs/{report.run}/report.json", encode(cut_off), "work")
    found = reconcile(runs, 0.0)
    assert [(one.run, one.state) for one in found.unsettled] == [(report.run, "archive left")]
    assert start(runs, found.unsettled) == 1
    assert functions.plan() == []
    assert account.objects("arrivals") == {}
    assert state(find_report(account)) is SourceState.DONE
    assert reconcile(runs, 0.0).archives == 0


@pytest.mark.parametrize("deploy", [DIRECT], indirect=True)
def test_the_command_counts_archives_that_are_left(
    deploy: Callable[..., Functions], account: Account, tmp_path: Path
) -> None:
    """``reconcile`` names the archive, ``--start`` queues it, and then nothing is left."""
    functions = deploy(DELETE)
    report = leave_archive(functions, account)
    cut_off = replace(report, finished=report.finished - 2 * ACTION_SECONDS)
    account.put(f"runs/{report.run}/report.json", encode(cut_off), "work")
    program = Program(tmp_path)
    program.variables["AWS_ENDPOINT_URL"] = account.url
    started = program.run("reconcile", "--env", "dev", "--start")
    assert started.code == 1
    line, total = started.out.splitlines()
    assert line.split()[2:4] + line.split()[-1:] == ["archive", "left", "s3://arrivals/in/t/a.zip"]
    assert total == "1 archives: 0 running, 0 without a verdict, 1 left after success"
    assert started.err == "1 queued: s3unzip runs --env dev\n"
    assert functions.plan() == []
    nothing = "0 archives: 0 running, 0 without a verdict\n"
    assert program.run("reconcile", "--env", "dev") == (0, nothing, "")


def test_a_known_event_does_nothing_more(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """After the action is done, the same event changes neither the archive nor the report."""
    functions = deploy(TAG)
    versions(account)
    account.put("in/t/a.zip", ARCHIVE)
    first = extract(functions, account)
    assert functions.plan(object_created("in/t/a.zip")) == []
    assert find_report(account) == first


def test_nothing_selected_keeps_the_archive(
    deploy: Callable[..., Functions], account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the options exclude every member, the archive is the only copy of them."""
    functions = deploy(DELETE)
    monkeypatch.setenv(Variable.OPTIONS, '{"include": ["nothing/*"]}')
    account.put("in/t/a.zip", ARCHIVE)
    report = extract(functions, account)
    assert (report.verdict, state(report)) == (Verdict.COMPLETED, SourceState.KEPT)
    assert account.objects("arrivals") == {"in/t/a.zip": ARCHIVE}


def test_an_archive_that_was_replaced_is_kept(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newer archive has an event of its own; the report of the older run says so."""
    account.deploy(**{Variable.AFTER_SUCCESS.value: json.dumps(DELETE)})
    for name, value in account.variables.items():
        monkeypatch.setenv(name, value)
    functions = Functions(account, Invocation())
    account.put("a.zip", ARCHIVE)
    functions.plan(object_created("a.zip"))
    (run,) = account.executions()
    functions.extract(run)
    account.put("a.zip", PARTLY)
    functions.report(run)
    report = find_report(account)
    assert (report.verdict, state(report)) == (Verdict.COMPLETED, SourceState.KEPT)
    assert account.objects("arrivals") == {"a.zip": PARTLY}
    assert RunRecords.open(open_worker().stores, run).find_report() == report
