"""Recheck: what is left to do after a run whose archive was replaced before the run had ended.

The newer archive has a run of its own, which may be over by then. So members that the older run
wrote late may lie in the place of newer ones. An older run that has ended writes nothing any more.
Then the newer archive's members are compared, and those that differ are written again, by a run
of their own. It waits for the end of the newer archive's first run, or both would write them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.aws.telemetry import logger
from s3unzip.errors import AccessDeniedError, NotFoundError
from s3unzip.model import OnConflict

if TYPE_CHECKING:
    from s3unzip.aws.environment import Trigger
    from s3unzip.context import Context
    from s3unzip.model import Request, Run
    from s3unzip.stores.calls import Calls


class Recheck(Struct, frozen=True):
    """A request to compare the members of the archive that lies under a key now."""

    key: str
    after: str  # the end of a run that asks for it; each end of a run asks for another recheck
    asked: float  # Unix seconds

    def request(self, own: Request) -> Request:
        """Return the request to compare; `own` is that of the archive's own run."""
        return replace(
            own,
            options=replace(own.options, on_conflict=OnConflict.SKIP_UNCHANGED),
            event_time=self.asked,
            recheck_after=self.after,
        )


class ArchiveLook:
    """Whether another archive lies under the key of a run, when it has written its last member."""

    def __init__(self, run: Run, trigger: Trigger, context: Context, calls: Calls) -> None:
        self._run = run
        self._trigger = trigger
        self._context = context
        self._calls = calls
        self.is_replaced = False

    def look(self) -> None:
        """Look, with one request.

        With ``never`` the first one that wrote a key keeps it. Nested archives are rechecked with
        the one that they are in.

        Raises:
            ServiceFaultError: the store does not answer; try again later.
        """
        run = self._run
        in_scope = self._trigger.covers(run.source.bucket, run.source.key)
        if not in_scope or run.options.on_conflict is OnConflict.NEVER:
            return
        source = self._context.stores.source(run.source)
        try:
            found = self._calls.run("head", lambda: source.head(run.source))
        except NotFoundError:
            return
        except AccessDeniedError as error:
            logger.warning("cannot tell whether the archive was replaced", error=str(error))
            return
        self.is_replaced = found.etag != run.pin.etag
