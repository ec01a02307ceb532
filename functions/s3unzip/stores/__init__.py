"""The stores: sources of archives, destinations of members, and run stores.

`ports` defines the interfaces. `calls` retries and counts each request. The adapters are `s3`,
`folder`, `files` and `web`; `open` opens the adapter for a location. Only `aws`, `local`, `api`,
`operate` and `cli` use the adapters; the other packages import only the interfaces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # importing this package must not load its modules
    from s3unzip.model import Location
    from s3unzip.stores.archives import Source
    from s3unzip.stores.calls import Calls
    from s3unzip.stores.ports import Destination
    from s3unzip.stores.run_store import RunStore


class Stores(Protocol):
    """Opens the right adapter for a location."""

    def end_startup(self) -> None:
        """Note that each server has responded, so that later faults of a server are retried."""

    def source(self, location: Location) -> Source:
        """Return the adapter that reads `location`."""

    def destination(self, location: Location) -> Destination:
        """Return the adapter that writes below `location`."""

    def run_store(self, run: str, calls: Calls | None = None) -> RunStore:
        """Return the run store of one run; `calls` retries and counts each request."""
