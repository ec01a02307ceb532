"""The context of each process of a run on this machine: the program and its workers.

This is a separate module, so that a worker process imports little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from s3unzip.context import Context
from s3unzip.local.logs import start_logging
from s3unzip.model import Connections
from s3unzip.stores.factory import open_stores
from s3unzip.stores.spool.spooled_archive import DEFAULT_BYTES

if TYPE_CHECKING:
    from s3unzip.context import Progress
    from s3unzip.estimate import Platform
    from s3unzip.model import Location
    from s3unzip.settings import Tuning
    from s3unzip.stores.clock import LocalClock
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.stores.spool.spooled_archive import SpooledArchive
    from s3unzip.zip import Policy


# Values of --allow.
OTHER_HOSTS, PRIVATE_ADDRESSES, DOWNLOAD = "other-hosts", "private-addresses", "download"


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
    return Context(stores, clock, policy, tuning, progress, platform, connections=record_of(config))


def worker_modules(*locations: Location) -> list[str]:
    """Return the modules that workers on `locations` need, the heaviest last."""
    modules = ["s3unzip.local.worker", "s3unzip.local.contexts"]
    if any(location.scheme == "s3" for location in locations):
        modules.append("s3unzip.stores.s3.stores")
    return modules


def record_of(config: StoreConfig) -> Connections:
    """Return what is kept of `config`: no credentials, and no URL that has some."""
    spooled = config.spooled
    allowed = {
        OTHER_HOSTS: config.web.other_hosts,
        PRIVATE_ADDRESSES: config.web.private_addresses,
        DOWNLOAD: spooled is not None and spooled.location.scheme in {"http", "https"},
    }
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
        allow=tuple(name for name, is_allowed in allowed.items() if is_allowed),
        max_spool=_unusual_limit(spooled),
    )


def _unusual_limit(spooled: SpooledArchive | None) -> str | None:
    if spooled is None or spooled.max_bytes == DEFAULT_BYTES:
        return None
    return str(spooled.max_bytes)


def _without_secret(url: str | None) -> str | None:
    """Return an endpoint, None where its URL has a user or a query."""
    if url is None:
        return None
    parts = urlsplit(url)
    return None if parts.query or "@" in parts.netloc else url
