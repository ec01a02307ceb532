"""What a server answered, in one form for both clients."""

from typing import NamedTuple

UNTRUSTED = "UntrustedCertificate"  # not from S3: there was no answer
NOT_S3 = "the answer is not one of S3"  # the message
# The field that `clients` adds to the answer to ListObjectsV2: the `ListPage`. The answer has
# no other field of the list.
PAGE_FIELD = "Page"


class ServerAnswer(NamedTuple):
    """The answer of a server, as far as a client gives it."""

    status: int | None  # of HTTP; None: no answer
    code: str
    message: str
    request: str = ""


def unquoted(etag: str | None) -> str | None:
    """Return an ETag without its quotes: lines of outcomes are many, and JSON escapes quotes."""
    if not etag:
        return None
    return etag.strip('"')
