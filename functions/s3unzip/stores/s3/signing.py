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

    from botocore.credentials import ReadOnlyCredentials

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


class Signer:
    """Signs for one region with the credentials of the moment; threads may share it."""

    def __init__(self, credentials: Callable[[], ReadOnlyCredentials], region: str) -> None:
        self._credentials = credentials
        self.region = region
        self._key: tuple[tuple[str, str], bytes] = (("", ""), b"")  # of a secret and a day

    def sign(self, target: Target, headers: Mapping[str, str]) -> dict[str, str]:
        """Return all headers of the request, its signature included.

        Args:
            target: what is asked for.
            headers: more headers; names in lower case. All are signed.
        """
        now = self._credentials()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        signed = {
            **headers,
            "host": target.host,
            "x-amz-content-sha256": UNSIGNED,
            "x-amz-date": stamp,
        }
        if now.token:
            signed["x-amz-security-token"] = now.token
        names = sorted(signed)
        listed = ";".join(names)
        lines = "".join(f"{name}:{signed[name]}\n" for name in names)
        request = f"{target.method}\n{target.path}\n{target.query}\n{lines}\n{listed}\n{UNSIGNED}"
        scope = f"{stamp[:8]}/{self.region}/s3/aws4_request"
        digest = hashlib.sha256(request.encode()).hexdigest()
        text = f"{ALGORITHM}\n{stamp}\n{scope}\n{digest}"
        key = self._key_of(now.secret_key or "", stamp[:8])
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        signed["authorization"] = (
            f"{ALGORITHM} Credential={now.access_key}/{scope},"
            f"SignedHeaders={listed},Signature={signature}"
        )
        return signed

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
