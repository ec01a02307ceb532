"""Claims: who plans a run, and where the records of a direct run are.

``runs/-claims/<time, counted down>-<run>.zip`` is made by a PUT that fails
where the object exists, so of events that come at once one has the run. The
time is the archive's own, so that all events of one version ask for the same
name, and a listing has the latest archives first. What is written there at
first says who has the run; the run's records replace it. No run's id begins
with a dash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from s3unzip.aws.timeline import list_entries
from s3unzip.direct.bundle import MAX_CLAIM_BYTES, Bundle, Claim, unpack
from s3unzip.errors import ConflictError
from s3unzip.model import encode
from s3unzip.run_files import BUNDLE_SUFFIX, CLAIMS, entry_name
from s3unzip.runs.watch import RunEntry

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from s3unzip.model import Location
    from s3unzip.stores.s3.run_store import S3RunStore

RUNNING, ENDED = "RUNNING", "SUCCEEDED"  # as Step Functions calls them


class Hold(NamedTuple):
    """A claim that an invocation has."""

    name: str  # of the claim's object
    claim: Claim
    is_copy: bool  # its message is one, of which the queue may have two


class Taken(NamedTuple):
    """A run that somebody else has or had; `files` only where it ended."""

    claim: Claim
    files: Bundle


def claim_name(run: str, modified: float) -> str:
    """Return the name of a run's claim; `modified` is the archive's time, Unix seconds."""
    return entry_name(run, modified) + BUNDLE_SUFFIX


def take_claim(store: S3RunStore, name: str, claim: Claim) -> Taken | None:
    """Take the run for `claim`; return whose it is already, None if it is ours now.

    Raises:
        StorageError, ServiceFaultError: the claim can be neither written nor read.
    """
    try:
        store.create(name, encode(claim))
    except ConflictError:
        found = Taken(*unpack(store.read(name)))
        # An attempt whose answer was lost made it ours.
        return None if found.claim == claim else found
    return None


def list_direct_runs(client: S3Client, work: Location, limit: int) -> list[RunEntry]:
    """Return the latest direct runs, at most 1,000, by the time of their archives.

    Raises:
        AccessDeniedError: a right is missing.
    """
    return [
        RunEntry(
            entry.run,
            RUNNING if entry.size < MAX_CLAIM_BYTES else ENDED,
            entry.time,
        )
        for entry in list_entries(client, work, CLAIMS, limit)
    ]
