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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.model import Report, Run, Verdict
from s3unzip.settings import Variable
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
}
OPTIONS = {"on_conflict": "skip-unchanged", "marker": True}
RUN_SECONDS = 150.0
ARCHIVES, MEMBERS, RUNS = "ingest objects", "destination objects", "work objects"
EXECUTIONS = "executions"
NOT_THERE = "on AWS, which answers 403 without it for what is not there; MiniStack answers 404"
# What no run on an emulator can show the need of.
LARGE = "after a failed write of more than 16 MiB"
NO_VERSIONS = "where the ingest bucket has no versions"
RARE = {
    ("plan", "s3:AbortMultipartUpload", RUNS): LARGE,
    ("scan", "s3:AbortMultipartUpload", RUNS): LARGE,
    ("link", "s3:AbortMultipartUpload", RUNS): LARGE,
    ("extract", "s3:AbortMultipartUpload", RUNS): LARGE,
    ("report", "s3:AbortMultipartUpload", RUNS): LARGE,
    ("scan", "s3:GetObject", ARCHIVES): NO_VERSIONS,
    ("link", "s3:GetObject", ARCHIVES): NO_VERSIONS,
    ("extract", "s3:GetObject", ARCHIVES): f"{NO_VERSIONS}, and by UploadPartCopy on AWS",
    ("plan", "s3:ListBucket", "ingest"): NOT_THERE,
    ("scan", "s3:ListBucket", "work"): NOT_THERE,
    ("link", "s3:ListBucket", "destination"): NOT_THERE,
    ("link", "s3:ListBucket", "work"): NOT_THERE,
    ("extract", "s3:ListBucket", "work"): NOT_THERE,
    ("report", "s3:ListBucket", "destination"): NOT_THERE,
    ("report", "s3:GetObject", MEMBERS): "where a settling is repeated after it completed a member",
    ("report", "s3:DeleteObject", RUNS): "where an execution failed and is redriven",
}


@dataclass(frozen=True, slots=True)
class Right:
    """One action that a function's role allows on one kind of thing."""

    function: str
    action: str
    place: str

    def __str__(self) -> str:
        return f"{self.function}: {self.action} on {self.place}"


