"""The request of a run: an archive, a destination and options."""

from __future__ import annotations

import hashlib
import re
from enum import StrEnum

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from s3unzip.model.values import encode
from s3unzip.object_properties import ObjectProperties


class Location(Struct, frozen=True):
    """One object, or a prefix of them: ``s3://bucket/key``, a path, ``https://host/path``."""

    # s3, file, http or https; stdin: an archive from a pipe; nowhere: a destination without objects
    scheme: str
    bucket: str  # bucket, or host with port; empty for a file
    key: str  # key, absolute path, or path with query

    def __str__(self) -> str:
        if self.scheme in {"file", "nowhere"}:
            return self.key or self.scheme
        if self.scheme == "stdin":
            return "standard input"
        shown = self.public
        return f"{shown.scheme}://{shown.bucket}/{shown.key}"

    @property
    def public(self) -> Location:
        """The location for display, without secrets: a user, the query of a presigned URL."""
        if self.scheme not in {"http", "https"}:
            return self
        path, mark, _ = self.key.partition("?")
        host = self.bucket.rpartition("@")[2]
        return Location(self.scheme, host, path + ("?..." if mark else ""))


class Pin(Struct, frozen=True):
    """The version of the archive that a run reads; every range request carries it.

    The pin of an archive of several parts has their sizes added up, and ETag and version of the
    part that the location names.
    """

    size: int
    etag: str | None = None  # as the store returned it, with quotes
    version_id: str | None = None
    parts: tuple[Pin, ...] | UnsetType = UNSET  # of an archive of several parts, in their order


class OnConflict(StrEnum):
    """What to do where the destination already has the key."""

    OVERWRITE = "overwrite"
    SKIP_UNCHANGED = "skip-unchanged"  # size and zip-crc32 equal
    NEVER = "never"  # If-None-Match


class GzipForm(StrEnum):
    """How a member that stays compressed is marked as gzip."""

    SUFFIX = "suffix"  # the key ends in .gz
    ENCODING = "encoding"  # Content-Encoding: gzip


class Budget(Struct, frozen=True, array_like=True):
    """The limits of all nested archives together."""

    archives: int
    members: int
    size: int  # bytes of their members


class Options(Struct, frozen=True, omit_defaults=True):
    """The caller's choices; part of the run's identity."""

    key_template: str = "{archive_stem}/{member}"
    on_conflict: OnConflict = OnConflict.OVERWRITE
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    strip_components: int = 0  # leading folders of a member's path that its key leaves out
    names: tuple[str, ...] = ()  # exact member names; none: all
    limit: int | None = None  # extract only this many of the selected members
    lenient: bool = False
    encoding: str | None = None
    as_gzip: GzipForm | None = None  # the raw deflate stream re-wrapped, not inflated
    trust_crc: bool = False  # with as_gzip: do not inflate to check
    password_ref: str | None = None  # where the password is, never the password
    nested_depth: int = 0  # how many levels of archives inside archives are also extracted
    nested_budget: Budget | None = None  # of a nested run: limits of it and the runs below
    marker: bool = False  # write _SUCCESS last
    objects: ObjectProperties | None = None  # what is set on the objects besides their content


class SourceAction(StrEnum):
    """What is done to the archive."""

    DELETE = "delete"
    MOVE = "move"
    TAG = "tag"


class AfterSuccess(Struct, frozen=True, omit_defaults=True):
    """What is done to the archive when its run is COMPLETED and the report is written.

    The rule is no part of a run's identity, because it changes nothing that the run writes.
    """

    action: SourceAction
    target: Location | None = None  # of a move: where the archive goes; in settings: a prefix
    tags: dict[str, str] = {}  # of a tag: they are added to the archive's tags

    def __post_init__(self) -> None:
        """Refuse a rule that says too little or too much.

        Raises:
            ValueError: it has no target or tags where its action needs them, or has others.
        """
        if (self.action is SourceAction.MOVE) != (self.target is not None):
            raise ValueError("a target goes with the action move, and with no other")
        if (self.action is SourceAction.TAG) != bool(self.tags):
            raise ValueError("tags go with the action tag, and with no other")

    def below(self, path: str) -> AfterSuccess:
        """Return the rule of one archive, which a move puts at `path` below the target."""
        if self.target is None:
            return self
        target = self.target
        return replace(self, target=Location(target.scheme, target.bucket, target.key + path))


class SourceState(StrEnum):
    """How far the action came."""

    PENDING = "pending"  # the report is written, the action is next
    DONE = "done"
    KEPT = "kept"  # the archive is another one now, or nothing was extracted: it is left alone
    FAILED = "failed"  # a redrive, a retry or a repeated event does it again


class SourceResult(Struct, frozen=True, omit_defaults=True):
    """What became of the archive after its run, as the report says it."""

    action: SourceAction
    state: SourceState
    target: Location | None = None  # of a move
    message: str | None = None

    def __str__(self) -> str:
        did = {SourceAction.DELETE: "deleted", SourceAction.TAG: "tagged"}
        done = did.get(self.action) or f"moved to {self.target}"
        if self.state is SourceState.DONE:
            return f"the archive is {done}"
        why = f": {self.message}" if self.message else ""
        return f"the archive is not {done}{why}"


class Request(Struct, frozen=True):
    """The input of a run, from an event or a command line."""

    source: Location
    destination: Location  # a prefix, its key empty or ending in "/"
    options: Options = Options()
    event_time: float | None = None  # Unix seconds: when the archive was put
    received_time: float | None = None  # Unix seconds: when the planner saw the event
    after_success: AfterSuccess | None = None  # no part of the run's identity
    # Which end of a run of an older version asks for this one, so that it is a run of its own.
    recheck_after: str | None = None


class Run(Struct, frozen=True):
    """One extraction of one archive version to one destination with one set of options."""

    id: str
    source: Location
    pin: Pin
    destination: Location
    options: Options
    key_prefix: str  # every key of the run begins with it; the member's path follows
    created: float  # Unix seconds
    event_time: float | None = None
    after_success: AfterSuccess | None = None


def run_id(request: Request, pin: Pin) -> str:
    """Return the run's id: a readable stem and a hash, valid as an execution's name.

    A name of Step Functions has 1-80 characters of [A-Za-z0-9_-].
    """
    identity = encode((request.source, pin, request.destination, request.options))
    identity += (request.recheck_after or "").encode()
    return f"{run_stem(request.source)}-{hashlib.sha256(identity).hexdigest()[:20]}"


def run_stem(source: Location) -> str:
    """Return the stem of the ids of all runs of an archive with this name; a hyphen follows it."""
    return re.sub(r"[^A-Za-z0-9]+", "-", archive_stem(source)).strip("-")[:40] or "archive"


def archive_stem(source: Location) -> str:
    """Return the archive's last path part without its suffix, ``.zip`` or another one."""
    name = source.key.split("?", 1)[0].rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"(\.zip(\.0{2,}1)?|(?<=.)\.[a-z][a-z0-9]{0,9})$", "", name, flags=re.IGNORECASE)
