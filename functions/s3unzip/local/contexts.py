"""The context of each process of a run on this machine: the program and its workers.

This is a separate module, so that a worker process imports little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.context import Context
from s3unzip.local.logs import start_logging
from s3unzip.stores.factory import open_stores

if TYPE_CHECKING:
    from s3unzip.context import Progress
    from s3unzip.local.clock import LocalClock
    from s3unzip.model import Location
    from s3unzip.platforms import Platform
    from s3unzip.settings import Tuning
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.zipformat import Policy


def open_context(
    config: StoreConfig,
    policy: Policy,
    tuning: Tuning,
    clock: LocalClock,
    progress: Progress | None,
    platform: Platform | None = None,
) -> Context:
    """Return the context of this process; its stores are opened when they are first asked for."""
    start_logging()
    stores = open_stores(config)
    return Context(stores, clock, policy, tuning, progress, platform)


def worker_modules(*locations: Location) -> list[str]:
    """Return the modules that workers on `locations` need, the heaviest last."""
    modules = ["s3unzip.local.worker", "s3unzip.local.contexts"]
    if any(location.scheme == "s3" for location in locations):
        modules.append("s3unzip.stores.s3.stores")
    return modules
