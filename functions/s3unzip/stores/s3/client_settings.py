"""Settings and credentials of the two clients of S3: boto3 for control, obstore for data."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore import UNSIGNED
from obstore.store import S3Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client
    from obstore.store import ClientConfig, S3Config, S3Credential

    from s3unzip.clients.aws_session import Frozen
    from s3unzip.stores.s3.access import S3Access

# https://docs.aws.amazon.com/AmazonS3/latest/userguide/ObjectsinRequesterPaysBuckets.html
PAYER_HEADER, REQUESTER = "x-amz-request-payer", "requester"
# botocore renews role credentials at least 10 minutes before they expire, and obstore asks again 5
# minutes before the time given here. So no request is signed with expired ones.
CREDENTIALS_LAST = timedelta(minutes=10)


class BucketEndpoint(NamedTuple):
    """Where the requests for one bucket go."""

    url: str
    in_host: bool  # whether the bucket is in the host name, not in the path
    region: str
    ca_bundle: str | None = None  # file of certificates to trust; None: the system's


def obstore_credentials(credentials: Callable[[], Frozen]) -> Callable[[], S3Credential]:
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


def boto_config(access: S3Access, read_seconds: float, send_seconds: float) -> dict[str, object]:
    """Return the settings of a boto3 client.

    Args:
        access: how S3 is reached.
        read_seconds: that it waits for a byte.
        send_seconds: that it waits for a connection, and until 128 KiB of a body are sent: botocore
            has one limit for both. Parts that share a slow uplink need more than a connection.
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
    access: S3Access,
    credentials: Callable[[], S3Credential] | None,
    config: S3Config,
    limits: ClientConfig,
) -> S3Store:
    """Return the obstore client of one bucket.

    Args:
        bucket: its name.
        endpoint: where its requests go.
        access: how S3 is reached.
        credentials: None: requests are not signed.
        config: more settings of S3.
        limits: timeouts.
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
