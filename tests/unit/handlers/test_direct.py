"""Direct runs: the function that takes an archive's event does all of it, over moto's services."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from s3unzip import run_files
from s3unzip.aws.environment import open_worker
from s3unzip.aws.events import NESTED
from s3unzip.aws.intake.archive import take_archive
from s3unzip.aws.intake.claims import take_claim
from s3unzip.aws.intake.messages import KEPT_ID, Message
from s3unzip.cli.runs import list_entries
from s3unzip.direct.bundle import Claim, Event, pack, unpack
from s3unzip.errors import ClaimedError
from s3unzip.estimate import one_function
from s3unzip.model import Options, Report, Verdict, decode, encode
from s3unzip.operate.reconcile import reconcile
from s3unzip.operate.runs import RUNNING, DeployedRuns
from s3unzip.run_files import CLAIMS
from s3unzip.settings import Variable
from s3unzip.stores.s3.access import S3Access
from tests.unit.aws.contexts import Invocation
from tests.unit.handlers.pipeline import MEMBERS, Functions, archive, object_created
from tests.zips import DEFLATE, Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.account import Account

DIRECT = {Variable.TUNING.value: "{}"}


@pytest.fixture(name="deploy")
def deploy_direct(deploy: Callable[..., Functions], account: Account) -> Callable[..., Functions]:
    """A function that deploys the account with direct runs, and returns its functions."""

    def make(**variables: str) -> Functions:
        functions = deploy(**{**DIRECT, **variables})
        s3 = account.client("s3")
        s3.put_bucket_versioning(Bucket="members", VersioningConfiguration={"Status": "Enabled"})
        return functions

    return make


@pytest.fixture
def extracted(deploy: Callable[..., Functions], account: Account) -> Functions:
    """The functions after a direct run of ``a.zip``."""
    functions = deploy()
    account.put("a.zip", archive())
    functions.plan(object_created("a.zip"))
    return functions


def puts(account: Account) -> int:
    """Return how often members were written: each PUT is a version."""
    return len(account.client("s3").list_object_versions(Bucket="members").get("Versions", []))


def records(account: Account) -> tuple[str, bytes]:
    """Return name and body of the only object that is a claim or a bundle."""
    ((name, body),) = account.objects("work", f"runs/{CLAIMS}/").items()
    return name, body


def replace_claim(account: Account, **changes: object) -> Claim:
    """Leave what an invocation leaves that is killed after its claim, with these changes."""
    name, body = records(account)
    found = {**json.loads(encode(unpack(body)[0])), **changes}
    account.put(name, json.dumps(found).encode(), "work")
    return decode(json.dumps(found), Claim)


def replace_records(account: Account, **changes: object) -> Claim:
    """Change the claim that a run's records were written under."""
    name, body = records(account)
    claim, files = unpack(body)
    found = decode(json.dumps({**json.loads(encode(claim)), **changes}), Claim)
    account.put(name, pack(files, found), "work")
    return found


def take(key: str, message: Message) -> None:
    """Take an archive as the handler does for one message."""
    worker = open_worker()
    request = worker.request(key)
    function = one_function(1_769)
    take_archive(request, message, worker.context(Invocation()), function)


