"""The definition of the state machine: extract, beside it scan and link; report; what is left.

::

    planned? -no-> Plan (beside it Warm workers) -> refused? -> Done
      |              |
      v  <-----------+
    Work (Parallel) ---------------------------------------------+
      | members of one task:  Extract (Map)                      |
      | split members:        Scan (Map) -> Link -> all scanned? |--> Report
      |                          ^           +-> wait -> Rescan  |      |
      | Warm report              +- Link again, or Link anyway   |      v
      |                       -> Extract slices (Map)            |    left? -> Done
      +----------------------------------------------------------+      |
                                                                        v
                            Done <- left? <- Report again <------- Redo (Map)
                                      |                                 ^
                                      +-> wait -------------------------+

Where a Distributed Map scans, and all scans and slices have a worker at once, "Scan and slices" (a
Parallel state) comes before Link: the Map over the slices starts with that over the scans, and its
children wait for the link step without a worker. If all is linked in time, Link and the second Map
are left out.

"Warm workers" and "Warm report" call functions with nothing to do, so that their cold starts run
beside other work. Their failures are caught: then the next call has the cold start. The workers are
called asynchronously, so the plan's end does not wait for a slow cold start.

Extract and the scans of split members run at the same time, so small members do not wait until a
huge one is scanned and linked. Each has its share of the run's workers. No worker waits for another
one, so no number of free workers makes a deadlock.

Extract, Scan and Extract slices are each a Distributed Map, or for a short list an inline Map
(`infra.maps`); `s3unzip.planning.lists` chooses.

A child that finds no free worker ends without a failure, and its task stays on the list of
unfinished tasks. So a throttled run continues until all tasks are done, at most for the seven days
of an execution. All Maps of Work tolerate every failure, so one failed task does not stop the
others. Redo tolerates none: a run that cannot continue fails there, in a Map, because a redrive of
a Fail state only fails again (developer guide of Step Functions, "Restarting executions with
redrive").
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import aws_cdk as cdk
from aws_cdk import aws_stepfunctions as sfn
from aws_cdk import aws_stepfunctions_tasks as tasks

from infra.maps import WRITER_FLAG, Items, make_inline_map, make_map
from infra.retries import SCAN_SECONDS, WARM_SECONDS, retry_step

if TYPE_CHECKING:
    from aws_cdk import aws_lambda as lambda_
    from constructs import Construct

    from infra.environment import Environment
    from infra.functions import Functions

# Fields of a step's result: how many tasks are left, and how long to wait before the next round.
LINKED = ("left", "wait", "rounds")
SETTLED = ("verdict", *LINKED)


class Definition:
    """Makes the states, as constructs of `scope`; `start` is the first one."""

    def __init__(
        self, scope: Construct, environment: Environment, functions: Functions, linked: str
    ) -> None:
        self._scope = scope
        self._linked = linked  # ARN of the objects that say that a run's members are linked
        self._functions = functions
        self._timeouts = environment.functions
        enabled: bool = True
        scope.node.set_context(WRITER_FLAG, enabled)  # before the first construct in the scope
        self._done = sfn.Succeed(scope, "Done")
        work = sfn.Parallel(scope, "Work", result_path=sfn.JsonPath.DISCARD)
        work.branch(
            self._extract_whole(),
            self._extract_split(),
            self._warm("Warm report", functions.report, waits=True),
        )
        work.next(self._report_until_done())
        self.start: sfn.IChainable = self._plan_first(work)

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
        # The output of the first branch is the planner's answer.
        prepare = sfn.Parallel(self._scope, "Prepare", output_path="$[0]")
        prepare.branch(plan, self._warm_workers())
        prepare.next(
            sfn.Choice(self._scope, "Refused?")
            .when(sfn.Condition.boolean_equals("$.refused", True), self._done)  # noqa: FBT003 - CDK's
            .otherwise(planned)
        )
        unplanned = sfn.Condition.and_(
            sfn.Condition.is_present("$.planned"),
            sfn.Condition.boolean_equals("$.planned", False),  # noqa: FBT003 - likewise
        )
        return sfn.Choice(self._scope, "Planned?").when(unplanned, prepare).otherwise(planned)

    def _warm_workers(self) -> sfn.IChainable:
        """Return what starts the workers with which a run begins, while it is planned.

        Their number is in the input, by the bytes that the plan function read. An execution that an
        older version started has none. Each call ends when Lambda has queued its event (developer
        guide of Step Functions, "Invoke an AWS Lambda function", InvocationType): no cold start
        delays the end of this branch.
        """
        scope = self._scope
        workers = sfn.Map(
            scope,
            "Warm workers",
            items_path=sfn.JsonPath.string_at("$.warm"),
            item_selector={},
            result_path=sfn.JsonPath.DISCARD,
        )
        workers.item_processor(self._warm("Warm worker", self._functions.extract, waits=False))
        return (
            sfn.Choice(scope, "Any workers?")
            .when(sfn.Condition.is_present("$.warm"), workers)
            .otherwise(sfn.Succeed(scope, "No workers"))
        )

    def _warm(self, name: str, function: lambda_.Function, *, waits: bool) -> tasks.LambdaInvoke:
        """Return a call that starts an environment of a function; without one it stays cold."""
        task = tasks.LambdaInvoke(
            self._scope,
            name,
            lambda_function=function,
            payload=sfn.TaskInput.from_object({"warm": True}),
            invocation_type=None if waits else tasks.LambdaInvocationType.EVENT,
            result_path=sfn.JsonPath.DISCARD,
            output_path=sfn.JsonPath.DISCARD,
            task_timeout=sfn.Timeout.duration(cdk.Duration.seconds(WARM_SECONDS)),
            retry_on_service_exceptions=False,
        )
        cold = sfn.Pass(self._scope, f"{name}: cold", output_path=sfn.JsonPath.DISCARD)
        task.add_catch(cold, errors=[sfn.Errors.ALL], result_path=sfn.JsonPath.DISCARD)
        return task

    def _report_until_done(self) -> sfn.IChainable:
        """Return Report and the states that repeat the unfinished tasks."""
        function = self._functions.report
        report = self._step("Report", function, "settled", {})
        items = self._extraction("redo", "$.concurrency", tolerated=0)
        redo = make_map(self._scope, "Redo", items)
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
        rescan = make_map(self._scope, "Rescan", self._scanning("rescan", tolerated=0))
        again = self._step("Link again", function, "linked", {"earlier.$": "$.linked"})
        anyway = self._step("Link anyway", function, "linked", {"anyway": True})
        link.next(self._nothing_left("All scanned?", "linked", extract, wait))
        wait.next(rescan)
        rescan.add_catch(anyway, errors=[sfn.Errors.ALL], result_path=sfn.JsonPath.DISCARD)
        rescan.next(again)
        again.next(self._nothing_left("All scanned now?", "linked", extract, wait))
        anyway.next(extract)
        return link

    def _extract_whole(self) -> sfn.IChainable:
        """Return what extracts the members that are one task or part of one."""
        items = self._extraction("whole", "$.whole_at_once")
        return self._map_of_either_kind("Extract", items, sfn.Succeed(self._scope, "Extracted"))

    def _extract_split(self) -> sfn.IChainable:
        """Return what scans, links and extracts the members that are split over several tasks."""
        end = sfn.Succeed(self._scope, "Slices extracted")
        slices = self._extraction("slices", "$.slices_at_once")
        extract = self._map_of_either_kind("Extract slices", slices, end)
        scans = self._scanning("scan")
        link = self._link_until_scanned(extract)
        scan = self._map_of_either_kind("Scan", scans, link)
        overlap = sfn.Condition.and_(
            sfn.Condition.is_present("$.overlap"),
            sfn.Condition.boolean_equals("$.overlap", True),  # noqa: FBT003 - CDK's
        )
        return (
            sfn.Choice(self._scope, "Any split members?")
            .when(overlap, self._scan_beside_slices(link, end))
            .when(sfn.Condition.number_greater_than("$.split_members", 0), scan)
            .otherwise(sfn.Succeed(self._scope, "No split members"))
        )

    def _scan_beside_slices(self, link: sfn.IChainable, end: sfn.IChainable) -> sfn.Parallel:
        """Return what starts scans, link and slices at the same time.

        The link step waits for the scans, and the slices for the link step, so none of them waits
        for the end of another one's Map, which takes seconds. The children of slices wait without
        a worker, so scans find one however few there are. If the scans take too long, the slices
        end without work, and everything goes on as if they had not started.
        """
        scope = self._scope
        slices = replace(self._extraction("slices", "$.slices_at_once"), linked=self._linked)
        more: dict[str, object] = {"patience": SCAN_SECONDS}
        together = sfn.Parallel(
            scope,
            "Scan and slices",
            result_selector={f"{field}.$": f"$[1].linked.{field}" for field in LINKED},
            result_path="$.linked",
        )
        together.branch(
            make_map(scope, "Scan beside", self._scanning("scan")),
            self._step("Link when scanned", self._functions.link, "linked", more),
            make_map(scope, "Slices when linked", slices),
        )
        together.next(self._nothing_left("Linked in time?", "linked", end, link))
        return together

    def _map_of_either_kind(self, name: str, items: Items, after: sfn.IChainable) -> sfn.Choice:
        """Return the choice between an inline and a Distributed Map; both go on with `after`."""
        inline = make_inline_map(self._scope, f"{name} inline", items)
        distributed = make_map(self._scope, name, items)
        inline.next(after)
        distributed.next(after)
        return (
            sfn.Choice(self._scope, f"{name}: a short list?")
            .when(sfn.Condition.is_present(f"$.inline.{items.lines}"), inline)
            .otherwise(distributed)
        )

    def _extraction(self, lines: str, concurrency: str, *, tolerated: int = 100) -> Items:
        timeout = self._timeouts.extract.timeout
        return Items(lines, "task", self._functions.extract, timeout, concurrency, tolerated)

    def _scanning(self, lines: str, *, tolerated: int = 100) -> Items:
        timeout = self._timeouts.extract.timeout
        return Items(lines, "scan", self._functions.extract, timeout, "$.scans_at_once", tolerated)

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
                {
                    "run.$": "$.run",
                    "execution.$": "$$.Execution.Name",
                    "machine.$": "$$.StateMachine.Id",
                    **more,
                }
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
