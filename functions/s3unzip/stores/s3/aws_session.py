"""Access to AWS, or to another server with the S3 API: settings, keys, clients, URLs.

The bucket name is either in the path of a URL, or at the beginning of the host name. The name of an
access point is always in the host name. By default, the name of a bucket in AWS is in the host name
unless it contains a dot; on other servers, it is in the path. An option or the configuration can
change this default.
"""

from __future__ import annotations

import os
import re
import threading
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from msgspec.structs import replace

from s3unzip.errors import ExpiredKeysError, S3UnzipError, UsageError
from s3unzip.stores.config import ARN, StoreConfig, check_endpoint
from s3unzip.stores.s3.credentials import shared_keys
from s3unzip.stores.s3.plain_settings import DEFAULT_REGION, AwsSettings, read_plain_settings

if TYPE_CHECKING:
    from botocore.session import Session
    from mypy_boto3_s3 import S3Client

    from s3unzip.stores.ports import AskForKeys

# The regions whose endpoints end in amazonaws.com. For all other regions, botocore supplies the
# endpoints.
COMMON_REGION = re.compile(r"(af|ap|ca|eu|il|me|mx|sa|us)-(gov-)?[a-z]+-[0-9]")
_USER = re.compile(r"(?<=://)[^/?#]*@")
_DNS_NAME = re.compile(r"[a-z0-9][a-z0-9.-]*")
_IP_ADDRESS = re.compile(r":|(^|\.)[0-9]+$")  # an IPv6 address, or the end of an IPv4 address


