"""Options of how a destination is reached, and the archive with it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import replace

from s3unzip.cli.options.connections import SourceConnection, check_endpoint, check_region
from s3unzip.errors import UsageError

if TYPE_CHECKING:
    from s3unzip.model import Location
    from s3unzip.stores.factory import StoreConfig

ACCOUNT_DIGITS = 12


@dataclass(frozen=True)
class DestinationConnection(SourceConnection):
    """How the archive and the destination are reached."""

    dest_endpoint_url: Annotated[
        str | None,
        typer.Option(
            "--dest-endpoint-url", metavar="URL", help="DEST's server; default: --endpoint-url."
        ),
    ] = None
    dest_region: Annotated[
        str | None,
        typer.Option("--dest-region", metavar="REGION", help="DEST's region; default: --region."),
    ] = None
    dest_profile: Annotated[
        str | None,
        typer.Option(
            "--dest-profile", metavar="PROFILE", help="Profile for DEST; default: --profile."
        ),
    ] = None

    def config(self, *, connections: int = 64) -> StoreConfig:
        """Return how stores are opened.

        Raises:
            UsageError: as of `SourceConnection`; or the destination's endpoint is not a URL of
                HTTP, or its region has no region's form.
        """
        endpoint, region = self.dest_endpoint_url, self.dest_region
        if endpoint is not None:
            check_endpoint(endpoint, "--dest-endpoint-url")
        if region is not None:
            own_server = (endpoint or self.endpoint_url) is not None
            check_region(region, "--dest-region", own_server=own_server)
        return replace(
            super().config(connections=connections),
            destination_endpoint_url=endpoint,
            destination_region=region,
            destination_profile=self.dest_profile,
        )

    def check_places(self, source: Location, destination: Location) -> None:
        """Refuse options of S3 for other places.

        Raises:
            UsageError: there are such.
        """
        self.check_source(source)
        inherited = {field.name for field in fields(SourceConnection)}
        own = [field.name for field in fields(self) if field.name not in inherited]
        # Each option is named after its field.
        given = [f"--{name.replace('_', '-')}" for name in own if getattr(self, name)]
        if destination.scheme != "s3" and given:
            verb = "is" if len(given) == 1 else "are"
            raise UsageError(f"{destination}: {' and '.join(given)} {verb} for S3")


@dataclass(frozen=True)
class VerifyConnection(DestinationConnection):
    """How the archive and the destination are reached, to read both."""

    dest_no_sign_request: Annotated[
        bool,
        typer.Option("--dest-no-sign-request", help="Read a public DEST without credentials."),
    ] = False

    def config(self, *, connections: int = 64) -> StoreConfig:
        """Return how stores are opened.

        Raises:
            UsageError: as of `DestinationConnection`.
        """
        return replace(
            super().config(connections=connections), destination_unsigned=self.dest_no_sign_request
        )


@dataclass(frozen=True)
class RunConnection(DestinationConnection):
    """How the archive is read, and how the destination is written."""

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
            UsageError: as of `DestinationConnection`; or the owner is not an account's id.
        """
        owner = self.dest_owner
        if owner is not None and not (len(owner) == ACCOUNT_DIGITS and owner.isdecimal()):
            raise UsageError(f"--dest-owner {owner}: an account's id has 12 digits")
        return replace(
            super().config(connections=connections),
            destination_owner=owner,
            destination_kms_key=self.kms_key,
        )

    def check_change(self, after_success: str | None) -> None:
        """Check that the archive may be changed as it is reached.

        Raises:
            UsageError: it is read without credentials.
        """
        if after_success and self.no_sign_request:
            raise UsageError(
                "--after-success: with --no-sign-request the archive is reached without "
                "credentials, so it cannot be changed; leave out one of them"
            )
