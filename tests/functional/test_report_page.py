"""The page that a run leaves beside its report: when it is written, and what it was told."""

from __future__ import annotations

import re

import pytest
from s3unzip.settling.settle import settle

from s3unzip.context import Context
from s3unzip.estimate import Platform, aws, local
from s3unzip.model import Report, Run, ScanReport, Verdict, decode
from s3unzip.settling.page import PageData
from tests.runs import Bench
from tests.zips import Entry, build

MEMBERS = [Entry(f"f{n}.txt", b"x" * n) for n in range(30)]


def page_of(bench: Bench, report: Report) -> PageData:
    """Return what the page of a run holds."""
    page = bench.stores.run_store(report.run).read("report.html").decode()
    found = re.search(r'<script type="application/json"[^>]*>(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return decode(found[1], PageData)


def settle_on(bench: Bench, report: Report, platform: Platform) -> Report:
    """Settle a finished run again, as a machine that knows what it is."""
    run = decode(bench.stores.run_store(report.run).read("run.json"), Run)
    context = bench.context
    known = Context(stores=context.stores, clock=context.clock, platform=platform)
    return settle(run, known).report


def test_a_run_leaves_a_page() -> None:
    """The page has verdict and totals, and no cost without known prices."""
    bench = Bench()
    report = bench.run(build(*MEMBERS))
    page = page_of(bench, report)
    assert (page.verdict, page.extracted) == (Verdict.COMPLETED, 30)
    assert (page.cost, page.bill, report.cost) == (None, (), None)


def test_a_rejected_archive_leaves_a_page() -> None:
    """It says why; there is nothing else to show."""
    bench = Bench()
    report = bench.run(b"no zip at all")
    page = page_of(bench, report)
    assert (page.verdict, page.reason) == (Verdict.REJECTED, report.reason)


def test_failures_are_on_the_page() -> None:
    """What the report lists can be searched for on the page."""
    bench = Bench()
    archive = bytearray(build(*MEMBERS))
    archive[archive.index(b"x" * 29)] ^= 1
    report = bench.run(bytes(archive))
    page = page_of(bench, report)
    assert [failure.key for failure in page.failures] == [f.key for f in report.failures]
    assert len(page.failures) == 1


def test_requests_to_amazon_cost_money() -> None:
    """On one machine S3's requests are priced."""
    bench = Bench()
    report = bench.run(build(*MEMBERS))
    platform = local(workers=2, priced_requests=True)
    priced = settle_on(bench, report, platform)
    page = page_of(bench, report)
    assert priced.cost is not None
    counted = priced.requests
    assert priced.cost == pytest.approx(5e-6 * counted.writes + 4e-7 * counted.reads)
    assert counted.writes > 33
    assert priced.forecast_cost == pytest.approx(priced.cost, rel=0.3)
    assert page.cost == priced.cost
    assert {line[0] for line in page.bill} == {"S3"}


def test_a_run_on_aws_pays_for_more() -> None:
    """Lambda and Step Functions are on the bill of a deployed run."""
    bench = Bench()
    report = bench.run(build(*MEMBERS))
    settle_on(bench, report, aws())
    page = page_of(bench, report)
    assert {"S3", "Lambda", "Step Functions"} <= {line[0] for line in page.bill}


def test_a_store_of_ones_own_costs_nothing() -> None:
    """A platform without prices gives a forecast of time only."""
    bench = Bench()
    report = bench.run(build(*MEMBERS))
    free = settle_on(bench, report, local(workers=2))
    assert (free.cost, page_of(bench, report).bill) == (None, ())
    assert free.forecast_seconds is not None


def test_scans_count() -> None:
    """Their requests are in the report."""
    bench = Bench()
    bench.tune(split_from=40_000, segment_bytes=20_000, small_member=30_000)
    words = b"".join(b"%d %d\n" % (n, n * n * 7919 % 100_003) for n in range(40_000))
    archive = build(Entry("big.txt", words, method=8))
    report = bench.run(archive)
    assert report.verdict is Verdict.COMPLETED
    work = bench.stores.run_store(report.run)
    scans = [decode(work.read(n), ScanReport) for n in work.names("scans/") if n.endswith(".json")]
    assert scans
    assert report.requests.get >= sum(scan.requests.get for scan in scans)
