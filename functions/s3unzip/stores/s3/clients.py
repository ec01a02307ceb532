"""Clients of AWS: sessions of botocore for every service, and obstore for the data of S3."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import botocore.session
from botocore import UNSIGNED
from botocore.config import Config
from botocore.credentials import ReadOnlyCredentials
from obstore.store import S3Store

from s3unzip.errors import UsageError
from s3unzip.stores.factory import StoreConfig
from s3unzip.stores.ports import ListedObject

if TYPE_CHECKING:  # stubs
    from mypy_boto3_s3 import S3Client
    from obstore.store import ClientConfig, S3Config, S3Credential

OK = 200
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/ObjectsinRequesterPaysBuckets.html
PAYER_HEADER, REQUESTER = "x-amz-request-payer", "requester"
# botocore renews role credentials at least 10 minutes before they expire, and obstore asks again 5
# minutes before the time given here. So no request is signed with expired ones.
CREDENTIALS_LAST = timedelta(minutes=10)


class AwsSession:
    """One profile and region of an account; None uses ``AWS_PROFILE`` and the other AWS variables.

    Threads may share it and its clients. A profile that does not exist is an error of the first
    client.
    """

    def __init__(self, profile: str | None = None, region: str | None = None) -> None:
        self._profile = profile
        self._region = region
        self._lock = Lock()  # botocore's sessions are for one thread

    @cached_property
    def _core(self) -> botocore.session.Session:
        core = botocore.session.get_session()
        if self._profile is not None:
            core.set_config_variable("profile", self._profile)
        if self._region is not None:
            core.set_config_variable("region", self._region)
        return core

    @property
    def region(self) -> str | None:
        """The region of the session; None: it has none."""
        found: str | None = self._core.get_config_variable("region")
        return found

    @property
    def ca_bundle(self) -> str | None:
        """The file of certificates to trust; None: the default ones."""
        bundle = self._core.get_config_variable("ca_bundle")
        return bundle if isinstance(bundle, str) and bundle else None

    def credentials(self) -> Callable[[], ReadOnlyCredentials] | None:
        """Return a function that returns the current credentials; None: there are none."""
        with self._lock:
            found = self._core.get_credentials()
        return None if found is None else found.get_frozen_credentials

    def client(
        self,
        service: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        **settings: object,
    ) -> Any:
        """Return a new client of `service`; None leaves region and endpoint to the session.

        Args:
            service: botocore's name of the service.
        """
        config: Any = Config(**settings)  # type: ignore[arg-type]  # each of its own type
        try:
            with self._lock:
                return self._core.create_client(
                    service, region_name=region, endpoint_url=endpoint_url, config=config
                )
        except ValueError as error:  # an endpoint from ~/.aws/config or a variable
            raise UsageError(f"{error}: it must begin with http:// or https://") from None


PAGE = "Page"  # of an answer to ListObjectsV2: the `ListPage` that takes the place of the rest


class ListPage(NamedTuple):
    """One answer to ListObjectsV2."""

    objects: list[ListedObject]
    is_truncated: bool
    token: str  # of the next page


def read_lists_quickly(client: S3Client) -> None:
    """Let `client` read lists of objects with a tenth of the CPU: about 5 us an object.

    botocore's parser takes 70 us. obstore's list takes 5 us, but it drops the slash at the end of a
    key and refuses some keys.
    """

    def read(
        response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
    ) -> None:
        if response_dict["status_code"] == OK:
            customized_response_dict[PAGE] = _read_page(response_dict["body"])
            response_dict["body"] = b"<ListBucketResult/>"

    client.meta.events.register("before-parse.s3.ListObjectsV2", read)


def _read_page(body: bytes) -> ListPage:
    """Return a page of a list."""
    try:
        root = ET.fromstring(body)  # noqa: S314 - expat bounds what entities grow to
    except ET.ParseError as error:
        raise ValueError(f"the list is not XML: {error}") from None
    space, _, name = root.tag.rpartition("}")
    if name != "ListBucketResult":
        raise ValueError(f"not a list of objects: {name}")
    space += "}" if space else ""
    key_tag, size_tag, etag_tag = f"{space}Key", f"{space}Size", f"{space}ETag"
    encoded = root.findtext(f"{space}EncodingType") == "url"
    objects = []
    for entry in root.iterfind(f"{space}Contents"):
        key = entry.findtext(key_tag) or ""
        if encoded and "%" in key:
            key = unquote(key)
        size = int(entry.findtext(size_tag) or "")
        objects.append(ListedObject(key, size, unquoted(entry.findtext(etag_tag))))
    truncated = root.findtext(f"{space}IsTruncated") == "true"
    return ListPage(objects, truncated, root.findtext(f"{space}NextContinuationToken") or "")


def unquoted(etag: str | None) -> str | None:
    """Return an ETag without its quotes: lines of outcomes are many, and JSON escapes quotes."""
    return etag.strip('"') if etag else None


class BucketEndpoint(NamedTuple):
    """Where the requests for one bucket go."""

    url: str
    in_host: bool  # whether the bucket is in the host name, not in the path
    region: str
    ca_bundle: str | None = None  # file of certificates to trust; None: the system's


def obstore_credentials(
    credentials: Callable[[], ReadOnlyCredentials],
) -> Callable[[], S3Credential]:
    """Return a function with a session's current credentials; obstore asks before they expire."""

    def provide() -> S3Credential:
        now = credentials()
        return {
            "access_key_id": now.access_key or "",
            "secret_access_key": now.secret_key or "",
            "token": now.token,
            "expires_at": datetime.now(UTC) + CREDENTIALS_LAST,
        }

    return provide


