"""The forecast of many archives: the sums of their own forecasts, or close to them."""

from __future__ import annotations

import tracemalloc

import pytest
from msgspec.structs import replace

from s3unzip import rates
from s3unzip.forecast import Fixture, Range, aws, choose_way, make_fixture
from s3unzip.forecast.backlog import (
    BacklogForecast,
    QueueCapacity,
    SampledArchive,
    busy_seconds,
    forecast_backlog,
)
from s3unzip.forecast.census import (
    MAX_MEMBERS,
    ArchiveSize,
    Census,
    ReadArchive,
    Shape,
    count_plausible,
)
from s3unzip.forecast.fixtures import HEADER
from s3unzip.forecast.ways import Way
from s3unzip.model import decode, encode
from s3unzip.settings import Tuning

TUNING = Tuning()
PLATFORM = aws()
CAPACITY = QueueCapacity(workers=800, invocations=1_000)
CENTRAL = 60  # bytes of an entry of a directory, about

SMALL = Fixture("", "", 5, 20_000, 8_000)
MIDDLE = Fixture("", "", 5_000, 50_000, 20_000)
LARGE = Fixture("", "", 1, 10 * rates.GB, 3_500 * rates.MB)


def size_of(fixture: Fixture) -> ArchiveSize:
    """Return the size of an archive like a fixture."""
    size = fixture.members * (fixture.compressed + HEADER + CENTRAL) + 22
    return ArchiveSize(size, fixture.members)


def read(fixture: Fixture) -> SampledArchive:
    """Return what the directory of such an archive says."""
    made = choose_way(make_fixture(fixture, TUNING), PLATFORM, TUNING)
    return SampledArchive(
        archive=size_of(fixture),
        members=fixture.members,
        bytes_in=fixture.members * fixture.compressed,
        bytes_out=fixture.members * fixture.size,
        way=made.way,
        dollars=made.forecast.dollars,
        seconds=made.forecast.duration,
        busy=busy_seconds(made, PLATFORM),
    )


def count(*fixtures: Fixture) -> Census:
    """Count archives like fixtures."""
    census = Census()
    for fixture in fixtures:
        census.add(size_of(fixture))
    return census


def forecast(
    census: Census, *sample: SampledArchive, capacity: QueueCapacity = CAPACITY, refused: int = 0
) -> BacklogForecast:
    """Return the forecast of a census."""
    return forecast_backlog(census, sample, refused, PLATFORM, TUNING, capacity)


def test_one_archive_that_is_read_is_its_own_forecast() -> None:
    """Nothing is estimated, so nothing is assumed."""
    (whole,) = [read(MIDDLE)]
    made = forecast(count(MIDDLE), whole)
    looks = 2 * rates.PRICE_S3_READ
    assert made.dollars.expected == pytest.approx(whole.dollars.expected + looks)
    assert made.duration == whole.seconds
    assert (made.bound, made.assumptions) == ("the longest archive", ())
    assert (made.members, made.bytes_out) == (5_000, 250_000_000)
    assert decode(encode(made), BacklogForecast) == made


def test_equal_archives_cost_their_number() -> None:
    """Of ten thousand of which a few are read, the sum is that of the few times the number."""
    made = forecast(count(*[SMALL] * 10_000), *[read(SMALL)] * 3)
    alone = read(SMALL)
    looks = 2 * rates.PRICE_S3_READ
    assert made.dollars.expected == pytest.approx(10_000 * (alone.dollars.expected + looks))
    assert made.ways == {"direct": 10_000, "inline": 0, "distributed": 0}
    assert made.members == 50_000
    assert (made.sampled, made.refused) == (3, 0)
    assert "3 of 10,000 archives" in made.assumptions[0]


def test_a_mixture_is_close_to_the_sum_of_all() -> None:
    """A sample of one of each kind gives the dollars of all within a tenth."""
    every = [SMALL] * 300 + [MIDDLE] * 30 + [LARGE] * 3
    kinds = {fixture: read(fixture) for fixture in (SMALL, MIDDLE, LARGE)}
    truth = sum(kinds[one].dollars.expected for one in every)
    made = forecast(count(*every), *kinds.values())
    assert made.dollars.expected == pytest.approx(truth, rel=0.1)
    assert made.members == pytest.approx(sum(one.members for one in every), rel=0.01)
    assert made.ways == {"direct": 300, "inline": 30, "distributed": 3}


def test_the_sample_corrects_the_classes() -> None:
    """Where directories cost twice what equal members would, so do the others."""
    alone = read(SMALL)
    dear = replace(
        alone,
        dollars=Range(*(2 * one for one in (alone.dollars.low, alone.dollars.expected, 1.0))),
        busy=2 * alone.busy,
    )
    census = count(*[SMALL] * 100)
    usual, made = forecast(census, alone), forecast(census, dear)
    looks = 100 * 2 * rates.PRICE_S3_READ
    assert made.dollars.expected - looks == pytest.approx(2 * (usual.dollars.expected - looks))


