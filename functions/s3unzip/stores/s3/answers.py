"""What a server answered, as both clients tell it."""

from typing import NamedTuple

UNTRUSTED = "UntrustedCertificate"  # not from S3: there was no answer
NOT_S3 = "the answer is not one of S3"  # the message
PAGE_FIELD = (
    "Page"  # of an answer to ListObjectsV2: the `ListPage` that takes the place of the rest
)


class ServerAnswer(NamedTuple):
    """What came back, as far as it is known."""

    status: int | None  # of HTTP; None: no answer
    code: str
    message: str
    request: str = ""


def unquoted(etag: str | None) -> str | None:
    """Return an ETag without its quotes: lines of outcomes are many, and JSON escapes quotes."""
    return etag.strip('"') if etag else None
