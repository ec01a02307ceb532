"""How to reach the stores: the configuration that a run records and that workers get."""

import os
import time
from typing import Annotated, Self
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from s3unzip.model import Location
from s3unzip.options import HelpSection, RunOption, read_options, type_options
from s3unzip.stores.locations import runs_home

STARTUP_SECONDS = 30.0  # a server that cannot be reached this early is probably a wrong one
S3_CONNECTIONS = 64  # connections that are kept open
VARIABLES = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE")


class StoreConfig(Struct, frozen=True, omit_defaults=True):
    """How to reach the stores. It holds no secret: credentials come from boto3's chain.

    A setting that the destination does not have is taken from the source. A run's records in S3
    are reached with the settings of the destination. Times are in seconds.
    """

    # Runs are kept below it: a folder, or an S3 prefix that ends in "/".
    work: Location = field(default_factory=runs_home)
    endpoint_url: Annotated[
        str | None,
        RunOption(
            "--endpoint-url URL",
            "An S3-compatible server.",
            HelpSection.STORES,
            variable="AWS_ENDPOINT_URL",
        ),
    ] = None  # None: the server that AWS_ENDPOINT_URL names, else AWS
    region: Annotated[
        str | None,
        RunOption(
            "--region TEXT",
            "The buckets' region.",
            HelpSection.STORES,
            variable=["AWS_REGION", "AWS_DEFAULT_REGION"],
        ),
    ] = None
    profile: Annotated[
        str | None,
        RunOption("--profile TEXT", "Profile of ~/.aws/config.", HelpSection.STORES),
    ] = None
    # Where requests name the bucket: path or virtual (in the host name). None: as AWS's
    # configuration file says, else virtual for AWS and path for other servers.
    addressing_style: Annotated[
        str | None,
        RunOption(
            "--addressing-style <path|virtual>",
            "Where requests have the bucket: in the path or in the host name.",
            HelpSection.STORES,
        ),
    ] = None
    unsigned: Annotated[
        bool,
        RunOption(
            "--no-sign-request",
            "Read a public archive in S3 without credentials.",
            HelpSection.STORES,
        ),
    ] = False
    request_payer: Annotated[
        bool,
        RunOption(
            "--request-payer",
            "Pay for reading SRC from a Requester Pays bucket.",
            HelpSection.STORES,
        ),
    ] = False
    destination_endpoint_url: Annotated[
        str | None,
        RunOption(
            "--dest-endpoint-url URL", "DEST's server; default: --endpoint-url.", HelpSection.STORES
        ),
    ] = None
    destination_region: str | None = None  # no option sets it, and none sets the owner
    destination_profile: Annotated[
        str | None,
        RunOption(
            "--dest-profile PROFILE", "Profile for DEST; default: --profile.", HelpSection.STORES
        ),
    ] = None
    destination_unsigned: Annotated[
        bool,
        RunOption(
            "--dest-no-sign-request", "Read a public DEST without credentials.", HelpSection.STORES
        ),
    ] = False  # for verify: the destination is publicly readable
    destination_owner: str | None = None  # the account that must own the destination bucket
    destination_kms_key: Annotated[
        str | None,
        RunOption(
            "--kms-key ARN", "Encrypt what is written to S3 with this key.", HelpSection.STORES
        ),
    ] = None  # None: the bucket's default encryption
    other_hosts: bool = False  # follow the redirects of a web server to other hosts
    connections: int = S3_CONNECTIONS
    check_reachable: bool = False  # at startup, fail at once if a server cannot be reached
    connect_seconds: float = 5.0
    stall_seconds: float = 20.0  # without a byte
    # A PUT of a few MiB may take so long, sending included. For a part, this is the limit of each
    # 128 KiB that is sent, and of the answer.
    put_seconds: float = 80.0
    slow_seconds: float = 600.0  # UploadPartCopy and Complete: S3 sends nothing while it works

    def startup_ends(self) -> float:
        """Return when the startup ends, on the monotonic clock; 0.0: it has ended already."""
        if self.check_reachable:
            return time.monotonic() + STARTUP_SECONDS
        return 0.0

    def at_destination(self) -> Self:
        """Return the configuration with which the destination's objects are read as a source."""
        return replace(
            self,
            endpoint_url=self.destination_endpoint_url or self.endpoint_url,
            region=self.destination_region or self.region,
            profile=self.destination_profile or self.profile,
            unsigned=self.destination_unsigned,
            request_payer=False,
            destination_endpoint_url=None,
            destination_region=None,
            destination_profile=None,
        )

    def recorded(self) -> Self:
        """Return the configuration for a run's record: without URLs that hold a secret.

        `connections` and `check_reachable` have their defaults, because each process sets its own.
        """
        return replace(
            self,
            endpoint_url=_drop_secret(self.endpoint_url),
            destination_endpoint_url=_drop_secret(self.destination_endpoint_url),
            connections=S3_CONNECTIONS,
            check_reachable=False,
        )

    def without_environment(self) -> Self:
        """Return the configuration without the values that come from environment variables.

        A command in the same environment needs options only for the remaining values.
        """
        values = {os.environ[name] for name in VARIABLES if name in os.environ}
        return replace(
            self,
            **{
                row.field: None
                for row in read_options(StoreConfig)
                if getattr(self, row.field) in values
            },
        )

    def command_options(self) -> list[str]:
        """Return the options with which a command reaches the same stores."""
        options = list(type_options(self))
        if self.other_hosts:
            options += ["--allow", "other-hosts"]
        return options

    @property
    def can_copy(self) -> bool:
        """Whether the destination's server and credentials can also read the archive.

        Then the server may copy ranges of the archive by itself.
        """
        access = self.at_destination()
        return (
            access.endpoint_url == self.endpoint_url
            and access.profile == self.profile
            and not self.unsigned
        )


def _drop_secret(url: str | None) -> str | None:
    """Return the URL, or None if it holds a password or a signed query."""
    parts = urlsplit(url or "")
    if parts.query or "@" in parts.netloc:
        return None
    return url
