"""The process's clients of S3, and why an endpoint does not answer.

botocore does control, obstore does data. One `Session` per process: its clients are shared by all
threads, and cannot cross a fork (obstore runs threads of its own). Retries are off in both
clients, because the pipeline retries, and counts what it retries.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from s3unzip import errors
from s3unzip.model import Pin
from s3unzip.stores.calls import count_request
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.s3.addresses import Addresses
from s3unzip.stores.s3.credentials import (
    NO_KEYS,
    AwsSession,
    FindKeys,
    obstore_credentials,
)
from s3unzip.stores.s3.errors import (
    EXPIRED,
    REFUSED_KEYS,
    Call,
    MisplacedError,
    is_about_keys,
    is_mute,
    is_odd_answer,
    is_without_right,
    read_answer,
    s3_errors,
    translate_error,
    why_unreachable,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from obstore.store import ClientConfig, S3Config

    from s3unzip.stores.s3.clients import Clients

OWNER_CHECK_LASTS = 300.0  # seconds
NO_PREFIX = ".s3unzip-reach"  # of keys that no bucket has
ADVICE_UNREACHABLE = "check --endpoint-url, --region and the network"


class Session:
    """The process's clients of S3, made when they are first needed.

    Args:
        access: how S3 is reached; its settings of the destination are not used.
        aws: the session of this profile and region; another one takes 50 ms to read its files.
    """

    def __init__(
        self, access: StoreConfig, aws: AwsSession | None = None, advice: str = ADVICE_UNREACHABLE
    ) -> None:
        self.access = access
        self._advice = advice
        self._lock = threading.RLock()
        self._aws = aws or AwsSession(access.profile, access.region)
        self._clients: Clients | None = None  # of botocore
        # By bucket and the KMS key to write with; False: to read.
        self._stores: dict[tuple[str, str | Literal[False] | None], S3Store] = {}
        self._addresses = Addresses(access, self._aws, self._client)
        self._owned: dict[tuple[str, str], float] = {}  # until when the check holds
        self._checked: set[str] = set()  # buckets
        self._unversioned: set[str] = set()  # buckets whose versions the credentials may not read
        self._renewals = 0  # of the keys that the clients of obstore have
        self._beginning_ends = access.beginning_ends()
        self._sends_checksums: bool | None = None  # None: as the configuration says
        self.copies = True  # False: the server does not implement UploadPartCopy

    @property
    def control(self) -> S3Client:
        """The botocore client of HEAD, LIST and the small multipart calls."""
        return self._client("control")

    @property
    def lister(self) -> S3Client:
        """The botocore client of LIST; its answers have the page as a `ListPage` (`PAGE_FIELD`)."""
        return self._client("lister")

    @property
    def bodies(self) -> S3Client:
        """The botocore client of requests and answers with large bodies."""
        return self._client("bodies")

    @property
    def slow(self) -> S3Client:
        """The botocore client of copies and Complete, which S3 may take minutes to answer."""
        return self._client("slow")

    @property
    def sends_checksums(self) -> bool:
        """Whether requests carry checksums of their bodies in headers that not all servers know.

        Without them the signature covers each body, so that the server verifies it as well.
        """
        if self._sends_checksums is None:
            self._sends_checksums = self._aws.sends_checksums
        return self._sends_checksums

    def stop_checksums(self) -> None:
        """Send no such checksums from now on: the server does not implement them."""
        with self._lock:
            self._sends_checksums = False
            if self._clients is not None:
                self._clients.clear()
            for key in [key for key in self._stores if key[1] is not False]:
                del self._stores[key]

    def reader(self, bucket: str) -> S3Store:
        """Return the obstore client that reads `bucket`."""
        store = self._stores.get((bucket, False))  # a dict read is atomic; creating is not
        if store is not None:
            return store
        stall = timedelta(seconds=self.access.stall_seconds)
        # The whole-request timeout of obstore must not end a long stream.
        limits: ClientConfig = {"read_timeout": stall, "timeout": timedelta(hours=12)}
        return self._open(bucket, {}, limits, (bucket, False))

    def writer(self, bucket: str, kms_key: str | None) -> S3Store:
        """Return the obstore client that writes to `bucket`, with this key or the bucket's default.

        The body is not hashed for the signature: CRC64NVME goes with it, S3
        verifies that, and hashing costs more CPU than all the rest of a PUT.
        `sends_checksums` says where it is.
        """
        store = self._stores.get((bucket, kms_key))
        if store is not None:
            return store
        config: S3Config = {"unsigned_payload": self.sends_checksums}
        if self.sends_checksums:
            config["checksum_algorithm"] = "CRC64NVME"
        config["disable_tagging"] = False  # else AWS_DISABLE_TAGGING would win
        if kms_key is not None:
            config["server_side_encryption"] = "aws:kms"
            config["sse_kms_key_id"] = kms_key
            config["sse_bucket_key_enabled"] = True
        limits: ClientConfig = {"timeout": timedelta(seconds=self.access.put_seconds)}
        return self._open(bucket, config, limits, (bucket, kms_key))

    def confirm_owner(self, bucket: str, owner: str | None) -> None:
        """Check that the account `owner` owns `bucket`, once in five minutes.

        obstore cannot send ``x-amz-expected-bucket-owner``: its signature
        leaves default headers out, and S3 refuses an unsigned ``x-amz-`` one.
        """
        if owner is None:
            return
        now = time.monotonic()
        if self._owned.get((bucket, owner), 0.0) > now:
            return
        count_request("head")
        try:
            self.control.head_bucket(Bucket=bucket, ExpectedBucketOwner=owner)
        except s3_errors() as error:
            refusal = translate_error(error, Call("ListBucket", bucket))
            if isinstance(refusal, errors.AccessDeniedError):
                refusal = errors.AccessDeniedError(
                    f"{refusal}; or account {owner} does not own the bucket"
                )
            raise refusal from None
        self._owned[bucket, owner] = now + OWNER_CHECK_LASTS

    @contextmanager
    def explaining(self, call: Call) -> Iterator[None]:
        """Turn the error of a client into the error that says what it means to `call`."""
        try:
            yield
        except s3_errors() as error:
            raise self.understand(error, call) from None

    def understand(self, error: Exception, call: Call) -> errors.S3UnzipError:
        """Return the error that says what `error` means to `call`.

        After a `MisplacedError` the next attempt goes to the bucket's region, if the server
        says which it is. An endpoint that cannot be reached when a program begins is not tried
        again.
        """
        keys = self._aws.keys
        if keys.failure is not None and is_about_keys(error):
            return keys.failure
        if call.action == "GetObject" and not call.pinned and is_mute(read_answer(error)):
            error = self._ask_why(call) or error
        fault = translate_error(error, call)
        answer = read_answer(error)
        if answer.code in REFUSED_KEYS:
            return self._sign_anew(fault, answer.code)
        if call.action == "GetObjectVersion" and is_without_right(answer):
            self._unversioned.add(call.bucket)
            return errors.ServiceFaultError(str(fault))
        if isinstance(fault, MisplacedError):
            if not self._relocate(call.bucket):
                return errors.NotFoundError(f"{fault}; {self._advice}")
        elif isinstance(fault, errors.ServiceFaultError):
            return self._explain_fault(fault, error, call)
        return fault

    def _explain_fault(
        self, fault: errors.ServiceFaultError, error: Exception, call: Call
    ) -> errors.S3UnzipError:
        """Say in a fault which server has trouble; return the error to raise in its place."""
        url = self._addresses.endpoint(call.bucket).url
        answer = read_answer(error)
        if answer.status is not None:
            code = answer.code or f"HTTP {answer.status}"
            fault.trouble = f"{url} answers with errors ({code})"
            return fault
        if is_odd_answer(error):
            fault.trouble = f"{url} answers, but not as S3 does"
            return fault
        server = url
        proxy = _find_proxy(url)
        if proxy is not None:
            server += f" through the proxy {proxy}"
        cause = answer.message.rpartition(": ")[2].partition(" (os error")[0].lower()
        cause = why_unreachable(error) or cause or "no answer"
        fault.trouble = f"no answer from {server} ({cause})"
        fault.args = (f"{fault}; no answer from {server}",)
        if not self._is_beginning:
            return fault
        return self._unreachable(error, call.bucket, str(call)) or fault

    def readable_version(self, bucket: str, pin: Pin) -> str | None:
        """Return the version that a request names; None: the ETag alone pins the archive.

        A version needs s3:GetObjectVersion, and credentials without it may still read the archive.
        After a denied attempt, the next one names no version.
        """
        has_etag = pin.etag is not None and pin.etag.startswith('"')
        if has_etag and bucket in self._unversioned:
            return None
        return pin.version_id

    def _ask_why(self, call: Call) -> Exception | None:
        """Return the refusal of a GET: that of a HEAD has no code. None: it is not refused."""
        count_request("get")
        try:
            answer = self.control.get_object(Bucket=call.bucket, Key=call.key, Range="bytes=0-0")
            answer["Body"].close()
        except s3_errors() as error:
            if read_answer(error).status is not None:
                return error
        return None

    def _sign_anew(self, refusal: errors.S3UnzipError, code: str) -> errors.S3UnzipError:
        """Look for other keys than those that were refused; return what the refusal means then."""
        if code not in EXPIRED and self._is_beginning:
            return refusal
        keys = self._aws.keys
        try:
            has_renewed = keys.renew(self._renewals)
            current = keys.current()
        except errors.S3UnzipError as failure:
            return failure if code in EXPIRED else refusal
        if has_renewed:
            with self._lock:
                if self._renewals != keys.renewals:
                    self._renewals = keys.renewals
                    self._stores.clear()
            return errors.ServiceFaultError(str(refusal))
        if code not in EXPIRED or current is None:
            return refusal
        is_final = current.is_fixed or self._is_beginning
        kind = errors.ExpiredKeysError if is_final else errors.ServiceFaultError
        return kind(f"{refusal}; {current.advice}")

    @property
    def _is_beginning(self) -> bool:
        """Whether what is wrong now was wrong when the program began: nobody will mend it soon."""
        return time.monotonic() < self._beginning_ends

    def end_beginning(self) -> None:
        """Retry a server that cannot be reached, from now on."""
        self._beginning_ends = 0.0

    def check_bucket(self, bucket: str) -> None:
        """Raise the error of missing credentials, or of a bucket or an endpoint that is missing.

        One request is sent, the first time only. Other errors are left to later requests.
        """
        if bucket in self._checked:
            return
        with self.explaining(Call("PutObject", bucket)):
            self.find_credentials(bucket)
        try:
            # HEAD of the bucket needs botocore. A list of a prefix that nobody uses is as short.
            next(obstore.list(self.reader(bucket), NO_PREFIX, chunk_size=1), None)
        except s3_errors() as error:
            refusal = self._unreachable(error, bucket, f"s3://{bucket}")
            if refusal is None and read_answer(error).status == 404:
                refusal = errors.NotFoundError(
                    f"s3://{bucket}: there is no such bucket; check its name, the region and the "
                    "endpoint"
                )
            if refusal is not None:
                raise refusal from None
        self._checked.add(bucket)

    def _unreachable(
        self, error: Exception, bucket: str, subject: str
    ) -> errors.StorageError | None:
        """Return the error for an endpoint that cannot be reached; None: it may be reachable.

        Behind a proxy, nobody knows which of the two cannot be reached.
        """
        url = self._addresses.endpoint(bucket).url
        cause = why_unreachable(error)
        if cause is None or _find_proxy(url) is not None:
            return None
        return errors.StorageError(f"{subject}: cannot reach {url}: {cause}; {self._advice}")

    def _relocate(self, bucket: str) -> bool:
        """Ask for the bucket's region; return False if the answer has none.

        True without an answer: the next attempt may get one.
        """
        count_request("head")
        try:
            about: Any = self.control.head_bucket(Bucket=bucket)["ResponseMetadata"]
        except s3_errors() as error:
            if read_answer(error).status is None:  # it may have an answer at the next attempt
                return True
            about = getattr(error, "response")["ResponseMetadata"]  # noqa: B009 - of a `ClientError`
        region = about.get("HTTPHeaders", {}).get("x-amz-bucket-region")
        if region is not None and region != self._addresses.region(bucket):
            with self._lock:
                self._addresses.regions[bucket] = region
                for key in [key for key in self._stores if key[0] == bucket]:
                    del self._stores[key]
        return region is not None

    def _client(self, name: str, region: str | None = None) -> S3Client:
        """Return a client of botocore, which takes 0.2 s of CPU to import and to make."""
        with self._lock:
            if self._clients is None:
                from s3unzip.stores.s3.clients import Clients

                self._clients = Clients(self.access, self._aws)
        style = self._addresses.style
        signs_payload = not self.sends_checksums
        return self._clients.get(name, style=style, signs_payload=signs_payload, region=region)

    def _open(
        self,
        bucket: str,
        config: S3Config,
        limits: ClientConfig,
        key: tuple[str, str | Literal[False] | None],
    ) -> S3Store:
        """Return the obstore client of one bucket, with more settings of S3 and of HTTP."""
        find_keys = self.find_credentials(bucket)
        provider = None
        if find_keys is not None:
            provider = obstore_credentials(find_keys)
        endpoint = self._addresses.endpoint(bucket)
        # What is not named here would come from variables of the environment.
        whole: S3Config = {
            "region": self._addresses.region(bucket),
            "endpoint": endpoint.url,
            "aws_endpoint_url_s3": endpoint.url,  # else AWS_ENDPOINT_URL_S3 would win
            "virtual_hosted_style_request": endpoint.has_bucket,
            "skip_signature": provider is None,
            "request_payer": self.access.request_payer,
            **config,
        }
        options = self._http_options(endpoint.url) | limits
        with self._lock:
            if key in self._stores:
                return self._stores[key]
            try:
                self._stores[key] = S3Store(
                    bucket,
                    config=whole,
                    client_options=options,
                    retry_config={"max_retries": 0},
                    credential_provider=provider,
                )
            except (BaseError, ValueError) as error:  # AWS_CA_BUNDLE without a certificate
                raise errors.UsageError(f"s3://{bucket}: {error}") from None
            return self._stores[key]

    def _http_options(self, url: str) -> ClientConfig:
        """Return the settings of HTTP that all clients of obstore have."""
        is_plain = url.startswith("http://")
        options: ClientConfig = {
            "connect_timeout": timedelta(seconds=self.access.connect_seconds),
            "pool_max_idle_per_host": str(self.access.connections),
            "pool_idle_timeout": timedelta(seconds=50),  # S3 hangs up a little later
            "allow_http": is_plain,
            "user_agent": "s3unzip",
        }
        if self._aws.ca_bundle and not is_plain:  # 150 certificates take a millisecond
            options["root_certificate"] = _read_certificates(self._aws.ca_bundle)
        return options

    def find_credentials(self, bucket: str) -> FindKeys | None:
        """Return what finds the keys that requests are signed with; None: they are not signed."""
        if self.access.unsigned:
            return None
        if self._aws.find_keys() is None:
            raise errors.AccessDeniedError(f"s3://{bucket}: {NO_KEYS}")
        return self._aws.keys.require


def _read_certificates(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise errors.UsageError(f"AWS_CA_BUNDLE {path}: {error.strerror}") from None


def _find_proxy(url: str) -> str | None:
    """Return the proxy that the environment names for `url`, without its user."""
    from urllib.request import getproxies, proxy_bypass

    parts = urlsplit(url)
    proxy = getproxies().get(parts.scheme)
    if proxy is None or proxy_bypass(parts.netloc):
        return None
    scheme, mark, host = proxy.rpartition("://")
    return f"{scheme}{mark}{host.rpartition('@')[2]}"


def advice_for(config: StoreConfig, *, destination: bool) -> str:
    """Return what to check if the destination or the source of `config` does not answer."""
    if destination and config.destination_endpoint_url is not None:
        return "check --dest-endpoint-url, --region and the network"
    return ADVICE_UNREACHABLE
