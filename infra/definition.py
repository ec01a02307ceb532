"""The definition of the state machine: scan, link, extract, report, and again what is left.

::

    planned? -no-> Plan -> refused? -> Done
      |              |
      v  <-----------+
    scans? -> Scan (Map) -> Link -> all scanned? -------------------+-> Extract (Map)
      |                      ^        |                             |       |
      |                      |        +-> wait -> Rescan (Map)      |       v
      |                      |              ^      |      | failed  |     Report
      |                      |              |      v      v         |       |
      |                      |              +- Link again | Link anyway     |
      +-> split members? ----+                                              |
      +-> tasks? -> Extract, else Report                                    v
                                     Done <- left? <- Report again <- Redo (Map)
                                               |                        ^
                                               +-> wait ----------------+

A child that finds no free worker ends without a failure, and its task stays on the list of
unfinished tasks. So a throttled run continues until all tasks are done, at most for the seven days
of an execution. Scan and Extract tolerate every failure, so one failed task does not stop the
others. Redo tolerates none: a run that cannot continue fails there, in a Map, because a redrive of
a Fail state only fails again (developer guide of Step Functions, "Restarting executions with
redrive").

No state carries the results of children. A child returns ``{}``, and a ResultWriter writes a Map's
result to the work bucket. Without a ResultWriter the result is one array of all children, and above
256 KiB the execution fails with States.DataLimitExceeded, even if ResultPath is null
(aws/aws-cdk#24799).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import jsii
from aws_cdk import aws_iam as iam
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from infra.retries import retry_step, retry_worker
from s3unzip import run_files

if TYPE_CHECKING:
    from aws_cdk import aws_lambda as lambda_
    from constructs import Construct

    from infra.environment import Environment
    from infra.functions import Functions

# Without this flag CDK silently drops result_writer_v2.
WRITER_FLAG = "@aws-cdk/aws-stepfunctions:useDistributedMapResultWriterV2"
LINES = ("scan", "rescan", "plan", "redo")  # objects that a Map reads
# Fields of a step's result: how many tasks are left, and how long to wait before the next round.
LINKED = ("left", "wait", "rounds")
SETTLED = ("verdict", *LINKED)


class ResultWriter(sfn.ResultWriterV2):
    """A result writer without CDK's own rights, which are on ``*`` if the bucket is a path."""

    @jsii.member(jsii_name="providePolicyStatements")
    def provide_policy_statements(self) -> list[iam.PolicyStatement]:
        """Return nothing: `infra.workflow` allows the exact prefix."""
        return []


@dataclass(frozen=True, slots=True)
class Items:
    """The items that a Map reads and passes to workers."""

    lines: str  # the name of the object, one of LINES
    item: str  # the field of a line in the worker's event
    worker: lambda_.Function
    timeout: int  # time limit of the worker, in seconds
    concurrency: str  # the path of the number of concurrent children
    tolerated: int  # tolerated percentage of failed children


