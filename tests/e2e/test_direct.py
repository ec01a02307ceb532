"""Direct runs on the embedded AWS with every right checked: one invocation an archive.

So are the rights of the action after success, which a direct run and the report function have.
"""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.model import Report, SourceState, Verdict, decode
from s3unzip.settings import Variable
from tests.assemblies import MOVED, synthesize_once
from tests.e2e.after_success import allowed, read_rule
from tests.e2e.functions import find_function, with_variables
from tests.e2e.rights import ARCHIVES, MEMBERS, OF_DIRECT_RUNS, RUNS, Right
from tests.e2e.test_rights import without
from tests.patience import HANG_SECONDS
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embedded.deploy import Assembly
    from tests.e2e.after_success import Rule

ENTRIES = [Entry(f"d{n}/f.txt", str(n).encode() * 200, DEFLATE) for n in range(30)]


@pytest.fixture(scope="module")
def direct(assembly: Assembly) -> Iterator[DeployedPipeline]:
    """The stack of dev, over TLS with all rights checked."""
    with start_aws(auth=True, wait_scale=0.02) as aws:
        yield DeployedPipeline.create(assembly, aws.environment)


def test_a_small_archive_needs_no_execution(direct: DeployedPipeline) -> None:
    """Its members and its report exist; besides the report one object is left."""
    direct.put("small.zip", build(*ENTRIES))
    report = direct.wait("small.zip")
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, 30)
    assert set(direct.member_keys("small/")) == {f"small/d{n}/f.txt" for n in range(30)}
    states = direct.client("stepfunctions")
    machine = direct.outputs["StateMachineArn"]
    assert states.list_executions(stateMachineArn=machine)["executions"] == []
    listed = direct.client("s3").list_objects_v2(Bucket=direct.outputs["WorkBucket"])
    assert {one["Key"] for one in listed["Contents"]} == {
        f"runs/{report.run}/report.json",
        f"runs/{report.records}",
    }


@pytest.mark.parametrize(("members", "name_bytes"), [(101, 0), (300, 900)])
def test_a_large_one_is_an_execution(
    direct: DeployedPipeline, members: int, name_bytes: int
) -> None:
    """What is beyond the bounds goes by the state machine, which reads a large directory itself.

    The first has too many members for the bound that is set here. The directory of the second is
    larger than what the plan function reads.
    """
    key = f"large-{members}.zip"
    bound = {Variable.TUNING.value: json.dumps({"max_direct_members": 300 if name_bytes else 100})}
    with with_variables(direct, "plan", bound):
        direct.put(key, build(*(Entry(f"f{n:0{name_bytes}}", b"x") for n in range(members))))
        report = direct.wait(key, 170)
    assert (report.verdict, report.extracted, report.records) == (Verdict.COMPLETED, members, None)
    states = direct.client("stepfunctions")
    name = direct.outputs["StateMachineArn"].replace(":stateMachine:", ":execution:")
    told = states.describe_execution(executionArn=f"{name}:{report.run}")["input"]
    assert json.loads(told)["planned"] is (name_bytes == 0)


def send_event(direct: DeployedPipeline, key: str) -> None:
    """Queue the event of an archive once more."""
    bucket = {"name": direct.outputs["IngestBucket"]}
    event = {
        "detail-type": "Object Created",
        "time": "2026-01-01T00:00:01Z",
        "detail": {"bucket": bucket, "object": {"key": key}},
    }
    url = direct.outputs["QueueUrl"]
    direct.client("sqs").send_message(QueueUrl=url, MessageBody=json.dumps(event))


def was_refused(direct: DeployedPipeline, since: float) -> bool:
    """Say whether a function was refused something since then, or a run was stopped by it."""
    logs = direct.logs(since)
    return "AccessDenied" in logs or "access-denied" in logs


LARGER = random.Random(1).randbytes(300_000)  # than the bytes that the function reads first
SKIPPING = {Variable.OPTIONS.value: json.dumps({"on_conflict": "skip-unchanged"})}
NEEDED = [
    Right("plan", "s3:GetObject", ARCHIVES),
    Right("plan", "s3:PutObject", MEMBERS),
    Right("plan", "s3:PutObject", RUNS),
    Right("plan", "s3:GetObject", RUNS),
    *OF_DIRECT_RUNS,
]


@pytest.mark.parametrize("right", NEEDED, ids=str)
def test_no_right_of_direct_runs_is_too_many(direct: DeployedPipeline, right: Right) -> None:
    """Without any one of them an archive, put again or under another key, meets a refusal.

    The options say to compare members that are there already.
    """
    key, archive = f"right-{NEEDED.index(right)}.zip", build(*ENTRIES, Entry("larger", LARGER))
    direct.put(key, archive)
    assert direct.wait(key).records is not None
    since = time.time()
    with with_variables(direct, "plan", SKIPPING), without(direct, right):
        direct.put(key, archive)
        send_event(direct, key)
        # A message whose invocation fails for another reason comes back after minutes only.
        for again in range(12):
            direct.put(f"again-{again}-{key}", archive)
            deadline = time.monotonic() + 10
            while not (refused := was_refused(direct, since)) and time.monotonic() < deadline:
                time.sleep(0.2)
            if refused:
                break
        assert refused, direct.logs()
    direct.client("sqs").purge_queue(QueueUrl=direct.outputs["QueueUrl"])


