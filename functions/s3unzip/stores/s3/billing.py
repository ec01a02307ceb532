"""Whether AWS bills for requests to a location: those to S3 itself, not to a server like it."""

from urllib.parse import urlsplit

from botocore.configprovider import ConfiguredEndpointProvider
from botocore.exceptions import ProfileNotFound
from botocore.session import Session

from s3unzip.model import Location
from s3unzip.stores.config import StoreConfig

AWS_DOMAINS = (".amazonaws.com", ".amazonaws.com.cn", ".api.aws")


def bills_for(location: Location, config: StoreConfig) -> bool:
    """Say whether AWS bills for requests to `location`.

    Args:
        location: the archive or the destination.
        config: how that location is reached.
    """
    if not location.store.is_billed:
        return False
    endpoint = config.endpoint_url or _configured_endpoint(config.profile)
    return endpoint is None or (urlsplit(endpoint).hostname or "").endswith(AWS_DOMAINS)


def _configured_endpoint(profile: str | None) -> str | None:
    """Return the endpoint of S3 from the environment's variables or the AWS configuration."""
    session = Session(profile=profile)
    try:
        profile_settings = session.get_scoped_config()
    except ProfileNotFound:  # the first request to a store says so
        profile_settings = {}
    provider = ConfiguredEndpointProvider(
        full_config=session.full_config, scoped_config=profile_settings, client_name="s3"
    )
    endpoint: str | None = provider.provide()
    return endpoint
