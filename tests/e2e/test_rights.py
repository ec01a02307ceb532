"""Rights of the deployed functions, and what an environment may be told, on the embedded AWS."""

import json
import random
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest

from embedded.deploy import Assembly, make_client, start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.model import Report, Route, SourceAction, SourceResult, SourceState, Verdict
from s3unzip.settings import Variable
from tests.e2e.conftest import (
    await_value,
    find_function,
    members_of,
    with_all_variables,
    with_variables,
    without_workers,
)
from tests.e2e.test_pipeline import EACH_WAY, STATE_MACHINE, put_event, wait_until_idle
from tests.infra.test_template import ARCHIVES, ENDS_RUNS, FUNCTIONS, MEMBERS, RIGHTS, RUNS
from tests.support import assemblies, servers
from tests.support.zips import DEFLATE, Entry, build, seal_aes, seal_zipcrypto, with_wrong_crc

# What no run of the test can show the need of.
NOT_THERE = "on AWS, which answers 403 without it for what is not there; MiniStack answers 404"
LARGE = "after a failed write of more than 16 MiB"
RESUMED = "where a run goes on that stopped"


class Right(NamedTuple):
    """One action that a function's role allows on one kind of thing."""

    function: str
    action: str
    place: str

    def __str__(self) -> str:
        return f"{self.function}: {self.action} on {self.place}"


S3_RIGHTS = sorted(
    Right(function, action, place)
    for function, rights in RIGHTS.items()
    for action, place in rights
    if action.startswith("s3:")
)
# A right that the archives of the test do not show the need of, and where it is needed.
RARE = {
    **{(name, "s3:AbortMultipartUpload", RUNS): LARGE for name in FUNCTIONS},
    **{(name, "s3:ListBucket", "<StorageIngest.Arn>"): NOT_THERE for name in FUNCTIONS},
    **{(name, "s3:ListBucket", "<StorageDestination.Arn>"): NOT_THERE for name in ENDS_RUNS},
    **{
        (name, "s3:ListBucket", "<StorageWork.Arn>"): NOT_THERE
        for name in ("intake", "plan", "extract")
    },
    **{
        (name, "s3:ListBucketMultipartUploads", "<StorageDestination.Arn>"): RESUMED
        for name in ENDS_RUNS
    },
    **{
        ("plan", f"s3:{action}", MEMBERS): "where a resumed run ends"
        for action in ("GetObject", "PutObject", "AbortMultipartUpload")
    },
    ("intake", "s3:AbortMultipartUpload", MEMBERS): "where it plans a copy of several slices",
    ("plan", "s3:DeleteObject", RUNS): RESUMED,
    ("extract", "s3:GetObject", ARCHIVES): (
        "where the ingest bucket has no versions, and by UploadPartCopy on AWS"
    ),
    ("settle", "s3:AbortMultipartUpload", MEMBERS): "where the slices of a member do not fit",
    **{
        (name, "s3:GetObjectVersion", ARCHIVES): (
            "where a newer version has replaced the planned one: else the ETag pins it"
        )
        for name in FUNCTIONS
    },
    ("settle", "s3:GetObject", ARCHIVES): "where it looks whether the archive was replaced",
    ("settle", "s3:GetObject", MEMBERS): "where a settling is repeated after it ended a member",
}


MIB = 1024**2
TUNING: dict[str, float] = {
    "tail_bytes": 300,  # not all of the directory: the rest is read of the pinned version
    "small_member": 256 * 1024,
    "split_from": 1 * MIB,
    "segment_bytes": 1 * MIB,
    "copy_from": 6 * MIB,
    "retry_seconds": 3.0,
    "batch_members": 25,
    "max_few_tasks": 1,  # two and more are done by the distributed Map
}
HERE = {Variable.TUNING.value: json.dumps({"retry_seconds": 3.0})}  # small archives are done there
OPTIONS = {"on_conflict": "skip-unchanged", "marker": True}