class Definition:
    """Makes the states, as constructs of `scope`; `start` is the first one."""

    def __init__(self, scope: Construct, environment: Environment, functions: Functions) -> None:
        self._scope = scope
        self._functions = functions
        self._timeouts = environment.functions
        enabled: bool = True
        scope.node.set_context(WRITER_FLAG, enabled)  # before the first construct in the scope
        self._done = sfn.Succeed(scope, "Done")
        report = self._report_until_done()
        extract = self._map("Extract", self._extraction("plan", tolerated=100))
        extract.next(report)
        link = self._link_until_scanned(extract)
        scan = self._map("Scan", self._scanning("scan", tolerated=100))
        scan.next(link)
        planned = (
            sfn.Choice(scope, "Anything to scan?")
            .when(sfn.Condition.number_greater_than("$.scans", 0), scan)
            .when(sfn.Condition.number_greater_than("$.split_members", 0), link)
            .otherwise(
                sfn.Choice(scope, "Anything to extract?")
                .when(sfn.Condition.number_greater_than("$.tasks", 0), extract)
                .otherwise(report)
            )
        )
        self.start: sfn.IChainable = self._plan_first(planned)

    def _plan_first(self, planned: sfn.IChainable) -> sfn.IChainable:
        """Return what plans an archive that was started without a plan.

        The planner's answer is the input of a planned run. It is tried again here, by Step
        Functions: the queue's message is long gone.
        """
        plan = tasks.LambdaInvoke(
            self._scope,
            "Plan",
            lambda_function=self._functions.planner,
            payload=sfn.TaskInput.from_object(
                {"request.$": "$.request", "run.$": "$$.Execution.Name"}
            ),
            output_path="$.Payload",
            retry_on_service_exceptions=False,
        )
        retry_step(plan)
        plan.next(
            sfn.Choice(self._scope, "Refused?")
            .when(sfn.Condition.boolean_equals("$.refused", True), self._done)  # noqa: FBT003 - CDK's
            .otherwise(planned)
        )
        unplanned = sfn.Condition.and_(
            sfn.Condition.is_present("$.planned"),
            sfn.Condition.boolean_equals("$.planned", False),  # noqa: FBT003 - likewise
        )
        return sfn.Choice(self._scope, "Planned?").when(unplanned, plan).otherwise(planned)

    def _report_until_done(self) -> sfn.IChainable:
        """Return Report and the states that repeat the unfinished tasks."""
        function = self._functions.report
        report = self._step("Report", function, "settled", {})
        redo = self._map("Redo", self._extraction("redo", tolerated=0))
        again = self._step("Report again", function, "settled", {"earlier.$": "$.settled"})
        wait = self._wait("Wait for workers", "settled")
        report.next(self._nothing_left("Anything left?", "settled", self._done, redo))
        redo.next(again)
        again.next(self._nothing_left("All done?", "settled", self._done, wait))
        wait.next(redo)
        return report

    def _link_until_scanned(self, extract: sfn.IChainable) -> sfn.IChainable:
        """Return Link and the states that repeat the scans that found no worker.

        A failed scan is not needed, because its member is then streamed. So after a failure in
        Rescan the link step uses the existing scans.
        """
        function = self._functions.link
        link = self._step("Link", function, "linked", {})
        wait = self._wait("Wait for scanners", "linked")
        rescan = self._map("Rescan", self._scanning("rescan", tolerated=0))
        again = self._step("Link again", function, "linked", {"earlier.$": "$.linked"})
        anyway = self._step("Link anyway", function, "linked", {"anyway": True})
        link.next(self._nothing_left("All scanned?", "linked", extract, wait))
        wait.next(rescan)
        rescan.add_catch(anyway, errors=[sfn.Errors.ALL], result_path=sfn.JsonPath.DISCARD)
        rescan.next(again)
        again.next(self._nothing_left("All scanned now?", "linked", extract, wait))
        anyway.next(extract)
        return link

    def _extraction(self, lines: str, *, tolerated: int) -> Items:
        timeout = self._timeouts.extract.timeout
        return Items(lines, "task", self._functions.extract, timeout, "$.concurrency", tolerated)

    def _scanning(self, lines: str, *, tolerated: int) -> Items:
        timeout = self._timeouts.scan.timeout
        return Items(lines, "scan", self._functions.scan, timeout, "$.scans_at_once", tolerated)

    def _map(self, name: str, items: Items) -> sfn.DistributedMap:
        """Return a Distributed Map that passes each line of an object to a worker."""
        state = sfn.DistributedMap(
            self._scope,
            name,
            label=name,
            map_execution_type=sfn.StateMachineType.EXPRESS,
            item_reader=sfn.S3JsonLItemReader(
                bucket_name_path=sfn.JsonPath.string_at("$.work.bucket"),
                key=sfn.JsonPath.string_at(f"$.work.{items.lines}"),
            ),
            item_selector={"run.$": "$.run", f"{items.item}.$": "$$.Map.Item.Value"},
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
        state.item_processor(self._work(f"{name} one", items))
        return state

    def _work(self, name: str, items: Items) -> tasks.LambdaInvoke:
        """Return the task of a child; its result is in the work bucket, its output is ``{}``."""
        task = tasks.LambdaInvoke(
            self._scope,
            name,
            lambda_function=items.worker,
            payload=sfn.TaskInput.from_object(
                {
                    "run.$": "$.run",
                    f"{items.item}.$": f"$.{items.item}",
                    "entered.$": "$$.State.EnteredTime",  # the start time of the child
                }
            ),
            result_path=sfn.JsonPath.DISCARD,
            output_path=sfn.JsonPath.DISCARD,
            retry_on_service_exceptions=False,
        )
        nobody = sfn.Pass(self._scope, f"{name}: no free worker", output_path=sfn.JsonPath.DISCARD)
        retry_worker(task, items.timeout, nobody)
        return task

    def _step(
        self, name: str, function: lambda_.Function, result: str, more: dict[str, object]
    ) -> tasks.LambdaInvoke:
        """Return a task that writes to ``$.<result>`` what is left and how long to wait."""
        fields = SETTLED if result == "settled" else LINKED
        task = tasks.LambdaInvoke(
            self._scope,
            name,
            lambda_function=function,
            payload=sfn.TaskInput.from_object(
                {"run.$": "$.run", "execution.$": "$$.Execution.Name", **more}
            ),
            result_selector={f"{field}.$": f"$.Payload.{field}" for field in fields},
            result_path=f"$.{result}",
            retry_on_service_exceptions=False,
        )
        retry_step(task)
        return task

    def _wait(self, name: str, result: str) -> sfn.Wait:
        seconds = sfn.WaitTime.seconds_path(f"$.{result}.wait")
        return sfn.Wait(self._scope, name, time=seconds)

    def _nothing_left(
        self, name: str, result: str, done: sfn.IChainable, rest: sfn.IChainable
    ) -> sfn.Choice:
        return (
            sfn.Choice(self._scope, name)
            .when(sfn.Condition.number_equals(f"$.{result}.left", 0), done)
            .otherwise(rest)
        )
