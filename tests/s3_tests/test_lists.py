"""The lists of tests and of differences, and the store in memory over HTTP by boto3."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.s3_tests.__main__ import HERE, SERVERS, read_failures, settings_of
from tests.s3_tests.memory_server import run_memory_s3

if TYPE_CHECKING:
    from pathlib import Path

WHOSE = {"server", "test", "port"}


def test_each_difference_is_of_a_named_test_and_explained() -> None:
    """No server is excused from a test that is not run, and no reason is missing."""
    named = tomllib.loads((HERE / "named.toml").read_text())
    names = [name for group in named.values() for name in group]
    assert len(names) == len(set(names)) > 60
    differences = tomllib.loads((HERE / "differences.toml").read_text())
    assert differences.keys() == SERVERS.keys()
    for listed in differences.values():
        assert listed.keys() <= set(names)
        for entry in listed.values():
            assert entry["whose"] in WHOSE
            assert len(entry["why"]) > 30


def test_what_did_not_run_has_not_passed(tmp_path: Path) -> None:
    """A test that failed, was skipped or is missing in the report is not taken for passed."""
    report = tmp_path / "result.xml"
    report.write_text(
        '<testsuites><testsuite><testcase name="good"/>'
        '<testcase name="bad"><failure/></testcase>'
        '<testcase name="broken"><error/></testcase>'
        '<testcase name="left"><skipped/></testcase></testsuite></testsuites>'
    )
    names = ["good", "bad", "broken", "left", "missing"]
    assert read_failures(report, names) == {"bad", "broken", "left", "missing"}
    assert "port = 7070" in settings_of("http://127.0.0.1:7070")


def test_the_store_in_memory_answers_as_s3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conditions, parts, copies and listings of the fake, by boto3 over HTTP."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    with run_memory_s3() as url:
        client = boto3.client("s3", endpoint_url=url, region_name="us-east-1")
        client.create_bucket(Bucket="one")
        first = client.put_object(Bucket="one", Key="a b+c", Body=b"0123456789")
        with pytest.raises(ClientError, match="PreconditionFailed"):
            client.put_object(Bucket="one", Key="a b+c", Body=b"x", IfNoneMatch="*")
        with pytest.raises(ClientError, match="PreconditionFailed"):
            client.get_object(Bucket="one", Key="a b+c", IfMatch='"other"')
        read = client.get_object(Bucket="one", Key="a b+c", Range="bytes=-3", IfMatch=first["ETag"])
        assert (read["Body"].read(), read["ContentRange"]) == (b"789", "bytes 7-9/10")
        upload = client.create_multipart_upload(Bucket="one", Key="big")["UploadId"]
        part = client.upload_part_copy(
            Bucket="one",
            Key="big",
            UploadId=upload,
            PartNumber=1,
            CopySource={"Bucket": "one", "Key": "a b+c"},
            CopySourceRange="bytes=2-4",
        )["CopyPartResult"]["ETag"]
        whole = {"Parts": [{"PartNumber": 1, "ETag": part}]}
        told = client.complete_multipart_upload(
            Bucket="one",
            Key="big",
            UploadId=upload,
            MultipartUpload=whole,  # type: ignore[arg-type]  # built in steps
        )
        assert told["ETag"].endswith('-1"')
        listed = client.list_objects_v2(Bucket="one")["Contents"]
        assert [(one["Key"], one["Size"]) for one in listed] == [("a b+c", 10), ("big", 3)]