def boto_config(access: StoreConfig, read_seconds: float, send_seconds: float) -> dict[str, object]:
    """Return the settings of a botocore client of S3.

    Args:
        access: how S3 is reached.
        read_seconds: the longest wait for a byte.
        send_seconds: the longest wait for a connection, and until 128 KiB of a body are sent:
            botocore has one limit for both. Parts that share a slow uplink need more than a
            connection.
    """
    return {
        "connect_timeout": send_seconds,
        "read_timeout": read_seconds,
        "max_pool_connections": access.connections,
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "tcp_keepalive": True,
        "signature_version": UNSIGNED if access.unsigned else "s3v4",
        "s3": {
            "addressing_style": "path" if access.endpoint_url else "auto",
            "payload_signing_enabled": False,  # each part goes with its CRC-32
            # Otherwise botocore sends requests for us-east-1 to the global endpoint.
            "us_east_1_regional_endpoint": "regional",
        },
    }


def let_requester_pay(client: S3Client) -> None:
    """Let every request of `client` say that the requester pays; the header is signed."""

    def add_header(params: dict[str, Any], **_: object) -> None:
        params["headers"][PAYER_HEADER] = REQUESTER

    client.meta.events.register("before-call.s3", add_header)


def open_store(
    bucket: str,
    endpoint: BucketEndpoint,
    access: StoreConfig,
    credentials: Callable[[], S3Credential] | None,
    config: S3Config,
    limits: ClientConfig,
) -> S3Store:
    """Return the obstore client of one bucket.

    Args:
        endpoint: where its requests go.
        access: how S3 is reached.
        credentials: None: requests are not signed.
        config: more settings of S3.
    """
    # What is not named here would come from variables of the environment.
    whole: S3Config = {
        "region": endpoint.region,
        "endpoint": endpoint.url,
        "aws_endpoint_url_s3": endpoint.url,  # else AWS_ENDPOINT_URL_S3 would win
        "virtual_hosted_style_request": endpoint.in_host,
        "skip_signature": credentials is None,
        "request_payer": access.request_payer,
        **config,
    }
    options: ClientConfig = {
        "connect_timeout": timedelta(seconds=access.connect_seconds),
        "pool_max_idle_per_host": str(access.connections),
        "pool_idle_timeout": timedelta(seconds=50),  # S3 hangs up a little later
        "allow_http": endpoint.url.startswith("http://"),
        "user_agent": "s3unzip",
        **limits,
    }
    if endpoint.ca_bundle:
        options["root_certificate"] = Path(endpoint.ca_bundle).read_bytes()
    return S3Store(
        bucket,
        config=whole,
        client_options=options,
        retry_config={"max_retries": 0},
        credential_provider=credentials,
    )
