"""Archives that are there are looked at, forecast as a whole, and queued."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from s3unzip.errors import AccessDeniedError, BudgetError, NotFoundError, StorageError, UsageError
from s3unzip.model import decode, encode
from s3unzip.operate.backlog import submitting
from s3unzip.operate.backlog.records import BacklogRecords, find_backlog, make_id
from s3unzip.operate.backlog.values import Backlog, BacklogArchive, Ends, Queued, Sums
from s3unzip.run_files import BACKLOGS
from s3unzip.settings import Variable
from tests.servers import HttpServer
from tests.split_zips import build_split, part_names
from tests.unit.operate.backlog.environment import BUCKET, make_archive
from tests.unit.operate.doctor.scripted import deny
from tests.zips import Entry

if TYPE_CHECKING:
    from s3unzip.operate.backlog.values import Submission
    from tests.unit.operate.backlog.environment import Site


def find(site: Site, *words: str, sample: int = 5, skip_outside: bool = False) -> Submission:
    """Look at what `words` name."""
    with submitting.open_spool() as spool:
        return submitting.find_archives(
            words, site.runs, spool, sample=sample, skip_outside=skip_outside
        )


def queued_keys(site: Site) -> list[str]:
    """Take the messages out of the queue; return the keys that they are about."""
    return sorted(one["detail"]["object"]["key"] for one in site.messages())


def test_a_prefix_is_forecast_and_queued(site: Site) -> None:
    """Every archive below it is queued once, and nothing else; the forecast has them all."""
    keys = [f"in/{n:02}.zip" for n in range(23)]
    site.put(*keys, "other/x.zip", "in/text.txt", "in/folder.zip/")
    submission = find(site, BUCKET + "in/")
    assert (submission.archives, submission.gone, submission.ended) == (23, 0, {})
    assert submission.size == 23 * len(make_archive())
    forecast = submission.forecast
    assert forecast is not None
    assert (forecast.archives, forecast.members) == (23, 69)
    assert forecast.ways == {"direct": 23, "inline": 0, "distributed": 0}
    assert forecast.sampled == 5
    assert forecast.dollars.expected > forecast.unavoidable > 0
    assert site.messages() == []  # the forecast queues nothing
    site.submit(BUCKET + "in/")
    assert queued_keys(site) == keys


def test_messages_are_of_the_submission(site: Site) -> None:
    """Their time is that of the command, so that old archives are not ahead of new ones."""
    site.put("a.zip")
    site.submit(BUCKET, now=1_800_000_000.0)
    (message,) = site.messages()
    assert (message["source"], message["time"]) == ("s3unzip.submit", "2027-01-15T08:00:00+00:00")


def test_lists_are_of_many_archives(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has the archives in pieces, and all of them are queued."""
    monkeypatch.setattr(submitting, "LIST_LENGTH", 4)
    site.put(*(f"{n}.zip" for n in range(9)))
    backlog = site.submit(BUCKET)
    assert (backlog.lists, backlog.archives) == (3, 9)
    records = submitting.open_records(site.runs)
    lists = [records.read_list(backlog.id, number) for number in range(3)]
    assert [len(one) for one in lists] == [4, 4, 1]
    assert records.read_queued(backlog.id) == Queued(3, 9)
    assert len(queued_keys(site)) == 9


def test_a_backlog_of_no_archive_is_refused(site: Site) -> None:
    """Nothing is written of it."""
    with pytest.raises(UsageError, match="at least one archive"):
        site.submit(BUCKET)
    assert site.functions.account.objects("work", f"runs/{BACKLOGS}") == {}


