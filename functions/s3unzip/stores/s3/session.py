"""Credentials, endpoints, and the two clients of S3: boto3 for control, obstore for data.

One `Session` per process: its clients are shared by all threads, and cannot
cross a fork (obstore runs threads of its own). Retries are off in both
clients, because the pipeline retries, and counts what it retries.
"""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import botocore
from botocore.exceptions import ClientError

from s3unzip.clients import AwsSession
from s3unzip.errors import AccessDeniedError, NotFoundError, ServiceFaultError, StorageError
from s3unzip.stores.calls import count_request
from s3unzip.stores.s3.answers import (
    ADVICE,
    S3_ERRORS,
    UNTRUSTED,
    Call,
    MisplacedError,
    read_answer,
    translate_error,
)
from s3unzip.stores.s3.client_settings import (
    PAYER_HEADER,
    REQUESTER,
    BucketEndpoint,
    boto_config,
    let_requester_pay,
    obstore_credentials,
    open_store,
)
from s3unzip.stores.s3.lean.client import LeanClient, Wait
from s3unzip.stores.s3.lean.signing import Anonymous, Signer
from s3unzip.stores.s3.reachability import is_proxied, why_unreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from mypy_boto3_s3 import S3Client
    from obstore.store import ClientConfig, S3Config, S3Store

    from s3unzip.clients.aws_session import Frozen
    from s3unzip.errors import S3UnzipError
    from s3unzip.stores.s3.access import S3Access, Writing

DEFAULT_REGION = "us-east-1"
CERTIFICATES = str(Path(botocore.__file__).with_name("cacert.pem"))  # as boto3 trusts
OWNER_CHECK_LASTS = 300.0  # seconds
BEGINNING = 30.0  # seconds: an endpoint that is unreachable then is likely a wrong one
REACH_SECONDS = 4.0


