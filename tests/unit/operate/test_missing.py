"""Archives without a verdict are found by comparing the bucket with the runs."""

import json
import time
from collections.abc import Callable

import pytest

from s3unzip.errors import StorageError
from s3unzip.model import Location, Verdict
from s3unzip.operate.submit import find_missing, start_missing
from s3unzip.run_ids import execution_name
from tests.support.split_zips import build_split, part_names
from tests.support.zips import Entry
from tests.unit.operate.site import GOOD, Site


def test_every_archive_has_its_verdict(site: Site) -> None:
    """Of a run that ended nothing is told; one that goes on is counted."""
    site.work(site.begin("done.zip"))
    site.begin("going.zip")
    site.begin("refused.zip", b"no archive")
    site.account.put("other.txt", b"starts nothing")
    found = find_missing(site.runs, 0.0)
    assert (found.archives, found.running, found.unsettled) == (3, 1, ())
    assert find_missing(site.runs, time.time() + 3_600).archives == 0  # only what was put since


def test_a_lost_event_is_queued_again(site: Site) -> None:
    """The intake takes what `start_missing` queues, and then the newest version has a run."""
    site.account.client("s3").put_bucket_versioning(
        Bucket="arrivals", VersioningConfiguration={"Status": "Enabled"}
    )
    site.account.put("lost.zip", b"an older version")
    site.account.put("lost.zip", GOOD)
    runs = site.runs
    found = find_missing(runs, 0.0)
    (lost,) = found.unsettled
    assert (lost.source.key, lost.state, lost.size) == ("lost.zip", "no run", len(GOOD))
    assert len(found.startable) == 1
    start_missing(runs, found.startable)
    site.take()
    assert site.account.executions() == [execution_name(lost.run)]
    site.work(lost.run)
    assert find_missing(runs, 0.0).unsettled == ()


def test_a_split_archive_has_its_verdict(site: Site) -> None:
    """Its run is named by all of its parts."""
    parts = build_split(Entry("a", b"a" * 500), sizes=[200, 200])
    *others, last = zip(part_names("split", len(parts)), parts, strict=True)
    for name, part in others:
        site.account.put(name, part)
    run = site.begin(*last)
    (found,) = [find_missing(site.runs, 0.0)]
    assert (found.running, found.unsettled) == (1, ())
    site.work(run)
    assert find_missing(site.runs, 0.0).unsettled == ()


def test_the_limit_of_parts_is_the_environment_s(deploy: Callable[..., Site]) -> None:
    """A split archive with more parts is refused, and its verdict is found."""
    site = deploy(S3UNZIP_LIMITS='{"parts": 2}')
    parts = build_split(Entry("a", b"a" * 500), sizes=[200, 200])
    *others, last = zip(part_names("split", len(parts)), parts, strict=True)
    for name, part in others:
        site.account.put(name, part)
    assert len(parts) == 3
    site.begin(*last)
    (run,) = (run for run, *_ in site.runs.recent(10))
    report = site.runs.records(run).find_report()
    assert report is not None
    assert report.reason == "too-many-parts"
    assert find_missing(site.runs, 0.0).unsettled == ()


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
    site.work(site.begin("done.zip"))
    damaged = site.begin("damaged.zip")
    site.end(execution_name(damaged))
    for record in ("report", "run"):
        site.account.put(f"runs/{damaged}/{record}.json", b"{", bucket="work")
    frozen = {"Bucket": "arrivals", "Key": "frozen.zip", "StorageClass": "DEEP_ARCHIVE"}
    site.account.client("s3").put_object(**frozen, Body=GOOD)
    site.account.put("lost.zip", GOOD)
    found = find_missing(site.runs, 0.0)
    assert {one.source.key: one.state for one in found.unsettled} == {
        "damaged.zip": "not finished",
        "frozen.zip": "no run",
        "lost.zip": "no run",
    }
    assert len(found.startable) == 3
    start_missing(site.runs, found.startable)
    site.take()  # what `start_missing` queued
    assert find_missing(site.runs, 0.0).unsettled == ()


def test_an_archive_that_nobody_may_see_is_named(site: Site) -> None:
    """It hides no other one, and is not started."""
    site.account.put("lost.zip", GOOD)
    site.account.put("secret.zip", GOOD)
    policy = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Deny",
                "Principal": "*",
                "Action": ["s3:GetObject", "s3:HeadObject"],  # moto's name of the right to HEAD
                "Resource": "arn:aws:s3:::arrivals/secret.zip",
            }
        ],
    }
    site.account.client("s3").put_bucket_policy(Bucket="arrivals", Policy=json.dumps(policy))
    found = find_missing(site.runs, 0.0)
    states = {one.source.key: (one.state, bool(one.message)) for one in found.unsettled}
    assert states == {"lost.zip": ("no run", False), "secret.zip": ("not readable", True)}
    assert len(found.startable) == 1
    start_missing(site.runs, found.startable)


def test_an_archive_that_must_be_restored_has_a_verdict(site: Site) -> None:
    """It has a run and an event, and no message that fails; once restored, `resume` extracts it."""
    s3, frozen = site.account.client("s3"), {"Bucket": "arrivals", "Key": "frozen.zip"}
    s3.put_object(**frozen, Body=GOOD, StorageClass="GLACIER")
    for _ in range(2):
        assert not site.notify("frozen.zip")
    (run,) = site.runs.of_archive(Location("s3", "arrivals", "frozen.zip"))
    report = site.runs.records(run).find_report()
    assert report is not None
    assert (report.verdict, report.reason) == (Verdict.FAILED, "not-readable")
    assert "restore it" in (report.message or "")
    assert find_missing(site.runs, 0.0).unsettled == ()
    s3.restore_object(**frozen, RestoreRequest={"Days": 1})
    site.runs.resume(run)
    site.work(run, 2)
    restored = site.runs.records(run).find_report()
    assert restored is not None
    assert restored.verdict is Verdict.COMPLETED


def test_a_run_that_did_not_end(site: Site) -> None:
    """An execution that ended without a report is resumed; its archive needs no other event."""
    run = site.begin("a.zip")
    site.end(execution_name(run))
    found = find_missing(site.runs, 0.0)
    assert [(one.run, one.state) for one in found.unsettled] == [(run, "not finished")]
    assert len(found.startable) == 1
    start_missing(site.runs, found.startable)
    site.work(run, 2)
    assert find_missing(site.runs, 0.0).unsettled == ()


def test_a_run_of_another_archive_is_no_verdict(site: Site) -> None:
    """Of two archives with one run id the second is named, and what to do with it."""
    run = site.begin("a.zip")
    site.work(run)
    s3, key = site.account.client("s3"), f"runs/{run}/report.json"
    report = s3.get_object(Bucket="work", Key=key)["Body"].read()
    s3.put_object(Bucket="work", Key=key, Body=report.replace(b'"a.zip"', b'"b/a.zip"'))
    (other,) = find_missing(site.runs, 0.0).unsettled
    assert (other.state, other.run) == ("not readable", run)
    assert "which is on record for s3://arrivals/b/a.zip" in str(other.message)
    assert "put the archive under another key" in str(other.message)


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
    with pytest.raises(StorageError, match="s3:ListBucket: NoSuchBucket"):
        find_missing(runs, 0.0)
