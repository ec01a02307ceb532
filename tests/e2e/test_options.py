"""What an environment may be told, on the embedded AWS: nested archives, routes, and scans."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.model import Report, Route, SourceState, Verdict
from tests.e2e.functions import await_value, members_of, with_variables, without_workers
from tests.e2e.test_pipeline import STATE_MACHINE, send, wait_until_idle
from tests.support.assemblies import for_embedded_aws
from tests.support.zips import DEFLATE, Entry, build, seal_aes, seal_zipcrypto

SECRET = "never-to-be-seen-7f3a"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedPipeline]:
    """The stack of such an environment; the secret is there before it."""
    with start_aws(auth=True, wait_scale=0.02) as aws:
        bare = DeployedPipeline(aws.environment, {})
        made = bare.client("secretsmanager").create_secret(
            Name="archives/zip", SecretString=json.dumps({"zip": SECRET})
        )
        yield DeployedPipeline.create(
            for_embedded_aws(tmp_path_factory, "nested", made["ARN"]), aws.environment
        )


def test_archives_inside_archives(pipeline: DeployedPipeline) -> None:
    """Encrypted archives are opened two levels deep, each in a separate run."""
    password = SECRET.encode()
    third = build(Entry("three.txt", b"3"))
    second = build(
        seal_zipcrypto(Entry("two.txt", b"2" * 50, DEFLATE), password), Entry("c.zip", third)
    )
    first = build(seal_aes(Entry("one.txt", b"1" * 50, DEFLATE), password), Entry("b.ZIP", second))
    outer = build(seal_aes(Entry("in/x.zip", first, DEFLATE), password))
    assert pipeline.extract("a.zip", outer).verdict is Verdict.COMPLETED
    for key in ("a/in/x.zip", "a/in/x/b.ZIP"):
        assert pipeline.wait(key).verdict is Verdict.COMPLETED
    wait_until_idle(pipeline)
    members = pipeline.members()
    assert members["a/in/x/one.txt"] == b"1" * 50
    assert members["a/in/x/b/two.txt"] == b"2" * 50
    assert members["a/in/x/b/c.zip"] == third
    assert not any(key.startswith("a/in/x/b/c/") for key in members)  # a third level
    assert "AccessDenied" not in pipeline.logs()


def test_the_password_is_nowhere(pipeline: DeployedPipeline) -> None:
    """No object of the runs and no log line of any function holds the password."""
    s3, bucket = pipeline.client("s3"), pipeline.outputs["WorkBucket"]
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
    assert any(key.endswith("report.json") for key in keys)
    for key in keys:
        assert SECRET.encode() not in s3.get_object(Bucket=bucket, Key=key)["Body"].read()
    assert SECRET not in pipeline.logs()


def test_archive_that_was_extracted_is_tagged(pipeline: DeployedPipeline) -> None:
    """By the function that does a small one, and by that which settles a larger one."""
    pipeline.extract("small.zip", build(*members_of(5)))
    wait_until_idle(pipeline)
    with with_variables(pipeline, "intake", STATE_MACHINE):
        pipeline.extract("large.zip", build(*members_of(5)))
    for key in ("small.zip", "large.zip"):
        await_value(pipeline, partial(_is_tagged, pipeline, key))
        tags = pipeline.client("s3").get_object_tagging(
            Bucket=pipeline.outputs["IngestBucket"], Key=key
        )
        assert tags["TagSet"] == [{"Key": "state", "Value": "extracted"}]


def _is_tagged(pipeline: DeployedPipeline, key: str) -> bool:
    run = pipeline.find_run(key)
    report = None if run is None else pipeline.find_report(run)
    known = report.after_success if report is not None else None
    return known is not None and known.state is SourceState.DONE


PASSWORD = b"known-to-acme-only"
BUCKET = "acme-members"
SEALED = build(seal_aes(Entry("a.txt", b"of acme", DEFLATE), PASSWORD))
PLAIN = build(Entry("b.txt", b"of globex"))


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedPipeline]:
    """The stack of such an environment; the bucket and the secret of a route are there before."""
    with start_aws(auth=True, wait_scale=0.02) as aws:
        bare = DeployedPipeline(aws.environment, {})
        bare.client("s3").create_bucket(Bucket=BUCKET)
        made = bare.client("secretsmanager").create_secret(
            Name="archives/acme", SecretString=json.dumps({"zip": PASSWORD.decode()})
        )
        yield DeployedPipeline.create(
            for_embedded_aws(tmp_path_factory, "partners", made["ARN"]), aws.environment
        )


def _extract(routed: DeployedPipeline, key: str, body: bytes) -> Report:
    routed.put(key, body)
    report = routed.wait(key)
    wait_until_idle(routed)
    return report


@pytest.mark.parametrize("how", ["here", "machine"])
def test_each_route_has_its_own_way(routed: DeployedPipeline, how: str) -> None:
    """Each archive goes where its route says, with the options and the password of the route."""
    with ExitStack() as stack:
        if how == "machine":
            stack.enter_context(with_variables(routed, "intake", STATE_MACHINE))
        acme = _extract(routed, f"acme/{how}.zip", SEALED)
        globex = _extract(routed, f"globex/{how}.zipx", PLAIN)
        neither = _extract(routed, f"globex/{how}.zip", PLAIN)
    assert (acme.verdict, acme.route) == (Verdict.COMPLETED, Route("acme"))
    body = routed.client("s3").get_object(Bucket=BUCKET, Key="in/a.txt")["Body"].read()
    assert body == b"of acme"
    assert (globex.verdict, globex.route) == (Verdict.COMPLETED, Route("globex"))
    assert (neither.verdict, neither.route) == (Verdict.COMPLETED, None)
    assert routed.members(f"globex/{how}/") == {f"globex/{how}/b.txt": b"of globex"}
    assert routed.members(f"{how}/") == {f"{how}/b.txt": b"of globex"}


def test_a_password_is_of_its_route(routed: DeployedPipeline) -> None:
    """An encrypted archive of another sender is not opened with it."""
    report = _extract(routed, "globex/sealed.zipx", SEALED)
    assert (report.verdict, report.reasons) == (Verdict.COMPLETED_WITH_ERRORS, {"encrypted": 1})


CLEAN, THREAT = "NO_THREATS_FOUND", "THREATS_FOUND"


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedPipeline]:
    assembly = for_embedded_aws(tmp_path_factory, "scanned")
    with start_aws(auth=True, wait_scale=0.02) as aws:
        yield DeployedPipeline.create(assembly, aws.environment)


def _put(scanned: DeployedPipeline, key: str, text: bytes) -> dict[str, Any]:
    s3, bucket = scanned.client("s3"), scanned.outputs["IngestBucket"]
    return dict(s3.put_object(Bucket=bucket, Key=key, Body=build(Entry("a.txt", text))))


def scan(scanned: DeployedPipeline, key: str, version: dict[str, Any], status: str = CLEAN) -> None:
    """Send the result of a scan in the form that the user guide of GuardDuty has."""
    detail = {
        "schemaVersion": "1.0",
        "scanStatus": "SKIPPED" if status == "UNSUPPORTED" else "COMPLETED",
        "resourceType": "S3_OBJECT",
        "s3ObjectDetails": {
            "bucketName": scanned.outputs["IngestBucket"],
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
    assert scanned.client("events").put_events(Entries=[entry])["FailedEntryCount"] == 0


def _tag(scanned: DeployedPipeline, key: str, version: dict[str, Any], status: str) -> None:
    scanned.client("s3").put_object_tagging(
        Bucket=scanned.outputs["IngestBucket"],
        Key=key,
        VersionId=version["VersionId"],
        Tagging={"TagSet": [{"Key": "GuardDutyMalwareScanStatus", "Value": status}]},
    )


def submit(scanned: DeployedPipeline, key: str, sender: str = "s3unzip.submit") -> None:
    """Queue the event of an archive as `s3unzip submit` does."""
    event = {
        "detail-type": "Object Created",
        "source": sender,
        "time": "2026-01-01T00:00:00Z",
        "detail": {"bucket": {"name": scanned.outputs["IngestBucket"]}, "object": {"key": key}},
    }
    send(scanned, [json.dumps(event)])


def _withheld(scanned: DeployedPipeline, key: str) -> list[str]:
    lines = [line for line in scanned.logs().splitlines() if "archive is not opened" in line]
    records = [json.loads(line) for line in lines]
    return [record["scan"] for record in records if record["source"].endswith(f"/{key}")]


def test_an_archive_waits_for_its_scan(scanned: DeployedPipeline) -> None:
    """The upload starts nothing, also as S3's own event; the clean result does."""
    key = "in/clean.zip"
    version = _put(scanned, key, b"text")
    submit(scanned, key, sender="aws.s3")
    await_value(scanned, lambda: "waits for the result of its scan" in scanned.logs())
    assert scanned.find_run(key) is None
    scan(scanned, key, version)
    assert scanned.wait(key).verdict is Verdict.COMPLETED
    assert scanned.members("clean/") == {"clean/a.txt": b"text"}
    wait_until_idle(scanned)


