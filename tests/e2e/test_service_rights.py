"""The state machine's role with its rights checked: each of them is needed.

The functions' roles are in test_rights.py; event sources, rules and destinations
in tests/strict/test_rights.py.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.settings import Variable
from tests.e2e.functions import with_variables
from tests.patience import HANG_SECONDS
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embedded.deploy import Assembly


@pytest.fixture(scope="module")
def guarded(assembly: Assembly) -> Iterator[DeployedPipeline]:
    """The stack over TLS with all rights checked."""
    tuning = json.dumps({"max_direct_members": 0, "max_inline_tasks": 0})  # Distributed Maps
    with start_aws(auth=True, wait_scale=0.005) as aws:
        pipeline = DeployedPipeline.create(assembly, aws.environment)
        with with_variables(pipeline, "plan", {Variable.TUNING.value: tuning}):
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


@contextmanager
def without(pipeline: DeployedPipeline, action: str) -> Iterator[None]:
    """Take an action, on everything, out of the state machine's role for a while."""
    iam, states = pipeline.client("iam"), pipeline.client("stepfunctions")
    machine = states.describe_state_machine(stateMachineArn=pipeline.outputs["StateMachineArn"])
    role = machine["roleArn"].rsplit("/", 1)[-1]
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
    with without(guarded, action):
        assert run_to_its_end(guarded, f"{action.partition(':')[2]}.zip") == "FAILED"
