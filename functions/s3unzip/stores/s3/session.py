"""Create the S3 clients of a process, and explain why an endpoint does not respond.

obstore reads and writes objects; botocore does everything else. All threads of a process share the
clients of a `Session`. Retries are disabled in both clients, because `Calls` retries requests and
counts the retries.

obstore runs its own threads, and a forked process does not inherit them. In a forked process,
obstore would wait forever, so botocore sends all requests.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from s3unzip import errors
from s3unzip.model import Pin
from s3unzip.stores.calls import count_request
from s3unzip.stores.config import find_proxy
from s3unzip.stores.s3.aws_session import AwsSession
from s3unzip.stores.s3.credentials import NO_KEYS
from s3unzip.stores.s3.errors import (
    EXPIRED,
    NOT_S3,
    PROVIDER,
    REFUSED_KEYS,
    UNTRUSTED,
    Call,
    ServerAnswer,
    is_misplaced,
    is_missing_permission,
    read_answer,
    s3_errors,
    translate_error,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from obstore.store import ClientConfig, S3Config

PROXIES = frozenset({"http_proxy", "https_proxy", "all_proxy"})  # names of variables, in lower case
OWNER_CHECK_LASTS = 300.0  # seconds for which a checked owner is trusted
# obstore's messages about responses without ASCII metadata, a length, status 206 or an HTTP date.
UNREADABLE_BY_OBSTORE = re.compile(
    "non UTF-8 char|Content-Length Header missing|non-partial response|Invalid last mod"
)


class Session:
    """The S3 clients of a process; each client is created on first use.

    Args:
        aws: settings, keys and botocore clients.
        endpoint_option: option to name in the advice if the endpoint does not respond.
    """

    _obstore_process: ClassVar[int | None] = None  # id of the process that uses obstore

    def __init__(self, aws: AwsSession, endpoint_option: str = "--endpoint-url") -> None:
        self.access = aws.access
        self._advice = f"check {endpoint_option}, --region and the network"  # if no server responds
        self._lock = threading.RLock()
        self._aws = aws
        # The obstore clients; a key is the bucket, whether the client writes, and its KMS key.
        self._stores: dict[tuple[str, bool, str | None], S3Store] = {}
        # The time when an account must again be confirmed as the owner of a bucket.
        self._owned: dict[tuple[str, str], float] = {}
        self._reachable: set[str] = set()  # buckets that have passed `check_bucket`
        self._version_denied: set[str] = set()  # buckets that deny access to versions
        self._renewals_when_cleared = 0  # `ProfileKeys.renewals` when `_stores` was last cleared
        # Until this monotonic time, an unreachable server probably means a wrong setting.
        self.startup_ends = aws.access.startup_ends()
        # Keys of objects that obstore cannot read (see `explain_and_adapt`).
        self.keys_for_botocore: set[str] = set()
        self.implements_copies = True  # False after the server has refused UploadPartCopy
        self.accepts_if_match = True  # False after the server has refused an ETag of its own

    @staticmethod
    def is_forked() -> bool:
        """Return whether obstore was used before this process was forked."""
        return Session._obstore_process not in {None, os.getpid()}

    def client(self, purpose: str) -> S3Client:
        """Return the botocore client for a purpose (see `AwsSession.s3_client`).

        A response to ListObjectsV2 contains the page as a `ListPage`, in the field `PARSED_PAGE`.
        """
        # Either a checksum or the signature covers the body of a request.
        return self._aws.s3_client(purpose, signs_payload=not self.sends_checksums)

    @cached_property
    def sends_checksums(self) -> bool:
        """Whether requests contain checksums of their bodies, in headers that some servers refuse.

        Without checksums, the signature covers each body, so the server still verifies it. The AWS
        configuration can disable the headers (sdkref/latest/guide/feature-dataintegrity.html).
        """
        return str(self._aws.settings.request_checksum_calculation).lower() != "when_required"

    def stop_checksums(self) -> None:
        """From now on, send no checksums in headers, because the server does not implement them."""
        with self._lock:
            self.sends_checksums = False
            # Only clients for writing send checksums. Clients for reading are kept.
            self._stores = {key: self._stores[key] for key in self._stores if not key[1]}

    def reader(self, bucket: str) -> S3Store:
        """Return the obstore client that reads `bucket`."""
        key = (bucket, False, None)  # False means that the client only reads
        return self._stores.get(key) or self._open_store(key)  # reading from a dict needs no lock

    def writer(self, bucket: str, kms_key: str | None) -> S3Store:
        """Return the obstore client that writes to `bucket`.

        Args:
            kms_key: KMS key that encrypts objects. Defaults to the bucket's default encryption.
        """
        key = (bucket, True, kms_key)  # True means that the client writes
        return self._stores.get(key) or self._open_store(key)

    def _write_settings(self, kms_key: str | None) -> S3Config:
        """Return the settings that only a client for writing uses.

        If the client sends checksums, S3 verifies the CRC64NVME of the body. The signature does not
        cover the body, because hashing the body would use more CPU than the rest of the PUT.
        """
        config: S3Config = {
            "unsigned_payload": self.sends_checksums,
            "disable_tagging": False,  # overrides AWS_DISABLE_TAGGING
        }
        if self.sends_checksums:
            config["checksum_algorithm"] = "CRC64NVME"
        if kms_key is not None:
            config |= {
                "server_side_encryption": "aws:kms",
                "sse_kms_key_id": kms_key,
                "sse_bucket_key_enabled": True,
            }
        return config

    def _open_store(self, key: tuple[str, bool, str | None]) -> S3Store:
        """Create the obstore client for a key of `_stores`, unless another thread has done so."""
        bucket, writes, kms_key = key
        if not self.access.unsigned and self._aws.keys.current() is None:
            raise errors.AccessDeniedError(
                f"s3://{bucket}: {NO_KEYS}, or read a public archive with --no-sign-request"
            )
        url, has_bucket = self._aws.bucket_url(bucket)
        # Settings that are not listed here would be taken from environment variables.
        settings: S3Config = {
            "region": self._aws.bucket_region(bucket),
            "endpoint": url,
            "aws_endpoint_url_s3": url,  # overrides AWS_ENDPOINT_URL_S3
            "virtual_hosted_style_request": has_bucket,
            "skip_signature": self.access.unsigned,
            "request_payer": self.access.request_payer,
            "conditional_put": "etag",
            "s3_express": False,
        }
        options = self._http_options(url)
        if writes:
            settings |= self._write_settings(kms_key)
            options["timeout"] = timedelta(seconds=self.access.put_seconds)
        else:
            options["read_timeout"] = timedelta(seconds=self.access.stall_seconds)
            # The time limit of a whole request must not cut off a long stream.
            options["timeout"] = timedelta(hours=12)
        provider = None if self.access.unsigned else self._aws.keys.obstore_credential
        with self._lock:
            if key in self._stores:
                return self._stores[key]
            Session._obstore_process = os.getpid()  # for `is_forked`
            try:
                self._stores[key] = S3Store(
                    bucket,
                    config=settings,
                    client_options=options,
                    retry_config={"max_retries": 0},
                    credential_provider=provider,
                )
            except (BaseError, ValueError) as error:  # AWS_CA_BUNDLE may contain no certificate
                raise errors.UsageError(f"s3://{bucket}: {error}") from None
            return self._stores[key]

    def _http_options(self, url: str) -> ClientConfig:
        """Return the HTTP options shared by all obstore clients for `url`."""
        options: ClientConfig = {
            "connect_timeout": timedelta(seconds=self.access.connect_seconds),
            "pool_max_idle_per_host": str(self.access.connections),
            "pool_idle_timeout": timedelta(seconds=50),  # S3 closes idle connections a little later
            "allow_http": url.startswith("http://"),
            "user_agent": "s3unzip",
        }
        if not PROXIES.isdisjoint(map(str.lower, os.environ)):
            # Without a `proxy_url`, obstore would read these variables in its own way. If there is
            # no proxy for `url`, excluding the host of `url` ensures that no proxy is used.
            options["proxy_url"] = find_proxy(url) or url
            if options["proxy_url"] == url:
                options["proxy_excludes"] = urlsplit(url).hostname or ""
        elif url.startswith("http://"):
            # Saves the 3 ms for parsing the root certificates, which are not needed without TLS.
            options["allow_invalid_certificates"] = True
        certificates = self._aws.settings.ca_bundle or os.environ.get("REQUESTS_CA_BUNDLE")
        # For indented lines in a file, botocore returns a dict. The text may also be empty.
        if isinstance(certificates, str) and certificates:
            try:
                options["root_certificate"] = Path(certificates).read_bytes()
            except OSError as error:
                raise errors.UsageError(
                    f"AWS_CA_BUNDLE or REQUESTS_CA_BUNDLE: {certificates}: {error.strerror}"
                ) from None
        return options

    def confirm_owner(self, bucket: str, owner: str | None) -> None:
        """Check that the account `owner` owns `bucket`; if `owner` is None, do nothing.

        The result of a check is valid for five minutes. obstore cannot send the header
        ``x-amz-expected-bucket-owner``, because obstore's signature does not cover additional
        headers, and S3 refuses unsigned ``x-amz-`` headers.
        """
        if owner is None or self._owned.get((bucket, owner), 0.0) > time.monotonic():
            return
        count_request("head")
        try:
            self.client("control").head_bucket(Bucket=bucket, ExpectedBucketOwner=owner)
        except s3_errors() as error:
            refusal = translate_error(error, Call("ListBucket", bucket))
            if isinstance(refusal, errors.AccessDeniedError):
                refusal = errors.AccessDeniedError(
                    f"{refusal}; or account {owner} does not own the bucket"
                )
            raise refusal from None
        self._owned[bucket, owner] = time.monotonic() + OWNER_CHECK_LASTS

    def check_bucket(self, bucket: str) -> None:
        """Raise an error if credentials or the bucket are missing, or the endpoint is unreachable.

        A bucket that passes is not checked again. Later requests will report other errors.
        """
        if bucket in self._reachable or self.is_forked():  # in a fork, obstore never returns
            return
        try:
            # There is no object with this key. A HEAD for the bucket would require botocore.
            obstore.get(self.reader(bucket), ".s3unzip-reach")
        except s3_errors() as error:
            answer = read_answer(error)
            # The certificate is not trusted, or a proxy asks for a password.
            if answer.code == UNTRUSTED or answer.status == 407:
                raise translate_error(error, Call("GetObject", bucket)) from None
        else:
            # A server that returns an object here is not S3: each of its answers is a page.
            answer = ServerAnswer(200, code="", message=NOT_S3)
        if answer.code == "NoSuchBucket":
            raise errors.NotFoundError(
                f"s3://{bucket}: there is no such bucket; check its name, the region and the "
                "endpoint"
            )
        if answer.message.startswith(NOT_S3) or self._aws.has_wrong_endpoint(answer.status):
            raise errors.StorageError(f"s3://{bucket}: {answer.message}; {self._advice}")
        unreachable = self._explain_unreachable(answer, bucket, f"s3://{bucket}")
        if unreachable is not None:
            raise unreachable
        self._reachable.add(bucket)

    def readable_version(self, bucket: str, pin: Pin) -> str | None:
        """Return the version id to specify in a request, or None to specify only the ETag.

        A request with a version id requires s3:GetObjectVersion. If S3 has denied such a request,
        later requests specify only an ETag, because credentials without that permission may still
        be able to read the archive.
        """
        if bucket in self._version_denied and pin.has_strong_etag:
            return None
        return pin.version_id

    @contextmanager
    def explaining(self, call: Call) -> Iterator[None]:
        """Pass an exception from a client to `explain_and_adapt`, and raise the returned error."""
        try:
            yield
        except s3_errors() as error:
            raise self.explain_and_adapt(error, call) from None

    def explain_and_adapt(self, error: Exception, call: Call) -> errors.S3UnzipError:
        """Return the error to raise for an exception during `call`, and prepare the next attempt.

        The next attempt may use other signing keys, go to the region of the bucket, specify no
        version, or be sent by botocore. If an endpoint cannot be reached when a program starts, the
        error does not allow a retry.
        """
        keys = self._aws.keys
        if keys.failure is not None and PROVIDER in str(error):  # the cause of `error`
            return keys.failure
        answer = read_answer(error)
        # A HEAD has the action GetObject and is never pinned. The response to a HEAD has no code.
        may_be_head = call.action == "GetObject" and not call.pinned
        if may_be_head and answer.status in {400, 403} and not answer.code:
            error = self._repeat_as_get(call, error)
            answer = read_answer(error)
        fault = translate_error(error, call)
        if UNREADABLE_BY_OBSTORE.search(answer.message):
            self.keys_for_botocore.add(call.key)
        if answer.code in REFUSED_KEYS:
            return self._renew_keys(fault, answer.code)
        if call.action == "GetObjectVersion" and is_missing_permission(answer):
            self._version_denied.add(call.bucket)
            return errors.ServiceFaultError(str(fault))  # allows a retry, which names no version
        if is_misplaced(answer):
            # After `_switch_region`, `fault` allows a retry, which goes to the bucket's region.
            if self._aws.has_wrong_endpoint(answer.status) or not self._switch_region(call.bucket):
                fault = errors.NotFoundError(f"{fault}; {self._advice}")  # a retry would not help
        elif isinstance(fault, errors.ServiceFaultError):
            fault = self._explain_fault(fault, answer, call)
        return fault

    def _repeat_as_get(self, call: Call, head_error: Exception) -> Exception:
        """Send a GET of the same key; return its exception, which contains an error code.

        The response to a HEAD has no body, and thus no error code. Returns `head_error` if the GET
        succeeds, or if the server does not respond.
        """
        count_request("get")
        try:
            response = self.client("control").get_object(
                Bucket=call.bucket, Key=call.key, Range="bytes=0-0"
            )
            response["Body"].close()
        except s3_errors() as error:
            if read_answer(error).status is not None:
                return error
        return head_error

    def _renew_keys(self, refusal: errors.S3UnzipError, code: str) -> errors.S3UnzipError:
        """Look for keys other than the refused keys, and return the error to raise.

        If other keys were found or may be found later, the error is a `ServiceFaultError`, which
        allows a retry.
        """
        # When a program starts, keys that are wrong but not expired are a user error.
        if code not in EXPIRED and self._is_starting:
            return refusal
        keys = self._aws.keys
        try:
            are_renewed = keys.find_new_keys(self._renewals_when_cleared)
            current = keys.current()
        except errors.S3UnzipError as failure:
            # If the keys have expired, the user needs to know why there are no new ones.
            return failure if code in EXPIRED else refusal
        if are_renewed:
            with self._lock:
                # Another thread may have cleared the clients after this renewal.
                if self._renewals_when_cleared != keys.renewals:
                    self._renewals_when_cleared = keys.renewals
                    self._stores.clear()  # the clients cache the refused keys
            return errors.ServiceFaultError(str(refusal))
        if code not in EXPIRED or current is None:
            return refusal
        # Keys in environment variables do not change while a process is running.
        is_final = current.is_fixed or self._is_starting
        error_class = errors.ExpiredKeysError if is_final else errors.ServiceFaultError
        return error_class(f"{refusal}; {current.advice}")

    def _switch_region(self, bucket: str) -> bool:
        """Send later requests to the region of the bucket; return whether a retry may succeed.

        A retry may succeed if the region was found, or if the server did not respond this time. A
        retry cannot succeed if the response contains no region.
        """
        count_request("head")
        try:
            metadata: Any = self.client("control").head_bucket(Bucket=bucket)["ResponseMetadata"]
        except s3_errors() as error:
            if read_answer(error).status is None:  # no response
                return True
            # The headers of a refusal also contain the region.
            metadata = getattr(error, "response")["ResponseMetadata"]  # noqa: B009 - attribute of `ClientError`
        region = metadata.get("HTTPHeaders", {}).get("x-amz-bucket-region")
        if region is not None and region != self._aws.bucket_region(bucket):
            with self._lock:
                self._aws.bucket_regions[bucket] = region
                self._stores = {key: self._stores[key] for key in self._stores if key[0] != bucket}
        return region is not None  # another thread may already have set the region

    def _explain_fault(
        self, fault: errors.ServiceFaultError, answer: ServerAnswer, call: Call
    ) -> errors.S3UnzipError:
        """Set the fault's `trouble`, which names the server; return the fault.

        If the fault's message does not name the server, add the name or advice on the endpoint. If
        the program is starting and cannot reach the server, return a permanent error instead.
        """
        url, _ = self._aws.bucket_url(call.bucket)
        if answer.status is not None:
            fault.trouble = f"{url} answers with errors ({answer.code or f'HTTP {answer.status}'})"
            return fault
        if answer.message.startswith(NOT_S3):
            fault.trouble = f"{url} answers, but not as S3 does"
            fault.args = (f"{fault}; {self._advice}",)
            return fault
        server = url
        proxy = find_proxy(url)
        if proxy is not None:
            # The user and password are secret.
            server += f" through the proxy {re.sub('//.*@', '//', proxy)}"
        # Messages from obstore end like this: "...: Connection reset (os error 104)".
        reason = answer.message.rpartition(": ")[2].partition(" (os error")[0].lower()
        fault.trouble = (
            f"no answer from {server} ({answer.unreachable or reason or 'reason unknown'})"
        )
        # `fault.args` is the message, which does not name the server yet.
        fault.args = (f"{fault}; no answer from {server}",)
        if not self._is_starting:
            return fault
        # If the server may be reachable, return `fault`, because a retry may help.
        return self._explain_unreachable(answer, call.bucket, str(call)) or fault

    def _explain_unreachable(
        self, answer: ServerAnswer, bucket: str, subject: str
    ) -> errors.StorageError | None:
        """Return an error about an endpoint that cannot be reached, or None if it may be reachable.

        With a proxy, the result is None, because the unreachable server may be the proxy.

        Args:
            subject: text with which the message begins: the request, or the bucket's location.
        """
        url, _ = self._aws.bucket_url(bucket)
        if not answer.unreachable or find_proxy(url) is not None:
            return None
        return errors.StorageError(
            f"{subject}: cannot reach {url}: {answer.unreachable}; {self._advice}"
        )

    @property
    def _is_starting(self) -> bool:
        """Whether the program has just started, so that failures probably mean a wrong setting."""
        return time.monotonic() < self.startup_ends
