"""The context of each process of a run on this machine: the program and its workers.

This is a separate module, so that a worker process imports little.
"""

from s3unzip.context import Context, Progress
from s3unzip.local.logs import start_logging
from s3unzip.settings import Tuning
from s3unzip.stores.calls import LocalClock
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.zip import Policy


def open_context(
    config: StoreConfig,
    policy: Policy,
    tuning: Tuning,
    clock: LocalClock,
    progress: Progress | None,
) -> Context:
    """Return the context of this process; its stores are opened when they are first asked for."""
    start_logging()
    stores = open_stores(config)
    return Context(stores, clock, policy, tuning, progress, reached=config)
