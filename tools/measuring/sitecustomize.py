"""Measures the branches that a process takes; Python imports this module at each of its starts.

`tools.coverage_files.measure_processes` puts this folder on ``PYTHONPATH`` of the processes that
tests start. Coverage can measure them by itself, but then each Python process takes 0.13 s longer:
it imports all of coverage and writes a database. The tests start thousands of processes. So this
module uses only coverage's C tracer, a file of its own, and writes the line pairs as they are.
`tools.coverage_files.collect` gives them to coverage.

The names that are set here on the tracer are coverage's own (coverage/collector.py). They are not
public; uv.lock has the version, and tests/tools/test_coverage_files.py compares the results of both
ways.
"""

from __future__ import annotations

import atexit
import marshal
import os
import sys
import threading
import time
from contextlib import suppress
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from types import FrameType

VARIABLE = "S3UNZIP_MEASURED"  # the tracer's file, os.pathsep, the folder of the results
TRACER = "coverage.tracer"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))  # noqa: PTH120 - pathlib takes 5 ms
SOURCES = tuple(os.path.join(ROOT, name, "") for name in ("functions/s3unzip", "infra"))  # noqa: PTH118


class Measurement:
    """The line pairs that this process runs, and the tracers of its threads."""

    def __init__(self, library: str, folder: str) -> None:
        loader = ExtensionFileLoader(TRACER, library)
        self._tracer: Any = loader.create_module(ModuleSpec(TRACER, loader, origin=library))
        loader.exec_module(self._tracer)
        self._folder = folder
        self._pairs: dict[str, set[int]] = {}  # packed by the tracer, by file
        self._decisions: dict[str, Any] = {}
        self._exit = os._exit

    def start(self) -> None:
        """Measure this thread, all later threads and all forks, until the process ends."""
        atexit.register(self._end)
        vars(os)["_exit"] = self._exit_now
        os.register_at_fork(after_in_child=self._forget)
        threading.settrace(self._start_thread)
        self._start_tracer()

    def _start_tracer(self) -> Any:
        tracer = self._tracer.CTracer()
        tracer.data = self._pairs
        tracer.trace_arcs = True
        tracer.should_trace = self._decide
        tracer.should_trace_cache = self._decisions
        tracer.warn = tracer.lock_data = tracer.unlock_data = _ignore
        tracer.concur_id_func = tracer.should_start_context = tracer.switch_context = None
        return tracer.start()

    def _start_thread(self, frame: FrameType, event: str, value: Any) -> Any:
        """Replace this trace function of a new thread by a tracer, which gets the same event."""
        sys.settrace(None)
        return self._start_tracer()(frame, event, value)

    def _decide(self, name: str, _frame: FrameType) -> Any:
        decision = self._tracer.CFileDisposition()
        decision.original_filename = decision.canonical_filename = name
        decision.trace = name.startswith(SOURCES)
        decision.source_filename = name if decision.trace else None
        decision.reason = ""
        decision.file_tracer = None
        decision.has_dynamic_filename = False
        return decision

    def _forget(self) -> None:
        """Leave to the parent what it has run before this fork. Tracers hold the sets."""
        for pairs in self._pairs.values():
            pairs.clear()

    def _end(self) -> None:
        sys.settrace(None)
        self._save()

    def _exit_now(self, status: int) -> NoReturn:
        with suppress(OSError, MemoryError):  # a child of a test may have neither files nor memory
            self._save()
        self._exit(status)

    def _save(self) -> None:
        """Write what was run since the last time, under a name that only a whole file has."""
        found = {name: list(pairs.copy()) for name, pairs in self._pairs.copy().items() if pairs}
        if not found:
            return
        self._forget()
        path = os.path.join(self._folder, f"{os.getpid()}-{time.monotonic_ns()}")  # noqa: PTH118
        with open(f"{path}.part", "xb") as file:  # noqa: PTH123
            marshal.dump(found, file)
        os.replace(f"{path}.part", f"{path}.pairs")  # noqa: PTH105


def _ignore(*_message: object, **_named: object) -> None:
    """Say nothing: what a test's process prints belongs to the test."""


if __name__ == "sitecustomize" and os.environ.get(VARIABLE):
    Measurement(*os.environ[VARIABLE].split(os.pathsep)).start()
