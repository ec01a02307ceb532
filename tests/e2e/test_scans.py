"""The malware gate on MiniStack with rights checked; the test sends GuardDuty's events."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.model import Verdict
from tests.e2e.functions import await_value, with_variables, without_workers
from tests.e2e.test_pipeline import STATE_MACHINE, send, wait_until_idle
from tests.support.assemblies import for_embedded_aws
from tests.support.zips import Entry, build

CLEAN, THREAT = "NO_THREATS_FOUND", "THREATS_FOUND"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedPipeline]:
    assembly = for_embedded_aws(tmp_path_factory, "scanned")
    with start_aws(auth=True, wait_scale=0.02) as aws:
        yield DeployedPipeline.create(assembly, aws.environment)


def _put(pipeline: DeployedPipeline, key: str, text: bytes) -> dict[str, Any]:
    s3, bucket = pipeline.client("s3"), pipeline.outputs["IngestBucket"]
    return dict(s3.put_object(Bucket=bucket, Key=key, Body=build(Entry("a.txt", text))))


def scan(
    pipeline: DeployedPipeline, key: str, version: dict[str, Any], status: str = CLEAN
) -> None:
    """Send the result of a scan in the form that the user guide of GuardDuty has."""
    detail = {
        "schemaVersion": "1.0",
        "scanStatus": "SKIPPED" if status == "UNSUPPORTED" else "COMPLETED",
        "resourceType": "S3_OBJECT",
        "s3ObjectDetails": {
            "bucketName": pipeline.outputs["IngestBucket"],
            "objectKey": key,
            "eTag": version["ETag"].strip('"'),
            "versionId": version["VersionId"],
            "s3Throttled": False,
        },
        "scanResultDetails": {
            "scanResultStatus": status,
            "threats": [{"name": "EICAR-Test-File (not a virus)"}] if status == THREAT else None,
        },
    }
    entry = {
        "Source": "aws.guardduty",
        "DetailType": "GuardDuty Malware Protection Object Scan Result",
        "Detail": json.dumps(detail),
    }
    assert pipeline.client("events").put_events(Entries=[entry])["FailedEntryCount"] == 0


def _tag(pipeline: DeployedPipeline, key: str, version: dict[str, Any], status: str) -> None:
    pipeline.client("s3").put_object_tagging(
        Bucket=pipeline.outputs["IngestBucket"],
        Key=key,
        VersionId=version["VersionId"],
        Tagging={"TagSet": [{"Key": "GuardDutyMalwareScanStatus", "Value": status}]},
    )


def submit(pipeline: DeployedPipeline, key: str, sender: str = "s3unzip.submit") -> None:
    """Queue the event of an archive as `s3unzip submit` does."""
    event = {
        "detail-type": "Object Created",
        "source": sender,
        "time": "2026-01-01T00:00:00Z",
        "detail": {"bucket": {"name": pipeline.outputs["IngestBucket"]}, "object": {"key": key}},
    }
    send(pipeline, [json.dumps(event)])


def _withheld(pipeline: DeployedPipeline, key: str) -> list[str]:
    lines = [line for line in pipeline.logs().splitlines() if "archive is not opened" in line]
    records = [json.loads(line) for line in lines]
    return [record["scan"] for record in records if record["source"].endswith(f"/{key}")]


def test_an_archive_waits_for_its_scan(pipeline: DeployedPipeline) -> None:
    """The upload starts nothing, also as S3's own event; the clean result does."""
    key = "in/clean.zip"
    version = _put(pipeline, key, b"text")
    submit(pipeline, key, sender="aws.s3")
    await_value(pipeline, lambda: "waits for the result of its scan" in pipeline.logs())
    assert pipeline.find_run(key) is None
    scan(pipeline, key, version)
    assert pipeline.wait(key).verdict is Verdict.COMPLETED
    assert pipeline.members("clean/") == {"clean/a.txt": b"text"}
    wait_until_idle(pipeline)


@pytest.mark.parametrize("status", [THREAT, "UNSUPPORTED", "ACCESS_DENIED", "FAILED"])
def test_an_archive_that_is_not_clean_is_not_opened(
    pipeline: DeployedPipeline, status: str
) -> None:
    """It is counted, and the log names the archive, the result and the threats."""
    key = f"in/{status}.zip"
    scan(pipeline, key, _put(pipeline, key, b"text"), status)
    await_value(pipeline, lambda: _withheld(pipeline, key) == [status])
    wait_until_idle(pipeline)
    assert pipeline.find_run(key) is None
    assert pipeline.member_keys(f"{status}/") == []
    assert any("ArchivesWithheld" in line for line in pipeline.metrics())
    assert status != THREAT or "EICAR" in pipeline.logs()


def test_only_the_scanned_version_is_opened(pipeline: DeployedPipeline) -> None:
    """The clean result of an older version opens no newer one, which has a result of its own."""
    key = "in/replaced.zip"
    older = _put(pipeline, key, b"older")
    newer = _put(pipeline, key, b"newer")
    scan(pipeline, key, older)
    await_value(pipeline, lambda: "another version is there" in pipeline.logs())
    wait_until_idle(pipeline)
    assert pipeline.find_run(key) is None
    scan(pipeline, key, newer)
    pipeline.wait(key)
    assert pipeline.members("replaced/") == {"replaced/a.txt": b"newer"}


@pytest.mark.parametrize("status", [CLEAN, THREAT, None])
def test_a_submitted_archive_needs_the_tag(pipeline: DeployedPipeline, status: str | None) -> None:
    """Only the tag of a clean scan lets `submit` open an archive."""
    key = f"in/submitted-{status}.zip"
    version = _put(pipeline, key, b"text")
    if status is not None:
        _tag(pipeline, key, version, status)
    submit(pipeline, key)
    if status == CLEAN:
        assert pipeline.wait(key).verdict is Verdict.COMPLETED
    else:
        await_value(pipeline, lambda: _withheld(pipeline, key) == [status or "NOT_SCANNED"])
        assert pipeline.find_run(key) is None
    wait_until_idle(pipeline)


def test_a_newer_version_is_not_followed_before_its_scan(pipeline: DeployedPipeline) -> None:
    """An archive that is replaced during its run has its newer version left alone."""
    key = "in/followed.zip"
    older = _put(pipeline, key, b"older")
    with with_variables(pipeline, "intake", STATE_MACHINE, idle=False):
        with without_workers(pipeline, "extract"):
            scan(pipeline, key, older)
            await_value(pipeline, lambda: pipeline.find_run(key))
            newer = _put(pipeline, key, b"newer")
        report = pipeline.wait(key)
    assert report.verdict is Verdict.COMPLETED
    await_value(pipeline, lambda: "waits for its scan" in pipeline.logs())
    assert pipeline.members("followed/") == {"followed/a.txt": b"older"}
    scan(pipeline, key, newer)
    await_value(pipeline, lambda: pipeline.members("followed/") == {"followed/a.txt": b"newer"})
    wait_until_idle(pipeline)
