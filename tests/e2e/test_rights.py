"""The shipped roles over TLS with every right checked: enough, and none too many.

MiniStack's ``AUTH=true USE_SSL=1`` enforces the functions' roles and the
buckets' policies. One archive of all kinds of members, good and bad, runs with
the roles as they are; then each S3 action is taken away, one at a time, and
the same archive must not come out the same.
"""

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from embedded.deploy import Assembly, start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.model import Report, Verdict
from s3unzip.settings import Variable
from tests.e2e.functions import find_function, with_all_variables, with_variables
from tests.support.servers import looks
from tests.support.zips import DEFLATE, Entry, build

ARCHIVES, MEMBERS, RUNS = "ingest objects", "destination objects", "work objects"
# What no run of the test can show the need of.
NOT_THERE = "on AWS, which answers 403 without it for what is not there; MiniStack answers 404"
LARGE = "after a failed write of more than 16 MiB"
NO_VERSIONS = "where the ingest bucket has no versions"
REPLACED = "where a newer version has replaced the planned one: else the ETag pins it"
RESUMED = "where a run goes on that stopped"


@dataclass(frozen=True, slots=True)
class Right:
    """One action that a function's role allows on one kind of thing."""

    function: str
    action: str
    place: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.function, self.action, self.place

    def __str__(self) -> str:
        return f"{self.function}: {self.action} on {self.place}"


