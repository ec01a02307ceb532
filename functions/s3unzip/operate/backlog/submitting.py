"""Queue archives that are already there: look at all, forecast the whole, then queue them.

The archives are listed once, looked at, and kept in a temporary file, so memory does not grow with
their number. Nothing is queued before the forecast of the whole is within the budget. The lists of
the archives are in the work bucket before the first message is sent, so an interrupted submission
can be resumed. No archive is extracted twice, because a run is known by its id.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from s3unzip import rates, run_files
from s3unzip.aws.aws_faults import asking
from s3unzip.aws.environment import read_orders, read_scale, read_tenants
from s3unzip.errors import BudgetError, UsageError
from s3unzip.forecast.backlog import QueueCapacity, forecast_backlog
from s3unzip.forecast.census import Census
from s3unzip.model import Location, decode, encode
from s3unzip.money import show_dollars
from s3unzip.operate.backlog.listing import Listing
from s3unzip.operate.backlog.look import Looker
from s3unzip.operate.backlog.records import LIST_LENGTH, BacklogRecords, make_id
from s3unzip.operate.backlog.sampling import Sample, read_sample
from s3unzip.operate.backlog.scope import Scope, parse_words
from s3unzip.operate.backlog.values import Backlog, BacklogArchive, Queued, Submission
from s3unzip.operate.queue import MAX_BATCH, ArchiveEvent, send_events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from s3unzip.aws.environment import Capacity, RunDefaults
    from s3unzip.forecast.backlog import BacklogForecast
    from s3unzip.operate.backlog.look import LookedAt
    from s3unzip.operate.runs import DeployedRuns

THREADS = 32  # archives that are looked at concurrently
SENDERS = 8  # requests to the queue at once
SPOOL_BYTES = 8 * 1024**2  # of the list of archives in memory; a longer one is in a file


class Environment(NamedTuple):
    """What an environment says of its runs."""

    orders: RunDefaults
    scale: Capacity
    scope: Scope

    @classmethod
    def read(cls, runs: DeployedRuns) -> Environment:
        """Ask the plan function.

        Raises:
            UsageError: the stack is older than this command.
            AccessDeniedError: a right is missing.
        """
        variables = runs.planner_variables()
        orders = read_orders(variables)
        scope = Scope(runs.environment, orders.trigger, read_tenants(variables))
        return cls(orders, read_scale(variables), scope)


def open_records(runs: DeployedRuns) -> BacklogRecords:
    """Return the records of an environment's backlogs."""
    return BacklogRecords(runs.stores.run_store(run_files.BACKLOGS))


def open_spool() -> IO[bytes]:
    """Return a file for the archives to queue, a line each; its owner closes it."""
    return tempfile.SpooledTemporaryFile(SPOOL_BYTES)


def find_archives(
    words: Sequence[str],
    runs: DeployedRuns,
    spool: IO[bytes],
    *,
    sample: int,
    skip_outside: bool = False,
    told: Callable[[int], object] = lambda _: None,
) -> Submission:
    """Look at all archives that `words` name, and forecast their extraction; queue nothing.

    Archives whose runs have a report are left out.

    Args:
        words: archives, prefixes, globs, manifests of S3 Inventory.
        runs: of the environment.
        spool: takes the archives to extract.
        sample: how many directories to read for the forecast.
        skip_outside: leave out archives that the environment does not take.
        told: is given the number of archives that were looked at, from time to time.

    Raises:
        UsageError: words or archives are outside of what the environment takes.
        AccessDeniedError: a right is missing.
        StorageError, ServiceFaultError: something cannot be read.
    """
    environment = Environment.read(runs)
    parsed = parse_words(words, environment.scope)
    listing = Listing(runs.client("s3"), environment.scope)
    looker, tally = Looker(runs, environment.orders), Tally(spool, Sample(sample))
    for some in _look_at(listing.keys(parsed), looker):
        for one in some:
            tally.add(one)
        told(tally.looked)
    if listing.outside and not skip_outside:
        raise UsageError(_tell_outside(listing, environment.scope))
    spool.seek(0)
    census = tally.census
    return Submission(
        environment=runs.environment,
        backlog=None,
        archives=census.archives,
        size=census.size,
        queued=0,
        ended=dict(sorted(tally.ended.items())),
        gone=tally.gone,
        outside=listing.outside,
        forecast=_forecast(runs, environment, tally) if census.archives else None,
    )


class Tally:
    """Counts archives that were looked at, and keeps those to extract in a file."""

    def __init__(self, spool: IO[bytes], sample: Sample) -> None:
        self.census = Census()  # of those to extract
        self.sample = sample  # likewise
        self.ended: Counter[str] = Counter()
        self.gone = 0
        self.looked = 0
        self._spool = spool

    def add(self, archive: LookedAt | None) -> None:
        """Count an archive; None is one that is not there."""
        self.looked += 1
        if archive is None:
            self.gone += 1
        elif archive.report is not None:
            self.ended[archive.report.verdict.value] += 1
        else:
            self.census.add(archive.size)
            self.sample.offer(archive)
            self._spool.write(encode(archive.archive) + b"\n")


def _look_at(keys: Iterator[str], looker: Looker) -> Iterator[list[LookedAt | None]]:
    with ThreadPoolExecutor(THREADS, thread_name_prefix="submit") as pool:
        while some := list(islice(keys, LIST_LENGTH)):
            yield list(pool.map(looker.look, some))


