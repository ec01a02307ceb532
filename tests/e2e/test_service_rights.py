"""The state machine's role, and the rights of admission, with all rights checked: each is needed.

The other rights of the functions' roles are in test_rights.py and test_direct.py; event sources,
rules and destinations are in tests/strict/test_rights.py.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.aws_lambda.admission.ledger import Entry as Share
from s3unzip.runs.shares import Bid
from s3unzip.settings import Variable
from tests.e2e.functions import find_function, with_variables
from tests.patience import HANG_SECONDS
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from embedded.deploy import Assembly

WORKERS = 12


@pytest.fixture(scope="module")
def guarded(assembly: Assembly) -> Iterator[DeployedPipeline]:
    """The stack over TLS with all rights checked."""
    tuning = json.dumps(
        {"max_direct_members": 0, "max_inline_tasks": 0}  # Distributed Maps
    )
    changes = {Variable.TUNING.value: tuning, Variable.WORKERS.value: str(WORKERS)}
    with start_aws(auth=True, wait_scale=0.005) as aws:
        pipeline = DeployedPipeline.create(assembly, aws.environment)
        with (
            with_variables(pipeline, "plan", changes),
            with_variables(pipeline, "report", changes),
        ):
            yield pipeline


def run_to_its_end(pipeline: DeployedPipeline, key: str) -> str:
    """Put an archive; return the status in which its execution ended."""
    pipeline.put(key, build(Entry("a.txt", b"text" * 100, DEFLATE)))
    deadline = time.monotonic() + HANG_SECONDS
    while time.monotonic() < deadline:
        run = pipeline.find_run(key)
        status = None if run is None else pipeline.status(run)
        if status not in {None, "RUNNING"}:
            return str(status)
        time.sleep(0.1)
    raise AssertionError(f"{key} did not end\n{pipeline.logs()}")


def role_of_machine(pipeline: DeployedPipeline) -> str:
    """Return the name of the state machine's role."""
    states = pipeline.client("stepfunctions")
    machine = states.describe_state_machine(stateMachineArn=pipeline.outputs["StateMachineArn"])
    return str(machine["roleArn"].rsplit("/", 1)[-1])


def role_of(pipeline: DeployedPipeline, function: str) -> str:
    """Return the name of a function's role."""
    return str(find_function(pipeline, function)["Role"].rsplit("/", 1)[-1])


@contextmanager
def without(pipeline: DeployedPipeline, role: str, action: str) -> Iterator[None]:
    """Take an action, on everything, out of a role for a while."""
    iam = pipeline.client("iam")
    kept = {
        name: iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    }
    changed = {
        name: document | {"Statement": less(document, action)} for name, document in kept.items()
    }
    assert changed != kept
    write(iam, role, changed)
    try:
        yield
    finally:
        write(iam, role, kept)


def write(iam: Any, role: str, policies: dict[str, Any]) -> None:
    """Replace a role's policies; one without statements is deleted, as IAM takes none."""
    for name, document in policies.items():
        if document["Statement"]:
            text = json.dumps(document)
            iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=text)
        else:
            iam.delete_role_policy(RoleName=role, PolicyName=name)


def less(document: dict[str, Any], action: str) -> list[dict[str, Any]]:
    """Return the statements of a policy without an action."""
    found = []
    for statement in document["Statement"]:
        actions = statement["Action"]
        actions = actions if isinstance(actions, list) else [actions]
        rest = [one for one in actions if one != action]
        found += [statement if action not in actions else {**statement, "Action": rest}] * bool(
            rest
        )
    return found


def test_the_shipped_role_is_enough(guarded: DeployedPipeline) -> None:
    """With the shipped role, a run succeeds."""
    assert run_to_its_end(guarded, "enough.zip") == "SUCCEEDED"


@pytest.mark.parametrize(
    "action", ["lambda:InvokeFunction", "s3:GetObject", "states:StartExecution"]
)
def test_the_state_machine_needs_each_right(guarded: DeployedPipeline, action: str) -> None:
    """Without any one of what its role allows, the execution fails."""
    with without(guarded, role_of_machine(guarded), action):
        assert run_to_its_end(guarded, f"{action.partition(':')[2]}.zip") == "FAILED"


def hold(pipeline: DeployedPipeline, run: str, workers: int, seconds: float = 0.0) -> str:
    """Write the ledger's entry of a run that has no execution; return its key.

    Args:
        pipeline: the stack.
        run: the run's id.
        workers: that it holds.
        seconds: since when.
    """
    since = round(time.time() - seconds)
    key = "runs/-shares/" + Share(Bid(run, workers=workers), since, workers).name
    pipeline.client("s3").put_object(Bucket=pipeline.outputs["WorkBucket"], Key=key, Body=b"{}")
    return key


def entries_of(pipeline: DeployedPipeline, run: str = "") -> list[str]:
    """Return the keys of the ledger's entries, of one run or of all."""
    listed = pipeline.client("s3").list_objects_v2(
        Bucket=pipeline.outputs["WorkBucket"], Prefix="runs/-shares/"
    )
    keys = [one["Key"] for one in listed.get("Contents", [])]
    return [key for key in keys if not run or key.endswith(f"~{run}")]


def clear_ledger(pipeline: DeployedPipeline) -> None:
    """Delete all entries and messages that an earlier test left."""
    for key in entries_of(pipeline):
        pipeline.client("s3").delete_object(Bucket=pipeline.outputs["WorkBucket"], Key=key)
    pipeline.client("sqs").purge_queue(QueueUrl=pipeline.outputs["QueueUrl"])


def await_that(pipeline: DeployedPipeline, what: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + HANG_SECONDS
    while not what():
        assert time.monotonic() < deadline, pipeline.logs()
        time.sleep(0.1)


def count_refusals(pipeline: DeployedPipeline) -> int:
    """Return how often a function logged that it was refused something."""
    return pipeline.logs().count("AccessDenied")


def test_the_plan_function_needs_the_right_to_start_runs(guarded: DeployedPipeline) -> None:
    """Without it an archive starts no run, and the function says that it was refused."""
    clear_ledger(guarded)
    denied = count_refusals(guarded)
    with without(guarded, role_of(guarded, "plan"), "states:StartExecution"):
        guarded.put("start.zip", build(Entry("a", b"a")))
        await_that(guarded, lambda: count_refusals(guarded) > denied)
    clear_ledger(guarded)


@pytest.mark.parametrize("action", ["states:DescribeExecution", "s3:DeleteObject"])
def test_an_entry_that_was_left_behind_needs_rights(guarded: DeployedPipeline, action: str) -> None:
    """Without any one of them it stays in the ledger; with them the next start drops it."""
    clear_ledger(guarded)
    hold(guarded, "lost", 1, seconds=3_600)
    denied = count_refusals(guarded)
    with without(guarded, role_of(guarded, "plan"), action):
        guarded.put(f"beside-{action[:2]}.zip", build(Entry("a", b"a")))
        await_that(guarded, lambda: count_refusals(guarded) > denied)
    assert entries_of(guarded, "lost")
    assert run_to_its_end(guarded, f"after-{action[:2]}.zip") == "SUCCEEDED"
    assert not entries_of(guarded, "lost")
    clear_ledger(guarded)
