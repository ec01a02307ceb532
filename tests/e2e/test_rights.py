"""The shipped roles over TLS with every right checked: enough, and none too many.

MiniStack's ``AUTH=true USE_SSL=1`` enforces the functions' roles and the
buckets' policies. One archive of all kinds of members, good and bad, runs with
the roles as they are; then each S3 action is taken away, one at a time, and
the same archive must not come out the same.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.model import Report, Run, Verdict
from s3unzip.settings import Variable
from tests.e2e.functions import with_variables
from tests.e2e.rights import (
    OF_ADMISSION,
    OF_DIRECT_RUNS,
    RARE,
    RIGHTS,
    Right,
    rights_of,
    without_right,
)
from tests.patience import looks
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embedded.deploy import Assembly

KEY = "rights.zip"
MIB = 1024**2
TUNING: dict[str, float] = {
    "tail_bytes": 300,  # not all of the directory: the rest is read of the pinned version
    "small_member": 256 * 1024,
    "split_from": 1 * MIB,
    "segment_bytes": 1 * MIB,
    "copy_from": 6 * MIB,
    "retry_seconds": 3.0,
    "max_direct_members": 0,
}
OPTIONS = {"on_conflict": "skip-unchanged", "marker": True}


def test_table_is_the_template(assembly: Assembly) -> None:
    """The rights that are tried are all that the template gives."""
    template = json.loads(assembly.template.read_text())
    found: set[Right] = set()
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::IAM::Policy" and name.startswith("Functions"):
            function = name.removeprefix("Functions").split("Role")[0].lower()
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                found.update(rights_of(function, statement))
    assert found == set(RIGHTS)


def make_members() -> list[Entry]:
    """Return small, streamed, copied and split members, and two that are bad."""
    dice = random.Random(7)
    words = [dice.randbytes(dice.randint(2, 6)).hex() for _ in range(800)]

    def text(size: int) -> bytes:
        return " ".join(dice.choices(words, k=size // 9)).encode()[:size]

    wrong = {"crc32": 1}
    return [
        *(Entry(f"small/{n}.txt", text(400), DEFLATE) for n in range(15)),
        Entry("stream.txt", text(400 * 1024), DEFLATE),
        Entry("bad-stream.txt", text(400 * 1024), DEFLATE, central=wrong, local=wrong),
        Entry("copied.raw", dice.randbytes(7 * MIB)),
        Entry("split.txt", dice.randbytes(MIB * 3 // 2).hex().encode(), DEFLATE),
        Entry(
            "bad-split.txt",
            dice.randbytes(MIB * 3 // 2).hex().encode(),
            DEFLATE,
            central=wrong,
            local=wrong,
        ),
    ]


@pytest.fixture(scope="module")
def archive() -> bytes:
    """An archive of all kinds of members."""
    return build(*make_members())


@pytest.fixture(scope="module")
def guarded(assembly: Assembly) -> Iterator[DeployedPipeline]:
    """The stack over TLS with all rights checked; sizes small enough to split members."""
    with start_aws(auth=True, wait_scale=0.005) as aws:
        pipeline = DeployedPipeline.create(assembly, aws.environment)
        tune(pipeline)
        yield pipeline


def tune(pipeline: DeployedPipeline) -> None:
    """Set the tuning and the options of all functions."""
    functions = pipeline.client("lambda")
    for function in functions.list_functions()["Functions"]:
        variables = dict(function["Environment"]["Variables"])
        variables |= {
            Variable.TUNING.value: json.dumps(TUNING),
            Variable.OPTIONS.value: json.dumps(OPTIONS),
        }
        functions.update_function_configuration(
            FunctionName=function["FunctionName"], Environment={"Variables": variables}
        )


@contextmanager
def planned_by(pipeline: DeployedPipeline, function: str) -> Iterator[None]:
    """Let the plan function plan, if that is the one: then its tail holds the whole directory."""
    if function != "plan":
        yield
        return
    tuning = json.dumps({**TUNING, "tail_bytes": 256 * 1024})
    with with_variables(pipeline, "plan", {Variable.TUNING.value: tuning}):
        yield


def run_once(pipeline: DeployedPipeline, archive: bytes) -> Report | None:
    """Put the archive as a new version; return the report, None where there is no run to its end.

    The destination keeps one good member, so that there is something unchanged
    and something to write.
    """
    s3, bucket = pipeline.client("s3"), pipeline.outputs["DestinationBucket"]
    for key in pipeline.member_keys():
        if not key.endswith(("small/0.txt", "stream.txt")):
            s3.delete_object(Bucket=bucket, Key=key)
    pipeline.client("sqs").purge_queue(QueueUrl=pipeline.outputs["QueueUrl"])
    before = pipeline.find_run(KEY)
    since = int(time.time() * 1_000)
    pipeline.put(KEY, archive)
    run = _next_run(pipeline, before, since)
    if run is None:
        return None
    for _ in looks():
        status = pipeline.status(run)
        if status not in {None, "RUNNING"}:
            return pipeline.report(run) if status == "SUCCEEDED" else None
    raise AssertionError(f"{run.id} did not end\n{pipeline.logs()}")


def _next_run(pipeline: DeployedPipeline, before: Run | None, since: int) -> Run | None:
    """Return the run that begins, None where its planning is refused something."""
    for _ in looks():
        run = pipeline.find_run(KEY)
        if run is not None and run != before and pipeline.status(run) is not None:
            return run
        if _plan_was_refused(pipeline, since):
            return None
    raise AssertionError(f"neither a run nor a refusal\n{pipeline.logs()}")


def _plan_was_refused(pipeline: DeployedPipeline, since: int) -> bool:
    """Say whether plan function or planner logged a refusal since then, in Unix milliseconds."""
    logs = pipeline.client("logs")
    groups = [
        one["logGroupName"]
        for one in logs.describe_log_groups()["logGroups"]
        if "FunctionsPlan" in one["logGroupName"]  # also the planner's
    ]
    events = (
        event
        for group in groups
        for event in logs.filter_log_events(logGroupName=group, startTime=since)["events"]
    )
    return any("AccessDenied" in event["message"] for event in events)


def is_as_it_should_be(pipeline: DeployedPipeline, report: Report | None) -> bool:
    """Say whether all good members were extracted, only the bad failed, and every scan was done.

    A member whose scans failed is streamed, so the report alone would not show it.
    """
    if report is None:
        return False
    counts = (report.extracted + report.unchanged, report.failed, report.missing)
    run = pipeline.find_run(KEY)
    summary = None if run is None else pipeline.summary(run)
    if run is None or summary is None:
        return False
    found = pipeline.client("s3").list_objects_v2(
        Bucket=pipeline.outputs["WorkBucket"], Prefix=f"runs/{run.id}/scans/"
    )
    scans = sum(one["Key"].endswith(".json") for one in found.get("Contents", []))
    good = report.verdict is Verdict.COMPLETED_WITH_ERRORS and counts == (18, 2, 0)
    return good and scans == summary.scans


@contextmanager
def without(pipeline: DeployedPipeline, right: Right) -> Iterator[None]:
    """Take one action on one kind of thing out of a function's role, for a while."""
    iam = pipeline.client("iam")
    roles = [one["RoleName"] for one in iam.list_roles()["Roles"]]
    (role,) = (one for one in roles if f"Functions{right.function.capitalize()}Role" in one)
    policies = iam.list_role_policies(RoleName=role)["PolicyNames"]
    (policy,) = (one for one in policies if "DefaultPolicy" in one)
    kept = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
    rest = [part for one in kept["Statement"] for part in without_right(one, right)]
    changed = {**kept, "Statement": rest}
    assert _rights(right.function, kept) ^ _rights(right.function, changed) == {right}
    iam.put_role_policy(RoleName=role, PolicyName=policy, PolicyDocument=json.dumps(changed))
    try:
        yield
    finally:
        iam.put_role_policy(RoleName=role, PolicyName=policy, PolicyDocument=json.dumps(kept))


