"""How S3 is reached and written to: plain values without a secret."""

from __future__ import annotations

import os
from typing import NamedTuple

from msgspec import Struct

from s3unzip.model import Connections

VARIABLES = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE")


class S3Access(Struct, frozen=True):
    """How S3 is reached; picklable, and without a secret. Times in seconds."""

    endpoint_url: str | None = None  # None: AWS, or AWS_ENDPOINT_URL
    region: str | None = None
    profile: str | None = None
    connections: int = 64  # kept open
    connect_seconds: float = 5.0
    stall_seconds: float = 20.0  # without a byte
    # One PUT of at most some MiB, the sending included; of a part, the sending of 128 KiB.
    put_seconds: float = 120.0
    slow_seconds: float = 600.0  # UploadPart, UploadPartCopy, Complete: silent while S3 works
    check_reachable: bool = False  # whether a program that has just begun gives up at once
    unsigned: bool = False  # requests go without credentials, to buckets that everybody may read
    request_payer: bool = False  # accept that the caller pays for the requests and the transfer
    advice: str = "check --endpoint-url, --region and the network"  # if nothing answers

    def typed(self) -> Connections:
        """Return the options that the next command needs, too: those that no variable sets."""
        known = set(map(os.environ.get, VARIABLES))
        endpoint, region, profile = (
            None if text in known else text
            for text in (self.endpoint_url, self.region, self.profile)
        )
        return Connections(endpoint, region, profile)


class Writing(NamedTuple):
    """How objects are stored; `kms_key` None leaves it to the bucket's default."""

    owner: str | None = None  # account that must own the bucket
    kms_key: str | None = None
    copies: bool = True  # whether the credentials that write may also read the archive
    copies_pay: bool = False  # of an archive in a Requester Pays bucket