class AwsSession:
    """The settings, keys and clients for a profile and a region; threads may share this object.

    If the profile does not exist, the first request raises the error.

    Args:
        access: settings for reaching S3. Settings for the destination are not used.
        ask: function that requests keys from the main process. None in the main process itself.
    """

    def __init__(self, access: StoreConfig, ask: AskForKeys | None = None) -> None:
        self.access = access
        # The access keys with which the clients sign requests.
        self.keys = shared_keys(access.profile, ask)
        # Some keys are issued by a regional service, such as STS. The service is called in the
        # region of the first session that uses the keys.
        self.keys.region = self.keys.region or access.region
        self._lock = threading.RLock()  # for `_botocore_session`, which is not thread-safe
        # Clients by process, purpose, region (None for the region of the session) and whether
        # signatures cover bodies.
        self._s3_clients: dict[tuple[int, str, str | None, bool], S3Client] = {}
        self.bucket_regions: dict[str, str] = {}  # only regions other than the session's

    @cached_property
    def _botocore_session(self) -> Session:
        """The botocore session, whose clients sign requests with `keys`."""
        from s3unzip.stores.s3.botocore_clients import SharedCredentials, open_session

        session = open_session(self.access.profile, self.access.region)
        session.register_component("credential_provider", SharedCredentials(self.keys.require))
        return session

    @cached_property
    def settings(self) -> AwsSettings:
        """The settings from environment variables and files, read by botocore only if necessary."""
        plain = read_plain_settings(self.access.profile)
        if plain is not None:
            return plain
        from s3unzip.stores.s3.botocore_clients import read_settings

        with self._lock:
            return read_settings(self.access.profile, self._botocore_session)

    @property
    def region(self) -> str | None:
        """The region of the session, or None if no option, variable or file sets one."""
        return self.access.region or self.settings.region

    @property
    def endpoint_url(self) -> str | None:
        """The server set by an option, variable or file, or None for the servers of AWS.

        The user and password are removed from the URL, because messages show the URL, and the
        signature of a request already identifies the user. For the global endpoint of S3, the
        result is None: that endpoint redirects requests for a new bucket, and obstore does not sign
        redirected requests.
        """
        url = self.access.endpoint_url or self.settings.endpoint_url
        if not url or url.rstrip("/") == "https://s3.amazonaws.com":
            return None
        check_endpoint(url, "Invalid endpoint:")
        return _USER.sub("", url)

    @property
    def reaches_aws(self) -> bool:
        """Whether requests go to AWS, and not to another server with the S3 API."""
        host = urlsplit(self.endpoint_url or "").hostname
        # Without an endpoint URL, `host` is None, and requests go to AWS.
        return host is None or host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))

    def has_wrong_endpoint(self, status: int | None) -> bool:
        """Return whether the user's endpoint belongs to an AWS region other than the bucket's.

        Args:
            status: HTTP status of a response about the bucket.
        """
        return status == 301 and self.endpoint_url is not None and self.reaches_aws

    @cached_property
    def style(self) -> str:
        """Where the bucket name is in a URL: "path", "virtual" (in the host name), or "auto".

        With "auto", the bucket name is in the host name unless it contains a dot.
        """
        style = self.access.addressing_style or self.settings.addressing_style
        if style in {"path", "virtual"}:
            return style
        if self.reaches_aws:
            return "auto"
        return "path"

    def bucket_region(self, bucket: str) -> str:
        """Return the region of a bucket, which is part of each signature."""
        if bucket.startswith(ARN):
            return bucket.split(":")[3]  # arn:aws:s3:REGION:ACCOUNT:accesspoint:NAME
        return self.bucket_regions.get(bucket) or self.region or DEFAULT_REGION

    def bucket_url(self, bucket: str) -> tuple[str, bool]:
        """Return the URL for obstore, and whether its host name includes the bucket.

        Raises:
            UsageError: the bucket must be in the host name, but the host is an IP address.
        """
        if bucket.startswith(ARN):
            return self._access_point_url(bucket), True
        server = urlsplit(self._server_url(bucket).rstrip("/"))
        # A bucket name that is not a DNS name must be in the path. With "auto", a bucket name with
        # a dot is also in the path, because AWS's wildcard certificate does not match such names.
        if (
            self.style == "path"
            or (self.style == "auto" and "." in bucket)
            or not _DNS_NAME.fullmatch(bucket)
        ):
            return server.geturl(), False
        _refuse_ip_address(server, "--addressing-style path reaches the bucket")
        url = server._replace(netloc=f"{bucket}.{server.netloc}").geturl()
        if "xn--" in url:  # obstore panics if the text after "xn--" is not valid Punycode
            check_endpoint(url, f"s3://{bucket}:")
        return url, True

    def _server_url(self, bucket: str) -> str:
        """Return the URL of the server that stores a bucket, without the bucket's name."""
        if self.endpoint_url:
            return self.endpoint_url
        region = self.bucket_region(bucket)
        if COMMON_REGION.fullmatch(region) and not self.settings.has_special_endpoint:
            # https://docs.aws.amazon.com/general/latest/gr/s3.html
            return f"https://s3.{region}.amazonaws.com"
        # Only botocore handles all partitions and settings. Creating a client takes 80 ms, so all
        # buckets in the region of the session share the client with the region None.
        return self.s3_client("control", self.bucket_regions.get(bucket)).meta.endpoint_url

    def _access_point_url(self, arn: str) -> str:
        """Return the URL of an access point, which only botocore can derive from an ARN.

        The host name in this URL begins with the name of the access point, so the endpoint cannot
        be an IP address. An alias of the access point can be in the path instead.
        """
        _refuse_ip_address(urlsplit(self.endpoint_url or ""), "give the alias of the access point")
        # No request is sent to create the presigned URL. The key is arbitrary, because only the
        # host of the URL is used.
        presigned_url = self.s3_client("control", self.bucket_region(arn)).generate_presigned_url(
            "head_object", {"Bucket": arn, "Key": "-"}
        )
        return urlsplit(presigned_url)._replace(path="", query="").geturl()

    def s3_client(
        self, purpose: str, region: str | None = None, *, signs_payload: bool = False
    ) -> S3Client:
        """Return a botocore client for S3. Creating the first client takes 0.2 s of CPU time.

        Args:
            purpose: "bodies" (for large bodies), "slow" (for copies and Complete, which can take S3
                several minutes) or "control" (for all small, quick requests).
            region: region of the requests. Defaults to the region of the session.
            signs_payload: whether the signature covers bodies. If False, each body has a CRC-32.
        """
        # A forked process must not use its parent's connections, so the key contains the process
        # id.
        key = (os.getpid(), purpose, region, signs_payload)
        with self._lock:
            if key not in self._s3_clients:
                from s3unzip.stores.s3.botocore_clients import create_s3_client

                self._s3_clients[key] = create_s3_client(
                    self._botocore_session,
                    # The endpoint may also come from an environment variable or a file.
                    replace(self.access, endpoint_url=self.endpoint_url),
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
        """Return a new client for `service`. Region and endpoint default to the session's.

        Args:
            service: name of the service in botocore.
            settings: arguments for botocore's `Config`.
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

    def renew_refused_keys(self, response: Any, attempts: int, **_: object) -> int | None:
        """If a service has refused the keys, look for other keys; return 0 to repeat the request.

        botocore calls this method after each attempt, as a handler of its event ``needs-retry``. If
        the result is a number, botocore repeats the request after this number of seconds.

        Args:
            response: the response and its parsed content; None if there is no response.
            attempts: number of times that the request was sent. Only the first attempt is repeated.

        Raises:
            ExpiredKeysError: the keys have expired, and no other keys were found.
        """
        from s3unzip.stores.s3.errors import EXPIRED, REFUSED_KEYS

        match response:
            case (_, {"Error": {"Code": code, "Message": message}}) if (
                attempts == 1 and code in REFUSED_KEYS
            ):
                try:
                    # The request is assumed to have been signed with the latest keys.
                    if self.keys.find_new_keys(self.keys.renewals):
                        return 0
                except S3UnzipError:
                    # If the keys have not expired, the service's own error is more useful.
                    if code in EXPIRED:
                        raise
                if code in EXPIRED:
                    raise ExpiredKeysError(f"{code}: {message}; {self.keys.require().advice}")
        return None


def _refuse_ip_address(server: SplitResult, advice: str) -> None:
    if _IP_ADDRESS.search(server.hostname or ""):
        raise UsageError(
            f"{server.geturl()}: no bucket can be in a host name that is an IP address; {advice}"
        )
