"""Options that several commands share, and what becomes of them."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from s3unzip.cli.home import runs_home
from s3unzip.errors import UsageError
from s3unzip.model import GzipForm, OnConflict, Options
from s3unzip.settings import Tuning, make_tuning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.model import Location
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.zipformat import Policy

ACCOUNT_DIGITS = 12


class AllowedWeb(StrEnum):
    """What an HTTP source may only do if it is asked for."""

    OTHER_HOSTS = "other-hosts"
    PRIVATE_ADDRESSES = "private-addresses"


Source = Annotated[
    str, typer.Argument(metavar="SRC", help="The archive: s3://bucket/key, a path, http(s)://...")
]
Dest = Annotated[
    str, typer.Argument(metavar="DEST", help="Where members go: s3://bucket/prefix or a folder.")
]
Include = Annotated[
    list[str] | None,
    typer.Option("--include", "-i", metavar="GLOB", help="Only members that match; repeatable."),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option("--exclude", "-x", metavar="GLOB", help="No members that match; repeatable."),
]
Member = Annotated[
    list[str] | None,
    typer.Option("--member", "-m", metavar="NAME", help="Only this member; repeatable."),
]
Limit = Annotated[
    int | None, typer.Option("--limit", min=1, help="Only the first so many selected members.")
]
Lenient = Annotated[
    bool, typer.Option("--lenient", help="Turn the checks that are policy into warnings.")
]
Encoding = Annotated[
    str | None,
    typer.Option("--encoding", help="Of names that are neither ASCII nor marked as UTF-8."),
]
DestOwner = Annotated[
    str | None,
    typer.Option(
        "--dest-owner", metavar="ACCOUNT", help="Refuse DEST's bucket if another account owns it."
    ),
]
KmsKey = Annotated[
    str | None,
    typer.Option("--kms-key", metavar="ARN", help="Encrypt what is written to S3 with this key."),
]
EndpointUrl = Annotated[
    str | None,
    typer.Option("--endpoint-url", envvar="AWS_ENDPOINT_URL", help="An S3-compatible server."),
]
Region = Annotated[str | None, typer.Option("--region", help="The buckets' region.")]
Profile = Annotated[str | None, typer.Option("--profile", help="Profile of ~/.aws/config.")]
Allow = Annotated[
    list[AllowedWeb] | None,
    typer.Option(
        "--allow",
        help="What an HTTP source may do besides: follow redirects to other hosts, connect to a "
        "private address that its name leads to; repeatable.",
    ),
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or latest.")
]
Env = Annotated[
    str | None,
    typer.Option("--env", metavar="NAME", help="The environment: its stack is s3unzip-NAME."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
PasswordFile = Annotated[
    Path | None,
    typer.Option("--password-file", help="File with the password of encrypted members."),
]
AsGzip = Annotated[
    GzipForm | None,
    typer.Option("--as-gzip", help="Keep deflated members compressed, re-wrapped as gzip."),
]
Nested = Annotated[
    int,
    typer.Option(
        "--nested", metavar="DEPTH", min=0, help="Extract archives inside it, so many levels deep."
    ),
]
Tune = Annotated[
    list[str] | None,
    typer.Option(
        "--tune", metavar="NAME=VALUE", help="Set one of the tuning settings; repeatable."
    ),
]


def store_config(
    endpoint_url: str | None,
    region: str | None,
    profile: str | None,
    *,
    owner: str | None = None,
    kms_key: str | None = None,
    connections: int = 64,
    allow: Sequence[AllowedWeb] | None = None,
) -> StoreConfig:
    """Return how stores are opened.

    Raises:
        UsageError: `owner` is not an account's id, or `endpoint_url` not a URL of HTTP.
    """
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.stores.web.access import WebAccess

    if endpoint_url is not None:
        check_endpoint(endpoint_url)
    allowed = frozenset(allow or ())
    if owner is not None and not (len(owner) == ACCOUNT_DIGITS and owner.isdecimal()):
        raise UsageError(f"--dest-owner {owner}: an account's id has 12 digits")
    return StoreConfig(
        runs_home(),
        endpoint_url,
        region,
        profile,
        destination_owner=owner,
        destination_kms_key=kms_key,
        connections=max(64, connections),
        check_reachable=True,
        web=WebAccess(
            other_hosts=AllowedWeb.OTHER_HOSTS in allowed,
            private_addresses=AllowedWeb.PRIVATE_ADDRESSES in allowed,
        ),
    )


def check_endpoint(url: str) -> None:
    """Check that `url` is one of an S3-compatible server.

    Raises:
        UsageError: it is not.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is not a number, or a broken IPv6 address
        fits = False
    if fits and not re.search(r"[\s\x00-\x1f\x7f]", url):
        return
    like = "" if "/" in url else f", like http://{url}"
    raise UsageError(f"--endpoint-url {url}: not a URL that begins with http:// or https://{like}")


