"""Find the server that gets the requests about a bucket: the same one for obstore and botocore.

A URL has the bucket in its path, or at the beginning of its host name. An access point is always in
the host name. AWS has buckets in the host name. Other servers have them in the path, unless an
option or the configuration says otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from s3unzip.errors import UsageError
from s3unzip.stores.locations import ARN
from s3unzip.stores.s3.credentials import AwsSession, is_aws
from s3unzip.stores.s3.plain_settings import DEFAULT_REGION

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from s3unzip.model import Location
    from s3unzip.stores.config import StoreConfig

_DNS_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_IP_ADDRESS = re.compile(r":|(^|\.)[0-9]+$")  # IPv6 has colons; the last label of IPv4 is a number


def reaches_aws(access: StoreConfig, aws: AwsSession | None = None) -> bool:
    """Return whether requests go to AWS, and not to another server that speaks S3.

    Args:
        aws: an existing session of the profile and region. Making another one takes time.
    """
    aws = aws or AwsSession(access.profile, access.region)
    url = access.endpoint_url or aws.compatible_endpoint
    return url is None or is_aws(url)


def bills_for(location: Location, config: StoreConfig) -> bool:
    """Return whether AWS bills for requests to `location`.

    Args:
        location: the archive or the destination.
        config: how that location is reached.
    """
    if not location.store.is_billed:
        return False
    try:
        return reaches_aws(config)
    except UsageError:  # the profile does not exist; the first request will report that
        return True


class Addresses:
    """The servers that get the requests about buckets, and the regions of buckets.

    Args:
        make_client: returns a client of botocore for a purpose and a region.
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
        self.regions: dict[str, str] = {}  # by bucket, if it is not in the default region

    @cached_property
    def style(self) -> str:
        """Where a URL has the bucket: "path", "virtual" (the host name), or "auto".

        With "auto" a bucket is in the host name unless its name has a dot.
        """
        style = self._access.addressing_style or self._aws.addressing_style
        if style is not None:
            return style
        return "auto" if reaches_aws(self._access, self._aws) else "path"

    def region(self, bucket: str) -> str:
        """Return the region that requests are signed for."""
        if bucket.startswith(ARN):
            return bucket.split(":")[3]
        return self.regions.get(bucket) or self._aws.region or DEFAULT_REGION

    def endpoint(self, bucket: str) -> tuple[str, bool]:
        """Return the URL of the server for obstore, and whether its host name has the bucket.

        Raises:
            UsageError: the bucket must be in the host name, and the host is an IP address.
        """
        if bucket.startswith(ARN):
            return self._access_point_url(bucket), True
        url = (
            self._access.endpoint_url
            or self._aws.compatible_endpoint
            or self._aws.aws_endpoint(self.region(bucket))
        )
        if not url:
            # Only botocore knows all partitions and settings. Making its client takes 80 ms.
            url = self._make_client("control", self.regions.get(bucket)).meta.endpoint_url
        server = urlsplit(url.rstrip("/"))
        # AWS's wildcard certificate does not cover a bucket with a dot.
        is_in_path = self.style == "path" or (self.style == "auto" and "." in bucket)
        if is_in_path or not _DNS_NAME.fullmatch(bucket):
            return server.geturl(), False
        _refuse_ip_address(server, "--addressing-style path reaches the bucket")
        return server._replace(netloc=f"{bucket}.{server.netloc}").geturl(), True

    def _access_point_url(self, arn: str) -> str:
        """Return the URL of an access point, which only botocore derives from an ARN."""
        url = self._access.endpoint_url or self._aws.compatible_endpoint
        if url is not None:
            _refuse_ip_address(urlsplit(url), "give the alias of the access point")
        client = self._make_client("control", self.region(arn))
        signed = client.generate_presigned_url("head_object", {"Bucket": arn, "Key": "-"})
        return urlsplit(signed)._replace(path="", query="").geturl()


def _refuse_ip_address(server: SplitResult, advice: str) -> None:
    if _IP_ADDRESS.search(server.hostname or ""):
        raise UsageError(
            f"{server.geturl()}: no bucket can be in a host name that is an IP address; {advice}"
        )
