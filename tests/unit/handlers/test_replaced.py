"""Archives that are replaced while their runs are at work: the newest one is what lies there."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from s3unzip.run_files import REPORT

from s3unzip.aws.environment import open_worker
from s3unzip.aws.events import RECHECK, read_requests
from s3unzip.errors import UsageError
from s3unzip.model import OnConflict, Report, decode, encode
from s3unzip.settings import Variable
from tests.unit.handlers.pipeline import Functions, object_created
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.account import Account

NAMES = [f"f{n}.txt" for n in range(20)]
OLDER, NEWER = (dict.fromkeys(NAMES, b"%s " % word * 50) for word in (b"older", b"newer"))


def archive(members: dict[str, bytes]) -> bytes:
    """Return an archive of these members."""
    return build(*(Entry(name, body, DEFLATE) for name, body in members.items()))


@pytest.fixture(params=["versions", "no versions"])
def versioned(request: pytest.FixtureRequest) -> bool:
    """Whether the ingest bucket keeps versions, so that the older run goes on."""
    return bool(request.param == "versions")


@pytest.fixture
def replaced(deploy: Callable[..., Functions], account: Account, *, versioned: bool) -> Functions:
    """The functions; the run of an older archive is planned, that of the newer one has ended."""
    functions = deploy()
    if versioned:
        account.client("s3").put_bucket_versioning(
            Bucket="arrivals", VersioningConfiguration={"Status": "Enabled"}
        )
    account.put("a.zip", archive(OLDER))
    functions.plan(object_created("a.zip"))
    account.put("a.zip", archive(NEWER))
    functions.plan(object_created("a.zip"))
    return functions


def ids(functions: Functions) -> tuple[str, str]:
    """Return the runs of the older and the newer archive."""
    newer, older = functions.account.executions()
    return older, newer


def do(functions: Functions, run: str) -> str:
    """Do the tasks of a run and report it; return its verdict."""
    functions.extract(run)
    verdict: str = functions.report(run)["verdict"]
    return verdict


def queued(functions: Functions) -> list[dict[str, Any]]:
    """Return the rechecks that the intake queue holds, and delete them."""
    worker = open_worker()
    return [body[RECHECK] for body in functions.account.receive(worker.queue)]


def count_delayed(functions: Functions) -> int:
    """Return how many messages the intake queue will deliver later."""
    name = "ApproximateNumberOfMessagesDelayed"
    answer = functions.account.client("sqs").get_queue_attributes(
        QueueUrl=open_worker().queue, AttributeNames=[name]
    )
    return int(answer["Attributes"][name])


def send(functions: Functions, recheck: dict[str, Any], **changes: float) -> list[str]:
    """Queue a recheck, and call the plan function with it; return the executions that it starts."""
    before = set(functions.account.executions())
    functions.plan(json.dumps({RECHECK: {**recheck, **changes}}))
    return [run for run in functions.account.executions() if run not in before]


def members(account: Account) -> dict[str, bytes]:
    """Return what lies at the destination."""
    s3 = account.client("s3")
    found = s3.list_objects_v2(Bucket="members")["Contents"]
    keys = [one["Key"] for one in found]
    return {key: s3.get_object(Bucket="members", Key=key)["Body"].read() for key in keys}


def report_of(functions: Functions, run: str) -> Report:
    """Return the report of a run."""
    return decode(functions.run_store(run).read(REPORT), Report)


def test_what_the_older_run_wrote_last_is_written_again(
    replaced: Functions, account: Account, *, versioned: bool
) -> None:
    """Its report asks for a run that compares the newer archive's members, and repairs them."""
    older, newer = ids(replaced)
    replaced.extract(newer)
    before = len(account.asked)
    assert replaced.report(newer)["verdict"] == "COMPLETED"
    heads = [one for one in account.asked[before:] if one.startswith("HEAD ")]
    assert heads.count("HEAD /arrivals/a.zip") == 1
    assert report_of(replaced, newer).settling.head == len(heads)
    assert queued(replaced) == []  # the newest archive lies there
    verdict = do(replaced, older)
    assert verdict == ("COMPLETED" if versioned else "SOURCE_CHANGED")
    late = dict.fromkeys(members(account).values())
    assert (OLDER["f0.txt"] in late) is versioned
    started = set(account.executions())
    replaced.plan()
    (again,) = set(account.executions()) - started
    assert do(replaced, again) == "COMPLETED"
    assert members(account) == {f"out/a/{name}": body for name, body in NEWER.items()}
    report = report_of(replaced, again)
    assert report.options.on_conflict is OnConflict.SKIP_UNCHANGED
    count = len(NAMES) if versioned else 0
    assert (report.extracted, report.unchanged) == (count, len(NAMES) - count)
    assert queued(replaced) == []


