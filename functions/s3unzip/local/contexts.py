"""The context of each process of a run on this machine: the program and its workers.

This is a separate module, so that a worker process imports little.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from s3unzip.context import Context, Progress
from s3unzip.local.logs import start_logging
from s3unzip.model import Connections, Location
from s3unzip.settings import Tuning
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.zip import Policy

# Values of --allow.
OTHER_HOSTS = "other-hosts"


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
    return Context(stores, clock, policy, tuning, progress, connections=record_of(config))


def worker_modules(*locations: Location) -> list[str]:
    """Return the modules that workers on `locations` need."""
    modules = ["s3unzip.local.contexts"]
    if any(location.scheme == "s3" for location in locations):
        modules.append("s3unzip.stores.s3.stores")
    return modules


def record_of(config: StoreConfig) -> Connections:
    """Return what is kept of `config`: no credentials, and no URL that has some."""
    return Connections(
        endpoint_url=_without_secret(config.endpoint_url),
        region=config.region,
        profile=config.profile,
        no_sign_request=config.unsigned,
        request_payer=config.request_payer,
        dest_endpoint_url=_without_secret(config.destination_endpoint_url),
        dest_region=config.destination_region,
        dest_profile=config.destination_profile,
        dest_owner=config.destination_owner,
        kms_key=config.destination_kms_key,
        allow=(OTHER_HOSTS,) if config.web.other_hosts else (),
    )


def _without_secret(url: str | None) -> str | None:
    """Return an endpoint, None where its URL has a user or a query."""
    if url is None:
        return None
    parts = urlsplit(url)
    return None if parts.query or "@" in parts.netloc else url
