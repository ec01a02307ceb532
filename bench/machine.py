"""Forecast against measured for the state machine: inline Maps, both branches of `Work`, overlap.

The strict embedded AWS runs the deployed state machine. The functions extract and link reach
S3 through a proxy that adds a known latency to each request, so that their time is waiting and not
this machine's CPU. The forecast gets the measured latency of a few requests through the proxy, and
the seconds that the embedded AWS needs around a task, measured with an archive of one member: once
by an inline Map, and once by a Distributed Map for the case whose slices wait beside the scans. It
gets no data of the runs that it is compared with, and their archives are of other sizes.

The seconds are those of the state `Work`, from its first event to its last one: the Maps and the
link step, without event, plan and report. `forecast.error.<case>` is forecast / measured - 1; the
aim is 0.2.
"""

from __future__ import annotations

import io
import json
import random
import tempfile
import zipfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from msgspec.structs import replace

from bench.direct import probe_latency
from embedded.deploy import start_aws, synthesize
from embedded.pipeline import DeployedPipeline
from s3unzip.forecast import Latency, Platform, aws, forecast_run
from s3unzip.model import Task, decode
from s3unzip.settings import KIB, MIB, Variable, make_tuning
from tests.faults.proxy import FaultProxy
from tests.faults.rules import Shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LATENCY = 0.5  # seconds; far more than the embedded S3 itself takes for a request
WORKERS = 4
TUNING: Mapping[str, float] = {
    "max_workers": WORKERS,
    "max_direct_members": 0,
    "batch_members": 64,
    "small_member": 256 * KIB,
    "split_from": MIB,
    "segment_bytes": MIB,
}
SLOWED = ("extract", "link")
BESIDE_WORK = ("event", "hand over", "plan", "report")  # steps of the forecast
PATIENCE = 120.0


@dataclass(frozen=True, slots=True)
class MachineCase:
    """An archive of small members of 1 KiB, and maybe of a large one that is split."""

    name: str
    members: int
    large: int = 0  # bytes of the large one
    inline: bool = True  # whether short lists go through inline Maps

    @property
    def overlaps(self) -> bool:
        """Whether slices wait beside the scans."""
        return bool(self.large) and not self.inline

    @property
    def tuning(self) -> Mapping[str, float]:
        """The settings of the functions for this case."""
        return TUNING if self.inline else {**TUNING, "max_inline_tasks": 0}


PROBES = {inline: MachineCase(f"probe_{inline}", 1, inline=inline) for inline in (True, False)}
CASES = (
    MachineCase("inline_map", 768),  # 12 tasks, 4 at once
    MachineCase("parallel", 192, 6 * MIB),  # 3 tasks; beside them 3 scans, link and 3 slices
    MachineCase("overlap", 0, 6 * MIB, inline=False),  # 3 slices wait beside 3 scans
)


def measure_machine() -> Iterator[tuple[str, float, float]]:
    """Yield name, forecast and measured seconds of each case."""
    settings = {f"tuning.{name}": value for name, value in TUNING.items() if name != "max_workers"}
    settings["runs.max_workers"] = WORKERS
    with tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder:
        assembly = synthesize("dev", Path(folder), settings=settings)
        with start_aws() as embedded:
            port = urlsplit(embedded.endpoint).port
            assert port is not None
            pipeline = DeployedPipeline.create(assembly, embedded.environment)
            with FaultProxy(port, shape=Shape(latency=LATENCY)) as proxy:
                _slow_down(pipeline, proxy)
                latency: Latency | None = None
                for inline, probe in PROBES.items():
                    cases = [case for case in CASES if case.inline is inline]
                    _tune(pipeline, probe.tuning)
                    for case in cases:  # cold starts
                        _measure(pipeline, case, "cold")
                    latency = latency or probe_latency(pipeline, proxy)
                    platform = _platform(latency, pipeline, probe)
                    for case in cases:
                        yield case.name, *_compare(pipeline, case, platform)


