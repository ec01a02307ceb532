"""Distributed Map: its Map Run, child executions, thresholds, paths of numbers and result.

Added to MiniStack's: MaxConcurrencyPath and ToleratedFailure...Path; an end as soon as the
tolerated failures are exceeded (States.ExceedToleratedFailureThreshold), with the rest
pending; children that time out; failed children whole in the result; a Map Run that a
redrive continues.
https://docs.aws.amazon.com/step-functions/latest/dg/state-map-distributed.html
https://docs.aws.amazon.com/step-functions/latest/dg/state-map-distributed.html#maprun-fail-threshold
"""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any

from embedded.strict import stepfunctions_calls as calls
from embedded.strict import stepfunctions_engine as engine
from embedded.strict.limits import EXPRESS_SECONDS
from embedded.strict.stepfunctions_children import run_children
from embedded.strict.stepfunctions_payload import LIMIT_EXCEEDED, refuse_large_array
from embedded.strict.stepfunctions_result_writer import format_results, write_results

sfn = engine.sfn
UNSUCCESSFUL = ("FAILED", "TIMED_OUT", "ABORTED")
# The name of a status in a Map Run's counts.
COUNTED = {
    "PENDING": "pending",
    "PENDING_REDRIVE": "pendingRedrive",
    "RUNNING": "running",
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "TIMED_OUT": "timedOut",
    "ABORTED": "aborted",
}


@dataclass(slots=True)
class MapRun:
    """One Map Run: its record, as DescribeMapRun shows it, and its children, by item."""

    record: dict[str, Any]
    state: dict[str, Any]
    execution: dict[str, Any]  # the parent's
    ctx: dict[str, Any]
    children: list[dict[str, Any]] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)

    @property
    def processor(self) -> dict[str, Any]:
        """The definition of a child."""
        found: dict[str, Any] = self.state.get("ItemProcessor") or self.state["Iterator"]
        return found

    @property
    def express_seconds(self) -> float | None:
        """How long a child may run; None for Standard children."""
        kind = self.processor["ProcessorConfig"].get("ExecutionType", "STANDARD")
        return EXPRESS_SECONDS if kind == "EXPRESS" else None

    def move(self, child: dict[str, Any], status: str) -> None:
        """Give a child its status, and count it."""
        for counts in (self.record["itemCounts"], self.record["executionCounts"]):
            counts[COUNTED[child["status"]]] -= 1
            counts[COUNTED[status]] += 1
        child["status"] = status
        if status in UNSUCCESSFUL:
            child["stopDate"] = sfn.now_iso()

    @property
    def exceeded(self) -> bool:
        """Whether more children failed than the state tolerates."""
        counts = self.record["executionCounts"]
        failed = counts["failed"] + counts["timedOut"]
        limits = []
        if self.record["_count"] is not None:
            limits.append(failed > self.record["_count"])
        if self.record["_percentage"] is not None:
            limits.append(failed * 100 > self.record["_percentage"] * len(self.children))
        return any(limits) if limits else failed > 0


def run_distributed_map(
    state: dict[str, Any],
    raw: Any,
    effective: Any,
    iterator: dict[str, Any],  # noqa: ARG001 - the state has it
    execution: dict[str, Any],
    ctx: dict[str, Any],
) -> tuple[Any, str | None]:
    """Replace MiniStack's ``_run_distributed_map``: return the state's output and the next state.

    Raises:
        ministack.services.stepfunctions._ExecutionError: the Map Run failed.
    """
    name = ctx["State"]["Name"]
    run = execution.get("_redriven", {}).pop(name, None)
    if run is None:
        run = _open(state, effective, execution, ctx)
    else:
        _reopen(run)
    execution.setdefault("_unfinished", {})[name] = run
    try:
        run_children(run)
        result = _end(run)
    except sfn._ExecutionError as error:
        run.record.update(status="FAILED", stopDate=sfn.now_iso())
        if error.error in (LIMIT_EXCEEDED, "States.Runtime"):
            del execution["_unfinished"][name]  # a redrive starts a new Map Run
        raise
    finally:
        run.closed.set()
    del execution["_unfinished"][name]
    result = sfn._apply_result_selector(state, result)
    output = sfn._apply_result_path(state, raw, result)
    return sfn._apply_output_path(state, output, ctx), sfn._next_or_end(state)


