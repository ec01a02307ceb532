"""The resources of runs on this machine: worker processes, stores and locks."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Self

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.estimate import Platform, check_budget, estimate_run, local
from s3unzip.local.contexts import open_context, record_of, worker_modules
from s3unzip.local.leftovers import drop_leftovers
from s3unzip.local.locking import RunLocks
from s3unzip.local.pool import WorkerPool
from s3unzip.local.processes.forkserver import ForkServer
from s3unzip.runs.records import RunRecords
from s3unzip.stores.clock import LocalClock

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.context import Context, Progress
    from s3unzip.model import Connections, Location, PlanSummary, Run
    from s3unzip.settings import Tuning
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.zip import Policy


class Setup(Struct, frozen=True):
    """How this machine performs a run."""

    stores: StoreConfig
    policy: Policy
    tuning: Tuning
    processes: int  # workers


class Machine:
    """Worker processes and stores for the runs of one archive and of the archives inside it.

    Use it as a context manager. It starts the fork server at once, because a program with
    threads cannot be forked safely.

    Args:
        setup: how to perform the runs.
        source: the archive.
        destination: where its members go.
        progress: gets the counts that the workers send.
    """

    def __init__(
        self,
        setup: Setup,
        source: Location,
        destination: Location,
        progress: Progress | None = None,
    ) -> None:
        self._setup = setup
        self._source = source
        self._progress = progress
        self._held = ExitStack()
        self.locks = self._held.enter_context(RunLocks(setup.stores.work.key))
        modules = worker_modules(setup.stores.work, source, destination)
        self._server = self._held.enter_context(ForkServer(modules))
        self._platform = local_platform(setup.stores, destination, setup.processes)
        self.context = self._open_context(setup.stores)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def make_pool(self, run: Run) -> WorkerPool:
        """Return workers for one run."""
        return self._make_pool(run, self._setup.stores)

    def make_archive_pool(self, archives: int) -> WorkerPool:
        """Return workers that each do whole archives, for so many archives."""
        stores, policy = replace(self._setup.stores, check_reachable=False), self._setup.policy
        open_worker = partial(
            open_context, stores, policy, self._setup.tuning, platform=self._platform
        )
        processes = max(1, min(self._setup.processes, archives))
        return WorkerPool(None, processes, open_worker, self._progress, self._server)

    def open_nested(self) -> tuple[Context, Callable[[Run], WorkerPool]]:
        """Return the context and the workers of archives that are objects of the destination."""
        stores = self._setup.stores.at_destination()
        if stores == self._setup.stores:
            return self.context, self.make_pool
        return self._open_context(stores), partial(self._make_pool, stores=stores)

    def _open_context(self, stores: StoreConfig) -> Context:
        policy, tuning = self._setup.policy, self._setup.tuning
        clock, platform = LocalClock(), self._platform
        return open_context(stores, policy, tuning, clock, self._progress, platform)

    def _make_pool(self, run: Run, stores: StoreConfig) -> WorkerPool:
        patient = replace(stores, check_reachable=False)
        open_worker = partial(open_context, patient, self._setup.policy, self._setup.tuning)
        return WorkerPool(run, self._setup.processes, open_worker, self._progress, self._server)

    def go_on(self, run: str, connections: Connections) -> None:
        """Lock a run that began before against other processes until the machine is closed.

        Args:
            run: its id.
            connections: how its stores are reached, for whoever continues it.

        Raises:
            UsageError: another process works on the run.
        """
        self.locks.take(run)
        RunRecords.open(self.context.stores, run).write_connections(connections)

    def admit(self, summary: PlanSummary, max_cost: float | None) -> None:
        """Let a planned run begin: check its cost, abort the uploads of killed runs.

        Raises:
            BudgetError: its forecast cost is above `max_cost` dollars.
        """
        if max_cost is not None:
            check_cost(summary, max_cost, self.context)
        connections = record_of(self._setup.stores)
        if summary.run.source != self._source:  # an archive inside the archive
            connections = connections.at_destination()
        begin_run(self._setup.stores.work.key, summary, self.context, connections)


def check_cost(summary: PlanSummary, max_cost: float, context: Context) -> None:
    """Refuse a planned run whose forecast is above `max_cost` dollars.

    Raises:
        BudgetError: it is.
    """
    if context.platform is not None:
        tasks = list(RunRecords.open(context.stores, summary.run.id).tasks())
        check_budget(estimate_run(summary, tasks, context.platform, context.tuning), max_cost)


def begin_run(home: str, summary: PlanSummary, context: Context, connections: Connections) -> None:
    """Record how a planned run's stores are reached; abort the uploads of killed runs.

    Args:
        home: the folder of all runs.
        summary: of the plan.
        context: of this process.
        connections: how the run's stores are reached, for whoever continues it.
    """
    RunRecords.open(context.stores, summary.run.id).write_connections(connections)
    drop_leftovers(home, summary.run, context)


def local_platform(config: StoreConfig, destination: Location, processes: int) -> Platform:
    """Return this machine as estimates know it; requests to self-hosted stores cost nothing."""
    endpoint = config.at_destination().endpoint_url
    amazon = destination.scheme == "s3" and endpoint is None
    return local(workers=processes, priced_requests=amazon)
