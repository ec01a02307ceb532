"""What the records of a run on this machine keep of how its stores are reached."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from s3unzip.model import Connections

if TYPE_CHECKING:
    from s3unzip.stores.factory import StoreConfig

# Values of --allow.
OTHER_HOSTS, PRIVATE_ADDRESSES, DOWNLOAD = "other-hosts", "private-addresses", "download"


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
    )


def _without_secret(url: str | None) -> str | None:
    """Return an endpoint, None where its URL has a user or a query."""
    if url is None:
        return None
    parts = urlsplit(url)
    return None if parts.query or "@" in parts.netloc else url
