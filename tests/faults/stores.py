"""How tests reach the S3 server: the product's own stores through the proxy, and a plain client."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import boto3
from botocore.config import Config
from msgspec.structs import replace

from s3unzip.context import Context
from s3unzip.model import Location
from s3unzip.stores.factory import StoreConfig
from s3unzip.stores.s3.run_store import S3Stores
from s3unzip.zip import Policy
from tests.servers import VERSITY

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from s3unzip.context import Progress
    from s3unzip.settings import Tuning
    from s3unzip.stores.ports import Clock

SOURCE, DESTINATION, WORK = "ingest", "members", "work"
WORK_LOCATION = Location("s3", WORK, "")
REGION = "us-east-1"
CREDENTIALS = VERSITY | {"AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"}


@dataclass(frozen=True, slots=True)
class ContextMaker:
    """Makes a context in this process or in a worker's."""

    endpoint: str
    tuning: Tuning
    policy: Policy = field(default_factory=Policy)
    stall_seconds: float = 5.0

    def __call__(self, clock: Clock, progress: Progress | None = None) -> Context:
        """Return the context of this process."""
        os.environ.update(CREDENTIALS)
        access = StoreConfig(
            endpoint_url=self.endpoint, region=REGION, stall_seconds=self.stall_seconds
        )
        stores = S3Stores(replace(access, work=WORK_LOCATION))
        return Context(stores, clock, self.policy, self.tuning, progress)


def open_client(endpoint: str) -> S3Client:
    """Return a plain S3 client, which asks once: the test's own hand on the store."""
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=VERSITY["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=VERSITY["AWS_SECRET_ACCESS_KEY"],
        config=Config(
            s3={"addressing_style": "path"},
            max_pool_connections=32,
            retries={"total_max_attempts": 1},
        ),
    )