def test_an_interrupted_submission_is_resumed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists that are queued are not queued again; the rest is, once."""
    monkeypatch.setattr(submitting, "LIST_LENGTH", 2)
    site.put(*(f"{n}.zip" for n in range(6)))
    runs = site.runs
    backlog = site.record(BUCKET, now=1.0, runs=runs)

    def stop(count: int) -> None:
        if count == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        submitting.queue_backlog(backlog, runs, stop)
    assert queued_keys(site) == ["0.zip", "1.zip", "2.zip", "3.zip"]
    assert submitting.queue_backlog(backlog, runs) == 6
    assert queued_keys(site) == ["4.zip", "5.zip"]
    assert submitting.queue_backlog(backlog, runs) == 6
    assert site.messages() == []


def test_the_same_command_again_extracts_nothing_twice(site: Site) -> None:
    """Archives with a report are left out, by their verdicts; only the others are queued."""
    site.put("a.zip", "b.zip")
    site.put("bad.zip", body=b"no archive")
    site.submit(BUCKET)
    site.extract_queued()
    site.put("c.zip")
    submission = find(site, BUCKET)
    assert submission.ended == {"COMPLETED": 2, "REJECTED": 1}
    assert submission.archives == 1
    site.submit(BUCKET)
    assert queued_keys(site) == ["c.zip"]


def test_nothing_is_left(site: Site) -> None:
    """Where all runs have ended there is no forecast."""
    site.put("a.zip")
    site.submit(BUCKET)
    site.extract_queued()
    submission = find(site, BUCKET)
    assert (submission.archives, submission.forecast) == (0, None)


def test_a_split_archive_is_one_run(site: Site) -> None:
    """Its run is that of all parts, and the parts are no archives."""
    parts = build_split(Entry("a", b"a" * 500), sizes=[200, 200])
    for name, part in zip(part_names("split", len(parts)), parts, strict=True):
        site.put(name, body=part)
    backlog = site.submit(BUCKET)
    assert backlog.size == sum(map(len, parts))
    site.extract_queued()
    (archive,) = submitting.open_records(site.runs).read_list(backlog.id, 0)
    assert site.functions.account.executions() == [archive.run]


def test_a_long_comment_hides_nothing(site: Site) -> None:
    """The number of members is read although the end record is far from the end."""
    body = bytearray(make_archive(7))
    body[-2:] = (5_000).to_bytes(2, "little")
    site.put("commented.zip", body=bytes(body) + b"c" * 5_000)
    forecast = find(site, BUCKET, sample=0).forecast
    assert forecast is not None
    assert forecast.members == 7


def test_the_budget_is_of_the_whole(site: Site) -> None:
    """Each archive alone would be within it; together they are not, and nothing is queued."""
    site.put(*(f"{n}.zip" for n in range(10)))
    forecast = find(site, BUCKET).forecast
    assert forecast is not None
    each = forecast.dollars.expected / 10
    submitting.check_whole_budget(forecast, None)
    submitting.check_whole_budget(forecast, 11 * each)
    with pytest.raises(BudgetError, match=r"for 10 archives, above the limit .* Nothing is queued"):
        submitting.check_whole_budget(forecast, 2 * each)
    with pytest.raises(UsageError, match="must be 0 or more dollars, not nan"):
        submitting.check_whole_budget(forecast, float("nan"))


def test_archives_above_the_environments_limit_are_counted(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forecast says how many `runs.max_cost` will refuse."""
    account = site.functions.account
    variables = account.variables | {Variable.MAX_COST: "0.000001"}
    account.client("lambda").update_function_configuration(
        FunctionName="plan", Environment={"Variables": variables}
    )
    site.put("a.zip", "b.zip", "c.zip")
    for sample in (0, 1, 5):
        forecast = find(site, BUCKET, sample=sample).forecast
        assert forecast is not None
        assert forecast.above_limit == 3


def test_archives_outside_are_refused(site: Site) -> None:
    """A glob that names what starts no run is refused with an example, or leaves that out."""
    site.put("a.zip", "a.jar", "b.jar")
    with pytest.raises(UsageError, match=r"2 archives are outside .*\*\.zip.* example a\.jar"):
        find(site, BUCKET + "*")
    submission = find(site, BUCKET + "*", skip_outside=True)
    assert (submission.archives, submission.outside) == (1, 2)


def test_tenants_have_groups(site: Site) -> None:
    """A message has the group of its tenant; archives of no tenant start no run."""
    account = site.functions.account
    variables = account.variables | {Variable.TENANTS: json.dumps(["acme/", "globex/"])}
    account.client("lambda").update_function_configuration(
        FunctionName="plan", Environment={"Variables": variables}
    )
    site.put("acme/a.zip", "globex/b.zip", "nobody/c.zip")
    with pytest.raises(UsageError, match="1 archive is outside"):
        find(site, BUCKET)
    site.submit(BUCKET + "acme/", BUCKET + "globex/")
    assert groups(site) == {"acme/a.zip": "acme/", "globex/b.zip": "globex/"}


def groups(site: Site) -> dict[str, str]:
    """Return the message group of each key in the queue."""
    account = site.functions.account
    told = account.client("sqs").receive_message(
        QueueUrl=account.variables[Variable.QUEUE], MaxNumberOfMessages=10, AttributeNames=["All"]
    )
    return {
        json.loads(one["Body"])["detail"]["object"]["key"]: one["Attributes"]["MessageGroupId"]
        for one in told["Messages"]
    }