def _tell_outside(listing: Listing, scope: Scope) -> str:
    noun = "archive is" if listing.outside == 1 else "archives are"
    return (
        f"{listing.outside:,} {noun} outside of what the environment {scope.environment} takes "
        f"({scope}), for example {listing.first_outside}: name fewer, or leave such archives out "
        "with --skip-outside"
    )


def _forecast(runs: DeployedRuns, environment: Environment, tally: Tally) -> BacklogForecast:
    orders, scale = environment.orders, environment.scale
    read = read_sample(tally.sample, runs.stores, orders, scale)
    capacity = QueueCapacity(scale.workers, read_invocations(runs), scale.max_cost)
    platform = scale.platform.storing(orders.options.objects)
    return forecast_backlog(
        tally.census, read.archives, read.refused, platform, scale.tuning, capacity
    )


def read_invocations(runs: DeployedRuns) -> int:
    """Return how many invocations of the plan function the queue allows at once.

    Raises:
        AccessDeniedError: lambda:ListEventSourceMappings is missing.
    """
    client = runs.client("lambda")
    function = runs.outputs["PlanFunction"]
    with asking("lambda:ListEventSourceMappings"):
        answer: Any = client.list_event_source_mappings(FunctionName=function)
    limits = (
        (one.get("ScalingConfig") or {}).get("MaximumConcurrency")
        for one in answer["EventSourceMappings"]
    )
    return min(filter(None, limits), default=rates.LAMBDA_CONCURRENCY)


def check_whole_budget(forecast: BacklogForecast, max_cost: float | None) -> None:
    """Refuse a backlog whose expected cost is above `max_cost` dollars; None: no limit.

    Raises:
        BudgetError: it is above the limit.
        UsageError: the limit is negative or not a number.
    """
    if max_cost is not None and not max_cost >= 0:
        raise UsageError(f"the cost limit must be 0 or more dollars, not {max_cost}")
    expected = forecast.dollars.expected
    if max_cost is None or expected <= max_cost:
        return
    raise BudgetError(
        f"the forecast is {show_dollars(expected, max_cost)} for {forecast.archives:,} archives, "
        f"above the limit of {show_dollars(max_cost, expected)}; "
        f"{show_dollars(forecast.unavoidable)} of it is one PUT a member. Nothing is "
        "queued: raise --max-cost, or name fewer archives"
    )


def write_backlog(
    submission: Submission,
    spool: IO[bytes],
    words: Sequence[str],
    runs: DeployedRuns,
    now: float,
    max_cost: float | None = None,
) -> Backlog:
    """Write the record of a backlog; nothing is queued yet.

    Args:
        submission: what `find_archives` found.
        spool: with the archives.
        words: that named them.
        runs: of the environment.
        now: Unix seconds.
        max_cost: dollars of all together.

    Raises:
        UsageError: no archive is left to extract.
        AccessDeniedError: s3:PutObject on the work bucket is missing.
        StorageError, ServiceFaultError: it cannot be written.
    """
    if submission.forecast is None:
        raise UsageError("a backlog needs at least one archive to extract")
    records, backlog = open_records(runs), make_id(now)
    lists = 0
    while lines := list(islice(spool, LIST_LENGTH)):
        records.write_list(backlog, lists, [decode(line, BacklogArchive) for line in lines])
        lists += 1
    made = Backlog(
        id=backlog,
        environment=runs.environment,
        sources=tuple(words),
        bucket=Environment.read(runs).scope.trigger.bucket,
        created=now,
        archives=submission.archives,
        size=submission.size,
        lists=lists,
        forecast=submission.forecast,
        max_cost=max_cost,
    )
    records.write_backlog(made)
    return made


def queue_backlog(
    backlog: Backlog, runs: DeployedRuns, told: Callable[[int], object] = lambda _: None
) -> int:
    """Queue what is not queued of a backlog; return how many archives are queued now.

    A list whose messages were sent in part is sent again: a message for a known run starts nothing.

    Raises:
        AccessDeniedError: sqs:SendMessage is missing.
        StorageError, ServiceFaultError: the queue or the records do not answer.
    """
    records = open_records(runs)
    scope = Environment.read(runs).scope
    queued = records.read_queued(backlog.id)
    client, url = runs.client("sqs"), runs.outputs["QueueUrl"]
    send = partial(send_events, client, url, sender="submit")
    with ThreadPoolExecutor(SENDERS, thread_name_prefix="submit") as pool:
        for number in range(queued.lists, backlog.lists):
            archives = records.read_list(backlog.id, number)
            events = [_event(one, backlog, scope) for one in archives]
            parts = [events[at : at + MAX_BATCH] for at in range(0, len(events), MAX_BATCH)]
            sent = sum(pool.map(send, parts))
            queued = Queued(number + 1, queued.archives + sent)
            records.write_queued(backlog.id, queued)
            told(queued.archives)
    return queued.archives


def _event(archive: BacklogArchive, backlog: Backlog, scope: Scope) -> ArchiveEvent:
    """Return the event of an archive.

    Its time is that of the submission: an archive that was put long ago must not be ahead of those
    that are put now. Its group is the tenant, or the backlog, so that SQS lets others overtake it.
    """
    source = Location("s3", backlog.bucket, archive.key)
    return ArchiveEvent(source, backlog.created, scope.tenant_of(archive.key) or backlog.id)
