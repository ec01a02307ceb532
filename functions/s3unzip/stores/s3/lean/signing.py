"""Signature version 4 of requests without a body, in microseconds.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
botocore signs in ten times the CPU, and a HEAD is little else than its signature.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from s3unzip.clients.aws_session import Frozen

ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
UNRESERVED = "-_.~"  # besides letters and digits


class Target(NamedTuple):
    """What a request asks for."""

    method: str
    host: str  # with the port, as the Host header has it
    path: str  # percent-encoded once
    query: str = ""  # sorted and percent-encoded, as `encode_query` returns it


def encode_path(path: str) -> str:
    """Return `path` percent-encoded; slashes stay."""
    return quote(path, safe="/" + UNRESERVED)


def encode_query(parameters: Mapping[str, str]) -> str:
    """Return a query in the order and the form that are signed."""
    return "&".join(
        f"{quote(name, safe=UNRESERVED)}={quote(value, safe=UNRESERVED)}"
        for name, value in sorted(parameters.items())
    )


class Anonymous:
    """Signs nothing: for buckets that everybody may read."""

    def __init__(self, region: str) -> None:
        self.region = region

    def sign(self, target: Target, headers: Mapping[str, str]) -> dict[str, str]:
        """Return all headers of the request; none says who asks."""
        return {**headers, "host": target.host}


class _Common(NamedTuple):
    """The parts of a signature that depend on the second and the headers, not on the target."""

    signed: dict[str, str]  # headers
    lines: str  # of the canonical request after method, path and query
    text: str  # to sign, before the digest of the canonical request
    authorization: str  # before the signature
    key: bytes


class Signer:
    """Signs for one region with the credentials of the moment; threads may share it."""

    def __init__(self, credentials: Callable[[], Frozen], region: str) -> None:
        self._credentials = credentials
        self.region = region
        self._last: tuple[object, _Common | None] = (None, None)
        self._key: tuple[tuple[str, str], bytes] = (("", ""), b"")  # of a secret and a day

    def sign(self, target: Target, headers: Mapping[str, str]) -> dict[str, str]:
        """Return all headers of the request, its signature included.

        Args:
            target: what is asked for.
            headers: more headers; names in lower case. All are signed.
        """
        common = self._common(target.host, headers)
        request = f"{target.method}\n{target.path}\n{target.query}\n{common.lines}"
        digest = hashlib.sha256(request.encode()).hexdigest()
        signature = hmac.digest(common.key, f"{common.text}{digest}".encode(), "sha256").hex()
        return {**common.signed, "authorization": common.authorization + signature}

    def _common(self, host: str, headers: Mapping[str, str]) -> _Common:
        """Return what all requests with these headers share for a second."""
        now = self._credentials()
        moment = (int(time.time()), host, tuple(headers.items()), now)
        known, common = self._last
        if known != moment or common is None:
            common = self._make(host, headers, now)
            self._last = (moment, common)
        return common

    def _make(self, host: str, headers: Mapping[str, str], now: Frozen) -> _Common:
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        signed = {
            **headers,
            "host": host,
            "x-amz-content-sha256": UNSIGNED,
            "x-amz-date": stamp,
        }
        if now.token:
            signed["x-amz-security-token"] = now.token
        names = sorted(signed)
        listed = ";".join(names)
        lines = "".join(f"{name}:{signed[name]}\n" for name in names)
        scope = f"{stamp[:8]}/{self.region}/s3/aws4_request"
        return _Common(
            signed=signed,
            lines=f"{lines}\n{listed}\n{UNSIGNED}",
            text=f"{ALGORITHM}\n{stamp}\n{scope}\n",
            authorization=f"{ALGORITHM} Credential={now.access_key}/{scope},"
            f"SignedHeaders={listed},Signature=",
            key=self._key_of(now.secret_key or "", stamp[:8]),
        )

    def _key_of(self, secret: str, day: str) -> bytes:
        known, key = self._key
        if known == (secret, day):
            return key
        key = f"AWS4{secret}".encode()
        for part in (day, self.region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        self._key = ((secret, day), key)
        return key


AnySigner = Signer | Anonymous