def _open(
    state: dict[str, Any], effective: Any, execution: dict[str, Any], ctx: dict[str, Any]
) -> MapRun:
    if "ItemBatcher" in state:
        raise sfn._ExecutionError("States.Runtime", "ItemBatcher is not emulated")
    items = _read_items(state, effective, execution, ctx)
    machine = execution["stateMachineArn"]
    label = state.get("Label") or sfn.new_uuid()
    arn = f"{machine.replace(':stateMachine:', ':mapRun:')}/{label}:{sfn.new_uuid()}"
    try:
        calls.as_role(execution, "states:StartExecution", machine, lambda: None)
    except calls.DeniedError as denied:
        raise sfn._ExecutionError("States.Permissions", str(denied)) from None
    count = _number(state, "ToleratedFailureCount", effective, ctx)
    percentage = _number(state, "ToleratedFailurePercentage", effective, ctx)
    zero = dict.fromkeys((*COUNTED.values(), "resultsWritten", "failuresNotRedrivable"), 0)
    record = {
        "mapRunArn": arn,
        "executionArn": execution["executionArn"],
        "status": "RUNNING",
        "startDate": sfn.now_iso(),
        "maxConcurrency": int(_number(state, "MaxConcurrency", effective, ctx) or 0),
        "toleratedFailurePercentage": percentage or 0.0,
        "toleratedFailureCount": int(count or 0),
        "itemCounts": zero | {"total": len(items), "pending": len(items)},
        "executionCounts": zero | {"total": len(items), "pending": len(items)},
        "redriveCount": 0,
        "_stateMachineArn": f"{machine}/{label}",
        "_effective": effective,
        "_count": count,
        "_percentage": percentage,
    }
    run = MapRun(record, state, execution, ctx)
    for index, item in enumerate(items):
        run.children.append(_child(run, index, item, effective))
    sfn._map_runs[arn] = record
    return run


def _read_items(
    state: dict[str, Any], effective: Any, execution: dict[str, Any], ctx: dict[str, Any]
) -> list[Any]:
    reader = state.get("ItemReader")
    if reader is None:
        items = sfn._resolve_path_or_ctx(state.get("ItemsPath", "$"), effective, ctx)
    else:
        where = sfn._resolve_params_obj(reader.get("Parameters") or {}, effective, ctx)
        resource = f"arn:aws:s3:::{where.get('Bucket')}/{where.get('Key', '')}"
        action = "s3:GetObject" if "Key" in where else "s3:ListBucket"
        try:
            items = calls.as_role(
                execution, action, resource, lambda: sfn._read_map_items(reader, effective, ctx)
            )
        except calls.DeniedError as denied:
            raise sfn._ExecutionError("States.ItemReaderFailed", str(denied)) from None
        except ValueError as error:  # no JSON, or no text
            raise sfn._ExecutionError("States.ItemReaderFailed", str(error)) from None
    if not isinstance(items, list):
        raise sfn._ExecutionError("States.Runtime", "The items of a Map are an array")
    return items


def _number(state: dict[str, Any], name: str, effective: Any, ctx: dict[str, Any]) -> float | None:
    """Return a number of the state, given or at a path; None where it has neither."""
    value = state.get(name)
    if path := state.get(f"{name}Path"):
        value = sfn._resolve_path_or_ctx(path, effective, ctx)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            cause = f"The value at {name}Path is no number from 0: {json.dumps(value)}"
            raise sfn._ExecutionError("States.Runtime", cause)
    return value


def _child(run: MapRun, index: int, item: Any, effective: Any) -> dict[str, Any]:
    """Return the execution of one item, still pending."""
    selector = run.state.get("ItemSelector") or run.state.get("Parameters")
    if selector:
        ctx = {**run.ctx, "Map": {"Item": {"Index": index, "Value": item}}}
        item = sfn._resolve_params_obj(selector, effective, ctx)
    machine = run.record["_stateMachineArn"]
    name = sfn.new_uuid()
    return {
        "executionArn": f"{machine.replace(':stateMachine:', ':execution:')}:{name}",
        "stateMachineArn": machine,
        "name": name,
        "status": "PENDING",
        "startDate": None,
        "stopDate": None,
        "input": engine.checked(item, f"input of child execution {index}"),
        "inputDetails": {"included": True},
        "output": None,
        "outputDetails": {"included": True},
        "mapRunArn": run.record["mapRunArn"],
        "events": [],
        "redriveCount": 0,
        "_index": index,
        "_express": run.express_seconds is not None,
        "_role": run.execution.get("_role", ""),
    }


def _reopen(run: MapRun) -> None:
    """Make every unsuccessful child wait for its redrive, and count this one."""
    # Express children of a stopped execution end by themselves first.
    run.closed.wait()
    run.closed.clear()
    record = run.record
    del record["stopDate"]
    record.update(
        status="RUNNING", redriveCount=record["redriveCount"] + 1, redriveDate=sfn.now_iso()
    )
    for child in run.children:
        if child["status"] in UNSUCCESSFUL:
            run.move(child, "PENDING_REDRIVE")


def _end(run: MapRun) -> Any:
    """Close the Map Run; return the state's result."""
    exceeded = run.exceeded
    written: Any = None
    if (run.state.get("ResultWriter") or {}).get("Resource"):
        written = write_results(run.record, run.state["ResultWriter"], run.children, run.ctx)
    if engine.is_over():
        run.record.update(status="ABORTED", stopDate=sfn.now_iso())
        raise engine.EndedError
    if exceeded:
        raise sfn._ExecutionError(
            "States.ExceedToleratedFailureThreshold",
            "The specified tolerated failure threshold was exceeded",
        )
    if written is None:
        texts = format_results(run.children, run.state.get("ResultWriter") or {})
        refuse_large_array(texts, f"result of the state '{run.ctx['State']['Name']}'")
        written = [json.loads(text) for text in texts]
    run.record.update(status="SUCCEEDED", stopDate=sfn.now_iso())
    return written


def install() -> None:
    """Put this Map in the place of MiniStack's."""
    vars(sfn)["_run_distributed_map"] = run_distributed_map
