"""The page that a run leaves beside its report: when it is written, and what it was told."""

import re
from typing import Any

import pytest

from s3unzip.estimate import Platform, aws, local
from s3unzip.model import Report, Verdict, decode
from tests.runs import World
from tests.zips import Entry, build

MEMBERS = [Entry(f"f{n}.txt", b"x" * n) for n in range(30)]


def page_of(world: World, report: Report) -> dict[str, Any]:
    """Return what the page of a run holds."""
    page = world.buckets.run_store(report.run).read("report.html").decode()
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return decode(found[1], dict[str, Any])


def run_on(world: World, platform: Platform) -> Report:
    """Extract the archive on a machine that knows what it is."""
    world.platform = platform
    return world.run(build(*MEMBERS))


def test_a_run_leaves_a_page() -> None:
    """The page has verdict and totals, and no cost without known prices."""
    world = World()
    report = world.run(build(*MEMBERS))
    page = page_of(world, report)
    assert (page["verdict"], page["extracted"]) == (Verdict.COMPLETED, 30)
    assert (page["cost"], page["bill"], report.cost) == (None, [], None)


def test_a_rejected_archive_leaves_a_page() -> None:
    """It says why; there is nothing else to show."""
    world = World()
    report = world.run(b"no zip at all")
    page = page_of(world, report)
    assert (page["verdict"], page["reason"]) == (Verdict.REJECTED, report.reason)


def test_failures_are_on_the_page() -> None:
    """What the report lists can be searched for on the page."""
    world = World()
    archive = bytearray(build(*MEMBERS))
    archive[archive.index(b"x" * 29)] ^= 1
    report = world.run(bytes(archive))
    page = page_of(world, report)
    assert [failure[0] for failure in page["failures"]] == [f.key for f in report.failures]
    assert len(page["failures"]) == 1


def test_requests_to_amazon_cost_money() -> None:
    """On one machine S3's requests are priced."""
    world = World()
    priced = run_on(world, local(workers=2, priced_requests=True))
    page = page_of(world, priced)
    assert priced.cost is not None
    counted = priced.requests
    assert priced.cost == pytest.approx(5e-6 * counted.writes + 4e-7 * counted.reads)
    assert counted.writes > 33
    assert page["cost"] == priced.cost
    assert {line[0] for line in page["bill"]} == {"S3"}


def test_a_run_on_aws_pays_for_more() -> None:
    """Lambda and Step Functions are on the bill of a deployed run."""
    world = World()
    page = page_of(world, run_on(world, aws()))
    assert {"S3", "Lambda", "Step Functions"} <= {line[0] for line in page["bill"]}


def test_a_store_of_ones_own_costs_nothing() -> None:
    """A platform without prices has no bill."""
    world = World()
    free = run_on(world, local(workers=2))
    assert (free.cost, page_of(world, free)["bill"]) == (None, [])


def test_scans_count() -> None:
    """Their requests are in the report."""
    world = World()
    world.tune(split_from=40_000, segment_bytes=20_000, small_member=30_000)
    words = b"".join(b"%d %d\n" % (n, n * n * 7919 % 100_003) for n in range(40_000))
    archive = build(Entry("big.txt", words, method=8))
    report = world.run(archive)
    assert report.verdict is Verdict.COMPLETED
    outcomes = list(
        world.records(report.run).read_outcomes(world.records(report.run).list_outcomes())
    )
    scans = [found.report for _, found in outcomes if found and found.report.kind == "scan"]
    assert scans
    assert report.requests.get >= sum(scan.requests.get for scan in scans)