@pytest.mark.parametrize("versioned", [True])
def test_each_end_asks_for_one_recheck(replaced: Functions, account: Account) -> None:
    """A repeated report asks for the same run; the end after a failure asks for another one."""
    older, newer = ids(replaced)
    do(replaced, newer)
    replaced.extract(older)
    for _ in range(2):
        replaced.report(older)
    first, second = queued(replaced)
    assert first["key"] == "a.zip"
    assert first["after"] == second["after"] == older
    replaced.report_failure(older)
    (failed,) = queued(replaced)
    replaced.report(older)
    (redriven,) = queued(replaced)
    assert len({one["after"] for one in (first, failed, redriven)}) == 3
    assert [len(send(replaced, one)) for one in (first, second, failed)] == [1, 0, 1]


@pytest.mark.parametrize("versioned", [True])
def test_a_recheck_waits_for_the_newest_run(replaced: Functions) -> None:
    """It is queued again while the run is at work, and also later if its execution goes on."""
    older, newer = ids(replaced)
    do(replaced, older)
    (recheck,) = queued(replaced)
    for count, asked in enumerate((recheck["asked"], 0.0), 1):
        assert send(replaced, recheck, asked=asked) == []
        assert count_delayed(replaced) == count
    assert replaced.report(newer)["left"] == 1  # a round has ended, not the run
    assert send(replaced, recheck) == []
    do(replaced, newer)
    (again,) = send(replaced, recheck)
    assert do(replaced, again) == "COMPLETED"
    assert report_of(replaced, again).extracted == 0


def test_the_requests_of_a_direct_recheck(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Its report has all of them, also the look for the report of the archive's own run."""
    functions = deploy(**{Variable.TUNING.value: "{}"})
    account.put("a.zip", archive(NEWER))
    functions.plan(object_created("a.zip"))
    account.asked.clear()
    assert send(functions, {"key": "a.zip", "after": "older"}, asked=time.time()) == []
    asked = [line.split() for line in account.asked]
    listed = [path for method, path in asked if method == "GET" and path.count("/") == 1]
    read = [path for method, path in asked if method in {"GET", "HEAD"} and path.count("/") > 1]
    written = [path for method, path in asked if method == "PUT"]
    (path,) = (path for path in written if path.endswith(REPORT))
    report = report_of(functions, path.split("/")[-2])
    assert (report.extracted, report.unchanged) == (0, len(NAMES))
    assert report.requests.reads == len(read)
    assert report.requests.writes == len(written) + len(listed)


def test_an_archive_that_lost_its_event(deploy: Callable[..., Functions], account: Account) -> None:
    """Its first run does not begin, and after a quarter of an hour the recheck does its work."""
    functions = deploy()
    account.put("a.zip", archive(NEWER))
    recheck = {"key": "a.zip", "after": "older"}
    assert send(functions, recheck, asked=time.time()) == []
    (run,) = send(functions, recheck, asked=time.time() - 1_000)
    assert do(functions, run) == "COMPLETED"
    assert members(account) == {f"out/a/{name}": body for name, body in NEWER.items()}


@pytest.mark.parametrize("versioned", [True])
def test_a_refused_archive_is_refused_once(replaced: Functions, account: Account) -> None:
    """There is nothing to compare."""
    older, _ = ids(replaced)
    account.put("a.zip", b"no archive")
    replaced.plan(object_created("a.zip"))
    do(replaced, older)
    (recheck,) = queued(replaced)
    assert send(replaced, recheck) == []
    assert queued(replaced) == []


def test_never_keeps_what_was_first(deploy: Callable[..., Functions], account: Account) -> None:
    """With `never` nothing is repaired, so the archive is not looked at."""
    functions = deploy(**{Variable.OPTIONS.value: '{"on_conflict": "never"}'})
    account.put("a.zip", archive(OLDER))
    functions.plan(object_created("a.zip"))
    (older,) = account.executions()
    functions.extract(older)
    account.put("a.zip", archive(NEWER))
    functions.report(older)
    assert queued(functions) == []
    assert "HEAD /arrivals/a.zip" not in account.asked


def test_the_same_bytes_again_and_none(replaced: Functions, account: Account) -> None:
    """An archive with the older one's bytes, or none, leaves nothing to repair."""
    older, _ = ids(replaced)
    replaced.extract(older)
    account.put("a.zip", archive(OLDER))
    replaced.report(older)
    account.client("s3").delete_object(Bucket="arrivals", Key="a.zip")
    replaced.report(older)
    assert queued(replaced) == []


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"key": "a.zip"}, "missing required field `after`"),
        ({"key": "a.txt", "after": "run", "asked": 1.0}, "a.txt is not in the trigger's scope"),
    ],
)
def test_a_message_that_is_no_recheck(
    deploy: Callable[..., Functions], message: dict[str, object], said: str
) -> None:
    """It is refused in plain words."""
    deploy()
    with pytest.raises(UsageError, match=said):
        list(read_requests(encode({RECHECK: message}).decode(), open_worker(), 0.0))