def test_a_small_archive_is_done_by_one_invocation(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Members, report and event exist, the records are two objects, and there is no execution."""
    functions = deploy()
    heard = account.listen()
    account.put("a b.zip", archive())
    assert functions.plan(object_created("a b.zip")) == []
    members = account.objects("members")
    assert members == {f"out/a b/{name}": body for name, body in MEMBERS.items()}
    (event,) = account.receive(heard)
    assert (event["detail-type"], event["detail"]["extracted"]) == ("Archive Extracted", 20)
    run = event["detail"]["run"]
    assert account.executions() == []
    name, body = records(account)
    left = account.objects("work")
    assert left.keys() == {name, f"runs/{run}/{run_files.REPORT}"}
    report = decode(left[f"runs/{run}/{run_files.REPORT}"], Report)
    assert (report.verdict, report.extracted, report.tasks) == (Verdict.COMPLETED, 20, 1)
    assert (report.requests.reads, report.requests.writes) == (1, 20 + 3)
    assert unpack(body)[1].keys() >= {run_files.RUN, run_files.SUMMARY, run_files.PAGE}


def test_requests_are_few(deploy: Callable[..., Functions], account: Account) -> None:
    """The server is asked for one GET and three PUTs besides the members', as the report says."""
    functions = deploy()
    account.put("a.zip", archive())
    account.asked.clear()
    functions.plan(object_created("a.zip"))
    gets = [line for line in account.asked if line.startswith("GET /")]
    written = [line for line in account.asked if line.startswith("PUT /")]
    assert len(gets) == 1
    assert len([line for line in written if "/members/" in line]) == 20
    assert len([line for line in written if "/work/" in line]) == 3
    assert len(gets) + len(written) == 1 + 20 + 3


@pytest.fixture
def with_bad_member(deploy: Callable[..., Functions], account: Account) -> Functions:
    """The functions after a direct run of an archive with one wrong CRC-32."""
    functions = deploy()
    wrong = {"crc32": 1}
    account.put("a.zip", archive(Entry("bad", b"x" * 99, DEFLATE, central=wrong, local=wrong)))
    functions.plan(object_created("a.zip"))
    return functions


@pytest.mark.usefixtures("with_bad_member")
def test_a_bad_member_is_its_own_failure(account: Account) -> None:
    """The engine's checks and outcomes are those of any run."""
    runs = DeployedRuns("dev", S3Access(endpoint_url=account.url))
    (entry,) = runs.recent(10)
    found = runs.records(entry.id)
    report = found.find_report()
    assert report is not None
    assert (report.verdict, report.failed) == (Verdict.COMPLETED_WITH_ERRORS, 1)
    failed = [outcome.key for _, outcome in found.each_outcome() if outcome.status == "failed"]
    assert failed == ["out/a/bad"]


def test_an_event_that_comes_again(deploy: Callable[..., Functions], account: Account) -> None:
    """It writes nothing, and the run is announced once."""
    functions = deploy()
    heard = account.listen()
    account.put("a.zip", archive())
    functions.plan(object_created("a.zip"))
    before = account.objects("work")
    for _ in range(2):
        assert functions.plan(object_created("a.zip")) == []
    assert account.objects("work") == before
    assert puts(account) == 20
    assert len(account.receive(heard)) == 1


def test_an_event_that_comes_late(extracted: Functions, account: Account) -> None:
    """After the time of the function that did the run, it sends no second event."""
    heard = account.listen()
    replace_records(account, until=time.time() - 1)
    before = account.objects("work")
    assert extracted.plan(object_created("a.zip")) == []
    assert account.objects("work") == before
    assert account.receive(heard) == []


@pytest.mark.parametrize("redriven", [False, True], ids=["its message", "a redriven dead letter"])
def test_an_event_that_could_not_be_sent(
    deploy: Callable[..., Functions], account: Account, *, redriven: bool
) -> None:
    """The records say so, and the next delivery sends it, once."""
    functions = deploy(**{Variable.EVENT_BUS: "missing"})
    account.put("a.zip", archive())
    event = object_created("a.zip")
    assert functions.plan(event) == [json.dumps(event)]
    claim, files = unpack(records(account)[1])
    assert claim.event is Event.MISSING
    assert run_files.REPORT in files
    account.client("events").create_event_bus(Name="missing")
    heard = account.listen("missing")
    take("a.zip", Message("redriven", 1) if redriven else Message(claim.holder, 2))
    assert len(account.receive(heard)) == 1
    assert unpack(records(account)[1])[0].event is Event.SENT
    take("a.zip", Message("another", 1))
    assert account.receive(heard) == []
    assert puts(account) == 20


def test_a_copy_is_the_message_that_it_replaces(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Only a copy sends the event that nobody could note as missing.

    A dead letter that an operator moved back has another id, but the body of the copy.
    """
    functions = deploy(**{Variable.EVENT_BUS: "missing"})
    account.put("a.zip", archive())
    functions.plan(object_created("a.zip"))
    # As if the work bucket had refused that, too.
    claim = replace_records(account, event="", until=time.time() - 1)
    take("a.zip", Message("a duplicate", 1))
    copy = json.dumps({**object_created("a.zip"), KEPT_ID: claim.holder})
    account.client("events").create_event_bus(Name="missing")
    heard = account.listen("missing")
    assert functions.plan(copy) == []
    assert len(account.receive(heard)) == 1
    assert puts(account) == 20


def test_two_copies_of_a_message(deploy: Callable[..., Functions], account: Account) -> None:
    """The first one notes that it sent the event, so that the second one sends none."""
    functions = deploy()
    heard = account.listen()
    account.put("a.zip", archive())
    copy = json.dumps({**object_created("a.zip"), KEPT_ID: "message"})
    assert functions.plan(copy) == []
    assert unpack(records(account)[1])[0].event is Event.SENT
    before = account.objects("work")
    assert functions.plan(copy) == []
    assert account.objects("work") == before
    assert len(account.receive(heard)) == 1
    assert puts(account) == 20


@pytest.mark.usefixtures("extracted")
def test_a_message_and_its_copy_at_the_same_moment() -> None:
    """One of them has the run; an attempt whose answer was lost still knows its own claim."""
    config = open_worker()
    store = config.stores.run_store(CLAIMS, config.context(Invocation()).calls())
    first, second = (Claim("run", "message", 5.0, token=token) for token in ("a", "b"))
    assert take_claim(store, "other.zip", first) is None
    assert take_claim(store, "other.zip", first) is None
    taken = take_claim(store, "other.zip", second)
    assert taken is not None
    assert taken.claim == first


def test_archives_inside_are_queued_by_whoever_announces_the_run(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """A later delivery that finds the records of the run queues them, as the first one would."""
    options = {Variable.OPTIONS: encode(Options(nested_depth=1)).decode()}
    functions = deploy(**options, **{Variable.EVENT_BUS: "missing"})
    account.put("a.zip", archive(Entry("inside.zip", archive())))
    functions.plan(object_created("a.zip"))
    sqs, url = account.client("sqs"), account.variables[Variable.QUEUE]
    sqs.purge_queue(QueueUrl=url)
    account.client("events").create_event_bus(Name="missing")
    take("a.zip", Message(unpack(records(account)[1])[0].holder, 2))
    (queued,) = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert json.loads(queued["Body"])[NESTED]["source"]["key"] == "out/a/inside.zip"


@pytest.mark.usefixtures("extracted")
def test_what_waits_for_the_end_of_a_claim(account: Account) -> None:
    """The holder's message, and any message where the holder's may have had its last delivery."""
    first = replace_claim(account, until=time.time() + 1_000)
    take("a.zip", Message("another", 1))
    with pytest.raises(ClaimedError):
        take("a.zip", Message(first.holder, 2))
    replace_claim(account, attempt=5)
    with pytest.raises(ClaimedError) as held:
        take("a.zip", Message("another", 1))
    assert 900 < held.value.seconds <= 1_000


@pytest.mark.parametrize("events", [2, 5])
def test_events_that_come_at_once(
    deploy: Callable[..., Functions], account: Account, events: int
) -> None:
    """One of them does the run; the others leave it alone, and none comes back."""
    deploy()
    heard = account.listen()
    account.put("a.zip", archive())
    messages = [Message(f"message-{number}", 1) for number in range(events)]
    with ThreadPoolExecutor(events) as pool:
        list(pool.map(lambda message: take("a.zip", message), messages))
    assert puts(account) == 20
    assert len(account.receive(heard)) == 1
    assert account.executions() == []


def test_an_archive_that_is_larger_than_what_is_held(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """What is before the held bytes is read with one more request."""
    functions = deploy(**{Variable.TUNING: json.dumps({"tail_bytes": 70_000})})
    account.put("a.zip", archive(*(Entry(f"r{n}", b"%d" % n * 30_000) for n in range(5))))
    functions.plan(object_created("a.zip"))
    assert puts(account) == 25
    assert account.executions() == []


@pytest.mark.parametrize(
    "tuning",
    [
        {"max_direct_members": 0},
        {"max_direct_members": 19},
        {"max_direct_bytes": 1_000},
        {"max_direct_seconds": 0.5},
        {"max_direct_member_bytes": 50, "small_member": 50},
        {"tail_bytes": 300},
    ],
)
def test_what_is_beyond_a_bound_is_an_execution(
    deploy: Callable[..., Functions], account: Account, tuning: dict[str, float]
) -> None:
    """Each bound alone sends the archive to the state machine; nothing is written here."""
    functions = deploy(**{Variable.TUNING: json.dumps(tuning)})
    account.put("a.zip", archive())
    assert functions.plan(object_created("a.zip")) == []
    assert len(account.executions()) == 1
    assert puts(account) == 0


def test_a_slow_function_hands_its_archive_over(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Near its deadline it writes its records; the execution does the rest and no more."""
    functions = deploy()
    functions.invocation = Expiring(12, account)
    heard = account.listen()
    account.put("a.zip", archive())
    assert functions.plan(object_created("a.zip")) == []
    done = puts(account)
    assert 0 < done < 20
    (run,) = account.executions()
    functions.invocation = Invocation()
    (answer,) = functions.extract(run)
    assert answer["unfinished"] == 0
    assert functions.report(run)["verdict"] == "COMPLETED"
    assert puts(account) == 20
    assert len(account.receive(heard)) == 1
    report = decode(functions.run_store(run).read(run_files.REPORT), Report)
    assert (report.extracted, report.records) == (20, None)


def test_a_fault_that_lasts_hands_the_archive_over(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """A missing destination stops the run like any other run; it can be redriven."""
    functions = deploy(**{Variable.DESTINATION: "s3://nowhere/out/"})
    account.put("a.zip", archive())
    assert functions.plan(object_created("a.zip")) == []
    (run,) = account.executions()
    assert b"not-found" in functions.run_store(run).read(run_files.STOP)


def test_a_killed_function_is_followed_by_the_state_machine(
    extracted: Functions, account: Account
) -> None:
    """Once its time is over, its message starts an execution; until then it waits."""
    alive = replace_claim(account, until=time.time() + 1_000)
    event = object_created("a.zip")
    assert extracted.plan(event) == []  # the holder's message will come again
    assert account.executions() == []
    with pytest.raises(ClaimedError):
        take("a.zip", Message(alive.holder, 2))
    replace_claim(account, until=time.time() - 1)
    take("a.zip", Message(alive.holder, 3))
    (run,) = account.executions()
    extracted.plan_run(run)
    assert extracted.extract(run)[0]["failed"] == 0


@pytest.mark.parametrize("redriven", [False, True], ids=["its message", "a redriven dead letter"])
def test_a_function_that_was_killed_after_its_records(
    extracted: Functions, account: Account, *, redriven: bool
) -> None:
    """The next delivery writes the report and announces the run, once, and no member again."""
    claim = replace_records(account, until=time.time() - 1)
    name, body = records(account)
    files = unpack(body)[1]
    account.client("s3").delete_object(Bucket="work", Key=f"runs/{claim.run}/{run_files.REPORT}")
    heard = account.listen()
    for _ in range(2):
        take("a.zip", Message("redriven", 1) if redriven else Message(claim.holder, 2))
    assert extracted.run_store(claim.run).read(run_files.REPORT) == files[run_files.REPORT]
    assert len(account.receive(heard)) == 1
    assert puts(account) == 20
    told = Claim(claim.run, claim.holder, claim.until, event=Event.SENT, token=claim.token)
    assert account.objects("work", name) == {name: pack(files, told)}


def test_handing_over_can_be_repeated(deploy: Callable[..., Functions], account: Account) -> None:
    """If the plan is complete and the execution did not start, the next attempt starts it."""
    functions = deploy()
    functions.invocation = Expiring(12, account)
    machine = account.variables[Variable.STATE_MACHINE]
    account.put("a.zip", archive())
    functions.plan(object_created("a.zip"))
    (run,) = account.executions()
    planned = functions.run_store(run).read(run_files.PLAN)
    states = account.client("stepfunctions")
    states.delete_state_machine(stateMachineArn=machine)  # and its executions: it never started
    account.make_machine()
    functions.invocation = Invocation()
    replace_claim(account, until=time.time() - 1)
    assert functions.plan(object_created("a.zip")) == []
    assert account.executions() == [run]
    functions.plan_run(run)
    assert functions.run_store(run).read(run_files.PLAN) == planned
    (answer,) = functions.extract(run)
    assert answer["unfinished"] == 0
    assert puts(account) == 20


def test_a_refused_run_is_listed_by_its_report(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """Its function, which has a claim, writes the note of its end after the report."""
    functions = deploy()
    account.put("bad.zip", b"no archive")
    functions.plan(object_created("bad.zip"))
    (note,) = account.objects("work", "runs/-refused/")
    account.client("s3").delete_object(Bucket="work", Key=note)
    runs = DeployedRuns("dev", S3Access(endpoint_url=account.url))
    assert [one.state for one in runs.recent(10)] == ["RUNNING"]
    assert [one.state for one in list_entries(runs, 10)] == ["REJECTED"]


def test_a_direct_run_is_listed_shown_and_retried(
    with_bad_member: Functions, account: Account
) -> None:
    """The commands of an operator know it as any run."""
    runs = DeployedRuns("dev", S3Access(endpoint_url=account.url))
    (entry,) = runs.recent(10)
    assert entry.state == "SUCCEEDED"
    assert runs.find("latest") == runs.find(entry.id[:5]) == entry.id
    assert b"<title>" in runs.records(entry.id).read_page()
    assert runs.state(entry.id) is None
    assert runs.retry(entry.id) == 1
    (answer,) = with_bad_member.extract(f"{entry.id}-retry-0001")
    assert answer["failed"] == 1
    assert with_bad_member.report(f"{entry.id}-retry-0001")["verdict"] == "COMPLETED_WITH_ERRORS"
    report = runs.records(entry.id).find_report()
    assert report is not None
    assert (report.extracted, report.failed, report.records) == (20, 1, None)


@pytest.mark.usefixtures("extracted")
def test_a_run_that_goes_on_is_no_lost_archive(account: Account) -> None:
    """Reconcile counts it as running while its function may be at work, and no longer."""
    claim = replace_claim(account, until=time.time() + 60)
    account.client("s3").delete_object(Bucket="work", Key=f"runs/{claim.run}/{run_files.REPORT}")
    runs = DeployedRuns("dev", S3Access(endpoint_url=account.url))
    found = reconcile(runs, 0.0)
    assert (found.running, found.unsettled) == (1, ())
    replace_claim(account, until=time.time() - 1)
    (lost,) = reconcile(runs, 0.0).unsettled
    assert (lost.run, lost.state) == (claim.run, "no run")


@pytest.mark.usefixtures("extracted")
def test_a_run_that_goes_on_is_listed(account: Account) -> None:
    """It is found by its claim before it has any record."""
    claim = replace_claim(account, until=time.time() + 60)
    account.client("s3").delete_object(Bucket="work", Key=f"runs/{claim.run}/{run_files.REPORT}")
    runs = DeployedRuns("dev", S3Access(endpoint_url=account.url))
    (entry,) = runs.recent(10)
    assert (entry.id, entry.state) == (claim.run, RUNNING)
    assert runs.find(claim.run[:6]) == claim.run


class Expiring(Invocation):
    """An invocation with time for so many looks at the clock and for a PUT; then nearly none."""

    def __init__(self, looks: int, account: Account) -> None:
        super().__init__()
        self._looks = looks
        self._account = account

    def get_remaining_time_in_millis(self) -> int:  # type: ignore[override]  # as its base
        """Return the milliseconds that are left."""
        self._looks -= 1
        if self._looks > 0:
            return 60_000
        while not puts(self._account):
            time.sleep(0.01)
        return 1_000
