"""The state machine's role, and the rights of admission, with all rights checked: each is needed.

The other rights of the functions' roles are in test_rights.py and test_direct.py; event sources,
rules and destinations are in tests/strict/test_rights.py.
"""

from __future__ import annotations

import json
import random
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.settings import Variable
from tests.e2e.executions import (
    abort,
    await_end,
    has_execution,
    labels_of_maps,
    start_map,
    stop,
)
from tests.e2e.functions import find_function, with_variables
from tests.e2e.ledger import await_that, clear_ledger, count_refusals, entries_of, hold
from tests.patience import looks
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embedded.deploy import Assembly
    from s3unzip.model import Run

WORKERS = 12
MIB = 1024**2
TUNING = {"max_direct_members": 0, "max_inline_tasks": 0}  # Distributed Maps
SHORT_TAIL = {Variable.TUNING.value: json.dumps({**TUNING, "tail_bytes": 300})}


@pytest.fixture(scope="module")
def guarded(assembly: Assembly) -> Iterator[DeployedPipeline]:
    """The stack over TLS with all rights checked."""
    changes = {Variable.TUNING.value: json.dumps(TUNING), Variable.WORKERS.value: str(WORKERS)}
    with start_aws(auth=True, wait_scale=0.005) as aws:
        pipeline = DeployedPipeline.create(assembly, aws.environment)
        with (
            with_variables(pipeline, "plan", changes),
            with_variables(pipeline, "report", changes),
        ):
            yield pipeline


def run_to_its_end(pipeline: DeployedPipeline, key: str, members: int = 1) -> str:
    """Put an archive; return the status in which its execution ended."""
    pipeline.put(key, build(*(Entry(f"{n}.txt", b"text" * 100, DEFLATE) for n in range(members))))
    for _ in looks():
        run = pipeline.find_run(key)
        status = None if run is None else pipeline.status(run)
        if status not in {None, "RUNNING"}:
            return str(status)
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
    """Take an action, on everything, out of a role for a while; nothing if it is empty."""
    if not action:
        yield
        return
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


def count_calls(pipeline: DeployedPipeline, function: str) -> int:
    """Return how often a function was called; each call is logged when it begins."""
    logs = pipeline.client("logs")
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=find_function(pipeline, function)["LoggingConfig"]["LogGroup"]
    )
    return sum(one["message"].startswith("START ") for page in pages for one in page["events"])


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


def test_slices_wait_with_the_shipped_role(guarded: DeployedPipeline) -> None:
    """The role may look for the link: the slices that wait are extracted, by no other Map."""
    tuning = {"split_from": 2 * MIB, "segment_bytes": 2 * MIB, "part_bytes": 5 * MIB}
    tuning |= {"max_direct_members": 0, "max_inline_tasks": 0}
    content = random.Random(14).randbytes(6 * MIB).hex().encode()
    with with_variables(guarded, "plan", {Variable.TUNING.value: json.dumps(tuning)}):
        guarded.put("slices.zip", build(Entry("large.txt", content, DEFLATE)))
        report = guarded.wait("slices.zip")
    assert (report.extracted, report.failed, report.missing) == (1, 0, 0)
    assert labels_of_maps(guarded, report.run) == {"Scanbeside", "Sliceswhenlinked"}


def test_a_worker_starts_beside_the_planner(guarded: DeployedPipeline) -> None:
    """Of the two calls of the function, one is the run's only task and one the queued event.

    It comes before the tests whose runs fail, because an event of such a run may be late.
    """
    clear_ledger(guarded)
    before = count_calls(guarded, "extract")
    with with_variables(guarded, "plan", SHORT_TAIL):
        assert run_to_its_end(guarded, "beside-planner.zip", members=30) == "SUCCEEDED"
    await_that(guarded, lambda: count_calls(guarded, "extract") == before + 2)
    clear_ledger(guarded)


@pytest.mark.parametrize(
    "action", ["lambda:InvokeFunction", "s3:GetObject", "states:StartExecution"]
)
def test_the_state_machine_needs_each_right(guarded: DeployedPipeline, action: str) -> None:
    """Without any one of what its role allows, the execution fails."""
    with without(guarded, role_of_machine(guarded), action):
        assert run_to_its_end(guarded, f"{action.partition(':')[2]}.zip") == "FAILED"


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