RIGHTS = [
    Right(function, action, place)
    for function, place, actions in (
        ("plan", ARCHIVES, ("s3:GetObject", "s3:GetObjectVersion")),
        ("plan", "ingest", ("s3:ListBucket",)),
        ("plan", MEMBERS, ("s3:PutObject", "s3:AbortMultipartUpload")),
        ("plan", RUNS, ("s3:PutObject", "s3:AbortMultipartUpload")),
        ("plan", EXECUTIONS, ("states:DescribeExecution",)),
        ("scan", ARCHIVES, ("s3:GetObject", "s3:GetObjectVersion")),
        ("scan", RUNS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("scan", "work", ("s3:ListBucket",)),
        ("link", ARCHIVES, ("s3:GetObject", "s3:GetObjectVersion")),
        ("link", MEMBERS, ("s3:GetObject", "s3:PutObject")),
        ("link", "destination", ("s3:ListBucket",)),
        ("link", RUNS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("link", "work", ("s3:ListBucket",)),
        ("extract", ARCHIVES, ("s3:GetObject", "s3:GetObjectVersion")),
        ("extract", MEMBERS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("extract", "destination", ("s3:ListBucket",)),
        ("extract", RUNS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("extract", "work", ("s3:ListBucket",)),
        ("report", MEMBERS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("report", "destination", ("s3:ListBucket", "s3:ListBucketMultipartUploads")),
        ("report", RUNS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("report", RUNS, ("s3:DeleteObject",)),
        ("report", "work", ("s3:ListBucket",)),
    )
    for action in actions
]


def test_table_is_the_template(assembly: Assembly) -> None:
    """The rights that are tried are all that the template gives."""
    template = json.loads(assembly.template.read_text())
    found = set()
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::IAM::Policy" and name.startswith("Functions"):
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                function = name.removeprefix("Functions").split("Role")[0].lower()
                actions = statement["Action"]
                for action in actions if isinstance(actions, list) else [actions]:
                    if action.startswith(("s3:", "states:Describe")):
                        found.add(Right(function, action, _place(json.dumps(statement))))
    assert found == set(RIGHTS)


def _place(statement: str) -> str:
    """Return what kind of thing a statement is about."""
    if ":execution:" in statement:
        return EXECUTIONS
    for name in ("ingest", "destination", "work"):
        if f"storage{name}" in statement.lower():
            return f"{name} objects" if "/*" in statement or "/runs" in statement else name
    raise AssertionError(statement)


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
        yield pipeline


def run_once(pipeline: DeployedPipeline, archive: bytes) -> Report | None:
    """Put the archive as a new version; return the report, None where there is no run to its end.

    The destination keeps one good member, so that there is something unchanged
    and something to write.
    """
    s3, bucket = pipeline.client("s3"), pipeline.outputs["DestinationBucket"]
    for key in [k for k in pipeline.members() if not k.endswith(("small/0.txt", "stream.txt"))]:
        s3.delete_object(Bucket=bucket, Key=key)
    pipeline.client("sqs").purge_queue(QueueUrl=pipeline.outputs["QueueUrl"])
    before = pipeline.find_run(KEY)
    since = int(time.time() * 1_000)
    pipeline.put(KEY, archive)
    run = _next_run(pipeline, before, since)
    if run is None:
        return None
    deadline = time.monotonic() + RUN_SECONDS
    while pipeline.status(run) in {None, "RUNNING"}:
        assert time.monotonic() < deadline, f"{run.id} did not end\n{pipeline.logs()}"
        time.sleep(0.05)
    return pipeline.report(run) if pipeline.status(run) == "SUCCEEDED" else None


def _next_run(pipeline: DeployedPipeline, before: Run | None, since: int) -> Run | None:
    """Return the run that begins, None where the plan function is refused something."""
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline:
        run = pipeline.find_run(KEY)
        if run is not None and run != before and pipeline.status(run) is not None:
            return run
        if _plan_was_refused(pipeline, since):
            return None
        time.sleep(0.1)
    raise AssertionError(f"neither a run nor a refusal\n{pipeline.logs()}")


def _plan_was_refused(pipeline: DeployedPipeline, since: int) -> bool:
    """Say whether the plan function logged a refusal since then, in Unix milliseconds."""
    logs = pipeline.client("logs")
    (group,) = (
        one["logGroupName"]
        for one in logs.describe_log_groups()["logGroups"]
        if "FunctionsPlanLogs" in one["logGroupName"]
    )
    events = logs.filter_log_events(logGroupName=group, startTime=since)["events"]
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
    (policy,) = iam.list_role_policies(RoleName=role)["PolicyNames"]
    kept = iam.get_role_policy(RoleName=role, PolicyName=policy)["PolicyDocument"]
    changed = {**kept, "Statement": [_less(one, right) for one in kept["Statement"]]}
    changed["Statement"] = [one for one in changed["Statement"] if one["Action"]]
    assert changed != kept
    iam.put_role_policy(RoleName=role, PolicyName=policy, PolicyDocument=json.dumps(changed))
    try:
        yield
    finally:
        iam.put_role_policy(RoleName=role, PolicyName=policy, PolicyDocument=json.dumps(kept))


def _less(statement: dict[str, Any], right: Right) -> dict[str, Any]:
    actions = statement["Action"]
    actions = actions if isinstance(actions, list) else [actions]
    if right.action not in actions or _place(json.dumps(statement)) != right.place:
        return statement
    return {**statement, "Action": [action for action in actions if action != right.action]}


@pytest.mark.timeout(400)
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


@pytest.mark.timeout(400)
@pytest.mark.parametrize("right", RIGHTS, ids=str)
def test_no_right_is_too_many(guarded: DeployedPipeline, archive: bytes, right: Right) -> None:
    """Without any one of the S3 actions the same archive does not come out the same."""
    rare = RARE.get((right.function, right.action, right.place))
    if rare is not None:
        pytest.skip(f"needed only {rare}")
    with without(guarded, right):
        assert not is_as_it_should_be(guarded, run_once(guarded, archive))


def test_plain_http_is_refused(guarded: DeployedPipeline) -> None:
    """The buckets' policies deny what does not come over TLS."""
    iam_free = guarded.client("s3").get_bucket_policy(Bucket=guarded.outputs["DestinationBucket"])
    assert '"aws:SecureTransport": "false"' in json.dumps(json.loads(iam_free["Policy"]))
