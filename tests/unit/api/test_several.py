"""Which archives a prefix and a glob of a bucket name."""

import pytest

from s3unzip.api.extraction import find_archives
from s3unzip.errors import NotFoundError
from s3unzip.model import Location
from s3unzip.stores.config import StoreConfig
from tests.support.account import Account


def _names(found: list[Location]) -> list[str]:
    return [one.key.rsplit("/", 1)[-1] for one in found]


def test_prefixes_and_globs_of_a_bucket(account: Account) -> None:
    """Keys are listed with their sizes; other objects are left out."""
    account.client("s3").create_bucket(Bucket="arrivals")
    for key in ("in/a.zip", "in/sub/B.ZIP", "in/c.txt", "other.zip"):
        account.put(key, b"12345")
    config = StoreConfig(endpoint_url=account.url)
    assert _names(find_archives(["s3://arrivals/in/"], config)) == ["a.zip", "B.ZIP"]
    assert _names(find_archives(["s3://arrivals"], config)) == ["a.zip", "B.ZIP", "other.zip"]
    assert _names(find_archives(["s3://arrivals/in/*.zip"], config)) == ["a.zip"]
    assert _names(find_archives(["s3://arrivals/*/**.ZIP"], config)) == ["B.ZIP"]
    with pytest.raises(NotFoundError, match="s3://arrivals/none/: no archive is there"):
        find_archives(["s3://arrivals/none/"], config)