def test_a_backlog_is_a_group(site: Site) -> None:
    """Without tenants all messages are of one group, so that SQS lets other archives overtake."""
    site.put("a.zip", "b.zip")
    backlog = site.submit(BUCKET)
    assert groups(site) == {"a.zip": backlog.id, "b.zip": backlog.id}


def test_a_bucket_that_is_gone(site: Site) -> None:
    """The call that was refused is named."""
    site.functions.account.client("s3").delete_bucket(Bucket="arrivals")
    with pytest.raises(StorageError, match="s3:ListBucket of arrivals: NoSuchBucket"):
        find(site, BUCKET)


def test_invocations_of_the_queue(site: Site) -> None:
    """The limit of the queue's trigger counts, without one that of an account."""
    account = site.functions.account
    assert submitting.read_invocations(site.runs) == 1_000
    account.client("lambda").create_event_source_mapping(
        FunctionName="plan",
        EventSourceArn=account.queue_arn(account.variables[Variable.QUEUE]),
        ScalingConfig={"MaximumConcurrency": 7},
    )
    assert submitting.read_invocations(site.runs) == 7


@pytest.mark.parametrize(
    ("service", "action"),
    [
        ("lambda", "lambda:GetFunctionConfiguration"),
        ("s3", "s3:ListBucket of arrivals"),
        ("sqs", "sqs:SendMessage"),
    ],
)
def test_a_right_that_is_missing(site: Site, service: str, action: str) -> None:
    """The action is named, and the command can be given again."""
    site.put("a.zip")
    with HttpServer(deny) as server:
        runs = site.denied(service, server.url)
        with pytest.raises(AccessDeniedError, match=action):
            site.submit(BUCKET, runs=runs)
    site.submit(BUCKET)
    assert queued_keys(site) == ["a.zip"]


def test_the_right_to_read_the_trigger(site: Site) -> None:
    """The forecast needs it, and says so."""
    with (
        HttpServer(deny) as server,
        pytest.raises(AccessDeniedError, match="lambda:ListEventSourceMappings"),
    ):
        submitting.read_invocations(site.denied("lambda", server.url))


def test_backlogs_are_found(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """By an id, the beginning of one, or as the latest."""
    runs = site.runs
    client, work = runs.client("s3"), runs.work_location
    with pytest.raises(NotFoundError, match="no backlog was submitted yet"):
        find_backlog(client, work, "latest")
    site.put("a.zip")
    monkeypatch.setattr("secrets.token_hex", lambda _: "abcd")
    first, second = (site.submit(BUCKET, now=now).id for now in (1.0, 90_000.0))
    assert (first, second) == ("19700101-000001-abcd", "19700102-010000-abcd")
    assert find_backlog(client, work, "latest") == second
    assert find_backlog(client, work, "19700101") == first
    assert find_backlog(client, work, second) == second
    with pytest.raises(UsageError, match="2 backlogs begin with it"):
        find_backlog(client, work, "1970")
    with pytest.raises(NotFoundError, match="no such backlog"):
        find_backlog(client, work, "2031")


def test_a_backlog_whose_lists_are_not_whole(site: Site) -> None:
    """Nothing of it was queued, and the error says so."""
    records = submitting.open_records(site.runs)
    records.write_list("20260101-000000-0000", 0, [BacklogArchive("a.zip", "a-1", 5)])
    with pytest.raises(NotFoundError, match="interrupted before its first archive was queued"):
        records.read_backlog("20260101-000000-0000")


def test_records_come_back_as_they_were(site: Site) -> None:
    """What is written is read again without loss, odd keys and large numbers included."""
    runs = site.runs
    records = BacklogRecords(runs.stores.run_store(BACKLOGS))
    archives = [BacklogArchive('a"\n\u202e.zip', "a-1", 2**62), BacklogArchive("b.zip", "b-1", 0)]
    records.write_list("x", 7, archives)
    assert records.read_list("x", 7) == archives
    assert records.find_ends("x", 7) is None
    ends = Ends(Sums(archives=3, dollars=0.1, last=1.5), tuple(archives))
    records.write_ends("x", 7, ends)
    assert records.find_ends("x", 7) == ends
    assert records.read_queued("x") == Queued()
    site.put("a.zip")
    backlog = site.submit(BUCKET)
    assert records.read_backlog(backlog.id) == backlog
    limited = replace(backlog, max_cost=1.25)
    assert decode(encode(limited), Backlog) == limited


def test_ids_are_in_the_order_of_time() -> None:
    """A later submission has a larger id."""
    assert make_id(1_000_000_000.0) < make_id(1_000_000_001.0) < make_id(2_000_000_000.0)