def test_duplicates_at_once_are_one_run(direct: DeployedPipeline) -> None:
    """Five events of one archive: each member is written once."""
    s3, bucket = direct.client("s3"), direct.outputs["DestinationBucket"]
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    direct.put("twice.zip", build(*ENTRIES))
    for _ in range(5):
        send_event(direct, "twice.zip")
    assert direct.wait("twice.zip").extracted == 30
    while direct.waiting():
        time.sleep(0.1)
    versions = s3.list_object_versions(Bucket=bucket, Prefix="twice/")["Versions"]
    assert len(versions) == 30


# In an order in which each one is still needed: a copy that is there is not made again.
NEEDED_AFTER_SUCCESS = {
    "move": (
        ("s3:GetObjectVersion", "ingest"),
        ("s3:GetObject", MOVED),
        ("s3:PutObject", MOVED),
        ("s3:DeleteObjectVersion", "ingest"),
    ),
    "tag": (
        ("s3:GetObjectVersion", "ingest"),
        ("s3:GetObjectVersionTagging", "ingest"),
        ("s3:PutObjectVersionTagging", "ingest"),
    ),
}
NOT_SHOWN = {
    # AWS answers 403 without the right to list for what is not there; MiniStack answers 404.
    ("s3:ListBucket", "ingest"),
    ("s3:ListBucket", MOVED),
    # Needed where the bucket keeps no versions.
    ("s3:GetObject", "ingest"),
    # CopyObject of an object with tags asks for them (API_CopyObject), but not MiniStack's.
    ("s3:GetObjectVersionTagging", "ingest"),
    ("s3:PutObjectTagging", MOVED),
}


@pytest.fixture(scope="module")
def rules(assembly: Assembly, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Rule]:
    """The rule of each action, and what the roles have only because of it."""
    return {
        action: read_rule(synthesize_once(tmp_path_factory, action), assembly)
        for action in NEEDED_AFTER_SUCCESS
    }


def place_of(resource: str) -> str:
    """Return the bucket that a resource of the template is in."""
    return MOVED if MOVED in resource else "ingest"


def end_again(direct: DeployedPipeline, function: str, key: str, before: Report) -> Report:
    """Let a function do what is left after a run; return the report that it then writes."""
    if function == "plan":
        send_event(direct, key)
    else:
        run = json.loads(direct.read(f"runs/{before.run}/run.json") or b"")
        event = {"run": run, "machine": direct.outputs["StateMachineArn"]}
        name = find_function(direct, "report")["FunctionName"]
        direct.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        after = decode(direct.read(f"runs/{before.run}/report.json") or b"", Report)
        if after.requests != before.requests and is_tried(after):
            return after
        time.sleep(0.1)
    raise AssertionError(f"nothing was tried again\n{direct.logs()}")


def is_tried(report: Report) -> bool:
    """Say whether a report tells what came of the action after success."""
    result = report.after_success
    return result is not None and result.state is not SourceState.PENDING


def extract_with_rule(direct: DeployedPipeline, name: str) -> tuple[str, Report]:
    """Put an archive that has a tag; return its key, and its report when the action was tried."""
    bucket = direct.outputs["IngestBucket"]
    # A worker that still has the earlier variables may take an archive, so more of them come.
    for again in range(12):
        key = f"{again}-{name}"
        direct.client("s3").put_object(
            Bucket=bucket, Key=key, Body=build(*ENTRIES), Tagging="owner=team"
        )
        report = direct.wait(key)
        if report.after_success is not None:
            break
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        report = direct.wait(key)
        if is_tried(report):
            return key, report
        time.sleep(0.1)
    raise AssertionError(f"nothing was tried\n{direct.logs()}")


@pytest.mark.parametrize("function", ["plan", "report"])
@pytest.mark.parametrize("action", list(NEEDED_AFTER_SUCCESS))
def test_no_right_after_success_is_too_many(
    direct: DeployedPipeline, rules: dict[str, Rule], action: str, function: str
) -> None:
    """Without any one of them the archive stays as it is, and the report names a refusal.

    The run is COMPLETED in any case. With all rights the action is done at the next attempt.
    """
    rule = rules[action]
    rights = rule.rights[function]
    needed = NEEDED_AFTER_SUCCESS[action]
    assert {(one, place_of(where)) for one, where in rights} - NOT_SHOWN <= set(needed)
    direct.client("s3").create_bucket(Bucket=MOVED)
    changes = {Variable.AFTER_SUCCESS.value: rule.variable}
    if function == "report":
        changes[Variable.TUNING.value] = json.dumps({"max_direct_members": 0})
    key, report = "", None
    with with_variables(direct, "plan", changes):
        for right in needed:
            some = frozenset(one for one in rights if (one[0], place_of(one[1])) != right)
            if some == rights:  # the plan function may read archives in any case
                continue
            with allowed(direct, function, some):
                if report is None:
                    key, report = extract_with_rule(direct, f"{action}-by-{function}.zip")
                else:
                    report = end_again(direct, function, key, report)
            result = report.after_success
            assert report.verdict is Verdict.COMPLETED, right
            assert result is not None, right
            assert result.state is SourceState.FAILED, (right, result)
            assert "may be missing in the role" in str(result.message), (right, result)
        assert report is not None
        with allowed(direct, function, rights):
            report = end_again(direct, function, key, report)
    assert report.after_success is not None
    assert report.after_success.state is SourceState.DONE, report