def _rights(function: str, policy: dict[str, Any]) -> set[Right]:
    return {right for one in policy["Statement"] for right in rights_of(function, one)}


def test_shipped_roles_are_enough(guarded: DeployedPipeline, archive: bytes) -> None:
    """With the roles as they are, every kind of member comes out."""
    for _ in range(2):  # the second time some members are there already
        report = run_once(guarded, archive)
        assert report is not None, guarded.logs()
        assert is_as_it_should_be(guarded, report), report
    run = guarded.find_run(KEY)
    assert run is not None
    summary = guarded.summary(run)
    assert summary is not None
    assert set(summary.kinds) == {"batch", "stream", "copy", "segment"}


@pytest.mark.parametrize(
    "right", [one for one in RIGHTS if one not in OF_DIRECT_RUNS + OF_ADMISSION], ids=str
)
def test_no_right_is_too_many(guarded: DeployedPipeline, archive: bytes, right: Right) -> None:
    """Without any one of the S3 actions the same archive does not come out the same."""
    rare = RARE.get((right.function, right.action, right.place))
    if rare is not None:
        pytest.skip(f"needed only {rare}")
    with planned_by(guarded, right.function), without(guarded, right):
        assert not is_as_it_should_be(guarded, run_once(guarded, archive))


def test_plain_http_is_refused(guarded: DeployedPipeline) -> None:
    """The buckets' policies deny what does not come over TLS."""
    iam_free = guarded.client("s3").get_bucket_policy(Bucket=guarded.outputs["DestinationBucket"])
    assert '"aws:SecureTransport": "false"' in json.dumps(json.loads(iam_free["Policy"]))
