"""The Maps of the state machine: distributed ones, and inline ones for short lists.

A Distributed Map reads its items from an object and starts an Express child for each. Its start
and its end take seconds (`s3unzip.rates`). An inline Map takes its items from the execution's
input. Its iterations are states of the execution, 40 at once at most, and count towards the
execution's 25,000 events (developer guide of Step Functions, "Using Map state in Inline mode").

No state carries the results of children. A child returns ``{}``, and a ResultWriter writes the
result of a Distributed Map to the work bucket. Without a ResultWriter the result is one array of
all children, and above 256 KiB the execution fails with States.DataLimitExceeded, even if
ResultPath is null (aws/aws-cdk#24799).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jsii
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from infra.retries import retry_inline_worker, retry_worker, wait_for_link
from s3unzip import run_files

if TYPE_CHECKING:
    from aws_cdk import aws_lambda as lambda_
    from constructs import Construct

# Without this flag CDK silently drops result_writer_v2.
WRITER_FLAG = "@aws-cdk/aws-stepfunctions:useDistributedMapResultWriterV2"
WAITED_FOR = {"bucket.$": "$.work.bucket", "linked.$": "$.work.linked"}
LINES = ("scan", "rescan", "plan", "whole", "slices", "redo")  # objects that a Map reads


class ResultWriter(sfn.ResultWriterV2):
    """A result writer without CDK's own rights, which are on ``*`` if the bucket is a path."""

    @jsii.member(jsii_name="providePolicyStatements")
    def provide_policy_statements(self) -> list[iam.PolicyStatement]:
        """Return nothing: `infra.workflow` allows the exact prefix."""
        return []


@dataclass(frozen=True, slots=True)
class Items:
    """The items that a Map passes to workers."""

    lines: str  # the list: a field of the input's `work` and, for an inline Map, of `inline`
    item: str  # the field of a line in the worker's event
    worker: lambda_.Function
    timeout: int  # time limit of the worker, in seconds
    concurrency: str  # the path of the number of concurrent children
    tolerated: int = 100  # tolerated percentage of failed children
    linked: str | None = None  # ARN of the objects that children wait for; None: they do not wait


def make_map(scope: Construct, name: str, items: Items) -> sfn.DistributedMap:
    """Return a Distributed Map that passes each line of an object to a worker."""
    state = sfn.DistributedMap(
        scope,
        name,
        label=name.replace(" ", ""),
        map_execution_type=sfn.StateMachineType.EXPRESS,
        item_reader=sfn.S3JsonLItemReader(
            bucket_name_path=sfn.JsonPath.string_at("$.work.bucket"),
            key=sfn.JsonPath.string_at(f"$.work.{items.lines}"),
        ),
        item_selector=_selected(items) | (WAITED_FOR if items.linked else {}),
        max_concurrency_path=items.concurrency,
        tolerated_failure_percentage=items.tolerated,
        # COMPACT: only the outputs of children, so `{}` for each task that succeeded.
        result_writer_v2=ResultWriter(
            bucket_name_path=sfn.JsonPath.string_at("$.work.bucket"),
            prefix=sfn.JsonPath.string_at(f"$.work.{run_files.MAPS}"),
            writer_config=sfn.WriterConfig(
                output_type=sfn.OutputType.JSONL, transformation=sfn.Transformation.COMPACT
            ),
        ),
        result_path=sfn.JsonPath.DISCARD,
    )
    # The start time of the child, which lives 300 s.
    entered = "$$.Execution.StartTime" if items.linked else "$$.State.EnteredTime"
    task = _work(scope, f"{name} one", items, {"entered.$": entered})
    nobody = sfn.Pass(scope, f"{name} one: no free worker", output_path=sfn.JsonPath.DISCARD)
    retry_worker(task, items.timeout, nobody)
    state.item_processor(_await_link(scope, name, items.linked, task) if items.linked else task)
    return state


def _await_link(
    scope: Construct, name: str, linked: str, work: tasks.LambdaInvoke
) -> tasks.CallAwsService:
    """Return the state that goes on with `work` when the run's members are linked.

    It needs no worker while it waits. A child that waited too long ends without a failure.
    """
    look = tasks.CallAwsService(
        scope,
        f"{name} one: linked?",
        service="s3",
        action="headObject",
        parameters={"Bucket.$": "$.bucket", "Key.$": "$.linked"},
        iam_action="s3:GetObject",
        iam_resources=[linked],
        result_path=sfn.JsonPath.DISCARD,
    )
    late = sfn.Pass(scope, f"{name} one: not linked in time", output_path=sfn.JsonPath.DISCARD)
    wait_for_link(look, late)
    look.next(work)
    return look


def make_inline_map(scope: Construct, name: str, items: Items) -> sfn.Map:
    """Return an inline Map that passes each item of a list in the input to a worker.

    An inline Map tolerates no failure, so an iteration ends without one after every error: its
    item stays on the list of what is left, as that of a tolerated failure in a Distributed Map.
    """
    state = sfn.Map(
        scope,
        name,
        items_path=sfn.JsonPath.string_at(f"$.inline.{items.lines}"),
        item_selector=_selected(items),
        max_concurrency_path=items.concurrency,
        result_path=sfn.JsonPath.DISCARD,
    )
    task = _work(scope, f"{name} one", items, {})
    left = sfn.Pass(scope, f"{name} one: left for later", output_path=sfn.JsonPath.DISCARD)
    retry_inline_worker(task, items.timeout, left)
    state.item_processor(task)
    return state


def _selected(items: Items) -> dict[str, object]:
    return {"run.$": "$.run", f"{items.item}.$": "$$.Map.Item.Value"}


def _work(scope: Construct, name: str, items: Items, more: dict[str, object]) -> tasks.LambdaInvoke:
    """Return the task of a child; its result is in the work bucket, its output is ``{}``."""
    return tasks.LambdaInvoke(
        scope,
        name,
        lambda_function=items.worker,
        payload=sfn.TaskInput.from_object(
            {"run.$": "$.run", f"{items.item}.$": f"$.{items.item}", **more}
        ),
        result_path=sfn.JsonPath.DISCARD,
        output_path=sfn.JsonPath.DISCARD,
        retry_on_service_exceptions=False,
    )
