"""Convert options into the policy, the stores, and the action on the archive."""

import os
from collections.abc import Callable
from typing import Annotated, Any, SupportsFloat, SupportsIndex

import msgspec
from msgspec.structs import astuple, replace

from s3unzip.context import Context
from s3unzip.contradictions import check_access, check_after_success
from s3unzip.errors import UsageError
from s3unzip.model import AfterSuccess, Location, Options, SourceAction
from s3unzip.object_properties import check_tags
from s3unzip.settings import Tuning
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import Clock
from s3unzip.zip import Limits, Policy

LIMITS_VARIABLE = "S3UNZIP_LIMITS"


# The classes of the arguments of the public functions, and their descriptions in messages.
ARGUMENTS: dict[str, tuple[Any, str]] = {
    "options": (Options, "an s3unzip.Options(...)"),
    "limits": (Limits, "an s3unzip.Limits(...)"),
    "stores": (StoreConfig, "an s3unzip.StoreConfig(...)"),
    "tuning": (Tuning, "an s3unzip.Tuning(...)"),
    "password": ((str, bytes, bytearray, memoryview), "text or bytes"),
    "workers": (SupportsFloat, "a number"),
    "max_cost": (SupportsFloat, "a number"),
    "at_once": (SupportsIndex, "a whole number"),
    "delete_extra": (Callable, "a function"),
}


def check_arguments(**arguments: object) -> None:
    """Refuse arguments of a public function if their class is wrong; None is allowed."""
    for name, argument in arguments.items():
        if argument is not None and not isinstance(argument, ARGUMENTS[name][0]):
            raise UsageError(f"{name}: give {ARGUMENTS[name][1]}, not a {type(argument).__name__}")


def as_text(location: object) -> str:
    """Return a path or a URL as text; refuse an open file."""
    if not isinstance(location, (str, os.PathLike)):
        raise UsageError(
            "extract and verify take a path or a URL, not a "
            f"{type(location).__name__}: each worker opens the location itself"
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
    check_arguments(stores=stores, at_once=at_once)
    if at_once < 1:
        raise UsageError(f"at_once must be at least 1; it is {at_once}")
    config = stores or StoreConfig()
    try:
        config = msgspec.convert(
            # The conversion to builtins and back checks the types of all settings. The URL may be
            # an instance of a class from another library, such as pydantic. Bytes are not converted
            # to text, so they are refused.
            msgspec.to_builtins(
                replace(config, endpoint_url=endpoint_url or config.endpoint_url),
                builtin_types=(bytes, bytearray, memoryview),
                enc_hook=str,
            ),
            StoreConfig,
            strict=False,
        )
    except msgspec.ValidationError as error:
        raise UsageError(f"stores or endpoint_url: {error}") from None
    check_access(config)
    return replace(config, connections=max(config.connections, at_once))


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
    check_arguments(options=options, password=password, limits=limits)
    limits = limits or read_limits()
    if not all(isinstance(limit, SupportsFloat) for limit in astuple(limits)):
        raise UsageError(f"limits: all values must be numbers: {limits}")
    if destination is not None and destination.store.has_folders:
        limits = replace(limits, key_bytes=limits.key_bytes + len(os.fsencode(destination.key)))
    if isinstance(password, str):
        # Variables and arguments of a process may contain bytes that are not valid UTF-8.
        try:
            password = password.encode(errors="surrogateescape")
        except UnicodeEncodeError:
            raise UsageError("password: it contains a character that UTF-8 cannot encode") from None
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
        changes = msgspec.json.decode(text, type=dict[str, Annotated[int, msgspec.Meta(gt=0)]])
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
    """Return the action on an archive after a complete run, or None for no action.

    Args:
        text: ``delete`` or ``tag=NAME=VALUE``. None leaves the archive unchanged.
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
    action, _, tag = str(text).partition("=")  # a caller may pass another type
    name, equals, value = tag.partition("=")
    if action != "tag" or not (name and equals):
        raise UsageError(f"after success: {text!r} must be delete or tag=NAME=VALUE")
    if not source.store.tags_archives:
        raise UsageError(f"after success: {source} is a file, and files cannot be tagged")
    check_tags({name: value})
    return AfterSuccess(SourceAction.TAG, tags={name: value})
