"""The ledger of shares: one object for each run that has workers, or waits for them.

Its name says all but the input of an execution that waits, so one LIST reads the ledger:
``runs/-shares/held/<order>~<since>~<workers>~<load>~<busy>~<share>~<tenant>~<run>``, and
``runs/-shares/waiting/...`` likewise. No run's id begins with a dash. Each object is written and
deleted by itself, without a lock: `s3unzip.runs.shares` says why that is enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from msgspec import Struct

from s3unzip.errors import NotFoundError
from s3unzip.model import decode, encode
from s3unzip.runs.shares import Bid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from s3unzip.stores.ports import RunStore

FOLDER = "-shares"
HELD, WAITING = "held/", "waiting/"
PARTS = 1_000  # loads and busy parts are written in thousandths


class Entry(NamedTuple):
    """One object of the ledger."""

    bid: Bid
    since: int  # Unix seconds: when the run was admitted, or began to wait
    share: int = 0  # workers; 0: it waits

    @property
    def name(self) -> str:
        """The object's name."""
        bid = self.bid
        numbers = (
            f"{round(bid.order):011d}",
            self.since,
            bid.workers,
            round(bid.load * PARTS),
            round(bid.busy * PARTS),
            self.share,
        )
        tenant = quote(bid.tenant, safe="").replace("~", "%7E")
        kind = HELD if self.share else WAITING
        return kind + "~".join([*(str(number) for number in numbers), tenant, bid.run])


class Ledger(Struct, frozen=True):
    """Who has workers and who waits, by run.

    A run that is admitted is for a moment in both. If the function that admits it is killed then,
    it stays among the `begun`.
    """

    held: dict[str, Entry] = {}
    waiting: dict[str, Entry] = {}
    begun: dict[str, Entry] = {}  # entries of `waiting` whose run is among the held

    @property
    def oldest(self) -> float | None:
        """When the run began to wait that waits longest, Unix seconds; None: none waits."""
        return min((entry.since for entry in self.waiting.values()), default=None)

    def held_bids(self) -> list[Bid]:
        """Return the bids of the admitted runs."""
        return [entry.bid for entry in self.held.values()]

    def waiting_bids(self) -> list[Bid]:
        """Return the bids of the runs that wait."""
        return [entry.bid for entry in self.waiting.values()]


def read_entry(name: str) -> Entry | None:
    """Return the entry of an object's name; None if it is no entry of this version."""
    kind, _, rest = name.partition("/")
    fields = rest.split("~", 7)
    if kind not in (HELD[:-1], WAITING[:-1]) or len(fields) < 8:
        return None
    try:
        order, since, workers, load, busy, share = (int(field) for field in fields[:6])
    except ValueError:
        return None
    bid = Bid(fields[7], unquote(fields[6]), workers, load / PARTS, busy / PARTS, order)
    return Entry(bid, since, share)


def read_ledger(store: RunStore) -> Ledger:
    """Return the ledger.

    Raises:
        StorageError, ServiceFaultError: it cannot be listed.
    """
    held: dict[str, Entry] = {}
    waiting: dict[str, Entry] = {}
    for name in store.names(""):
        entry = read_entry(name)
        if entry is not None:
            (held if entry.share else waiting)[entry.bid.run] = entry
    begun = {run: waiting.pop(run) for run in held if run in waiting}
    return Ledger(held, waiting, begun)


def write_entry(store: RunStore, entry: Entry, payload: Mapping[str, Any] | None = None) -> None:
    """Write an entry; `payload` is the input of an execution that waits."""
    store.write(entry.name, [encode(payload or {})])


def read_payload(store: RunStore, entry: Entry) -> dict[str, Any] | None:
    """Return the input of an execution that waits; None if another function started it."""
    try:
        return decode(store.read(entry.name), dict[str, Any])
    except NotFoundError:
        return None


def drop_run(store: RunStore, run: str, kinds: Iterable[str] = (HELD, WAITING)) -> bool:
    """Delete the entries of a run; return whether entries of other runs are left."""
    own, others = [], False
    for name in store.names(""):
        if name.endswith(f"~{run}"):
            own += [name] if name.startswith(tuple(kinds)) else []
        else:
            others = True
    store.delete(own)
    return others
