"""Made-up reports for the report page: small, a million members, failures, a refused archive."""

from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.model import (
    Failure,
    Location,
    Options,
    Pin,
    PlanSummary,
    Report,
    Requests,
    Run,
    Verdict,
)
from s3unzip.pricing import aws
from s3unzip.settling.page import render_page
from s3unzip.stores.ports import Clock
from tests.support.memory import MemoryStores

BEGAN = 1_760_000_000.0

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


def made_up(name: str, members: int, tasks: int, seconds: float = 12.3) -> Report:
    """Return the report of a run that extracted all members, of 10,050 bytes each."""
    return Report(
        run=f"{name}-4f1d2c90a7b35e68d1aa",
        verdict=Verdict.COMPLETED,
        source=Location("s3", "acme-ingest", f"incoming/2025/10/{name}.zip"),
        pin=Pin(size=5_183_402_771, etag='"9b2cf535f27731c974343645a3985328-618"'),
        destination=Location("s3", "acme-extracted", "landing/"),
        options=Options(),
        members=members,
        extracted=members,
        tasks=tasks,
        bytes_in=members * 2_600,
        bytes_out=members * 10_050,
        requests=Requests(get=8 * tasks, put=members + tasks + 8, retries=3 * (tasks // 100)),
        event_time=BEGAN - 1.5,
        started=BEGAN,
        finished=BEGAN + seconds,
        plan_seconds=0.9,
        task_seconds=tasks * seconds / 2,
        first_object=BEGAN + 2.1,
    )


def hostile_failures(count: int = 1_000) -> tuple[Failure, ...]:
    """Return failures whose names and messages attack the page."""
    reasons = ("crc-mismatch", "size-mismatch", "lfh-name-mismatch", "corrupt-stream")
    return tuple(
        Failure(
            key=f"landing/import/{number:05d}/{HOSTILE[number % len(HOSTILE)]}"
            + "<&\u2028" * 300 * (number % 3 == 0),
            reason=reasons[(number * number) % 7 % 4],
            message=f"member {number}: crc-32 is 0x{number * 2654435761 % 2**32:08x} "
            + HOSTILE[number % 8],
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
            key=f"landing/import/2025/10/orders-{number * 7919 % 100_000:05d}.json",
            reason=reason,
            message=f"{what} is {number * 2654435761 % 2**32:08x}",
            offset=number * 2_621_440,
            task=f"batch-{number:06d}",
        )
        if number % 40 != 4
        else hostile[number // 5]
        for number in range(count)
        for reason, what in [list(reasons.items())[(number * number) % 7 % 3]]
    )


def failing(failures: tuple[Failure, ...] | None = None) -> Report:
    """Return a run of 60,000 members in which twice as many failed as are listed."""
    listed = plain_failures() if failures is None else failures
    codes = [failure.reason for failure in listed]
    return replace(
        made_up("partner-import", 60_000, 120),
        verdict=Verdict.COMPLETED_WITH_ERRORS,
        extracted=60_000 - 2 * len(listed),
        failed=2 * len(listed),
        failures=listed,
        reasons={code: 2 * codes.count(code) for code in dict.fromkeys(codes)},
        warnings={"extra-field-unknown": 4_120, "name-not-utf8": 3},
        options=Options(include=("*.json",)),
    )


UNFINISHED = replace(  # its workers were stopped by a service fault
    made_up("nightly", 20_000, 40),
    verdict=Verdict.FAILED,
    extracted=18_500,
    missing=1_500,
    tasks_failed=3,
)
REPORTS = {
    "changed": replace(UNFINISHED, verdict=Verdict.SOURCE_CHANGED),
    "single": made_up("backup", 1, 1),
    "stopped": replace(UNFINISHED, reason="stopped", message="the run was stopped by a signal"),
    "slow": made_up("footage", 3, 3),
    "small": made_up("holiday-photos", 240, 3),
    "million": made_up("made-up-million", 1_000_000, 2_000, 286.0),
    "failing": failing(),
    "rejected": replace(
        made_up("quarterly", 0, 0, 0.31),
        verdict=Verdict.REJECTED,
        reason="overlap",
        message="Two members share bytes: member 'b.csv' at 4096 begins before member 'a.csv' at"
        " 0 ends at 9214",
        offset=4_096,
        reasons={"overlap": 1},
        members=3,
        first_object=None,
    ),
    "interrupted": replace(made_up("resumed", 900, 3, 40_000.0), task_seconds=30.0),
    "unfinished": UNFINISHED,
}


def page(report: Report) -> bytes:
    """Return the page of a report."""
    return render_page(report, Context(MemoryStores(), Clock(), platform=aws(), environment="prod"))


RUN = Run(
    id="a-0",
    source=Location("s3", "arrivals", "a.zip"),
    pin=Pin(1),
    destination=Location("s3", "members", "out/"),
    options=Options(),
    key_prefix="out/a/",
    created=1.0,
)
PLAN = PlanSummary(run=RUN, members=1, selected=1, tasks=1)
REPORT = Report(
    run="a-0",
    verdict=Verdict.COMPLETED,
    source=RUN.source,
    pin=RUN.pin,
    destination=RUN.destination,
    options=RUN.options,
    started=100.0,
    finished=110.0,
)
