"""The places that the contract suite runs over: what a port's implementations have in common."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from s3unzip.model import Location
from s3unzip.stores import Stores, archives, config, listing, run_store
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import Buffer, Destination, ObjectFacts, StoredObject
from s3unzip.stores.s3.session import Session
from tests.support import servers

FACTS = ObjectFacts("application/json", {"zip-crc32": "0000000a", "mtime": "1700000000"})


@dataclass(frozen=True, slots=True)
class Place:
    """One store under test, empty; `prefix` begins every key in it."""

    name: str
    stores: Stores
    root: Location
    keeps_metadata: bool = True  # a folder computes the CRC instead
    session: Session | None = None  # of S3

    @property
    def destination(self) -> Destination:
        return self.stores.destination(self.root)

    @property
    def source(self) -> archives.Source:
        return self.stores.source(self.root)

    @property
    def work(self) -> run_store.RunStore:
        return self.stores.run_store("run-1")

    def at(self, key: str) -> Location:
        return Location(self.root.scheme, self.root.bucket, self.key(key))

    def key(self, key: str) -> str:
        return self.root.key + key

    def fill(self, key: str, data: Buffer, facts: ObjectFacts = FACTS) -> Location:
        self.destination.put(self.key(key), data, facts, if_absent=False)
        return self.at(key)


def stores_at(url: str, **settings: Any) -> Stores:
    """Return stores on a scripted S3; they wait for a server on a busy machine."""
    patience = dict.fromkeys(("stall_seconds", "put_seconds", "slow_seconds"), servers.HANG_SECONDS)
    given = {"endpoint_url": url, "connect_seconds": 5.0, **patience, **settings}
    return OpenedStores(config.StoreConfig(Location("s3", "work", ""), **given))


@contextmanager
def scripted(
    answer: Callable[[servers.Asked], servers.Reply], **settings: Any
) -> Iterator[tuple[Stores, list[servers.Asked]]]:
    """Run a scripted S3; yield stores on it, and the requests that it gets."""
    with servers.HttpServer(answer) as server:
        yield stores_at(server.url, **settings), server.asked


def list_all(
    destination: Destination, prefix: str, first: str = "", last: str = listing.BEYOND
) -> list[StoredObject]:
    """Return what a destination lists, in the order of its pages."""
    pages = listing.list_pages(destination, prefix, lambda call: call(), first, last)
    return [listed for page in pages for listed in page.objects]


_numbers = itertools.count(1)


def s3_place(name: str, session: Session) -> Place:
    """Return an empty bucket of a running server."""
    bucket = f"bucket-{next(_numbers)}"
    stores = OpenedStores(config.StoreConfig(Location("s3", bucket, "work/")), session)
    session.client("control").create_bucket(Bucket=bucket)
    return Place(name, stores, Location("s3", bucket, "out/"), session=session)
