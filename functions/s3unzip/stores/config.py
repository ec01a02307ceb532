"""How stores are reached: the configuration that a run records and that workers get."""

import os
import time
from typing import Annotated, Self
from urllib.parse import urlsplit

from msgspec import Struct, field
from msgspec.structs import replace

from s3unzip.model import Location
from s3unzip.options import HelpSection, RunOption, read_options, type_options
from s3unzip.stores.locations import runs_home

STARTUP_SECONDS = 30.0  # seconds: a server that is unreachable then is likely a wrong one
S3_CONNECTIONS = 64  # kept open
VARIABLES = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE")


class StoreConfig(Struct, frozen=True, omit_defaults=True):
    """How stores are reached. It has no secret: credentials come from boto3's chain.

    A value that is not set for the destination is that of the source. A run's records in S3 are
    reached as the destination is. Times are in seconds.
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
    ] = None  # of S3; None: AWS, or AWS_ENDPOINT_URL
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
    check_reachable: bool = False  # give up at once what cannot be reached at startup
    connect_seconds: float = 5.0
    stall_seconds: float = 20.0  # without a byte
    # For a PUT of a few MiB, with the sending. For a part, for each 128 KiB that are sent, and for
    # the answer.
    put_seconds: float = 80.0
    slow_seconds: float = 600.0  # UploadPartCopy and Complete: silent while S3 works

    def startup_ends(self) -> float:
        """Return when the startup of the program is over, on the monotonic clock."""
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
        """Return the configuration without the values of the environment's variables.

        A command must name the other values.
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

    def words(self) -> list[str]:
        """Return the options with which a command reaches the same stores."""
        options = list(type_options(self))
        if self.other_hosts:
            options += ["--allow", "other-hosts"]
        return options

    @property
    def copies(self) -> bool:
        """Whether the destination's server and credentials may read the archive, too."""
        access = self.at_destination()
        return (
            access.endpoint_url == self.endpoint_url
            and access.profile == self.profile
            and not self.unsigned
        )


def _drop_secret(url: str | None) -> str | None:
    """Return the URL, None if it holds a password or a signed query."""
    parts = urlsplit(url or "")
    if parts.query or "@" in parts.netloc:
        return None
    return url
