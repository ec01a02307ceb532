"""A burst on the embedded AWS: 200 archives of 8 tasks at once, on 4 workers and real 429s.

    uv run python -m bench.burst

The extract function has 4 reserved invocations; the fifth is refused with 429, as Lambda does. A
task is what it is on AWS: mostly waiting. Each PUT of a member of the burst is answered after
`SLOW_SECONDS`, so the 4 workers are the limit, and not the processors of this machine. All other
requests take what the embedded AWS needs for them.

Before the burst two archives of 8 tasks run alone, one after the other. The bound is

    tasks / workers * seconds of a task alone + seconds around the tasks of an archive alone

- `burst.task_alone.s`: the mean duration of the invocations of the second archive, as the REPORT
  lines of the log say. It is the time in which one of the 4 places is taken.
- `burst.around.s`: the seconds of that archive from its PUT to the end of its execution, less the
  seconds that its tasks need on 4 workers. No worker has a task before the first archive's event
  arrived and its run was planned and started, and the last run is reported after its last task. So
  the bound contains this time once, and not once for each archive.

`burst.workers_busy` is the part of the time in which the workers had tasks; what is missing to 1
waits for the steps between runs, or for the next try of a task that was refused.

In the middle of the burst an archive of 5 members is put, which is a direct run. Its PUTs are as
quick as before the burst. `burst.small_over_alone` is its time over its time before the burst.
`S3UNZIP_BENCH_BURST=20` makes the burst smaller.
"""

import json
import os
import re
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.everyday import time_direct_run
from bench.measure import median, print_figure, print_step
from embedded.deploy import start_aws, synthesize
from embedded.pipeline import DeployedPipeline
from tests.support.zips import DEFLATE, Entry, build

ARCHIVES = int(os.environ.get("S3UNZIP_BENCH_BURST", "200"))
WORKERS = 4
TASKS = 8
MEMBERS = 4  # of a task; their PUTs run at the same time
SLOW_SECONDS = 0.7
SLOW_PUTS = f"{SLOW_SECONDS} ^/[^/]+/burst-[^/]+/"  # members of the archives burst-*.zip
SETTINGS = {
    "functions.extract.reserved_concurrency": WORKERS,
    "runs.max_workers": WORKERS,
    "tuning.batch_members": MEMBERS,
    "tuning.max_direct_members": TASKS * MEMBERS - 1,
}
ENDED_BADLY = ("FAILED", "TIMED_OUT", "ABORTED")
LIMIT_SECONDS = 500.0  # of the burst, so that the bench ends within ten minutes
DURATION = re.compile(r"^REPORT RequestId: \S+\tDuration: (\d+) ms", re.MULTILINE)


def make_archive(name: str) -> bytes:
    """Return an archive of `TASKS` tasks; each name gives another one."""
    documents = (
        json.dumps({"archive": name, "member": number}).encode()
        for number in range(TASKS * MEMBERS)
    )
    return build(*(Entry(f"{n}.json", text, DEFLATE) for n, text in enumerate(documents)))


@dataclass(frozen=True, slots=True)
class Alone:
    """What an archive and its tasks take when nothing else runs; in seconds."""

    archive: float
    task: float

    @property
    def around(self) -> float:
        """The seconds of an archive beside those of its tasks."""
        return max(0.0, self.archive - TASKS / WORKERS * self.task)

    def bound(self, archives: int) -> float:
        return archives * TASKS / WORKERS * self.task + self.around


def measure_alone(pipeline: DeployedPipeline) -> Alone:
    """Run two archives one after the other; return the seconds of the second, which is warm."""
    for name in ("burst-cold", "burst-warm"):
        known = len(_list_durations(pipeline))
        began = time.perf_counter()
        pipeline.put(f"{name}.zip", make_archive(name))
        report = pipeline.wait(f"{name}.zip")
        seconds = time.perf_counter() - began
        assert report.extracted == TASKS * MEMBERS, report
    durations = _list_durations(pipeline)[known:]
    assert len(durations) == TASKS, durations
    return Alone(seconds, sum(durations) / TASKS)


