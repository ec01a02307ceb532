"""Turn options into the policy, the stores, and the rule for what to do with an archive."""

import os
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.contradictions import check_after_success
from s3unzip.errors import UsageError
from s3unzip.model import AfterSuccess, Location, Options, SourceAction
from s3unzip.object_properties import check_tags
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import Clock
from s3unzip.zip import Limits, Policy

LIMITS_VARIABLE = "S3UNZIP_LIMITS"


def check_type(name: str, argument: object, kind: type) -> None:
    """Refuse an argument that is not of class `kind`, such as a dict; None is allowed."""
    if argument is not None and not isinstance(argument, kind):
        raise UsageError(
            f"{name}: give an s3unzip.{kind.__name__}(...), not a {type(argument).__name__}"
        )


def as_text(location: object) -> str:
    """Return a path or a URL as text; refuse an open file."""
    if not isinstance(location, (str, os.PathLike)):
        raise UsageError(
            "extract and verify take a path or a URL, not a "
            f"{type(location).__name__}: workers cannot share it"
        )
    return os.fsdecode(location)


def at_endpoint(
    stores: StoreConfig | None, endpoint_url: str | None, at_once: int = 1
) -> StoreConfig:
    """Return `stores` with the URL of an S3 server, and with at least `at_once` connections.

    Args:
        stores: how to reach S3 and web servers. None means the defaults of boto3.
        endpoint_url: URL of the S3 server. None means the URL in `stores`.
    """
    check_type("stores", stores, StoreConfig)
    if at_once < 1:
        raise UsageError(f"at_once must be at least 1; it is {at_once}")
    config = stores or StoreConfig()
    return replace(
        config,
        endpoint_url=endpoint_url or config.endpoint_url,
        connections=max(config.connections, at_once),
    )


def make_policy(
    options: Options,
    password: bytes | str | None = None,
    destination: Location | None = None,
    limits: Limits | None = None,
) -> Policy:
    """Return the policy for reading an archive.

    `Limits.key_bytes` limits the part of a key below the destination. In a folder, keys begin with
    the folder's path, so its length is added to the limit.
    """
    check_type("options", options, Options)
    check_type("limits", limits, Limits)
    limits = limits or read_limits()
    if destination is not None and destination.store.has_folders:
        limits = replace(limits, key_bytes=limits.key_bytes + len(os.fsencode(destination.key)))
    if isinstance(password, str):
        password = password.encode()
    return Policy(
        lenient=options.lenient, encoding=options.encoding, password=password, limits=limits
    )


def open_context(
    options: Options,
    config: StoreConfig,
    password: bytes | str | None = None,
    destination: Location | None = None,
    *,
    limits: Limits | None = None,
    **more: Any,
) -> Context:
    """Return the context for reading an archive in this process; `more` sets its other fields."""
    return Context(
        OpenedStores(config), Clock(), make_policy(options, password, destination, limits), **more
    )


def read_limits() -> Limits:
    """Return the default limits, with changes from the environment variable `LIMITS_VARIABLE`."""
    text = os.environ.get(LIMITS_VARIABLE) or "{}"
    try:
        changes = msgspec.json.decode(text, type=dict[str, Annotated[int, Meta(gt=0)]])
    except ValueError as error:
        raise UsageError(
            f"{LIMITS_VARIABLE}={text}: not a JSON object of limits: {error}"
        ) from None
    names = Limits.__struct_fields__
    for name in changes:
        if name not in names:
            raise UsageError(f"limit {name!r} is unknown; known: {', '.join(names)}")
    return Limits(**changes)


def parse_after_success(
    text: str | None, source: Location, options: Options
) -> AfterSuccess | None:
    """Return what to do with an archive after a complete run; None: nothing.

    Args:
        text: ``delete`` or ``tag=NAME=VALUE``; None: the archive is left unchanged.
        source: the archive.
        options: the options of the run.

    Raises:
        UsageError: `text` is malformed, the store cannot delete or tag archives, or the archive
            would be deleted even though the options select only some of its members.
    """
    if text is None:
        return None
    if not source.store.deletes_archives:
        raise UsageError(
            f"after success: {source.public} cannot be deleted or tagged; only files and s3:// "
            "objects can"
        )
    if text == "delete":
        rule = AfterSuccess(SourceAction.DELETE)
        check_after_success(rule, options, "--after-success")
        return rule
    action, _, tag = text.partition("=")
    if action != "tag" or not tag:
        raise UsageError(f"after success: {text!r} must be delete or tag=NAME=VALUE")
    name, equals, value = tag.partition("=")
    if not (name and equals):
        raise UsageError(f"after success: a tag is NAME=VALUE, not {tag!r}")
    if not source.store.tags_archives:
        raise UsageError(f"after success: {source} is a file, and files have no tags")
    check_tags({name: value})
    return AfterSuccess(SourceAction.TAG, tags={name: value})
