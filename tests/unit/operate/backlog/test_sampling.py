"""A sample of archives: drawn by size, in bounded memory, and what their directories say."""

from __future__ import annotations

import tempfile
import tracemalloc
from typing import TYPE_CHECKING

from s3unzip.forecast.census import ArchiveSize
from s3unzip.model import Location
from s3unzip.operate.backlog.look import LookedAt, Looker
from s3unzip.operate.backlog.sampling import MAX_ENTRIES, Sample, read_sample
from s3unzip.operate.backlog.submitting import Environment, Tally
from s3unzip.operate.backlog.values import BacklogArchive
from tests.unit.operate.backlog.environment import make_archive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.unit.operate.backlog.environment import Site


def draw(count: int, archives: Iterable[tuple[int, int | None]]) -> list[int]:
    """Return the numbers of the archives that are drawn, of sizes and entries."""
    sample = Sample(count)
    for number, (size, entries) in enumerate(archives):
        archive = BacklogArchive(str(number), "run", size)
        sample.offer(LookedAt(archive, ArchiveSize(size, entries), None))
    return [int(one.archive.key) for one in sample.archives]


def test_all_of_a_few_are_drawn() -> None:
    """A sample is at most as large as what there is."""
    assert draw(20, [(5, 1), (0, None), (7, 1)]) == [0, 1, 2]
    assert draw(0, [(5, 1)]) == []


def test_a_large_archive_is_drawn_rather_than_a_small_one() -> None:
    """One that has more bytes than all others together is in every sample."""
    sizes = [(10, 1)] * 500 + [(10_000_000, 1)] + [(10, 1)] * 500
    assert 500 in draw(3, sizes)
    assert len(draw(3, sizes)) == 3
    assert draw(3, sizes) == draw(3, sizes)


def test_equal_archives_are_drawn_everywhere() -> None:
    """The sample is not of the beginning."""
    drawn = draw(50, [(10, 1)] * 1_000)
    assert len(drawn) == 50
    assert any(one < 300 for one in drawn)
    assert any(one > 700 for one in drawn)


def test_a_giant_directory_is_not_read() -> None:
    """It would take much memory."""
    assert draw(2, [(10**9, MAX_ENTRIES + 1), (5, MAX_ENTRIES)]) == [1]


def test_directories_are_read(site: Site) -> None:
    """Refused archives are counted, and one that was deleted meanwhile is left out."""
    site.put("a.zip", body=make_archive(5, size=1_000))
    site.put("bad.zip", body=b"no archive")
    site.put("gone.zip", body=make_archive(6))
    runs = site.runs
    environment = Environment.read(runs)
    looker, sample = Looker(runs, environment.orders), Sample(5)
    for key in ("a.zip", "bad.zip", "gone.zip"):
        looked = looker.look(key)
        assert looked is not None
        sample.offer(looked)
    site.functions.account.client("s3").delete_object(Bucket="arrivals", Key="gone.zip")
    assert looker.look("gone.zip") is None
    read = read_sample(sample, runs.stores, environment.orders, environment.scale)
    assert read.refused == 1
    (archive,) = read.archives
    assert (archive.members, archive.bytes_out, archive.way) == (5, 5_000, "direct")
    assert 0 < archive.busy < archive.seconds.expected
    assert archive.dollars.low <= archive.dollars.expected <= archive.dollars.high


def test_an_archive_that_is_known(site: Site) -> None:
    """Its report is found by the id of its run, and its size by its last bytes."""
    site.put("a.zip")
    site.submit("s3://arrivals/")
    site.extract_queued()
    runs = site.runs
    looked = Looker(runs, Environment.read(runs).orders).look("a.zip")
    assert looked is not None
    assert looked.report is not None
    assert looked.report.run == looked.archive.run
    assert looked.report.source == Location("s3", "arrivals", "a.zip")
    assert looked.size == ArchiveSize(len(make_archive()), 3)


def test_memory_does_not_grow_with_the_archives() -> None:
    """The archives to extract are in a file once they are many."""
    count, held = 10_000, 100_000
    tracemalloc.start()
    try:
        with tempfile.SpooledTemporaryFile(held) as spool:
            tally = Tally(spool, Sample(20))
            for number in range(count):
                archive = BacklogArchive(f"in/{number:09}.zip", f"{number:060}", number)
                tally.add(LookedAt(archive, ArchiveSize(number, 5), None))
            assert spool.tell() > 8 * held
            kept = tracemalloc.take_snapshot()  # of other threads, too: only these files count
    finally:
        tracemalloc.stop()
    assert (tally.looked, tally.census.archives) == (count, count)
    ours = [
        tracemalloc.Filter(inclusive=True, filename_pattern=f"*/{name}")
        for name in ("backlog/*.py", "forecast/*.py")
    ]
    assert sum(one.size for one in kept.filter_traces(ours).statistics("filename")) < held