@pytest.mark.parametrize("allowed", [True, False])
def test_the_planner_needs_the_right_to_drop_entries(
    guarded: DeployedPipeline, *, allowed: bool
) -> None:
    """It writes its plan's entry in the place of the one that was held for the archive."""
    clear_ledger(guarded)
    role = role_of(guarded, "planner")
    with with_variables(guarded, "plan", SHORT_TAIL):
        if allowed:
            assert run_to_its_end(guarded, "planner.zip", members=30) == "SUCCEEDED"
        else:
            with without(guarded, role, "s3:DeleteObject"):
                assert run_to_its_end(guarded, "no-planner.zip", members=30) == "FAILED"
    clear_ledger(guarded)


def test_the_plan_function_needs_the_right_to_remind_itself(guarded: DeployedPipeline) -> None:
    """The first run that waits queues a reminder."""
    clear_ledger(guarded)
    for number in range(4):
        hold(guarded, f"busy-{number}", WORKERS)
    denied = count_refusals(guarded)
    with without(guarded, role_of(guarded, "plan"), "sqs:SendMessage"):
        guarded.put("remind.zip", build(Entry("a", b"a")))
        await_that(guarded, lambda: count_refusals(guarded) > denied)
    clear_ledger(guarded)


@pytest.fixture(scope="module")
def silent_workers(guarded: DeployedPipeline) -> Iterator[None]:
    """The store of the extract function does not answer, so no Map ends for some minutes."""
    clear_ledger(guarded)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"https://127.0.0.1:{silent.getsockname()[1]}"
        with with_variables(guarded, "extract", {"AWS_ENDPOINT_URL_S3": endpoint}):
            yield


@pytest.fixture
def giant(guarded: DeployedPipeline, silent_workers: None) -> Iterator[Run]:
    """A run whose Map does not end while a test is at work."""
    clear_ledger(guarded)
    run = start_map(guarded, "giant.zip")
    yield run
    stop(guarded, run)
    clear_ledger(guarded)


MOVES = ["states:ListMapRuns", "states:UpdateMapRun"]


@pytest.mark.parametrize("action", ["", *MOVES])
def test_the_plan_function_needs_rights_to_move_shares(
    guarded: DeployedPipeline, giant: Run, action: str
) -> None:
    """A run that begins takes workers of another; without a right the other one keeps them."""
    clear_ledger(guarded)
    kept, denied = hold(guarded, giant.id, WORKERS, share=6), count_refusals(guarded)
    with without(guarded, role_of(guarded, "plan"), action):
        beside = start_map(guarded, f"beside{action[7:]}.zip")
        if action:
            await_that(guarded, lambda: count_refusals(guarded) > denied)
            assert kept in entries_of(guarded)
        else:
            await_that(guarded, lambda: kept not in entries_of(guarded))
        stop(guarded, beside)


@pytest.mark.parametrize(
    "action",
    ["", "states:DescribeExecution", "s3:DeleteObject", "states:StartExecution", *MOVES],
)
def test_the_report_function_needs_rights_to_give_workers_to_others(
    guarded: DeployedPipeline, giant: Run, action: str
) -> None:
    """The end of a run starts one that waits, and moves the share of another."""
    clear_ledger(guarded)
    ending = start_map(guarded, f"ending{action[3:]}.zip")
    for holder in (giant.id, ending.id, "busy-1", "busy-2"):
        hold(guarded, holder, WORKERS, share=6)
    waiting = f"waiting{action[3:]}.zip"
    guarded.put(waiting, build(Entry("a", b"a")))
    await_that(guarded, lambda: len(entries_of(guarded)) == 5)
    denied = count_refusals(guarded)
    with without(guarded, role_of(guarded, "report"), action):
        abort(guarded, ending)
        if action:
            await_that(guarded, lambda: count_refusals(guarded) > denied)
        else:
            await_that(guarded, lambda: has_execution(guarded, waiting))
            await_end(guarded, ending)
            assert not entries_of(guarded, ending.id)
            assert count_refusals(guarded) == denied
    await_end(guarded, ending)
    clear_ledger(guarded)
    if has_execution(guarded, waiting):
        run = guarded.find_run(waiting)
        assert run is not None
        stop(guarded, run)