@pytest.mark.parametrize("status", [THREAT, "UNSUPPORTED", "ACCESS_DENIED", "FAILED"])
def test_an_archive_that_is_not_clean_is_not_opened(scanned: DeployedPipeline, status: str) -> None:
    """It is counted, and the log names the archive, the result and the threats."""
    key = f"in/{status}.zip"
    scan(scanned, key, _put(scanned, key, b"text"), status)
    await_value(scanned, lambda: _withheld(scanned, key) == [status])
    wait_until_idle(scanned)
    assert scanned.find_run(key) is None
    assert scanned.member_keys(f"{status}/") == []
    assert any("ArchivesWithheld" in line for line in scanned.metrics())
    assert status != THREAT or "EICAR" in scanned.logs()


def test_only_the_scanned_version_is_opened(scanned: DeployedPipeline) -> None:
    """The clean result of an older version opens no newer one, which has a result of its own."""
    key = "in/replaced.zip"
    older = _put(scanned, key, b"older")
    newer = _put(scanned, key, b"newer")
    scan(scanned, key, older)
    await_value(scanned, lambda: "another version is there" in scanned.logs())
    wait_until_idle(scanned)
    assert scanned.find_run(key) is None
    scan(scanned, key, newer)
    scanned.wait(key)
    assert scanned.members("replaced/") == {"replaced/a.txt": b"newer"}


