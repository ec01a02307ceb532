"""Made-up runs for the report page: small, a million members, failures, one huge member."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from msgspec import structs

from s3unzip.forecast import Cost, CostLine, Forecast, Range
from s3unzip.model import (
    Failure,
    Location,
    Options,
    Pin,
    PlanSummary,
    Report,
    Requests,
    Run,
    TaskKind,
    TaskReport,
    Verdict,
)
from s3unzip.settling.page import PageData, Phase, SizeTable, TaskTable
from s3unzip.settling.page import collect as collect_tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

BEGAN = 1_760_000_000.0
DESTINATION = Location("s3", "acme-extracted", "landing/")

HOSTILE = (
    "</script><script>document.title='owned'</script>",
    "<!--<script>",
    "<img src=x onerror=\"document.title='owned'\">",
    "../../etc/passwd\u202egpj.exe",
    "line\u2028separator\u2029and\u0000nul\r\n",
    "javascript:alert(1)//'\"`${document.title='owned'}",
    "&lt;b&gt;&amp;",
    "snow \u2603, emoji \U0001f600, \u4e2d\u6587, \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
)


def source(name: str) -> Location:
    """Return the place of a made-up archive."""
    return Location("s3", "acme-ingest", f"incoming/2025/10/{name}.zip")


def collect(
    report: Report,
    summary: PlanSummary | None,
    tasks: Iterable[TaskReport],
    sizes: SizeTable | None = None,
    forecast: Forecast | None = None,
    *,
    cost: Cost | None = None,
    steps: Sequence[Phase] = (),
    environment: str = "",
) -> PageData:
    """Return the data of a page whose tasks are in a list."""
    table = TaskTable()
    for task in tasks:
        table.add(task)
    members = sizes or SizeTable()
    return collect_tables(
        report,
        summary,
        table,
        members,
        forecast,
        cost=cost,
        steps=steps,
        environment=environment,
    )


def table_of(sizes: Iterable[int]) -> SizeTable:
    """Return the table of these sizes in bytes."""
    table = SizeTable()
    for size in sizes:
        table.add(size)
    return table


def make_run(name: str, options: Options) -> Run:
    """Return the run of a made-up archive."""
    return Run(
        id=f"{name}-4f1d2c90a7b35e68d1aa",
        source=source(name),
        pin=Pin(size=5_183_402_771, etag='"9b2cf535f27731c974343645a3985328-618"'),
        destination=DESTINATION,
        options=options,
        key_prefix=f"landing/{name}/",
        created=BEGAN,
    )


def batches(
    count: int, members: int, workers: int, *, rate: float = 520, seed: int = 7
) -> Iterator[TaskReport]:
    """Yield batch tasks as `workers` lanes of `rate` members/s would do them, a few slowly."""
    rng = random.Random(seed)
    free = sorted(BEGAN + 1.1 + 0.001 * lane for lane in range(workers))
    for number in range(count):
        lane = number % workers
        seconds = rng.lognormvariate(0.0, 0.16) * members / rate
        if rng.random() < 0.004:
            seconds *= 2.6
        started = free[lane] + (rng.random() * 0.8 if number < workers else 0.02)
        free[lane] = started + seconds
        throttled = int(rng.random() * 6) if rng.random() < 0.1 else 0
        yield TaskReport(
            task=f"batch-{number:06d}",
            kind=TaskKind.BATCH,
            members=members,
            extracted=members,
            bytes_read=members * 2_600,
            bytes_written=members * 10_050,
            requests=Requests(get=8, put=members + throttled, retries=throttled),
            started=started,
            seconds=seconds,
            first_object=started + 0.09,
        )


def make_page(
    name: str,
    tasks: list[TaskReport],
    *,
    verdict: Verdict = Verdict.COMPLETED,
    failures: tuple[Failure, ...] = (),
    failed: int = 0,
    missing: int = 0,
    sizes: SizeTable | None = None,
    steps: tuple[Phase, ...] = (),
    scans: int = 0,
    warnings: dict[str, int] | None = None,
    options: Options | None = None,
) -> PageData:
    """Return the page of a run that these tasks make up."""
    options = options or Options()
    extracted = sum(task.extracted for task in tasks) - failed - missing
    last = max(task.started + task.seconds for task in tasks)
    reasons: dict[str, int] = {}
    for failure in failures:
        share = max(1, failed // max(1, len(failures)))
        reasons[failure.reason] = reasons.get(failure.reason, 0) + share
    requests = sum((task.requests for task in tasks), Requests(get=3))
    run = make_run(name, options)
    report = Report(
        run=run.id,
        verdict=verdict,
        source=run.source,
        pin=run.pin,
        destination=DESTINATION,
        options=options,
        members=extracted + failed + missing + 12,
        directories=12,
        extracted=extracted,
        failed=failed,
        missing=missing,
        reasons=reasons,
        warnings=warnings or {},
        failures=failures,
        tasks=len(tasks),
        bytes_in=sum(task.bytes_read for task in tasks),
        bytes_out=sum(task.bytes_written for task in tasks),
        requests=requests,
        event_time=BEGAN - 0.6,
        started=BEGAN,
        finished=last + 0.8,
        plan_seconds=0.9,
        task_seconds=sum(task.seconds for task in tasks),
        first_object=min(task.first_object or last for task in tasks),
    )
    took = report.finished - BEGAN
    summary = PlanSummary(
        run=run,
        members=report.members,
        selected=extracted + failed,
        tasks=len(tasks),
        kinds={"batch": extracted},
        scans=scans,
        bytes_out=report.bytes_out,
        seconds=took * 0.93,
        longest_task=max(task.seconds for task in tasks) * 0.8,
        started=BEGAN,
        plan_seconds=0.9,
    )
    cost = make_cost(requests, report.task_seconds, len(tasks))
    expected = make_cost(requests, report.task_seconds * 0.9, len(tasks))
    forecast = make_forecast(report, expected, summary.longest_task)
    return collect(report, summary, tasks, sizes, forecast, cost=cost, steps=steps)


def make_cost(requests: Requests, seconds: float, tasks: int) -> Cost:
    """Return a bill at the prices of us-east-1 in 2025."""
    lines = (
        CostLine("S3", "PUT, COPY, POST, LIST", requests.put, "request", requests.put * 5e-6),
        CostLine("S3", "GET, HEAD", requests.get, "request", requests.get * 4e-7),
        CostLine("Lambda", "duration", seconds * 1.769, "GB-s", seconds * 1.769 * 1.33334e-5),
        CostLine("Step Functions", "Express", tasks, "request", tasks * 1e-6),
    )
    total = sum(line.dollars for line in lines)
    return Cost(lines, total, requests.put * 5e-6, requests.put * 5e-6 / total)


def make_forecast(report: Report, cost: Cost, longest: float = 4.0) -> Forecast:
    """Return a forecast that the run has nearly met."""
    took = report.finished - report.started
    return Forecast(
        title=report.run,
        platform="aws",
        members=report.members,
        kinds={},
        sizes=(),
        bytes_in=report.bytes_in,
        bytes_out=report.bytes_out,
        tasks=report.tasks,
        at_once=400,
        duration=Range(took * 0.78, took * 0.93, took * 1.2),
        first_object=Range(1.4, 1.9, 2.6),
        members_per_second=report.members / took,
        steps=(),
        chain=(),
        bounds=(),
        tasks_seconds=took * 0.8,
        throttled_seconds=0.0,
        longest_task=Range(longest * 0.7, longest, longest * 1.4),
        requests=report.requests,
        cost=cost,
        dollars=Range(cost.total * 0.95, cost.total, cost.total * 1.1),
        warnings=(),
        seed=1,
    )


def log_sizes(count: int, median: float, seed: int = 3) -> SizeTable:
    """Return a histogram of `count` sizes around `median` bytes."""
    rng = random.Random(seed)
    some = min(count, 20_000)
    table = SizeTable()
    for _ in range(some):
        table.add(int(median * rng.lognormvariate(0, 0.9)), count // some)
    return table


def small() -> PageData:
    """Return a run of 240 members in 3 tasks."""
    return make_page("holiday-photos", list(batches(3, 80, 3)), sizes=log_sizes(240, 2_400_000))


def million(tasks: int = 2_000) -> PageData:
    """Return a run of 500 members a task, at the 3,500 PUT/s of one prefix of a bucket."""
    done = list(batches(tasks, 500, 32, rate=112))
    return make_page("made-up-million", done, sizes=log_sizes(tasks * 500, 8_000))


def hostile_failures(count: int = 1_000) -> tuple[Failure, ...]:
    """Return failures whose names and messages attack the page."""
    reasons = ("crc-mismatch", "size-mismatch", "lfh-name-mismatch", "corrupt-stream")
    return tuple(
        Failure(
            key=f"landing/import/{number:05d}/{HOSTILE[number % len(HOSTILE)]}"
            + ("<&\u2028" * 300 if number % 3 == 0 else ""),
            reason=reasons[(number * number) % 7 % 4],
            message=f"member {number}: crc-32 is 0x{number * 2654435761 % 2**32:08x},"
            f" the central directory says 0x{number * 40503 % 2**32:08x} {HOSTILE[number % 8]}",
            index=number,
            offset=number * 2_621,
            task=f"batch-{number // 500:06d}",
        )
        for number in range(count)
    )


def plain_failures(count: int = 1_000) -> tuple[Failure, ...]:
    """Return failures as partners' archives have them, one in 40 of them hostile."""
    hostile = hostile_failures(count)
    reasons = {"crc-mismatch": "CRC-32", "size-mismatch": "size", "lfh-name-mismatch": "name"}
    return tuple(
        Failure(
            key=f"landing/import/2025/10/{number % 28 + 1:02d}/"
            f"orders-{number * 7919 % 100_000:05d}.json",
            reason=reason,
            message=f"{what} is {number * 2654435761 % 2**32:08x},"
            f" the central directory says {number * 40503 % 2**32:08x}",
            offset=number * 2_621_440,
            task=f"batch-{number:06d}",
        )
        if number % 40 != 4
        else hostile[number // 5]
        for number in range(count)
        for reason, what in [list(reasons.items())[(number * number) % 7 % 3]]
    )


def failing(count: int = 1_000) -> PageData:
    """Return a run with failures."""
    return make_page(
        "partner-import",
        list(batches(120, 500, 60)),
        verdict=Verdict.COMPLETED_WITH_ERRORS,
        failures=plain_failures(count),
        failed=2 * count,
        sizes=log_sizes(60_000, 8_000),
        warnings={"extra-field-unknown": 4_120, "name-not-utf8": 3},
        options=Options(include=("*.json",), on_conflict=Options().on_conflict),
    )


def rejected() -> PageData:
    """Return a run that a broken index ended."""
    report = Report(
        run="quarterly-4f1d2c90a7b35e68d1aa",
        verdict=Verdict.REJECTED,
        source=source("quarterly"),
        pin=Pin(size=48_213_004, etag='"0c9f2e"'),
        destination=DESTINATION,
        options=Options(),
        reason="overlap",
        message="Two members share bytes: member 'b.csv' at 4096 begins before member 'a.csv' at 0"
        " ends at 9214",
        members=3,
        started=BEGAN,
        finished=BEGAN + 0.31,
        plan_seconds=0.28,
    )
    return collect(report, None, ())


def split() -> PageData:
    """Return a run of one huge member over 80 segments, some streams, and small members."""
    rng = random.Random(5)
    segments = [
        TaskReport(
            task=f"segment-000412-{part:04d}",
            kind=TaskKind.SEGMENT,
            members=1 if part == 0 else 0,
            extracted=1 if part == 0 else 0,
            bytes_read=67_108_864,
            bytes_written=int(rng.uniform(2.4, 3.2) * 1e8),
            requests=Requests(get=9, part=18),
            started=BEGAN + 6.0 + rng.random() * 0.9,
            seconds=rng.uniform(4.1, 6.4),
            part=part,
            parts=80,
        )
        for part in range(80)
    ]
    streams = [
        TaskReport(
            task=f"stream-{number:06d}",
            kind=kind,
            members=1,
            extracted=1,
            bytes_read=90_000_000,
            bytes_written=90_000_000 * 2,
            requests=Requests(get=12, part=12, create=1, complete=1),
            started=BEGAN + 6.1 + rng.random(),
            seconds=rng.uniform(1.2, 4.4),
            first_object=BEGAN + 8.1,
        )
        for number, kind in enumerate([TaskKind.STREAM] * 14 + [TaskKind.COPY] * 6)
    ]
    small_ones = [
        TaskReport(
            task=f"batch-{number:06d}",
            kind=TaskKind.BATCH,
            members=500,
            extracted=500,
            bytes_read=1_300_000,
            bytes_written=5_025_000,
            requests=Requests(get=1, put=500),
            started=BEGAN + 6.0 + rng.random() * 0.5,
            seconds=rng.uniform(0.8, 1.3),
            first_object=BEGAN + 6.3,
        )
        for number in range(10)
    ]
    return make_page(
        "made-up-telemetry",
        segments + streams + small_ones,
        sizes=table_of([10_050] * 5_000 + [180_000_000] * 20 + [22_000_000_000]),
        steps=(
            Phase("scan", BEGAN + 1.2, BEGAN + 5.1),
            Phase("link", BEGAN + 5.1, BEGAN + 5.9),
        ),
        scans=80,
    )


def unfinished() -> PageData:
    """Return a run whose workers were stopped by a service fault."""
    return make_page("nightly", list(batches(40, 500, 20)), verdict=Verdict.FAILED, missing=1_500)


def changed() -> PageData:
    """Return a run whose archive was replaced after some members were written."""
    return make_page(
        "moving-target", list(batches(9, 500, 4)), verdict=Verdict.SOURCE_CHANGED, missing=2_000
    )


def single() -> PageData:
    """Return a run of one member in one task."""
    return make_page("backup", list(batches(1, 1, 1)), sizes=table_of([10_050]))


def stopped() -> PageData:
    """Return a run that its user stopped."""
    return structs.replace(
        unfinished(),
        archive="weekly.zip",
        reason="stopped",
        message="the run was stopped by a signal",
        advice="Continue the run: s3unzip resume RUN.",
    )


def continuing() -> PageData:
    """Return a run that tries its last tasks again."""
    message = "tasks left: 3; the run continues"
    return structs.replace(unfinished(), archive="daily.zip", message=message, continues=True)


SAMPLES = {
    "continuing": continuing,
    "changed": changed,
    "single": single,
    "stopped": stopped,
    "small": small,
    "million": million,
    "failing": failing,
    "rejected": rejected,
    "split": split,
    "unfinished": unfinished,
}