def _list_durations(pipeline: DeployedPipeline) -> list[float]:
    logs = pipeline.client("logs")
    (group,) = (
        one["logGroupName"]
        for one in logs.describe_log_groups()["logGroups"]
        if "FunctionsExtract" in one["logGroupName"]
    )
    pages = logs.get_paginator("filter_log_events").paginate(logGroupName=group)
    messages = (event["message"] for page in pages for event in page["events"])
    return [int(found[1]) / 1_000 for text in messages if (found := DURATION.search(text))]


def _list_executions(pipeline: DeployedPipeline) -> Iterator[dict[str, Any]]:
    pages = pipeline.client("stepfunctions").get_paginator("list_executions")
    for page in pages.paginate(stateMachineArn=pipeline.outputs["StateMachineArn"]):
        yield from page["executions"]


def put_archives(pipeline: DeployedPipeline) -> float:
    """Put all archives at once; return when, by `time.perf_counter`."""
    names = [f"burst-many-{number:03d}" for number in range(ARCHIVES)]
    archives = [make_archive(name) for name in names]
    pipeline.client("s3")  # made before threads share it
    began = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(pipeline.put, [f"{name}.zip" for name in names], archives))
    return began


def follow_burst(
    pipeline: DeployedPipeline, before: set[str], began: float
) -> tuple[float, float | None]:
    """Wait for the end of the burst; return its seconds, and those of the small archive in it.

    The small archive is put when half of the others are done. `before` are earlier executions.
    """
    small = None
    while time.perf_counter() - began < LIMIT_SECONDS:
        ended = sum(
            one["status"] != "RUNNING" and one["name"] not in before
            for one in _list_executions(pipeline)
        )
        if ended >= ARCHIVES:
            break
        if small is None and ended >= ARCHIVES // 2:
            print_step(f"{ended} of {ARCHIVES} done, an archive of 5 members now")
            small, _ = time_direct_run(pipeline, 1_000)
        time.sleep(2.0)
    return time.perf_counter() - began, small


def _print_burst(pipeline: DeployedPipeline, before: set[str]) -> None:
    found = [one for one in _list_executions(pipeline) if one["name"] not in before]
    done = sum(one["status"] == "SUCCEEDED" for one in found)
    print_figure("burst.failed", sum(one["status"] in ENDED_BADLY for one in found), "runs")
    print_figure("burst.unfinished", ARCHIVES - done, "runs")
    print_figure("burst.redriven", sum(bool(one.get("redriveCount")) for one in found), "runs")
    members = len(pipeline.member_keys("burst-many-"))
    print_figure("burst.members_lost", done * TASKS * MEMBERS - members, "members")


def measure_burst(pipeline: DeployedPipeline) -> None:
    """Print what archives take alone, and what the burst takes."""
    direct = median([time_direct_run(pipeline, number)[0] for number in range(4)][1:])
    print_figure("burst.small_alone.s", direct, "s")
    alone = measure_alone(pipeline)
    print_figure("burst.task_alone.s", alone.task, "s")
    print_figure("burst.around.s", alone.around, "s")
    print_step(f"{ARCHIVES} archives of {TASKS} tasks on {WORKERS} workers")
    before = {one["name"] for one in _list_executions(pipeline)}
    earlier = len(_list_durations(pipeline))
    seconds, small = follow_burst(pipeline, before, put_archives(pipeline))
    _print_burst(pipeline, before)
    durations = _list_durations(pipeline)[earlier:]
    print_figure("burst.invocations", len(durations), "invocations")
    print_figure("burst.workers_busy", sum(durations) / WORKERS / seconds, "x")
    print_figure("burst.makespan.s", seconds, "s")
    print_figure("burst.makespan_over_bound", seconds / alone.bound(ARCHIVES), "x")
    if small is not None:
        print_figure("burst.small.s", small, "s")
        print_figure("burst.small_over_alone", small / direct, "x")


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder:
        assembly = synthesize("dev", Path(folder), settings=SETTINGS)
        with start_aws(slow_puts=SLOW_PUTS) as embedded:
            measure_burst(DeployedPipeline.create(assembly, embedded.environment))


if __name__ == "__main__":
    main()
