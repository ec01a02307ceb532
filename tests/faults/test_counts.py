"""The requests in report.json are those that a proxy saw, kind by kind; and the proxy itself.

A task and the report count up to the object that they write last, so kinds of requests that the
records of a run need are counted nearly, the others exactly.
"""

import http.client
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlsplit

import pytest
from msgspec.structs import asdict, replace
from mypy_boto3_s3 import S3Client

from s3unzip.local.extra import clear_extra
from s3unzip.model import OnConflict, Options, Report, Verdict
from s3unzip.runs.records import RunRecords
from s3unzip.settings import MIB, Tuning
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.ports import ListedObject
from tests.faults.archives import TUNING, make_archive
from tests.faults.proxy import Act, FaultProxy, Record, Rule
from tests.faults.world import DESTINATION, SOURCE, World, expected_listing, open_client

OF_RECORDS = {"get", "put", "list", "delete"}


def _seen(world: World) -> dict[str, int]:
    return count(world.proxy.take_records())


def count(records: Iterable[Record]) -> dict[str, int]:
    """Return how many requests of each kind a run sent.

    The HEAD by which the command sees that a bucket is there is no request of the run.
    """
    return dict(
        Counter(
            record.kind
            for record in records
            if record.kind != "head" or record.path.strip("/").count("/")
        )
    )


def _agree(report: Report, found: dict[str, int]) -> bool:
    told = {
        kind: count
        for kind, count in asdict(report.requests).items()
        if count and kind not in {"retries", "throttled"}
    }
    exact = {kind: count for kind, count in told.items() if kind not in OF_RECORDS}
    assert exact == {kind: count for kind, count in found.items() if kind not in OF_RECORDS}
    return all(told.get(kind, 0) <= found.get(kind, 0) for kind in OF_RECORDS)


@pytest.mark.parametrize(
    ("small", "large", "kinds"),
    [
        pytest.param(120, False, {"batch"}, id="small"),
        pytest.param(20, True, {"batch", "stream", "copy", "scan"}, id="large"),
    ],
)
def test_counts_of_every_kind_of_task(
    world: World, small: int, kinds: set[str], *, large: bool
) -> None:
    """Plan, scans, link, copies of two tasks and report are counted; every object is right."""
    archive = make_archive(small=small, large=large)
    world.put_archive(archive)
    report = world.run(processes=2, tuning=replace(TUNING, copy_task_bytes=6 * MIB))
    assert report.verdict is Verdict.COMPLETED
    assert _agree(report, _seen(world))
    assert world.listing() == expected_listing(archive)
    assert world.uploads() == 0
    summary = RunRecords.open(world.maker()(LocalClock()).stores, report.run).read_plan()
    assert set(summary.kinds) == kinds


def test_counts_of_a_run_that_finds_all_unchanged(world: World) -> None:
    """Pages of LIST and HEADs are counted one by one; no member is written again."""
    world.put_archive(make_archive(small=1_100, large=False, size=60))
    tuning = Tuning(batch_members=5_000, max_workers=1)
    world.run(tuning=tuning)
    world.proxy.take_records()
    report = world.run(options=Options(on_conflict=OnConflict.SKIP_UNCHANGED), tuning=tuning)
    records = world.proxy.take_records()
    assert not any(one.kind == "put" and "/archive/" in one.path for one in records)
    found = count(records)
    assert report.unchanged == 1_100
    assert _agree(report, found)
    assert found["list"] >= 2


@pytest.mark.parametrize(
    "rule",
    [
        Rule(Act.ANSWER, chance=0.1),
        Rule(Act.LOSE, chance=0.1),
        Rule(Act.RESET, chance=0.1),
        Rule(Act.TRUNCATE, ("get", "list", "put", "part", "create", "complete"), chance=0.1),
    ],
    ids=lambda rule: str(rule.act),
)
def test_counts_of_a_run_with_faults(world: World, rule: Rule) -> None:
    """Each attempt is counted, also those of records."""
    world.put_archive(make_archive(small=60))
    world.proxy.set_rules(rule)
    report = world.run()
    assert report.verdict is Verdict.COMPLETED
    assert _agree(report, _seen(world))
    assert report.requests.retries > 0


def test_requests_of_deleting_what_is_extra(world: World) -> None:
    """Somebody is asked once about all of it; pages of 1,000 are deleted; members stay."""
    world.put_archive(make_archive(small=20, large=False))
    report = world.run()
    for number in range(1_100):
        world.client.put_object(Bucket=DESTINATION, Key=f"archive/extra/{number}", Body=b"")
    world.proxy.take_records()
    found: list[ListedObject] = []

    def confirm(extra: Sequence[ListedObject]) -> bool:
        found.extend(extra)
        return True

    report = clear_extra(report, world.maker()(LocalClock()), confirm)
    requests = _seen(world)
    assert min(requests["list"], requests["delete"]) >= 2
    assert len(found) == 1_100
    assert len(world.listing()) == report.extracted == 20


BODY = bytes(range(256)) * 1024


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[S3Client]:
    client = open_client(proxy.url)
    yield client
    client.close()


def test_the_proxy_passes_requests_on_and_records_them(proxy: FaultProxy, client: S3Client) -> None:
    """What is put comes back as it was, and each request is on record by its kind."""
    client.put_object(Bucket=SOURCE, Key="a b/ü.bin", Body=BODY)
    answer = client.get_object(Bucket=SOURCE, Key="a b/ü.bin", Range="bytes=5-99")
    assert answer["Body"].read() == BODY[5:100]
    client.head_object(Bucket=SOURCE, Key="a b/ü.bin")
    client.list_objects_v2(Bucket=SOURCE)
    upload = client.create_multipart_upload(Bucket=SOURCE, Key="m")["UploadId"]
    part = client.upload_part(Bucket=SOURCE, Key="m", UploadId=upload, PartNumber=1, Body=BODY)
    client.complete_multipart_upload(
        Bucket=SOURCE,
        Key="m",
        UploadId=upload,
        MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
    )
    records = proxy.take_records()
    kinds = ["put", "get", "head", "list", "create", "part", "complete"]
    assert [record.kind for record in records] == kinds
    assert records[0].sent >= len(BODY)
    assert records[1].received == 95
    assert records[0].path == f"/{SOURCE}/a b/ü.bin"


@pytest.mark.parametrize("act", [Act.RESET, Act.STALL, Act.TRUNCATE, Act.LOSE])
def test_breaks(proxy: FaultProxy, act: Act) -> None:
    """Resets, stalls, truncated bodies and lost answers never look like an answer."""
    connection = http.client.HTTPConnection(urlsplit(proxy.url).netloc, timeout=10)
    proxy.set_rules(Rule(act, times=1, seconds=0.05))
    connection.request("GET", "/")
    with pytest.raises((OSError, http.client.HTTPException)):
        connection.getresponse().read()
    connection.close()
    assert Counter(record.fault for record in proxy.take_records()) == {act.value: 1}
