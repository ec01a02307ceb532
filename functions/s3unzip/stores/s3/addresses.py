"""The host that requests about a bucket go to; both clients ask the same one.

A bucket is in the path of a URL, or before the host's name, where an access point always is. On
AWS it is a prefix of the host's name. At other servers it is in the path, unless an option or the
configuration says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import SplitResult, urlsplit

from s3unzip.errors import UsageError
from s3unzip.stores.locations import ARN
from s3unzip.stores.s3.credentials import AwsSession, is_aws
from s3unzip.stores.s3.plain_settings import DEFAULT_REGION

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from s3unzip.stores.config import StoreConfig

_DNS_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_IP_ADDRESS = re.compile(r":|(^|\.)[0-9]+$")  # in a URL's host


class Endpoint(NamedTuple):
    """Where requests about a bucket go."""

    url: str
    has_bucket: bool  # whether the bucket is in the host's name


class Addresses:
    """The endpoints of buckets.

    Args:
        make_client: returns the client of this name, for this region.
    """

    def __init__(
        self,
        access: StoreConfig,
        aws: AwsSession,
        make_client: Callable[[str, str | None], S3Client],
    ) -> None:
        self._access = access
        self._aws = aws
        self._make_client = make_client
        self.regions: dict[str, str] = {}  # of buckets that are not in the default one

    @cached_property
    def style(self) -> str:
        """Where requests have the bucket: path, virtual, or auto as S3 of AWS has it."""
        style = self._access.addressing_style or self._aws.addressing_style
        if style is not None:
            return style
        url = self._access.endpoint_url or self._aws.own_endpoint
        return "auto" if url is None or is_aws(url) else "path"

    def region(self, bucket: str) -> str:
        """Return the region that requests are signed for."""
        if bucket.startswith(ARN):
            return bucket.split(":")[3]
        return self.regions.get(bucket) or self._aws.region or DEFAULT_REGION

    def endpoint(self, bucket: str) -> Endpoint:
        """Return where obstore sends requests.

        Raises:
            UsageError: the server has no name, and the bucket would be before it.
        """
        if bucket.startswith(ARN):
            return Endpoint(self._access_point(bucket), has_bucket=True)
        url = self._access.endpoint_url or self._aws.own_endpoint
        url = url or self._aws.aws_endpoint(self.region(bucket))
        if not url:
            # A client takes 80 ms to make, but only botocore knows all partitions and settings.
            region = self.regions.get(bucket)
            name = f"control in {region}" if region else "control"
            url = self._make_client(name, region).meta.endpoint_url
        server = urlsplit(url.rstrip("/"))
        # A dot would break the wildcard of AWS's certificate.
        is_path = self.style == "path" or (self.style == "auto" and "." in bucket)
        if is_path or not _DNS_NAME.fullmatch(bucket):
            return Endpoint(server.geturl(), has_bucket=False)
        _check_name(server, "--addressing-style path reaches the bucket")
        named = server._replace(netloc=f"{bucket}.{server.netloc}")
        return Endpoint(named.geturl(), has_bucket=True)

    def _access_point(self, arn: str) -> str:
        """Return the URL of an access point, as botocore has it."""
        url = self._access.endpoint_url or self._aws.own_endpoint
        if url is not None:
            _check_name(urlsplit(url), "give the alias of the access point")
        region = self.region(arn)
        client = self._make_client(f"control in {region}", region)
        signed = client.generate_presigned_url("head_object", {"Bucket": arn, "Key": "-"})
        return urlsplit(signed)._replace(path="", query="").geturl()


def _check_name(server: SplitResult, advice: str) -> None:
    """Refuse a server without a name, before which nothing can be."""
    if _IP_ADDRESS.search(server.hostname or ""):
        raise UsageError(
            f"{server.geturl()}: no bucket can be in a host name that is an IP address; {advice}"
        )
