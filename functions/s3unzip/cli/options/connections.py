"""Options of how stores are reached."""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer
from msgspec.structs import replace

from s3unzip.cli.options.messages import OptionGroup
from s3unzip.errors import UsageError
from s3unzip.stores.locations import runs_home

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.model import Location
    from s3unzip.stores.factory import StoreConfig

S3_ENDPOINT = "AWS_ENDPOINT_URL_S3"
REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+-[0-9]+\Z")


class AllowedWeb(StrEnum):
    """What an HTTP source may only do if it is asked for."""

    OTHER_HOSTS = "other-hosts"


@dataclass(frozen=True)
class Connection(OptionGroup):
    """How S3 is reached; the archive's server where others are named for the destination."""

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
            help="Let an HTTP source redirect to other hosts.",
        ),
    ] = None
    no_sign_request: Annotated[
        bool,
        typer.Option("--no-sign-request", help="Read a public archive in S3 without credentials."),
    ] = False
    request_payer: Annotated[
        bool,
        typer.Option("--request-payer", help="Pay for reading SRC from a Requester Pays bucket."),
    ] = False

    @contextmanager
    def opened(self, source: Location) -> Iterator[StoreConfig]:
        """Yield how stores are opened to read `source`.

        Raises:
            UsageError: as of `config`; or options do not fit the source.
        """
        self.check_source(source)
        yield self.config()

    def check_source(self, source: Location) -> None:
        """Refuse options of S3 for another source.

        Raises:
            UsageError: there are such.
        """
        if source.scheme != "s3" and (self.no_sign_request or self.request_payer):
            raise UsageError(f"{source}: --no-sign-request and --request-payer are for S3")

    def config(self, *, connections: int = 64) -> StoreConfig:
        """Return how stores are opened.

        Raises:
            UsageError: as of `Connection`; or two options exclude each other.
        """
        if self.no_sign_request and self.request_payer:
            raise UsageError(
                "--no-sign-request and --request-payer: give one of them, because S3 must know "
                "who pays"
            )
        return replace(
            super().config(connections=connections),
            other_hosts=bool(self.allow),
            unsigned=self.no_sign_request,
            request_payer=self.request_payer,
        )


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


def check_region(region: str, name: str = "--region", *, own_server: bool) -> None:
    """Check that `region` can be one.

    Args:
        region: as the user wrote it.
        name: of the option.
        own_server: of an S3-compatible server, which may call its region anything.

    Raises:
        UsageError: it cannot be one.
    """
    fits = re.fullmatch(r"[A-Za-z0-9-]+", region) if own_server else REGION.match(region)
    if not fits:
        raise UsageError(f"{name} {region!r}: not a region; they look like eu-west-1")
