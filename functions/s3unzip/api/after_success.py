"""After success, as people write it: ``delete``, ``move=LOCATION`` or ``tag=NAME=VALUE``."""

from __future__ import annotations

from pathlib import PurePosixPath

from s3unzip.errors import UsageError
from s3unzip.model import AfterSuccess, Location, SourceAction
from s3unzip.stores.locations import parse_destination

FORMS = "delete, move=LOCATION or tag=NAME=VALUE"


def parse_after_success(text: str, source: Location) -> AfterSuccess:
    """Return the rule that `text` says for the archive `source`.

    A move puts the archive below LOCATION, under its own name.

    Raises:
        UsageError: it says none, or one that the archive's store cannot do.
    """
    action, _, rest = text.partition("=")
    if source.scheme not in {"s3", "file"}:
        raise UsageError(
            f"after success: {source.public} is only read; only s3:// archives and files can be "
            "deleted, moved or tagged"
        )
    match action:
        case "delete" if not rest:
            return AfterSuccess(SourceAction.DELETE)
        case "move" if rest:
            return AfterSuccess(SourceAction.MOVE, target=_target(rest, source))
        case "tag" if rest:
            return AfterSuccess(SourceAction.TAG, tags=_tags(rest, source))
        case _:
            raise UsageError(f"after success: {text!r} is none of {FORMS}")


def _target(text: str, source: Location) -> Location:
    """Return where the archive is moved to."""
    where = parse_destination(text)
    if where.scheme != source.scheme:
        store = "S3" if source.scheme == "s3" else "the file system"
        raise UsageError(
            f"after success: {source} can be moved within {store} only, not to {where}"
        )
    target = Location(where.scheme, where.bucket, where.key + PurePosixPath(source.key).name)
    if target == source:
        raise UsageError(f"after success: {source} is in {where} already")
    return target


def _tags(text: str, source: Location) -> dict[str, str]:
    """Return the one tag of an object."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"after success: a tag is NAME=VALUE, not {text!r}")
    if source.scheme == "file":
        raise UsageError(f"after success: {source} is a file, which has no tags: delete or move it")
    return {name: value}
