"""The child executions of a Map Run: so many at once, each with an end.

Express children end after five minutes: the child is TIMED_OUT with States.Timeout,
another starts in its place, and the Lambda function that it waited for goes on. When the
Map Run fails or is stopped, Standard children are aborted and Express children end by
themselves. A redriven Standard child goes on at the state that failed; a redriven Express
child starts anew.
https://docs.aws.amazon.com/step-functions/latest/dg/choosing-workflow-type.html
https://docs.aws.amazon.com/step-functions/latest/dg/redrive-map-run.html
"""

from __future__ import annotations

import json
import queue
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from embedded.strict import stepfunctions_engine as engine
from embedded.strict.limits import OPEN_MAP_CONCURRENCY

if TYPE_CHECKING:
    from concurrent.futures import Future

    from embedded.strict.stepfunctions_map import MapRun

sfn = engine.sfn
MAX_THREADS = 10_000  # AWS's own limit of children; idle threads are used first
POLL_SECONDS = 0.2  # until a stopped execution or a child out of time is noticed
WAITING = ("PENDING", "PENDING_REDRIVE")


def run_children(run: MapRun) -> None:
    """Run the children that wait, until all ended or the Map Run has failed or was stopped."""
    children = _Children(run)
    waiting = deque(child for child in run.children if child["status"] in WAITING)
    while waiting or children.running:
        if engine.is_over() or run.exceeded:
            waiting.clear()
            children.abort()
        while waiting and children.room:
            children.start(waiting.popleft())
        if children.running:
            children.settle_one()
    children.close()


class _Children:
    """Those that run: each ARN with its record and when it started."""

    def __init__(self, run: MapRun) -> None:
        self._run = run
        self._pool = ThreadPoolExecutor(max_workers=MAX_THREADS)
        self._done: queue.SimpleQueue[tuple[dict[str, Any], Future[Any]]] = queue.SimpleQueue()
        self.running: dict[str, tuple[dict[str, Any], float]] = {}

    @property
    def room(self) -> bool:
        # Read each time: UpdateMapRun may change it.
        limit = self._run.record["maxConcurrency"] or OPEN_MAP_CONCURRENCY
        return len(self.running) < limit

    def start(self, child: dict[str, Any]) -> None:
        again = child["status"] == "PENDING_REDRIVE"
        if again and child["_express"]:
            child = self._anew(child)
        self._run.move(child, "RUNNING")
        start, data = self._run.processor["StartAt"], json.loads(child["input"])
        if again and not child["_express"]:
            start, data = child.get("_places", {}).get((), (start, data))
        if again:
            child.update(redriveCount=child["redriveCount"] + 1, redriveDate=sfn.now_iso())
        child.update(startDate=child["startDate"] or sfn.now_iso(), stopDate=None)
        sfn._executions[child["executionArn"]] = child
        self.running[child["executionArn"]] = (child, time.monotonic())
        ctx = engine.context_of(child, {"QueryLanguage": self._run.ctx["QueryLanguage"]})
        states = self._run.processor["States"]
        future = engine.submit(self._pool, child, states, start, data, ctx)
        future.add_done_callback(lambda ended: self._done.put((child, ended)))

    def _anew(self, child: dict[str, Any]) -> dict[str, Any]:
        """Return the record in place of one whose thread may still be at work."""
        sfn._executions.pop(child["executionArn"], None)
        fresh = {**child, "startDate": None}
        for key in ("error", "cause"):
            fresh.pop(key, None)
        self._run.children[child["_index"]] = fresh
        return fresh

    def settle_one(self) -> None:
        """Wait a moment for a child's end and record it; end those out of time."""
        try:
            child, future = self._done.get(timeout=POLL_SECONDS)
        except queue.Empty:
            self._end_late()
            return
        if self.running.pop(child["executionArn"], (None,))[0] is child:
            self._settle(child, future)
        self._end_late()

    def _settle(self, child: dict[str, Any], future: Future[Any]) -> None:
        error = future.exception()
        child["stopDate"] = sfn.now_iso()
        if error is None:
            child["output"] = json.dumps(future.result(), ensure_ascii=False, separators=(",", ":"))
            self._run.move(child, "SUCCEEDED")
        elif isinstance(error, engine.EndedError):
            self._run.move(child, "ABORTED")
        else:
            child["error"], child["cause"] = engine.name_error(error)
            self._run.move(child, "FAILED")

    def _end_late(self) -> None:
        seconds = self._run.express_seconds
        if seconds is None:
            return
        now = time.monotonic()
        while self.running:
            child, started = next(iter(self.running.values()))  # the oldest
            if now - started < seconds:
                return
            del self.running[child["executionArn"]]
            child["error"] = "States.Timeout"
            child["cause"] = f"An Express execution ends after {seconds:g} seconds"
            self._run.move(child, "TIMED_OUT")

    def abort(self) -> None:
        """End the Standard children at once; Express children end by themselves."""
        for arn, (child, _) in list(self.running.items()):
            if not child["_express"]:
                del self.running[arn]
                self._run.move(child, "ABORTED")

    def close(self) -> None:
        # Not awaited: threads of children that are timed out wait for their functions.
        self._pool.shutdown(wait=False)