OF_TASKS = (
    (ARCHIVES, ("s3:GetObject", "s3:GetObjectVersion")),
    (MEMBERS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
    ("destination", ("s3:ListBucket",)),
    (RUNS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
    ("work", ("s3:ListBucket",)),
)
OF_RUNS = (
    *OF_TASKS,
    ("ingest", ("s3:ListBucket",)),
    ("destination", ("s3:ListBucketMultipartUploads",)),
)
RIGHTS = [
    Right(function, action, place)
    for function, table in (
        ("intake", OF_RUNS),
        ("plan", (*OF_RUNS, (RUNS, ("s3:DeleteObject",)))),
        ("extract", OF_TASKS),
        ("settle", OF_RUNS),
    )
    for place, actions in table
    for action in actions
]
# A right that the archives of the test do not show the need of, and where it is needed.
RARE = {
    **{
        (name, "s3:AbortMultipartUpload", RUNS): LARGE
        for name in ("intake", "plan", "extract", "settle")
    },
    **{(name, "s3:ListBucket", "ingest"): NOT_THERE for name in ("intake", "plan", "settle")},
    **{(name, "s3:ListBucket", "destination"): NOT_THERE for name in ("intake", "plan", "settle")},
    **{(name, "s3:ListBucket", "work"): NOT_THERE for name in ("intake", "plan", "extract")},
    **{
        (name, "s3:ListBucketMultipartUploads", "destination"): RESUMED
        for name in ("intake", "plan", "settle")
    },
    **{("plan", action, MEMBERS): "where a resumed run ends" for action in OF_TASKS[1][1]},
    ("intake", "s3:AbortMultipartUpload", MEMBERS): "where it plans a copy of several slices",
    ("plan", "s3:DeleteObject", RUNS): RESUMED,
    ("extract", "s3:GetObject", ARCHIVES): f"{NO_VERSIONS}, and by UploadPartCopy on AWS",
    ("settle", "s3:AbortMultipartUpload", MEMBERS): "where the slices of a member do not fit",
    **{
        (name, "s3:GetObjectVersion", ARCHIVES): REPLACED
        for name in ("intake", "plan", "extract", "settle")
    },
    ("settle", "s3:GetObject", ARCHIVES): "where it looks whether the archive was replaced",
    ("settle", "s3:GetObject", MEMBERS): "where a settling is repeated after it ended a member",
}


def _rights_of(function: str, statement: dict[str, Any]) -> Iterator[Right]:
    for action in _as_list(statement["Action"]):
        if action.startswith("s3:"):
            for resource in _as_list(statement["Resource"]):
                yield Right(function, action, place_of(resource))


def without_right(statement: dict[str, Any], right: Right) -> list[dict[str, Any]]:
    """Return a statement without one right, as two where it gives others on other resources."""
    actions, resources = _as_list(statement["Action"]), _as_list(statement["Resource"])
    if right not in _rights_of(right.function, statement):
        return [statement]
    there = [resource for resource in resources if place_of(resource) == right.place]
    parts = (
        (actions, [resource for resource in resources if resource not in there]),
        ([action for action in actions if action != right.action], there),
    )
    return [
        {**statement, "Action": some, "Resource": where} for some, where in parts if some and where
    ]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def place_of(resource: Any) -> str:
    """Return what kind of thing a resource is; the template has an expression for its ARN."""
    text = json.dumps(resource)
    for name in ("ingest", "destination", "work"):
        if f"storage{name}" in text.lower():
            return f"{name} objects" if "/*" in text or "/runs" in text else name
    raise AssertionError(text)


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


def test_the_tried_rights_are_all_rights_of_the_template(assembly: Assembly) -> None:
    """The rights that are tried are all that the template gives."""
    template = json.loads(assembly.template.read_text())
    found: set[Right] = set()
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::IAM::Policy" and name.startswith("Functions"):
            function = name.removeprefix("Functions").split("Role")[0].lower()
            for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                found.update(_rights_of(function, statement))
    assert found == set(RIGHTS)


def _make_members() -> list[Entry]:
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
    for _ in looks():
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
    if report is None:
        return False
    counts = (report.extracted, report.failed, report.missing)
    # A member whose scans or slices failed is streamed, in a round more.
    return (*counts, report.rounds) in {(48, 1, 0, 2), (30, 0, 0, 1)}


@contextmanager
def _without(pipeline: DeployedPipeline, right: Right) -> Iterator[None]:
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
    return {right for one in policy["Statement"] for right in _rights_of(function, one)}


def test_shipped_roles_are_enough(guarded: DeployedPipeline) -> None:
    """With the roles as they are, every kind of member comes out, here and by the machine."""
    report = run_once(guarded, "enough.zip", ARCHIVE)
    assert is_as_it_should_be(report), (report, guarded.logs())
    run = guarded.find_run("enough.zip")
    plan = guarded.plan(run) if run is not None else None
    assert plan is not None
    assert set(plan.kinds) == {"batch", "stream", "copy", "scan"}
    assert is_as_it_should_be(run_once(guarded, "batch.zip", BATCH))
    with with_variables(guarded, "intake", HERE):
        small = run_once(guarded, "small.zip", SMALL)
    assert small is not None
    assert (small.verdict, guarded.status(small.run)) == (Verdict.COMPLETED, None)


@pytest.mark.parametrize("right", [one for one in RIGHTS if one.key not in RARE], ids=str)
def test_no_right_is_too_many(guarded: DeployedPipeline, right: Right) -> None:
    """Without any one of the S3 actions the same archive does not come out the same."""
    key = f"right-{RIGHTS.index(right)}.zip"
    if right.function != "intake":
        archive = ARCHIVE if right.key in OF_LARGE else BATCH
        with _without(guarded, right):
            assert not is_as_it_should_be(run_once(guarded, key, archive))
        return
    # What is there is looked at.
    bucket, there = guarded.outputs["DestinationBucket"], key.replace(".zip", "/0.raw")
    guarded.client("s3").put_object(Bucket=bucket, Key=there, Body=bytes(40_000))
    with with_variables(guarded, "intake", HERE, idle=False), _without(guarded, right):
        report = run_once(guarded, key, SMALL)
    assert report is None or report.verdict is not Verdict.COMPLETED


SERVICES = [
    ("intake", "states:StartExecution"),
    ("settle", "events:PutEvents"),
    *(
        ("", action)
        for action in (
            "lambda:InvokeFunction",
            "s3:GetObject",
            "s3:PutObject",
            "states:StartExecution",
        )
    ),
]


@pytest.mark.parametrize(("function", "action"), SERVICES)
def test_rights_on_services(guarded: DeployedPipeline, function: str, action: str) -> None:
    """Without any one of them, of a function or of the state machine, the run does not end well."""
    key = f"service-{SERVICES.index((function, action))}.zip"
    with without_action(guarded, function, action):
        report = run_once(guarded, key, BATCH)
        status = guarded.status(report.run) if report is not None else None
        assert report is None or (report.verdict, status) != (Verdict.COMPLETED, "SUCCEEDED")


@contextmanager
def without_action(pipeline: DeployedPipeline, function: str, action: str) -> Iterator[None]:
    """Take an action, on everything, out of the role of a function, or of the state machine."""
    if function:
        arn = find_function(pipeline, function)["Role"]
    else:
        machine = pipeline.outputs["StateMachineArn"]
        states = pipeline.client("stepfunctions")
        arn = states.describe_state_machine(stateMachineArn=machine)["roleArn"]
    role, iam = str(arn).rsplit("/", 1)[-1], pipeline.client("iam")
    kept = {
        name: iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    }
    for name, document in kept.items():
        rest = [
            {**one, "Action": actions}
            for one in document["Statement"]
            if (actions := [some for some in _as_list(one["Action"]) if some != action])
        ]
        if rest:
            text = json.dumps({**document, "Statement": rest})
            iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=text)
        else:
            iam.delete_role_policy(RoleName=role, PolicyName=name)
    try:
        yield
    finally:
        for name, document in kept.items():
            text = json.dumps(document)
            iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=text)
