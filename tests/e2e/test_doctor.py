"""``s3unzip doctor`` against the deployed stack, with an archive of its own."""

import json
import os
import subprocess

from embedded.pipeline import DeployedPipeline
from s3unzip.operate.doctor import CHECKS
from tests.processes import run_command
from tools.house import ROOT


def examine(pipeline: DeployedPipeline, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command as an operator types it."""
    return run_command(
        ("doctor", "--env", "dev", *words), ROOT, {**os.environ, **pipeline.variables}
    )


def versions(pipeline: DeployedPipeline, output: str) -> list[str]:
    """Return the keys of all versions and delete markers in a bucket."""
    found = pipeline.client("s3").list_object_versions(Bucket=pipeline.outputs[output])
    return [one["Key"] for one in (*found.get("Versions", ()), *found.get("DeleteMarkers", ()))]


def test_a_healthy_environment(pipeline: DeployedPipeline) -> None:
    """Every check answers, the canary is extracted, and nothing of it is left."""
    done = examine(pipeline, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    checks = json.loads(done.stdout)["checks"]
    statuses = {one["name"]: one["status"] for one in checks}
    assert list(statuses) == [*CHECKS, "canary", "canary removal"]
    # dev has no alarms.email: nobody is told, and doctor says so.
    quiet = {name for name, status in statuses.items() if status == "warning"}
    assert quiet == {"alarms", "subscriptions"}, checks
    assert "5 of 5 members" in next(one["message"] for one in checks if one["name"] == "canary")
    for output in ("IngestBucket", "DestinationBucket", "WorkBucket"):
        assert versions(pipeline, output) == []


def test_what_is_wrong_is_a_line_with_advice(pipeline: DeployedPipeline) -> None:
    """Events that are switched off fail the command, and it says how to mend that."""
    s3, bucket = pipeline.client("s3"), pipeline.outputs["IngestBucket"]
    before = s3.get_bucket_notification_configuration(Bucket=bucket)
    s3.put_bucket_notification_configuration(Bucket=bucket, NotificationConfiguration={})
    try:
        done = examine(pipeline, "--wait", "3")
    finally:
        s3.put_bucket_notification_configuration(
            Bucket=bucket,
            NotificationConfiguration={
                "EventBridgeConfiguration": before["EventBridgeConfiguration"]
            },
        )
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("failure  events"))
    assert "switch it on" in lines[at + 1]
    assert any(line.startswith("failure  canary") for line in lines)
    assert versions(pipeline, "IngestBucket") == []


def test_an_environment_that_is_not_there(pipeline: DeployedPipeline) -> None:
    """A wrong name is one line and the exit code of what is not found."""
    done = run_command(("doctor", "--env", "nowhere"), ROOT, {**os.environ, **pipeline.variables})
    assert done.returncode == 6
    assert "s3unzip-nowhere" in done.stderr
