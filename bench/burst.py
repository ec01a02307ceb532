"""A burst on the embedded AWS: 200 archives of 8 tasks at once, on 4 workers and real 429s.

    uv run python -m bench.burst

The extract function has 4 reserved invocations; the fifth is refused with 429, as Lambda does. The
bound is the time that 4 workers need for the tasks alone: the sum of their durations / 4. In the
middle of the burst an archive of 5 members is put, which is a direct run. `burst.small_over_alone`
is its time over its time before the burst. All share this machine, so the bound counts tasks
that were slowed by the other functions. `S3UNZIP_BENCH_BURST=20` makes the burst smaller.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.everyday import time_direct_run
from bench.measure import median, print_figure, print_step
from embedded.deploy import start_aws, synthesize
from embedded.pipeline import DeployedPipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

ARCHIVES = int(os.environ.get("S3UNZIP_BENCH_BURST", "200"))
WORKERS = 4
TASKS = 8
MEMBERS = 40  # of a task
SETTINGS = {
    "functions.extract.reserved_concurrency": WORKERS,
    "runs.max_workers": WORKERS,
    "tuning.batch_members": MEMBERS,
    "tuning.max_direct_members": TASKS * MEMBERS - 1,
}
LIMIT_SECONDS = 500.0  # of the burst, so that the bench ends within ten minutes
LOOK_SECONDS = 1.0
ENDED_BADLY = ("FAILED", "TIMED_OUT", "ABORTED")


def make_archive(number: int) -> bytes:
    """Return an archive of `TASKS` tasks; each number is another one."""
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in range(TASKS * MEMBERS):
            archive.writestr(f"{member}.json", json.dumps({"archive": number, "member": member}))
    return body.getvalue()


def list_executions(pipeline: DeployedPipeline) -> Iterator[dict[str, Any]]:
    """Yield all executions."""
    pages = pipeline.client("stepfunctions").get_paginator("list_executions")
    for page in pages.paginate(stateMachineArn=pipeline.outputs["StateMachineArn"]):
        yield from page["executions"]


def list_members(pipeline: DeployedPipeline) -> Iterator[str]:
    """Yield the keys of the members of the burst."""
    pages = pipeline.client("s3").get_paginator("list_objects_v2")
    for page in pages.paginate(Bucket=pipeline.outputs["DestinationBucket"], Prefix="burst-"):
        yield from (found["Key"] for found in page.get("Contents", []))


def follow_burst(pipeline: DeployedPipeline, began: float) -> tuple[float, float | None]:
    """Wait for the end of the burst; return its seconds, and those of the small archive in it.

    The small archive is put when half of the others are done.
    """
    small = None
    while time.perf_counter() - began < LIMIT_SECONDS:
        ended = sum(one["status"] != "RUNNING" for one in list_executions(pipeline))
        if ended >= ARCHIVES:
            break
        if small is None and ended >= ARCHIVES // 2:
            print_step(f"{ended} of {ARCHIVES} done, an archive of 5 members now")
            small, _ = time_direct_run(pipeline, 1_000)
        time.sleep(LOOK_SECONDS)
    return time.perf_counter() - began, small


def print_burst(pipeline: DeployedPipeline, seconds: float) -> None:
    """Print how the runs ended, and the time of the burst over the bound."""
    found = list(list_executions(pipeline))
    done = sum(one["status"] == "SUCCEEDED" for one in found)
    print_figure("burst.failed", sum(one["status"] in ENDED_BADLY for one in found), "runs")
    print_figure("burst.unfinished", ARCHIVES - done, "runs")
    print_figure("burst.redriven", sum(bool(one.get("redriveCount")) for one in found), "runs")
    members = sum(1 for _ in list_members(pipeline))
    print_figure("burst.members_lost", done * TASKS * MEMBERS - members, "members")
    work = 0.0
    for told in pipeline.metrics():
        value = told.get("TaskDuration", 0.0)
        work += sum(value) if isinstance(value, list) else value
    print_figure("burst.makespan.s", seconds, "s")
    print_figure("burst.makespan_over_bound", seconds / (work / WORKERS), "x")


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder:
        assembly = synthesize("dev", Path(folder), settings=SETTINGS)
        with start_aws() as embedded:
            pipeline = DeployedPipeline.create(assembly, embedded.environment)
            alone = median([time_direct_run(pipeline, number)[0] for number in range(4)][1:])
            print_figure("burst.small_alone.s", alone, "s")
            print_step(f"{ARCHIVES} archives of {TASKS} tasks on {WORKERS} workers")
            began = time.perf_counter()
            for number in range(ARCHIVES):
                pipeline.put(f"burst-{number:03d}.zip", make_archive(number))
            seconds, small = follow_burst(pipeline, began)
            print_burst(pipeline, seconds)
            if small is not None:
                print_figure("burst.small.s", small, "s")
                print_figure("burst.small_over_alone", small / alone, "x")


if __name__ == "__main__":
    main()
