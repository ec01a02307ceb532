"""The forecast of many archives that are queued together.

The directories of a few archives are read, the sample. Of every other archive only its size and the
number of its entries are known. Archives of about the same size and number of entries are a class.
Each class is forecast once, as an archive of equal members with the ratios of the sample, and then
the sums are corrected by what the sample costs by its directories over what it costs as classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from s3unzip import rates
from s3unzip.forecast.bounds import write_seconds
from s3unzip.forecast.census import USUAL_EXPANSION, ReadArchive, Shape, class_of
from s3unzip.forecast.estimate import Range
from s3unzip.forecast.fixtures import Fixture, make_fixture
from s3unzip.forecast.ways import ForecastWay, Way, choose_way
from s3unzip.platforms import bracket

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from s3unzip.forecast.census import Census
    from s3unzip.platforms import Platform
    from s3unzip.settings import Tuning

# A burst of archives takes so many times its bound: make bench-burst-simulated, docs/design.md.
OVER_BOUND = 1.12
READS = 2  # GETs for each archive when it is queued: its end, its report


class SampledArchive(ReadArchive, frozen=True):
    """The forecast of an archive whose directory was read."""

    way: Way
    dollars: Range
    seconds: Range
    busy: float  # seconds of functions


class QueueCapacity(NamedTuple):
    """What archives of a queue share."""

    workers: int  # of all runs of the state machine
    invocations: int  # of the plan function, by its queue
    max_cost: float | None = None  # dollars; archives above it are refused


class BacklogForecast(Struct, frozen=True):
    """The forecast of many archives together; bytes, seconds and dollars."""

    archives: int
    size: int  # of the archives
    members: int  # that will be extracted, about
    bytes_out: int  # that will be written, about
    ways: dict[str, int]  # archives by way: direct, inline, distributed
    duration: Range  # from the first message in the queue to the last report
    bound: str  # what limits it
    dollars: Range
    unavoidable: float  # dollars: one PUT a member, which any tool must pay
    above_limit: int  # archives that runs.max_cost will refuse
    sampled: int  # archives whose directories were read
    refused: int  # of them, that are refused
    assumptions: tuple[str, ...]


class _Class(NamedTuple):
    """The forecast of one archive of a class."""

    archives: int
    fixture: Fixture
    made: ForecastWay
    busy: float


def busy_seconds(made: ForecastWay, platform: Platform) -> float:
    """Return the seconds of functions of a run, all together."""
    if made.way is Way.DIRECT:
        return made.forecast.duration.expected - platform.event_seconds
    used = (one.quantity for one in made.forecast.cost.lines if one.item == "duration")
    return sum(used) / (platform.memory_gb or 1.0)


def forecast_backlog(
    census: Census,
    sample: Sequence[SampledArchive],
    refused: int,
    platform: Platform,
    tuning: Tuning,
    capacity: QueueCapacity,
) -> BacklogForecast:
    """Return the forecast of all archives of `census`.

    Args:
        census: all archives.
        sample: those whose directories were read.
        refused: those whose directories were read and are refused.
        platform: AWS, of the state machine's workers.
        tuning: of the environment.
        capacity: of the environment.
    """
    if sample and len(sample) + refused >= census.archives:
        return _sum_sample(census, sample, refused, platform, capacity)
    shape = Shape.of(census, sample)
    classes: dict[tuple[int, int], _Class] = {}
    for name, count, mean in census.classes():
        fixture = shape.make_fixture(mean)
        made = choose_way(make_fixture(fixture, tuning), platform, tuning)
        classes[name] = _Class(count, fixture, made, busy_seconds(made, platform))
    return _sum_classes(census, classes, sample, refused, platform, capacity)


class _Sums(NamedTuple):
    """The sums over all archives."""

    members: int
    bytes_out: int
    ways: dict[str, int]
    dollars: Range
    busy: dict[Way, float]
    longest: Range
    above_limit: int


def _sum_sample(
    census: Census,
    sample: Sequence[SampledArchive],
    refused: int,
    platform: Platform,
    capacity: QueueCapacity,
) -> BacklogForecast:
    """Return the forecast where all directories were read: nothing is estimated by ratio."""
    ways, busy = dict.fromkeys(map(str, Way), 0), dict.fromkeys(Way, 0.0)
    for one in sample:
        ways[one.way.value] += 1
        busy[one.way] += one.busy
    sums = _Sums(
        members=sum(one.members for one in sample),
        bytes_out=sum(one.bytes_out for one in sample),
        ways=ways,
        dollars=_add((one.dollars for one in sample), 1.0),
        busy=busy,
        longest=_longest([one.seconds for one in sample]),
        above_limit=sum(_is_above(one.dollars.expected, capacity) for one in sample),
    )
    return _finish(census, sums, (len(sample), refused), platform, capacity, ())


def _sum_classes(
    census: Census,
    classes: dict[tuple[int, int], _Class],
    sample: Sequence[SampledArchive],
    refused: int,
    platform: Platform,
    capacity: QueueCapacity,
) -> BacklogForecast:
    """Return the forecast of the classes, corrected by the sample."""
    dollars = seconds = 1.0
    if sample:
        # Large archives are drawn more often, so each counts by the inverse of its size.
        weighted = [(one, 1 / max(1, one.archive.size)) for one in sample]
        known = [(classes[class_of(one.archive)], one, weight) for one, weight in weighted]
        dollars = _ratio(
            sum(one.dollars.expected * weight for _, one, weight in known),
            sum(kind.made.forecast.cost.total * weight for kind, _, weight in known),
        )
        seconds = _ratio(
            sum(one.busy * weight for _, one, weight in known),
            sum(kind.busy * weight for kind, _, weight in known),
        )
    ways, busy = dict.fromkeys(map(str, Way), 0), dict.fromkeys(Way, 0.0)
    for kind in classes.values():
        ways[kind.made.way.value] += kind.archives
        busy[kind.made.way] += kind.archives * kind.busy * seconds
    longest = [kind.made.forecast.duration for kind in classes.values()]
    sums = _Sums(
        members=sum(kind.archives * kind.fixture.members for kind in classes.values()),
        bytes_out=sum(
            kind.archives * kind.fixture.members * kind.fixture.size for kind in classes.values()
        ),
        ways=ways,
        dollars=_add(
            (_times(kind.made.forecast.dollars, kind.archives) for kind in classes.values()),
            dollars,
        ),
        busy=busy,
        longest=_longest([*longest, *(one.seconds for one in sample)]),
        above_limit=sum(
            kind.archives
            for kind in classes.values()
            if _is_above(kind.made.forecast.cost.total * dollars, capacity)
        ),
    )
    words = _tell_assumptions(census, sample)
    return _finish(census, sums, (len(sample), refused), platform, capacity, words)


def _tell_assumptions(census: Census, sample: Sequence[SampledArchive]) -> tuple[str, ...]:
    read = f"the directories of {len(sample):,} of {census.archives:,} archives were read"
    words = [f"{read}; the others are estimated by their sizes and their numbers of members"]
    if not sample:
        words.append(f"members expand {USUAL_EXPANSION} times, because no directory was read")
    if census.unknown:
        words.append(
            f"of {census.unknown:,} archives the number of members is estimated, too: it is not in "
            "their last bytes"
        )
    words.append("all members of an archive are equally large")
    return tuple(words)


def _finish(
    census: Census,
    sums: _Sums,
    read: tuple[int, int],
    platform: Platform,
    capacity: QueueCapacity,
    assumptions: tuple[str, ...],
) -> BacklogForecast:
    good, bad = bracket(platform)
    expected, bound = _makespan(sums, sums.longest.expected, 1.0, platform, capacity)
    low = _makespan(sums, sums.longest.low, 1 / platform.uncertainty, good, capacity)[0]
    high = _makespan(sums, sums.longest.high, platform.uncertainty, bad, capacity)[0]
    looks = census.archives * READS * rates.PRICE_S3_READ
    each = rates.PRICES_S3_WRITE[platform.storage_class]
    dollars = sums.dollars
    return BacklogForecast(
        archives=census.archives,
        size=census.size,
        members=sums.members,
        bytes_out=sums.bytes_out,
        ways=sums.ways,
        duration=Range(low, expected, high),
        bound=bound,
        dollars=Range(dollars.low + looks, dollars.expected + looks, dollars.high + looks),
        unavoidable=sums.members * each,
        above_limit=sums.above_limit,
        sampled=read[0],
        refused=read[1],
        assumptions=assumptions,
    )


def _makespan(
    sums: _Sums, longest: float, factor: float, platform: Platform, capacity: QueueCapacity
) -> tuple[float, str]:
    """Return the seconds until the last archive is done, and what limits them."""
    direct = sums.busy[Way.DIRECT] * factor
    others = (sums.busy[Way.INLINE] + sums.busy[Way.DISTRIBUTED]) * factor
    bounds = {
        "the plan function's invocations": _queue_seconds(direct, capacity.invocations),
        "the workers": others / max(1, capacity.workers),
        "the write rate of S3": write_seconds(sums.members, platform),
    }
    name = max(bounds, key=lambda one: bounds[one])
    if bounds[name] * OVER_BOUND + platform.event_seconds <= longest:
        return longest, "the longest archive"
    return bounds[name] * OVER_BOUND + platform.event_seconds, name


def _queue_seconds(busy: float, invocations: int) -> float:
    """Return when `busy` seconds are worked off by invocations whose number grows."""
    first = min(rates.QUEUE_FIRST_INVOCATIONS, invocations)
    growth = rates.QUEUE_MORE_INVOCATIONS
    growing = (invocations - first) / growth
    during = growing * (first + invocations) / 2
    if busy <= during:  # first * t + growth * t^2 / 2 = busy
        return float((-first + (first**2 + 2 * growth * busy) ** 0.5) / growth)
    return growing + (busy - during) / invocations


def _is_above(dollars: float, capacity: QueueCapacity) -> bool:
    return capacity.max_cost is not None and dollars > capacity.max_cost


def _ratio(real: float, modelled: float) -> float:
    return real / modelled if real > 0 and modelled > 0 else 1.0


def _times(span: Range, factor: float) -> Range:
    return Range(span.low * factor, span.expected * factor, span.high * factor)


def _add(spans: Iterable[Range], factor: float) -> Range:
    low = expected = high = 0.0
    for span in spans:
        low, expected, high = low + span.low, expected + span.expected, high + span.high
    return _times(Range(low, expected, high), factor)


def _longest(spans: Sequence[Range]) -> Range:
    return Range(
        max((one.low for one in spans), default=0.0),
        max((one.expected for one in spans), default=0.0),
        max((one.high for one in spans), default=0.0),
    )
