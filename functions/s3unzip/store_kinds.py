"""What the stores of each scheme can do. Only this module declares schemes.

Other modules ask `Location.store`. `stores.open` opens the adapter for a scheme.
"""

from msgspec import Struct

SCHEMES_TEXT = "s3://, http(s):// or a path"


class StoreKind(Struct, frozen=True):
    """What all stores of one scheme can do."""

    is_local: bool = False  # files on this machine; no request is sent
    shows_key: bool = False  # a location is displayed as its key alone
    is_url: bool = False  # the key is the path of a URL, with a query that might be secret
    has_folders: bool = False  # a key cannot be both a file and a folder
    has_prefixes: bool = False  # a key that ends in a slash is a prefix, not an object
    has_neighbours: bool = True  # the other parts of an archive may be stored next to it
    has_etags: bool = False  # a listing contains the ETags of objects
    keeps_properties: bool = True  # storage class, ACL, tags, metadata and headers of objects
    takes_members: bool = False  # a run can write members to it
    deletes_archives: bool = False
    tags_archives: bool = False
    is_billed: bool = False  # requests to AWS cost money
    takes_s3_options: bool = False  # endpoint, region, credentials, payer and KMS key apply


_WEB = StoreKind(is_url=True)
STORE_KINDS = {
    "s3": StoreKind(
        has_prefixes=True,
        has_etags=True,
        takes_members=True,
        deletes_archives=True,
        tags_archives=True,
        is_billed=True,
        takes_s3_options=True,
    ),
    "file": StoreKind(
        is_local=True,
        shows_key=True,
        has_folders=True,
        keeps_properties=False,
        takes_members=True,
        deletes_archives=True,
    ),
    "http": _WEB,
    "https": _WEB,
    "reader": StoreKind(has_neighbours=False),  # a file opened by the caller
    "nowhere": StoreKind(shows_key=True),  # discards all objects
}


def find_kind(scheme: str) -> StoreKind:
    """Return what the stores of `scheme` can do; an undeclared scheme has the defaults."""
    return STORE_KINDS.get(scheme, StoreKind())
