"""Whether AWS bills for requests to a location: those to S3 itself, not to a server like it."""

from s3unzip.errors import UsageError
from s3unzip.model import Location
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.s3.credentials import AwsSession, is_aws


def bills_for(location: Location, config: StoreConfig) -> bool:
    """Say whether AWS bills for requests to `location`.

    Args:
        location: the archive or the destination.
        config: how that location is reached.
    """
    if not location.store.is_billed:
        return False
    if config.endpoint_url is not None:
        return is_aws(config.endpoint_url)
    try:
        return AwsSession(config.profile, config.region).own_endpoint is None
    except UsageError:  # a profile that is not there: the first request to a store says so
        return True
