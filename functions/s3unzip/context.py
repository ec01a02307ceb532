"""The resources of every step of the pipeline, in addition to its input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, field

from s3unzip.settings import Tuning
from s3unzip.stores.calls import Calls
from s3unzip.zipformat import Policy

if TYPE_CHECKING:
    from s3unzip.platforms import Platform
    from s3unzip.stores.ports import Clock, Progress, Stores


class Context(Struct, frozen=True):
    """Stores, rules and clock; each worker has one, created where the program starts."""

    stores: Stores
    clock: Clock
    policy: Policy = field(default_factory=Policy)
    tuning: Tuning = field(default_factory=Tuning)
    progress: Progress | None = None
    platform: Platform | None = None  # for forecasts and costs; None: neither is computed

    def calls(self) -> Calls:
        """Return the counted, retried calls of one step."""
        return Calls(self.clock, self.tuning.retry_seconds, self.tuning.puts_in_flight)