@pytest.mark.parametrize("status", [CLEAN, THREAT, None])
def test_a_submitted_archive_needs_the_tag(scanned: DeployedPipeline, status: str | None) -> None:
    """Only the tag of a clean scan lets `submit` open an archive."""
    key = f"in/submitted-{status}.zip"
    version = _put(scanned, key, b"text")
    if status is not None:
        _tag(scanned, key, version, status)
    submit(scanned, key)
    if status == CLEAN:
        assert scanned.wait(key).verdict is Verdict.COMPLETED
    else:
        await_value(scanned, lambda: _withheld(scanned, key) == [status or "NOT_SCANNED"])
        assert scanned.find_run(key) is None
    wait_until_idle(scanned)


def test_a_newer_version_is_not_followed_before_its_scan(scanned: DeployedPipeline) -> None:
    """An archive that is replaced during its run has its newer version left alone."""
    key = "in/followed.zip"
    older = _put(scanned, key, b"older")
    with with_variables(scanned, "intake", STATE_MACHINE, idle=False):
        with without_workers(scanned, "extract"):
            scan(scanned, key, older)
            await_value(scanned, lambda: scanned.find_run(key))
            newer = _put(scanned, key, b"newer")
        report = scanned.wait(key)
    assert report.verdict is Verdict.COMPLETED
    await_value(scanned, lambda: "waits for its scan" in scanned.logs())
    assert scanned.members("followed/") == {"followed/a.txt": b"older"}
    scan(scanned, key, newer)
    await_value(scanned, lambda: scanned.members("followed/") == {"followed/a.txt": b"newer"})
    wait_until_idle(scanned)