def test_options_that_select_few_members_make_few() -> None:
    """The share that the options select of the sample is that of the others."""
    few = replace(read(MIDDLE), members=200, bytes_in=4_000_000, bytes_out=10_000_000)
    made = forecast(count(*[MIDDLE] * 10), few)
    assert made.members == pytest.approx(2_000, rel=0.01)


def test_nothing_is_read() -> None:
    """Without a sample the assumptions say so."""
    made = forecast(count(*[SMALL] * 10))
    assert made.sampled == 0
    assert any("because no directory was read" in one for one in made.assumptions)
    assert made.dollars.expected > made.unavoidable


def test_all_that_is_read_is_refused() -> None:
    """Refused archives tell nothing of the others."""
    made = forecast(count(*[SMALL] * 10), refused=10)
    assert (made.sampled, made.refused) == (0, 10)


def test_archives_whose_entries_are_not_known() -> None:
    """They have as many as others of their size; the assumptions count them."""
    census = count(*[SMALL] * 9)
    census.add(ArchiveSize(size_of(SMALL).size, None))
    made = forecast(census, read(SMALL))
    assert made.members == pytest.approx(50, abs=2)
    assert any(one.startswith("of 1 archives the number") for one in made.assumptions)
    alone = Census()
    alone.add(ArchiveSize(400_000, None))
    assert forecast(alone).members == 100


def test_hostile_ends_are_bounded() -> None:
    """An archive cannot have more entries than its bytes allow, whatever it declares."""
    assert count_plausible(ArchiveSize(760, 2**63)) == 10
    assert count_plausible(ArchiveSize(0, 5)) == 0
    census = Census()
    census.add(ArchiveSize(0, 0))
    census.add(ArchiveSize(22, 2**64 - 1))
    assert forecast(census).archives == 2
    shape = Shape(1.0, 1.0, 2.5, 100.0)
    assert shape.make_fixture(ArchiveSize(50 * 10**12, None)).members == MAX_MEMBERS


def test_stored_members() -> None:
    """A sample that does not expand is of stored members, which S3 copies."""
    stored = ReadArchive(ArchiveSize(1_000, 1), 1, 900, 900)
    shape = Shape.of(Census(), [stored])
    assert shape.make_fixture(ArchiveSize(10**9, 1)).stored


@pytest.mark.parametrize(
    ("invocations", "bound"),
    [(2, "the plan function's invocations"), (1_000, "the write rate of S3")],
)
def test_what_limits_small_archives(invocations: int, bound: str) -> None:
    """Few invocations of the plan function take longer; with many, S3 is the limit."""
    hundred = Fixture("", "", 100, 2_000, 800)
    capacity = QueueCapacity(800, invocations)
    made = forecast(count(*[hundred] * 10_000), read(hundred), capacity=capacity)
    assert made.bound == bound
    assert made.duration.low < made.duration.expected < made.duration.high


def test_what_limits_large_archives() -> None:
    """With few workers, the workers."""
    made = forecast(count(*[LARGE] * 20), read(LARGE), capacity=QueueCapacity(5, 1_000))
    assert made.bound == "the workers"


def test_a_queue_starts_slowly() -> None:
    """Its invocations grow by five a second, so the first thousand are not there at once."""
    archives = count(*[SMALL] * 500)
    few = forecast(archives, read(SMALL), capacity=QueueCapacity(800, 5))
    many = forecast(archives, read(SMALL), capacity=QueueCapacity(800, 1_000))
    assert many.bound == few.bound == "the plan function's invocations"
    at_once = 500 * read(SMALL).busy / 1_000
    assert at_once * 10 < many.duration.expected < few.duration.expected


def test_archives_above_the_limit_are_counted() -> None:
    """Those that the environment will refuse."""
    limit = read(MIDDLE).dollars.expected / 2
    capacity = CAPACITY._replace(max_cost=limit)
    made = forecast(count(*[SMALL] * 5, *[MIDDLE] * 3), read(SMALL), capacity=capacity)
    assert made.above_limit == 3


def test_memory_does_not_grow_with_the_archives() -> None:
    """Twenty thousand archives of all sizes take no more than two thousand do."""
    kept = []
    for archives in (2_000, 20_000):
        tracemalloc.start()
        try:
            census = Census()
            for number in range(archives):
                census.add(ArchiveSize(number % 1_000 * 997, number % 500))
            snapshot = tracemalloc.take_snapshot()  # of other threads, too: only one file counts
        finally:
            tracemalloc.stop()
        assert census.archives == archives
        ours = snapshot.filter_traces(
            [tracemalloc.Filter(inclusive=True, filename_pattern="*/forecast/census.py")]
        )
        kept.append(sum(one.size for one in ours.statistics("filename")))
    assert 0 < kept[1] < 2 * kept[0]


def test_the_way_of_an_archive() -> None:
    """Small ones are direct runs; larger ones have inline Maps, giants a Distributed Map."""
    for fixture, way in ((SMALL, Way.DIRECT), (MIDDLE, Way.INLINE), (LARGE, Way.DISTRIBUTED)):
        assert choose_way(make_fixture(fixture, TUNING), PLATFORM, TUNING).way is way
