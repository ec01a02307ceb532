"""Distributed Map: its Map Run, child executions, thresholds, paths of numbers and result.

Added to MiniStack's: MaxConcurrencyPath and ToleratedFailure...Path; an end as soon as the
tolerated failures are exceeded (States.ExceedToleratedFailureThreshold), with the rest pending;
children that are aborted with their Map Run; rights; and the ResultWriter, which writes
``<prefix>/<uuid of the Map Run>/manifest.json`` and a file of JSON lines for each status that
children ended with. Without it the state's result is all outputs of children, and measured before
ResultPath and OutputPath, so null there does not help (github.com/aws/aws-cdk/issues/24799).
Children are Standard executions.

https://docs.aws.amazon.com/step-functions/latest/dg/state-map-distributed.html
https://docs.aws.amazon.com/step-functions/latest/dg/input-output-resultwriter.html
"""

import json
import queue
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from embedded.strict import rights, states

sfn = states.sfn
UNSUCCESSFUL = ("FAILED", "TIMED_OUT", "ABORTED")
FILES = {"FAILED": UNSUCCESSFUL, "PENDING": ("PENDING", "RUNNING"), "SUCCEEDED": ("SUCCEEDED",)}
# The name of a status in a Map Run's counts.
COUNTED = {
    "PENDING": "pending",
    "RUNNING": "running",
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "TIMED_OUT": "timedOut",
    "ABORTED": "aborted",
}
MAX_THREADS = 10_000  # AWS's own limit of children; idle threads are used first
OPEN_MAP_CONCURRENCY = 64  # where the definition gives no limit; AWS: 10,000
POLL_SECONDS = 0.2  # until a stopped execution is noticed


@dataclass(slots=True)
class MapRun:
    """One Map Run: its record, as DescribeMapRun shows it, and its children, by item."""

    record: dict[str, Any]
    state: dict[str, Any]
    execution: dict[str, Any]  # the parent's
    ctx: dict[str, Any]
    children: list[dict[str, Any]] = field(default_factory=list)

    def move(self, child: dict[str, Any], status: str) -> None:
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
    """Replace MiniStack's ``_run_distributed_map``: return its output and the next state."""
    run = _open(state, effective, execution, ctx)
    try:
        _Children(run).work()
        result = _end(run)
    except sfn._ExecutionError:
        run.record.update(status="FAILED", stopDate=sfn.now_iso())
        raise
    result = sfn._apply_result_selector(state, result)
    output = sfn._apply_result_path(state, raw, result)
    return sfn._apply_output_path(state, output, ctx), sfn._next_or_end(state)


def _open(
    state: dict[str, Any], effective: Any, execution: dict[str, Any], ctx: dict[str, Any]
) -> MapRun:
    items = _read_items(state, effective, execution, ctx)
    machine = execution["stateMachineArn"]
    label = state.get("Label") or sfn.new_uuid()
    arn = f"{machine.replace(':stateMachine:', ':mapRun:')}/{label}:{sfn.new_uuid()}"
    try:
        rights.check_role(execution, "states:StartExecution", machine)
    except rights.DeniedError as denied:
        raise sfn._ExecutionError("States.Permissions", str(denied)) from None
    count = _number(state, "ToleratedFailureCount", effective, ctx)
    percentage = _number(state, "ToleratedFailurePercentage", effective, ctx)
    zero = dict.fromkeys((*COUNTED.values(), "resultsWritten"), 0)
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
    reader = state["ItemReader"]
    where = sfn._resolve_params_obj(reader.get("Parameters") or {}, effective, ctx)
    resource = f"arn:aws:s3:::{where.get('Bucket')}/{where.get('Key', '')}"
    try:
        rights.check_role(execution, "s3:GetObject", resource)
        items = sfn._read_map_items(reader, effective, ctx)
    except (rights.DeniedError, ValueError) as error:  # or no JSON, or no text
        raise sfn._ExecutionError("States.ItemReaderFailed", str(error)) from None
    return list(items)


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
    selector = run.state.get("ItemSelector")
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
        "input": states.checked(item, f"input of child execution {index}"),
        "inputDetails": {"included": True},
        "output": None,
        "outputDetails": {"included": True},
        "mapRunArn": run.record["mapRunArn"],
        "events": [],
        "_role": run.execution.get("_role", ""),
    }