def _tune(pipeline: DeployedPipeline, tuning: Mapping[str, float]) -> None:
    """Give all functions these settings."""
    functions = pipeline.client("lambda")
    for one in functions.list_functions()["Functions"]:
        variables = one.get("Environment", {}).get("Variables", {})
        if Variable.TUNING in variables:
            changed = {**variables, Variable.TUNING.value: json.dumps(dict(tuning))}
            functions.update_function_configuration(
                FunctionName=one["FunctionName"], Environment={"Variables": changed}
            )


def _slow_down(pipeline: DeployedPipeline, proxy: FaultProxy) -> None:
    """Let the functions that work on members reach S3 through the proxy."""
    functions = pipeline.client("lambda")
    for one in functions.list_functions()["Functions"]:
        if one["Handler"].split(".")[-2] in SLOWED:
            variables = one["Environment"]["Variables"]
            changed = {**variables, "AWS_ENDPOINT_URL_S3": proxy.endpoint()}
            functions.update_function_configuration(
                FunctionName=one["FunctionName"], Environment={"Variables": changed}
            )


def _platform(latency: Latency, pipeline: DeployedPipeline, probe: MachineCase) -> Platform:
    """Return this AWS for the forecast: its latency, and what it needs around a task.

    What `probe` takes longer than its forecast is the start and the end of a Map of its kind.
    """
    here = replace(
        aws(workers=WORKERS),
        put=latency,
        get=latency,
        cold_start=None,
        inline_start_seconds=0.0,
        inline_end_seconds=0.0,
        start_seconds=0.0,
        end_seconds=0.0,
    )
    around = max(0.0, _measure(pipeline, probe, "warm") - _forecast(pipeline, probe, here))
    return replace(here, inline_start_seconds=around, start_seconds=around)


def _compare(
    pipeline: DeployedPipeline, case: MachineCase, platform: Platform
) -> tuple[float, float]:
    """Return the forecast and the measured seconds of `Work`."""
    measured = _measure(pipeline, case, "warm")
    return _forecast(pipeline, case, platform), measured


def _measure(pipeline: DeployedPipeline, case: MachineCase, which: str) -> float:
    """Put an archive; return the seconds of the state `Work` of its run."""
    key = f"{case.name}-{which}.zip"
    pipeline.put(key, make_archive(case, which))
    report = pipeline.wait(key, PATIENCE)
    assert report.extracted == case.members + bool(case.large), report
    machine = pipeline.outputs["StateMachineArn"].replace(":stateMachine:", ":execution:")
    states = pipeline.client("stepfunctions")
    pages = states.get_paginator("get_execution_history").paginate(
        executionArn=f"{machine}:{report.run}"
    )
    events = [event for page in pages for event in page["events"]]
    entered = {event.get("stateEnteredEventDetails", {}).get("name") for event in events}
    assert ("Scan and slices" in entered) is case.overlaps, entered
    assert not case.overlaps or "Extract slices" not in entered, entered
    return (_time_of(events, "Exited") - _time_of(events, "Entered")).total_seconds()


def _time_of(events: list[dict[str, Any]], what: str) -> datetime:
    """Return when the state `Work` was entered or left."""
    (found,) = (
        event["timestamp"]
        for event in events
        if event.get(f"state{what}EventDetails", {}).get("name") == "Work"
    )
    assert isinstance(found, datetime)
    return found


def _forecast(pipeline: DeployedPipeline, case: MachineCase, platform: Platform) -> float:
    """Return the forecast seconds of the Maps and the link step of a planned run."""
    run = pipeline.find_run(f"{case.name}-warm.zip")
    assert run is not None
    summary = pipeline.summary(run)
    assert summary is not None
    lines = (pipeline.read(f"runs/{run.id}/plan.jsonl") or b"").splitlines()
    tasks = [decode(line, Task) for line in lines]
    forecast = forecast_run(summary, tasks, platform, make_tuning(case.tuning))
    return sum(step.seconds for step in forecast.steps if step.name not in BESIDE_WORK)


def make_archive(case: MachineCase, which: str) -> bytes:
    """Return the archive of a case; `which` gives another one of the same sizes."""
    dice = random.Random(f"{case.name}-{which}")
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(case.members):
            archive.writestr(f"{number:06d}.bin", dice.randbytes(KIB))
        if case.large:
            archive.writestr("large.txt", dice.randbytes(case.large // 2).hex())
    return body.getvalue()
