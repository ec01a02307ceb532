"""Checks of S3 before a run begins: the names, the keys of a person and the buckets."""

from __future__ import annotations

import re

from s3unzip.errors import UsageError
from s3unzip.model import Location
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores

_AWS_NAME = re.compile(r"arn:|[a-z0-9.-]+\Z")
_KMS_KEY = re.compile(
    r"(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/)?(mrk-)?[0-9a-f-]{32,36}"
    r"|(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:)?alias/[\w/-]+"
)


def check_buckets(config: StoreConfig, source: Location, destination: Location) -> None:
    """Ask for the buckets of two locations, before workers try them again and again."""
    stores = OpenedStores(config)
    for location, access in ((source, config), (destination, config.at_destination())):
        if location.store.takes_s3_options:
            stores.session(access).check_bucket(location.bucket)


def check_names(config: StoreConfig, source: Location, destination: Location | None) -> None:
    """Refuse names that AWS does not have, before anybody is asked for keys."""
    writing = config.at_destination()
    for location, access in ((source, config), (destination, writing)):
        if location is None or not (location.bucket and location.store.takes_s3_options):
            continue
        if not _AWS_NAME.match(location.bucket) and _reaches_aws(access):
            raise UsageError(
                f"{location}: AWS has no bucket of this name: lower-case letters, digits, dots and "
                "hyphens; --endpoint-url names another server"
            )
    key = config.destination_kms_key
    if key is not None and not _KMS_KEY.fullmatch(key) and _reaches_aws(writing):
        raise UsageError(f"--kms-key {key}: no ARN, no id and no alias (alias/NAME) of a KMS key")


def _reaches_aws(access: StoreConfig) -> bool:
    from s3unzip.stores.s3.credentials import AwsSession, is_aws

    url = access.endpoint_url or AwsSession(access.profile, access.region).own_endpoint
    return url is None or is_aws(url)


def sign_in(config: StoreConfig, destination: Location) -> None:
    """Look for the keys of the destination's own profile; a person may have to type a code."""
    profile = config.destination_profile
    if profile is None or config.destination_unsigned or not destination.store.takes_s3_options:
        return
    from s3unzip.stores.s3.credentials import shared_keys

    shared_keys(profile).current()