class Session:
    """The process's clients of S3, made when they are first needed.

    `aws` is the session of this profile and region; another one takes 50 ms to read its files.
    """

    def __init__(self, access: S3Access, aws: AwsSession | None = None) -> None:
        self.access = access
        self._lock = threading.RLock()
        self._aws = aws or AwsSession(access.profile, access.region)
        self._clients: dict[str, S3Client] = {}
        self._readers: dict[str, S3Store] = {}
        self._askers: dict[tuple[str, str | None], LeanClient | None] = {}
        self._writers: dict[tuple[str, Writing], S3Store] = {}
        self._regions: dict[str, str] = {}  # of buckets that are not in the default one
        self._owned: dict[tuple[str, str], float] = {}  # until when the check holds
        self._began = time.monotonic()

    @property
    def control(self) -> S3Client:
        """The boto3 client of HEAD, LIST and the small multipart calls."""
        return self._client("control", self.access.stall_seconds, self.access.connect_seconds)

    @property
    def slow(self) -> S3Client:
        """The boto3 client of large bodies, and of calls that S3 may take minutes to answer."""
        return self._client("slow", self.access.slow_seconds, self.access.put_seconds)

    def reader(self, bucket: str) -> S3Store:
        """Return the obstore client that reads `bucket`."""
        with self._lock:
            if bucket not in self._readers:
                stall = timedelta(seconds=self.access.stall_seconds)
                # The whole-request timeout of obstore must not end a long stream.
                self._readers[bucket] = self._store(
                    bucket, {}, {"read_timeout": stall, "timeout": timedelta(hours=12)}
                )
            return self._readers[bucket]

    def writer(self, bucket: str, writing: Writing) -> S3Store:
        """Return the obstore client that writes to `bucket`.

        The body is not hashed for the signature: CRC64NVME goes with it, S3
        verifies that, and hashing costs more CPU than all the rest of a PUT.
        """
        found = self._writers.get((bucket, writing))  # a dict read is atomic; creating is not
        if found is not None:
            return found
        with self._lock:
            if (bucket, writing) not in self._writers:
                config: S3Config = {"checksum_algorithm": "CRC64NVME", "unsigned_payload": True}
                config["disable_tagging"] = False  # else AWS_DISABLE_TAGGING would win
                if writing.kms_key is not None:
                    config["server_side_encryption"] = "aws:kms"
                    config["sse_kms_key_id"] = writing.kms_key
                    config["sse_bucket_key_enabled"] = True
                limit: ClientConfig = {"timeout": timedelta(seconds=self.access.put_seconds)}
                self._writers[bucket, writing] = self._store(bucket, config, limit)
            return self._writers[bucket, writing]

    def asker(self, bucket: str, owner: str | None) -> LeanClient | None:
        """Return the client of HEAD and LIST; None where a proxy stands before the endpoint.

        Args:
            bucket: that it asks.
            owner: account that must own the bucket; it goes with each request.
        """
        key = (bucket, owner)
        with self._lock:
            if key not in self._askers:
                self._askers[key] = self._lean(bucket, owner)
            return self._askers[key]

    def _lean(self, bucket: str, owner: str | None) -> LeanClient | None:
        url, in_host = self._endpoint(bucket)
        if is_proxied(url):
            return None
        found, region = self._credentials(bucket), self._region_of(bucket)
        signer = Anonymous(region) if found is None else Signer(found, region)
        wait = Wait(self.access.connect_seconds, self.access.stall_seconds)
        headers = {} if owner is None else {"x-amz-expected-bucket-owner": owner}
        if self.access.request_payer:
            headers[PAYER_HEADER] = REQUESTER
        where = url if in_host else f"{url}/{bucket}"
        return LeanClient(where, signer, wait, self._aws.ca_bundle or CERTIFICATES, headers)

    def confirm_owner(self, bucket: str, owner: str | None) -> None:
        """Check that the account `owner` owns `bucket`, once in five minutes.

        obstore cannot send ``x-amz-expected-bucket-owner``: its signature
        leaves default headers out, and S3 refuses an unsigned ``x-amz-`` one.

        Raises:
            AccessDeniedError: another account owns it, or s3:ListBucket is missing.
        """
        if owner is None:
            return
        now = time.monotonic()
        if self._owned.get((bucket, owner), 0.0) > now:
            return
        count_request("head")
        try:
            self.control.head_bucket(Bucket=bucket, ExpectedBucketOwner=owner)
        except S3_ERRORS as error:
            found = translate_error(error, Call("ListBucket", bucket))
            if isinstance(found, AccessDeniedError):
                found = AccessDeniedError(f"{found}; or account {owner} does not own the bucket")
            raise found from None
        self._owned[bucket, owner] = now + OWNER_CHECK_LASTS

    def understand(self, error: Exception, call: Call) -> S3UnzipError:
        """Return the error that says what `error` means to `call`.

        After a `MisplacedError` the next attempt goes to the bucket's region, if the server
        says which it is. An endpoint that cannot be reached when a program begins is not tried
        again.
        """
        found = translate_error(error, call)
        if isinstance(found, MisplacedError):
            if not self._relocate(call.bucket):
                return NotFoundError(f"{found}; {self.access.advice}")
        elif isinstance(found, ServiceFaultError) and read_answer(error).status is None:
            return self._unreachable(call) or found
        return found

    def check_reachable(self, bucket: str) -> None:
        """Connect to the endpoint of `bucket`; nothing is asked of it.

        Raises:
            StorageError: it cannot be connected to.
        """
        found = self._try_endpoint(f"s3://{bucket}", bucket)
        if found is not None:
            raise found

    def _unreachable(self, call: Call) -> S3UnzipError | None:
        if not self.access.check_reachable or time.monotonic() - self._began > BEGINNING:
            return None
        return self._try_endpoint(str(call), call.bucket)

    def _try_endpoint(self, whose: str, bucket: str) -> S3UnzipError | None:
        url = self._endpoint(bucket)[0]
        cause = why_unreachable(url, REACH_SECONDS, self._aws.ca_bundle)
        if cause is None:
            return None
        advice = self.access.advice
        if "certificate" in cause:
            advice = ADVICE[UNTRUSTED]
        return StorageError(f"{whose}: cannot reach {url}: {cause}; {advice}")

    def _relocate(self, bucket: str) -> bool:
        """Ask for the bucket's region; return False if the server does not say it."""
        count_request("head")
        try:
            answer = self.control.head_bucket(Bucket=bucket)
        except ClientError as error:
            headers = error.response["ResponseMetadata"].get("HTTPHeaders", {})
        except S3_ERRORS:  # no answer: it may have one at the next attempt
            return True
        else:
            headers = answer["ResponseMetadata"]["HTTPHeaders"]
        region = headers.get("x-amz-bucket-region")
        if region is not None and region != self._region_of(bucket):
            with self._lock:
                self._regions[bucket] = region
                self._readers.pop(bucket, None)
                self._askers = {key: one for key, one in self._askers.items() if key[0] != bucket}
                for key in [key for key in self._writers if key[0] == bucket]:
                    del self._writers[key]
        return region is not None

    @property
    def _region(self) -> str:
        return self._aws.region or DEFAULT_REGION

    def _region_of(self, bucket: str) -> str:
        return self._regions.get(bucket) or self._region

    def _client(
        self, name: str, read_seconds: float, send_seconds: float, region: str | None = None
    ) -> S3Client:
        found = self._clients.get(name)
        if found is not None:
            return found
        with self._lock:
            if name not in self._clients:
                client: S3Client = self._aws.client(
                    "s3",
                    region=region or self._region,
                    endpoint_url=self.access.endpoint_url,
                    **boto_config(self.access, read_seconds, send_seconds),
                )
                if self.access.request_payer:
                    let_requester_pay(client)
                self._clients[name] = client
            return self._clients[name]

    def _endpoint(self, bucket: str) -> tuple[str, bool]:
        """Return the URL of obstore's requests, and whether the bucket is in its host name."""
        url = (self.access.endpoint_url or self._endpoint_in(self._regions.get(bucket))).rstrip("/")
        parts = urlsplit(url)
        host = parts.hostname or ""
        is_aws = host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))
        if not is_aws or "." in bucket:  # a dot would break the certificate's wildcard
            return url, False
        return f"{parts.scheme}://{bucket}.{parts.netloc}", True

    def _endpoint_in(self, region: str | None) -> str:
        known = self._aws.s3_endpoint(region or self._region)
        if known is not None:
            return known
        # A client takes 80 ms to make, but only botocore knows all partitions and settings.
        name = f"control in {region}" if region else "control"
        access = self.access
        client = self._client(name, access.stall_seconds, access.connect_seconds, region)
        return client.meta.endpoint_url

    def _store(self, bucket: str, config: S3Config, limits: ClientConfig) -> S3Store:
        url, in_host = self._endpoint(bucket)
        endpoint = BucketEndpoint(url, in_host, self._region_of(bucket), self._aws.ca_bundle)
        found = self._credentials(bucket)
        credentials = None if found is None else obstore_credentials(found)
        return open_store(bucket, endpoint, self.access, credentials, config, limits)

    def _credentials(self, bucket: str) -> Callable[[], Frozen] | None:
        """Return what requests are signed with; None: they are not signed.

        Raises:
            AccessDeniedError: boto3 finds no credentials.
        """
        if self.access.unsigned:
            return None
        found = self._aws.credentials()
        if found is None:
            raise AccessDeniedError(
                f"s3://{bucket}: no AWS credentials; set AWS_PROFILE or "
                "AWS_ACCESS_KEY_ID, or read a public archive with --no-sign-request"
            )
        return found
