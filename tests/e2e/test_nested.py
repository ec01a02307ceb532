"""An environment with a password, nested archives and tags, on MiniStack with rights checked."""

import json
from collections.abc import Iterator
from functools import partial

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.model import SourceState, Verdict
from tests.e2e.functions import await_value, members_of, with_variables
from tests.e2e.test_pipeline import STATE_MACHINE, wait_until_idle
from tests.support.assemblies import for_embedded_aws
from tests.support.encrypting import seal_aes, seal_zipcrypto
from tests.support.zips import DEFLATE, Entry, build

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
