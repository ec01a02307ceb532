"""How requests reach AWS, or another server that speaks S3: settings, keys, clients, URLs.

A URL has the bucket in its path, or at the beginning of its host name. An access point is always in
the host name. AWS has buckets in the host name. Other servers have them in the path, unless an
option or the configuration says otherwise.
"""

from __future__ import annotations

import re
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from s3unzip.errors import UsageError
from s3unzip.stores.config import ARN, StoreConfig
from s3unzip.stores.s3.credentials import ProfileKeys, shared_keys
from s3unzip.stores.s3.plain_settings import DEFAULT_REGION, AwsSettings, read_plain_settings

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_s3 import S3Client

    from s3unzip.model import Location

# The regions whose endpoints end in amazonaws.com. botocore knows the endpoints of all others.
COMMON_REGION = re.compile(r"(af|ap|ca|eu|il|me|mx|sa|us)-(gov-)?[a-z]+-[0-9]")
_SERVER = re.compile(r"(?i)https?://[^/?#]")
_DNS_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_IP_ADDRESS = re.compile(r":|(^|\.)[0-9]+$")  # IPv6 has colons; the last label of IPv4 is a number


class AwsSession:
    """One profile and region of an account. Threads may share it and its clients.

    If the profile does not exist, the first request reports that.

    Args:
        access: how S3 is reached; its settings of the destination are not used.
        keys: the keys of its clients. None stands for the keys that this process shares.
    """

    def __init__(self, access: StoreConfig, keys: ProfileKeys | None = None) -> None:
        self.access = access
        self.keys = keys or shared_keys(access.profile)
        if self.keys.region is None:
            self.keys.region = access.region
        self._lock = threading.RLock()  # threads cannot share `_botocore_session`
        # By purpose, region (None stands for the session's) and whether signatures cover bodies.
        self._s3_clients: dict[tuple[str, str | None, bool], S3Client] = {}
        self.bucket_regions: dict[str, str] = {}  # of buckets that are not in the default region

    @cached_property
    def _botocore_session(self) -> Session:
        """The botocore session, whose clients sign with `keys`."""
        from s3unzip.stores.s3.botocore_clients import SharedCredentials, open_session

        session = open_session(self.access.profile, self.access.region)
        credentials = SharedCredentials(self.keys.current, self.keys.require)
        session.register_component("credential_provider", credentials)
        return session

    @cached_property
    def settings(self) -> AwsSettings:
        """The settings in variables and files."""
        plain = read_plain_settings(self.access.profile)
        if plain is not None:
            return plain
        from s3unzip.stores.s3.botocore_clients import read_settings

        with self._lock:
            return read_settings(self.access.profile, self._botocore_session)

    @property
    def region(self) -> str | None:
        """The region of the session, or None if no option, variable or file names one."""
        return self.access.region or self.settings.region

    @property
    def endpoint_url(self) -> str | None:
        """The server that an option, a variable or a file names, or None for AWS's own servers."""
        url = self.access.endpoint_url or self.settings.endpoint_url
        if url and not _SERVER.match(url):
            raise UsageError(f"Invalid endpoint: {url}: it must begin with http:// or https://")
        return url

    @property
    def reaches_aws(self) -> bool:
        """Whether requests go to AWS, and not to another server that speaks S3."""
        host = urlsplit(self.endpoint_url or "").hostname
        # Without a URL there is no host, and requests go to AWS.
        return host is None or host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))

    @cached_property
    def style(self) -> str:
        """Where a URL has the bucket: "path", "virtual" (the host name), or "auto".

        With "auto" a bucket is in the host name unless its name has a dot.
        """
        style = self.access.addressing_style or self.settings.addressing_style
        if style in {"path", "virtual"}:
            return style
        if self.reaches_aws:
            return "auto"
        return "path"

    def bucket_region(self, bucket: str) -> str:
        """Return the region that requests about a bucket are signed for."""
        if bucket.startswith(ARN):
            return bucket.split(":")[3]  # arn:aws:s3:REGION:ACCOUNT:accesspoint:NAME
        return self.bucket_regions.get(bucket) or self.region or DEFAULT_REGION

    def bucket_url(self, bucket: str) -> tuple[str, bool]:
        """Return the URL for obstore, and whether its host name has the bucket.

        Raises:
            UsageError: the bucket must be in the host name, and the host is an IP address.
        """
        if bucket.startswith(ARN):
            return self._access_point_url(bucket), True
        region = self.bucket_region(bucket)
        url = self.endpoint_url
        if not url and COMMON_REGION.fullmatch(region) and not self.settings.has_special_endpoint:
            # https://docs.aws.amazon.com/general/latest/gr/s3.html
            url = f"https://s3.{region}.amazonaws.com"
        if not url:
            # Only botocore knows all partitions and settings. Making its client takes 80 ms.
            url = self.s3_client("control", self.bucket_regions.get(bucket)).meta.endpoint_url
        server = urlsplit(url.rstrip("/"))
        # AWS's wildcard certificate does not cover a bucket with a dot.
        is_in_path = self.style == "path" or (self.style == "auto" and "." in bucket)
        if is_in_path or not _DNS_NAME.fullmatch(bucket):
            return server.geturl(), False
        _refuse_ip_address(server, "--addressing-style path reaches the bucket")
        return server._replace(netloc=f"{bucket}.{server.netloc}").geturl(), True

    def _access_point_url(self, arn: str) -> str:
        """Return the URL of an access point, which only botocore derives from an ARN."""
        _refuse_ip_address(urlsplit(self.endpoint_url or ""), "give the alias of the access point")
        client = self.s3_client("control", self.bucket_region(arn))
        # Path and query are dropped, so any key will do.
        signed = client.generate_presigned_url("head_object", {"Bucket": arn, "Key": "-"})
        return urlsplit(signed)._replace(path="", query="").geturl()

    def s3_client(
        self, purpose: str, region: str | None = None, *, signs_payload: bool = False
    ) -> S3Client:
        """Return a botocore client of S3. The first one takes 0.2 s of CPU to import and make.

        Args:
            purpose: "bodies" (large bodies), "slow" (copies and Complete, which S3 may take minutes
                to answer) or "control" (all requests that are quick and small).
            region: None stands for the region of the session.
            signs_payload: whether the signature covers bodies. Without it, each body has a CRC-32.
        """
        key = (purpose, region, signs_payload)
        with self._lock:
            if key not in self._s3_clients:
                from s3unzip.stores.s3.botocore_clients import create_s3_client

                self._s3_clients[key] = create_s3_client(
                    self._botocore_session,
                    self.access,
                    purpose,
                    region=region or self.region or DEFAULT_REGION,
                    style=self.style,
                    signs_payload=signs_payload,
                )
            return self._s3_clients[key]

    def client(
        self,
        service: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        **settings: Any,
    ) -> Any:
        """Return a new client of `service`. Region and endpoint default to those of the session.

        Args:
            service: botocore's name for the service.
            settings: the arguments of botocore's `Config`.
        """
        from s3unzip.stores.s3.botocore_clients import create_client

        with self._lock:
            return create_client(
                self._botocore_session,
                service,
                region=region,
                endpoint_url=endpoint_url,
                **settings,
            )


def bills_for(location: Location, config: StoreConfig) -> bool:
    """Return whether AWS bills for requests to `location`.

    Args:
        location: the archive or the destination.
        config: how that location is reached.
    """
    if not location.store.is_billed:
        return False
    try:
        return AwsSession(config).reaches_aws
    except UsageError:  # the profile does not exist; the first request will report that
        return True


def _refuse_ip_address(server: SplitResult, advice: str) -> None:
    if _IP_ADDRESS.search(server.hostname or ""):
        raise UsageError(
            f"{server.geturl()}: no bucket can be in a host name that is an IP address; {advice}"
        )