def policy_of(
    options: Options, password: bytes | None = None, destination: Location | None = None
) -> Policy:
    """Return the policy that a run's options ask for.

    Where `destination` is a folder, its own path does not count in the limit of keys.

    Raises:
        UsageError: an encoding that Python does not know.
    """
    from s3unzip.zipformat import Limits, Policy

    if options.encoding is not None:
        try:
            "".encode(options.encoding)
        except LookupError as error:
            raise UsageError(f"--encoding {options.encoding}: Python knows no such one") from error
    limits = Limits()
    if destination is not None and destination.scheme == "file":
        way = len(os.fsencode(destination.key))
        limits = replace(limits, key_bytes=limits.key_bytes + way)
    return Policy(
        lenient=options.lenient, encoding=options.encoding, password=password, limits=limits
    )


def tuning_of(changes: list[str] | None, base: Tuning | None = None, **more: int) -> Tuning:
    """Return the tuning that ``--tune`` and other options ask for.

    Raises:
        UsageError: an unknown name or a bad number.
    """
    values: dict[str, object] = dict(more)
    for change in changes or ():
        name, separator, text = change.partition("=")
        try:
            values[name.strip().replace("-", "_")] = _number(text)
        except ValueError as error:
            shown = f"{text!r}" if separator else "nothing"
            raise UsageError(f"--tune {name}: {shown} is no number") from error
    return make_tuning(values, base)


def _number(text: str) -> int | float:
    units = {"k": 1024, "m": 1024**2, "g": 1024**3}
    factor = units.get(text[-1:].lower(), 1)
    plain = text[:-1] if factor > 1 else text
    return float(plain) * factor if "." in plain else int(plain) * factor


def make_options(
    *,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    members: list[str] | None = None,
    limit: int | None = None,
    lenient: bool = False,
    encoding: str | None = None,
    key_template: str | None = None,
    on_conflict: OnConflict = OnConflict.OVERWRITE,
    as_gzip: GzipForm | None = None,
    trust_crc: bool = False,
    password_ref: str | None = None,
    nested_depth: int = 0,
    marker: bool = False,
) -> Options:
    """Return a run's options from a command's."""
    return Options(
        key_template=key_template or Options().key_template,
        on_conflict=on_conflict,
        include=tuple(include or ()),
        exclude=tuple(exclude or ()),
        names=tuple(members or ()),
        limit=limit,
        lenient=lenient,
        encoding=encoding,
        as_gzip=as_gzip,
        trust_crc=trust_crc,
        password_ref=password_ref,
        nested_depth=nested_depth,
        marker=marker,
    )


def read_password(path: Path | None) -> bytes | None:
    """Return the password in a file, without its last line end.

    Raises:
        UsageError: the file cannot be read or is empty.
    """
    if path is None:
        return None
    try:
        password = path.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:
        raise UsageError(f"--password-file {path}: {error.strerror}") from error
    if not password:
        raise UsageError(f"--password-file {path}: is empty")
    return password
