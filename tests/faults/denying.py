"""Rights taken away, at the start and in mid-run: how much is asked after the first no."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.errors import AccessDeniedError
from s3unzip.model import Verdict
from s3unzip.settings import Tuning
from tests.faults.archives import make_archive
from tests.faults.figures import Figure
from tests.faults.rules import WRITES, Act, Rule
from tests.faults.stores import WORK
from tests.faults.world import expected_listing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.rules import Record
    from tests.faults.world import World

DENIED = Rule(Act.ANSWER, kinds=WRITES, within="/members/", status=403, code="AccessDenied")
READ = Rule(Act.ANSWER, kinds=("get",), within="/ingest/", after=1, status=403, code="AccessDenied")
KMS = Rule(Act.ANSWER, kinds=WRITES, within="/members/", status=400, code="KMS.DisabledException")


def measure_denials(world: World, sizes: tuple[int, ...]) -> Iterator[Figure]:
    """Yield requests after the first 403, for archives of so many members, default settings."""
    for small in sizes:
        archive = make_archive(small=small, large=False, size=300)
        moments = {
            "write.start": DENIED,
            "write.middle": after(DENIED, small // 3),
            "read.middle": READ,
            "kms.middle": after(KMS, small // 3),
        }
        for name, rule in moments.items():
            yield from measure_denial(world, archive, rule, f"denied.{name}.{small}_members")


def after(rule: Rule, requests: int) -> Rule:
    """Return `rule` for when so many requests went well."""
    return Rule(
        rule.act, rule.kinds, rule.within, after=requests, status=rule.status, code=rule.code
    )


def measure_denial(world: World, archive: bytes, rule: Rule, label: str) -> Iterator[Figure]:
    """Yield what a run with `rule` asks after its first no, and what a redrive makes of it."""
    world.clear()
    world.put_archive(archive)
    world.proxy.set_rules(rule)
    run = ""
    try:
        report = world.run(tuning=Tuning())
    except AccessDeniedError:
        denied = True
    else:
        run = report.run
        denied = report.verdict is Verdict.FAILED and report.reason == "access-denied"
    later = records_after(world.proxy.take_records(), rule.act)
    data = sum(not record.path.startswith(f"/{WORK}/") for record in later)
    yield Figure(f"{label}.requests_after", data, "requests")
    yield Figure(f"{label}.work_requests_after", len(later) - data, "requests")
    yield Figure(f"{label}.told", float(denied), "of 1")
    world.proxy.set_rules()
    if run:
        again = world.resume(run)
        whole = again.verdict is Verdict.COMPLETED and world.listing() == expected_listing(archive)
        yield Figure(f"{label}.whole_after_redrive", float(whole), "of 1")


def records_after(records: list[Record], act: Act) -> list[Record]:
    """Return what was answered after the first request that `act` was done to."""
    first = next((n for n, record in enumerate(records) if record.fault == act), len(records))
    return records[first + 1 :]
