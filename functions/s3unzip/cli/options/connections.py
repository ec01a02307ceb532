"""Options of how stores are reached."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer
from msgspec.structs import replace

from s3unzip.cli.options.messages import OptionGroup
from s3unzip.errors import UsageError
from s3unzip.stores.home import runs_home

if TYPE_CHECKING:
    from s3unzip.model import Location
    from s3unzip.stores.factory import StoreConfig

ACCOUNT_DIGITS = 12
S3_ENDPOINT = "AWS_ENDPOINT_URL_S3"
REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+-[0-9]+\Z")


class AllowedWeb(StrEnum):
    """What an HTTP source may only do if it is asked for."""

    OTHER_HOSTS = "other-hosts"
    PRIVATE_ADDRESSES = "private-addresses"


@dataclass(frozen=True)
class Connection(OptionGroup):
    """How S3 is reached."""

    endpoint_url: Annotated[
        str | None,
        typer.Option("--endpoint-url", envvar="AWS_ENDPOINT_URL", help="An S3-compatible server."),
    ] = None
    region: Annotated[
        str | None,
        typer.Option(
            "--region", envvar=["AWS_REGION", "AWS_DEFAULT_REGION"], help="The buckets' region."
        ),
    ] = None
    profile: Annotated[str | None, typer.Option("--profile", help="Profile of ~/.aws/config.")] = (
        None
    )

    def config(self, *, connections: int = 64) -> StoreConfig:
        """Return how stores are opened.

        Raises:
            UsageError: the endpoint is not a URL of HTTP, or the region has no region's form.
        """
        from s3unzip.stores.factory import StoreConfig

        if self.endpoint_url is not None:
            check_endpoint(self.endpoint_url)
        if S3_ENDPOINT in os.environ:  # botocore reads it
            check_endpoint(os.environ[S3_ENDPOINT], S3_ENDPOINT)
        if self.region is not None:
            check_region(self.region, own_server=self.endpoint_url is not None)
        return StoreConfig(
            runs_home(),
            self.endpoint_url,
            self.region,
            self.profile,
            connections=max(64, connections),
            check_reachable=True,
        )


@dataclass(frozen=True)
class SourceConnection(Connection):
    """How the archive is reached."""

    allow: Annotated[
        list[AllowedWeb] | None,
        typer.Option(
            "--allow",
            help="What an HTTP source may do besides: follow redirects to other hosts, connect to "
            "a private address that its name leads to; repeatable.",
        ),
    ] = None

    def config(self, *, connections: int = 64) -> StoreConfig:
        """Return how stores are opened.

        Raises:
            UsageError: as of `Connection`.
        """
        from s3unzip.stores.web.access import WebAccess

        allowed = frozenset(self.allow or ())
        web = WebAccess(
            other_hosts=AllowedWeb.OTHER_HOSTS in allowed,
            private_addresses=AllowedWeb.PRIVATE_ADDRESSES in allowed,
        )
        return replace(super().config(connections=connections), web=web)


@dataclass(frozen=True)
class RunConnection(SourceConnection):
    """How the archive and the destination are reached."""

    dest_owner: Annotated[
        str | None,
        typer.Option(
            "--dest-owner",
            metavar="ACCOUNT",
            help="Refuse DEST's bucket if another account owns it.",
        ),
    ] = None
    kms_key: Annotated[
        str | None,
        typer.Option(
            "--kms-key", metavar="ARN", help="Encrypt what is written to S3 with this key."
        ),
    ] = None

    def config(self, *, connections: int = 64) -> StoreConfig:
        """Return how stores are opened.

        Raises:
            UsageError: as of `Connection`; or the owner is not an account's id.
        """
        owner = self.dest_owner
        if owner is not None and not (len(owner) == ACCOUNT_DIGITS and owner.isdecimal()):
            raise UsageError(f"--dest-owner {owner}: an account's id has 12 digits")
        return replace(
            super().config(connections=connections),
            destination_owner=owner,
            destination_kms_key=self.kms_key,
        )

    def check_destination(self, destination: Location) -> None:
        """Refuse options of S3 for another destination.

        Raises:
            UsageError: there are such.
        """
        if destination.scheme != "s3" and (self.dest_owner or self.kms_key):
            raise UsageError(f"{destination}: --dest-owner and --kms-key are for S3")


def check_endpoint(url: str, name: str = "--endpoint-url") -> None:
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
    raise UsageError(f"{name} {url}: not a URL that begins with http:// or https://{like}")


def check_region(region: str, *, own_server: bool) -> None:
    """Check that `region` can be one.

    Args:
        region: as the user wrote it.
        own_server: of an S3-compatible server, which may call its region anything.

    Raises:
        UsageError: it cannot be one.
    """
    fits = re.fullmatch(r"[A-Za-z0-9-]+", region) if own_server else REGION.match(region)
    if not fits:
        raise UsageError(f"--region {region!r}: not a region; they look like eu-west-1")