class _Children:
    """The child executions of a Map Run: so many at once, each with an end."""

    def __init__(self, run: MapRun) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(max_workers=MAX_THREADS)
        self._done: queue.SimpleQueue[tuple[dict[str, Any], Future[Any]]] = queue.SimpleQueue()
        self._running: dict[str, dict[str, Any]] = {}

    def work(self) -> None:
        """Run the children, until all ended or the Map Run has failed or was stopped."""
        waiting = deque(self._run.children)
        limit = self._run.record["maxConcurrency"] or OPEN_MAP_CONCURRENCY
        while waiting or self._running:
            if states.is_over() or self._run.exceeded:
                waiting.clear()
                for child in self._running.values():
                    self._run.move(child, "ABORTED")
                break
            while waiting and len(self._running) < limit:
                self._start(waiting.popleft())
            self._settle_one()
        # Not awaited: threads of children that are aborted wait for their functions.
        self._pool.shutdown(wait=False)

    def _start(self, child: dict[str, Any]) -> None:
        self._run.move(child, "RUNNING")
        child["startDate"] = sfn.now_iso()
        sfn._executions[child["executionArn"]] = child
        self._running[child["executionArn"]] = child
        ctx = states.context_of(child, {"QueryLanguage": self._run.ctx["QueryLanguage"]})
        processor, data = self._run.state["ItemProcessor"], json.loads(child["input"])
        future = states.submit(self._pool, child, processor, data, ctx)
        future.add_done_callback(lambda ended: self._done.put((child, ended)))

    def _settle_one(self) -> None:
        try:
            child, future = self._done.get(timeout=POLL_SECONDS)
        except queue.Empty:
            return
        del self._running[child["executionArn"]]
        error = future.exception()
        child["stopDate"] = sfn.now_iso()
        if error is None:
            child["output"] = json.dumps(future.result(), ensure_ascii=False, separators=(",", ":"))
            self._run.move(child, "SUCCEEDED")
        elif isinstance(error, states.EndedError):
            self._run.move(child, "ABORTED")
        else:
            child["error"], child["cause"] = states.name_error(error)
            self._run.move(child, "FAILED")


def _end(run: MapRun) -> Any:
    """Close the Map Run; return the state's result."""
    exceeded = run.exceeded
    written: Any = None
    if run.state.get("ResultWriter"):
        written = _write_results(run)
    if states.is_over():
        run.record.update(status="ABORTED", stopDate=sfn.now_iso())
        raise states.EndedError
    if exceeded:
        raise sfn._ExecutionError(
            "States.ExceedToleratedFailureThreshold",
            "The specified tolerated failure threshold was exceeded",
        )
    if written is None:
        texts = [_text_of(child) for child in run.children]
        states.refuse_large(texts, f"result of the state '{run.ctx['State']['Name']}'")
        written = [json.loads(text) for text in texts]
    run.record.update(status="SUCCEEDED", stopDate=sfn.now_iso())
    return written


def _write_results(run: MapRun) -> dict[str, Any]:
    """Write a Map Run's results, with the Transformation COMPACT; return the state's output."""
    record, parameters = run.record, run.state["ResultWriter"]["Parameters"]
    where = sfn._resolve_params_obj(parameters, record["_effective"], run.ctx)
    bucket, prefix = where["Bucket"], where.get("Prefix", "").strip("/")
    folder = "/".join(filter(None, (prefix, record["mapRunArn"].rsplit(":", 1)[1])))
    files: dict[str, list[dict[str, Any]]] = {}
    arn = record["mapRunArn"]
    manifest = {"DestinationBucket": bucket, "MapRunArn": arn, "ResultFiles": files}
    try:
        for name, statuses in FILES.items():
            lines = [_text_of(one) for one in run.children if one["status"] in statuses]
            files[name] = []
            if lines:
                key, body = f"{folder}/{name}_0.jsonl", "".join(f"{line}\n" for line in lines)
                _put_object(run.execution, bucket, key, body.encode())
                files[name].append({"Key": key, "Size": len(body)})
        key = f"{folder}/manifest.json"
        _put_object(run.execution, bucket, key, json.dumps(manifest).encode())
    except (rights.DeniedError, OSError) as error:
        raise sfn._ExecutionError("States.ResultWriterFailed", str(error)) from None
    return {"MapRunArn": arn, "ResultWriterDetails": {"Bucket": bucket, "Key": key}}


def _put_object(execution: dict[str, Any], bucket: str, key: str, body: bytes) -> None:
    """Write an object as the state machine's role."""
    rights.check_role(execution, "s3:PutObject", f"arn:aws:s3:::{bucket}/{key}")
    s3: Any = import_module("ministack.services.s3")
    status, _, answer = s3._put_object(bucket, key, body, {"content-type": "application/json"})
    if status >= 300:
        raise OSError(answer.decode("utf-8", "replace"))


def _text_of(child: dict[str, Any]) -> str:
    """Return what the results have of a child: its output, or all of one that did not succeed."""
    if child["status"] == "SUCCEEDED":
        return str(child["output"])
    names = {"Name": "name", "Status": "status", "Input": "input", "Error": "error"}
    whole = {shown: child.get(name) for shown, name in {**names, "Cause": "cause"}.items()}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def install() -> None:
    """Put this Map in the place of MiniStack's."""
    vars(sfn)["_run_distributed_map"] = run_distributed_map