def _make_members() -> list[Entry]:
    dice = random.Random(7)
    words = [dice.randbytes(dice.randint(2, 6)).hex() for _ in range(800)]

    def text(size: int) -> bytes:
        return " ".join(dice.choices(words, k=size // 9)).encode()[:size]

    return [
        *(Entry(f"small/{n}.txt", text(400), DEFLATE) for n in range(15)),
        Entry("stream.txt", text(400 * 1024), DEFLATE),
        with_wrong_crc("bad-stream.txt", text(400 * 1024), DEFLATE),
        Entry("copied.raw", dice.randbytes(7 * MIB)),
        Entry("split.txt", dice.randbytes(MIB * 3 // 2).hex().encode(), DEFLATE),
    ]


NAMES = [f"{n}.txt" for n in range(30)]
# Of every kind of task, and of two batches: each task that fails is repeated in three rounds.
ARCHIVE = build(*_make_members(), *(Entry(name, b"x") for name in NAMES))
BATCH = build(*(Entry(name, b"text" * 90, DEFLATE) for name in NAMES))
SMALL = build(*(Entry(f"{n}.raw", random.Random(n).randbytes(40_000)) for n in range(20)))
OF_LARGE = {  # what only large members need
    ("extract", "s3:AbortMultipartUpload", MEMBERS),
    ("extract", "s3:GetObject", MEMBERS),
    ("settle", "s3:PutObject", MEMBERS),
    ("settle", "s3:GetObjectVersion", ARCHIVES),
}


@pytest.fixture(scope="module")
def guarded(assembly: Assembly) -> Iterator[DeployedPipeline]:
    """The stack over TLS with all rights checked; sizes small enough to split members."""
    with start_aws(auth=True, wait_scale=0.005) as aws:
        pipeline = DeployedPipeline.create(assembly, aws.environment)
        variables = {Variable.TUNING: json.dumps(TUNING), Variable.OPTIONS: json.dumps(OPTIONS)}
        with with_all_variables(pipeline, {name.value: text for name, text in variables.items()}):
            yield pipeline
            pipeline.client("sqs").purge_queue(QueueUrl=pipeline.outputs["QueueUrl"])


def run_once(pipeline: DeployedPipeline, key: str, archive: bytes) -> Report | None:
    """Put the archive; return the report, None where something was refused before there is one."""
    since = time.time()
    pipeline.put(key, archive)
    for _ in servers.looks():
        run = pipeline.find_run(key)
        status = None if run is None else pipeline.status(run)
        report = None if run is None or status == "RUNNING" else pipeline.find_report(run)
        if report is not None:
            return report
        if status == "FAILED" or (status is None and "AccessDenied" in pipeline.logs(since)):
            pipeline.client("sqs").purge_queue(QueueUrl=pipeline.outputs["QueueUrl"])
            return None
    raise AssertionError(f"{key} did not end\n{pipeline.logs()}")


def is_as_it_should_be(report: Report | None) -> bool:
    """Say whether all good members were extracted and only a bad one failed, in as few rounds."""
    # A member whose scans or slices failed is streamed, in a round more.
    if report is None:
        return False
    counts = (report.extracted, report.failed, report.missing, report.rounds)
    return counts in {(48, 1, 0, 2), (30, 0, 0, 1)}


@contextmanager
def without(
    pipeline: DeployedPipeline, function: str, action: str, place: str = "*"
) -> Iterator[None]:
    """Deny an action to a function or, if it has no name, to the state machine for a while."""
    machine = pipeline.outputs["StateMachineArn"]
    states, iam = pipeline.client("stepfunctions"), pipeline.client("iam")
    arn = (
        find_function(pipeline, function)["Role"]
        if function
        else states.describe_state_machine(stateMachineArn=machine)["roleArn"]
    )
    resource = re.sub(
        r"<Storage(\w+)\.Arn>",
        lambda named: f"arn:aws:s3:::{pipeline.outputs[f'{named[1]}Bucket']}",
        place,
    )
    policy = {"RoleName": str(arn).rpartition("/")[2], "PolicyName": "denial"}
    denial = {"Effect": "Deny", "Action": action, "Resource": resource}
    document = json.dumps({"Version": "2012-10-17", "Statement": [denial]})
    iam.put_role_policy(**policy, PolicyDocument=document)
    try:
        yield
    finally:
        iam.delete_role_policy(**policy)


def test_shipped_roles_are_enough(guarded: DeployedPipeline) -> None:
    """With the roles as they are, every kind of member comes out, here and by the machine."""
    report = run_once(guarded, "enough.zip", ARCHIVE)
    assert is_as_it_should_be(report), (report, guarded.logs())
    plan = guarded.plan(guarded.find_run("enough.zip") or "none")
    assert plan is not None
    assert set(plan.kinds) == {"batch", "stream", "copy", "scan"}
    assert is_as_it_should_be(run_once(guarded, "batch.zip", BATCH))
    with with_variables(guarded, "intake", HERE):
        small = run_once(guarded, "small.zip", SMALL)
    assert small is not None
    assert (small.verdict, guarded.status(small.run)) == (Verdict.COMPLETED, None)


@pytest.mark.parametrize("right", [one for one in S3_RIGHTS if one not in RARE], ids=str)
def test_no_right_is_too_many(guarded: DeployedPipeline, right: Right) -> None:
    """Without any one of the S3 actions the same archive does not come out the same."""
    key = f"right-{S3_RIGHTS.index(right)}.zip"
    if right.function != "intake":
        with without(guarded, *right):
            report = run_once(guarded, key, ARCHIVE if right in OF_LARGE else BATCH)
        assert not is_as_it_should_be(report)
        return
    # What is there is looked at.
    bucket, there = guarded.outputs["DestinationBucket"], key.replace(".zip", "/0.raw")
    guarded.client("s3").put_object(Bucket=bucket, Key=there, Body=bytes(40_000))
    with with_variables(guarded, "intake", HERE, idle=False), without(guarded, *right):
        report = run_once(guarded, key, SMALL)
    assert report is None or report.verdict is not Verdict.COMPLETED


SERVICES = [
    ("intake", "states:StartExecution"),
    ("settle", "events:PutEvents"),
    ("", "lambda:InvokeFunction"),
    ("", "s3:GetObject"),
    ("", "s3:PutObject"),
    ("", "states:StartExecution"),
]


@pytest.mark.parametrize(("function", "action"), SERVICES)
def test_rights_on_services(guarded: DeployedPipeline, function: str, action: str) -> None:
    """Without any one of them, of a function or of the state machine, the run does not end well."""
    key = f"service-{SERVICES.index((function, action))}.zip"
    with without(guarded, function, action):
        report = run_once(guarded, key, BATCH)
        assert report is None or (report.verdict, guarded.status(report.run)) != (
            Verdict.COMPLETED,
            "SUCCEEDED",
        )


SECRET = "never-to-be-seen-7f3a"
BUCKET = "acme-members"


def _stack(variant: str) -> Any:
    @pytest.fixture(scope="module")
    def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedPipeline]:
        """The stack of a variant, with rights checked; a bucket and a secret are there before."""
        with start_aws(auth=True, wait_scale=0.02) as aws:
            make_client("s3", aws.environment).create_bucket(Bucket=BUCKET)
            secret = make_client("secretsmanager", aws.environment).create_secret(
                Name="archives/zip", SecretString=json.dumps({"zip": SECRET})
            )
            assembly = assemblies.for_embedded_aws(tmp_path_factory, variant, secret["ARN"])
            yield DeployedPipeline.create(assembly, aws.environment)

    return stack


pipeline, routed, scanned = map(_stack, ("nested", "partners", "scanned"))


def test_archives_inside_archives(pipeline: DeployedPipeline) -> None:
    """Encrypted archives are opened two levels deep, each in a separate run with the options."""
    password = SECRET.encode()
    third = build(Entry("three.txt", b"3"))
    second = build(
        seal_zipcrypto(Entry("two.txt", b"2" * 50, DEFLATE), password), Entry("c.zip", third)
    )
    first = build(seal_aes(Entry("one.txt", b"1" * 50, DEFLATE), password), Entry("b.ZIP", second))
    nested = seal_aes(Entry("in/x.zip", first, DEFLATE), password)
    pipeline.put("a.zip", build(nested))
    for key in ("a.zip", "a/in/x.zip", "a/in/x/b.ZIP"):
        assert pipeline.wait(key).verdict is Verdict.COMPLETED
    wait_until_idle(pipeline)
    # A third level stays as it is.
    assert pipeline.members("a/in/x/") == {
        "a/in/x/one.txt": b"1" * 50,
        "a/in/x/b.ZIP": second,
        "a/in/x/b/two.txt": b"2" * 50,
        "a/in/x/b/c.zip": third,
    }
    bucket = pipeline.outputs["DestinationBucket"]
    head = pipeline.client("s3").head_object(Bucket=bucket, Key="a/in/x/b/two.txt")
    assert head["ContentType"] == "text/two"
    assert "AccessDenied" not in pipeline.logs()


def test_the_password_is_nowhere(pipeline: DeployedPipeline) -> None:
    """No object of the runs and no log line of any function holds the password."""
    s3, bucket = pipeline.client("s3"), pipeline.outputs["WorkBucket"]
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket)
    keys = [listed["Key"] for page in pages for listed in page.get("Contents", [])]
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
    s3, bucket = pipeline.client("s3"), pipeline.outputs["IngestBucket"]
    for key in ("small.zip", "large.zip"):
        await_value(pipeline, partial(_is_tagged, pipeline, key))
        assert s3.get_object_tagging(Bucket=bucket, Key=key)["TagSet"] == [
            {"Key": "state", "Value": "extracted"}
        ]


TAGGED = SourceResult(SourceAction.TAG, SourceState.DONE)


def _is_tagged(pipeline: DeployedPipeline, key: str) -> bool:
    report = pipeline.find_report(pipeline.find_run(key) or "none")
    return getattr(report, "after_success", None) == TAGGED


SEALED = build(seal_aes(Entry("a.txt", b"of acme", DEFLATE), SECRET.encode()))
PLAIN = build(Entry("b.txt", b"of globex"))


def _extract(routed: DeployedPipeline, key: str, body: bytes) -> Report:
    report = routed.extract(key, body)
    wait_until_idle(routed)
    return report


@pytest.mark.parametrize(("how", "variables"), EACH_WAY)
def test_each_route_has_its_own_way(
    routed: DeployedPipeline, how: str, variables: dict[str, str]
) -> None:
    """Each archive goes where its route says, with the options and the password of the route."""
    with with_variables(routed, "intake", variables):
        reports = [
            _extract(routed, f"acme/{how}.zip", SEALED),
            _extract(routed, f"globex/{how}.zipx", PLAIN),
            _extract(routed, f"globex/{how}.zip", PLAIN),
        ]
    assert [(report.verdict, report.route) for report in reports] == [
        (Verdict.COMPLETED, one) for one in (Route("acme"), Route("globex"), None)
    ]
    of_acme = routed.client("s3").get_object(Bucket=BUCKET, Key="in/a.txt")["Body"].read()
    assert of_acme == b"of acme"
    assert routed.members(f"globex/{how}/") == {f"globex/{how}/b.txt": b"of globex"}
    assert routed.members(f"{how}/") == {f"{how}/b.txt": b"of globex"}


def test_a_password_is_of_its_route(routed: DeployedPipeline) -> None:
    """An encrypted archive of another sender is not opened with it."""
    report = _extract(routed, "globex/sealed.zipx", SEALED)
    assert (report.verdict, report.reasons) == (Verdict.COMPLETED_WITH_ERRORS, {"encrypted": 1})


CLEAN, THREAT = "NO_THREATS_FOUND", "THREATS_FOUND"


def _put(scanned: DeployedPipeline, key: str, text: bytes) -> dict[str, Any]:
    s3, bucket = scanned.client("s3"), scanned.outputs["IngestBucket"]
    archive = build(Entry("a.txt", text))
    return dict(s3.put_object(Bucket=bucket, Key=key, Body=archive))


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


def _withheld(scanned: DeployedPipeline, key: str) -> list[str]:
    lines = [line for line in scanned.logs().splitlines() if "archive is not opened" in line]
    return [
        record["scan"] for record in map(json.loads, lines) if record["source"].endswith(f"/{key}")
    ]


def test_an_archive_waits_for_its_scan(scanned: DeployedPipeline) -> None:
    """The upload starts nothing, also as S3's own event; the clean result does."""
    key = "in/clean.zip"
    version = _put(scanned, key, b"text")
    put_event(scanned, key)
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
    assert (scanned.find_run(key), scanned.member_keys(f"{status}/")) == (None, [])
    assert any("ArchivesWithheld" in line for line in scanned.metrics())
    assert status != THREAT or "EICAR" in scanned.logs()


def test_only_the_scanned_version_is_opened(scanned: DeployedPipeline) -> None:
    """The clean result of an older version opens no newer one, which has a result of its own."""
    key = "in/replaced.zip"
    older, newer = (_put(scanned, key, text) for text in (b"older", b"newer"))
    scan(scanned, key, older)
    await_value(scanned, lambda: "the scan is of another version" in scanned.logs())
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
        scanned.client("s3").put_object_tagging(
            Bucket=scanned.outputs["IngestBucket"],
            Key=key,
            VersionId=version["VersionId"],
            Tagging={"TagSet": [{"Key": "GuardDutyMalwareScanStatus", "Value": status}]},
        )
    put_event(scanned, key, "s3unzip.submit")
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
