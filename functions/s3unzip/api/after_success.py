"""After success, as people write it: ``delete`` or ``tag=NAME=VALUE``."""

from __future__ import annotations

from s3unzip.errors import UsageError
from s3unzip.model import AfterSuccess, Location, SourceAction

FORMS = "delete or tag=NAME=VALUE"


def parse_after_success(text: str, source: Location) -> AfterSuccess:
    """Return the rule that `text` says for the archive `source`.

    Raises:
        UsageError: it says none, or one that the archive's store cannot do.
    """
    action, _, rest = text.partition("=")
    if source.scheme not in {"s3", "file"}:
        raise UsageError(
            f"after success: {source.public} is only read; only s3:// archives and files can be "
            "deleted or tagged"
        )
    match action:
        case "delete" if not rest:
            return AfterSuccess(SourceAction.DELETE)
        case "tag" if rest:
            return AfterSuccess(SourceAction.TAG, tags=_tags(rest, source))
        case _:
            raise UsageError(f"after success: {text!r} is none of {FORMS}")


def _tags(text: str, source: Location) -> dict[str, str]:
    """Return the one tag of an object."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise UsageError(f"after success: a tag is NAME=VALUE, not {text!r}")
    if source.scheme == "file":
        raise UsageError(f"after success: {source} is a file, which has no tags: delete it")
    return {name: value}
