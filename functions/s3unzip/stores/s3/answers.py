"""Read the status, code and message of a server from exceptions of obstore and botocore.

This module imports botocore only where another module has imported it: before that, no exception
can be one of botocore's.
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from obstore.exceptions import BaseError

UNTRUSTED = "UntrustedCertificate"  # our own code: the client refused the certificate
NOT_S3 = "the answer is not one of S3"  # the message for a server that breaks the protocol
# The field that `clients` adds to the answer to ListObjectsV2. It holds a `ListPage`; the fields
# that botocore parses from a list are absent.
PAGE_FIELD = "Page"

# A server that breaks the protocol makes the clients raise these: OverflowError for the size of a
# chunk, RecursionError for redirects without a region, the other types for XML that has elements of
# an unexpected type or number.
_PROTOCOL_ERRORS = (AttributeError, LookupError, OverflowError, RecursionError, TypeError)
# obstore raises FileNotFoundError for a 404, and ValueError for a setting that it cannot use.
_OBSTORE_ERRORS = (BaseError, FileNotFoundError, ValueError, *_PROTOCOL_ERRORS)

# These match messages of obstore, which quote object_store, hyper and the operating system.
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,500})</Message>")
_REQUEST = re.compile(r"<RequestId>([\w-]{1,100})</RequestId>")
_CAUSE = re.compile(r" - (HTTP error: [^\n]{1,200})")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)(?:\(\s*\w+\(\s*(\w+))?")
_REASON = re.compile(r'(?:message|error): "([^"\n]{1,200})"')
_CONNECTING = re.compile(r"legacy::Error\(\s*Connect,")
# How servers say that they do not know a header: Cloudflare R2 answers 501, Backblaze B2 400.
_UNSUPPORTED = re.compile("unsupported header|not implemented", re.IGNORECASE)
# Why a connection failed, by phrases in the messages of both clients.
CAUSES = {
    "onnection refused": "connection refused",
    "failed to lookup": "there is no host of this name",
    "Failed to resolve": "there is no host of this name",
    "TimedOut": "no answer",
    "timed out": "no answer",
    "InvalidMessage": "it does not speak TLS",
    "WRONG_VERSION": "it does not speak TLS",
}


class ServerAnswer(NamedTuple):
    """What a client says about a server's answer. A text that it does not give is empty."""

    status: int | None  # HTTP's; None if there was no answer
    code: str
    message: str
    request: str = ""  # the id by which AWS finds the request


def botocore_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of botocore, or an empty tuple if botocore has not been imported."""
    if "botocore.exceptions" not in sys.modules:
        return ()
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    return BotoCoreError, ClientError, ResponseParserError


def s3_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that requests to S3 raise."""
    return (*_OBSTORE_ERRORS, *botocore_errors())


def read_answer(error: Exception) -> ServerAnswer:
    """Return the server's answer, as an exception of botocore or obstore describes it."""
    if isinstance(error, _PROTOCOL_ERRORS):
        return ServerAnswer(None, "", NOT_S3)
    if isinstance(error, botocore_errors()):
        return _read_botocore(error)
    text, _, details = str(error).partition("\n\nDebug source:")
    if "redirect without LOCATION" in text:
        return ServerAnswer(301, "PermanentRedirect", "the bucket is in another region")
    status = _STATUS.search(text)
    if status is None:
        return _explain_silence(text, details)
    fields = [_match_xml(pattern, text) for pattern in (_CODE, _MESSAGE, _REQUEST)]
    return ServerAnswer(int(status[1]), *fields)


def _explain_silence(text: str, details: str) -> ServerAnswer:
    """Return an answer without a status. Its message says why no answer came."""
    certificate = _CERTIFICATE.search(details)
    if certificate is not None:
        # The detail of the refusal if it has one, else its kind.
        return ServerAnswer(None, UNTRUSTED, certificate[2] or certificate[1])
    cause = _CAUSE.search(text)
    if cause is None:
        return ServerAnswer(None, "", text.partition("\n")[0][:300])
    message = cause[1]
    reason = _REASON.search(details)
    if reason is not None:
        message += f": {reason[1]}"
    return ServerAnswer(None, "", message)


def _match_xml(pattern: re.Pattern[str], text: str) -> str:
    """Return the text that `pattern` matches, with XML entities decoded, or "" without a match."""
    match = pattern.search(text)
    if match is None:
        return ""
    from html import unescape

    return unescape(match[1])


def _read_botocore(error: Exception) -> ServerAnswer:
    """Return the server's answer, as an exception of botocore describes it."""
    from botocore import exceptions
    from botocore.parsers import ResponseParserError

    if isinstance(error, ResponseParserError):
        return ServerAnswer(None, "", NOT_S3)
    if isinstance(error, exceptions.SSLError) and "certificate" in str(error):
        # OpenSSL's reason comes after "[SSL: ...] ".
        return ServerAnswer(None, UNTRUSTED, str(error).rpartition("] ")[2][:200])
    if not isinstance(error, exceptions.ClientError):
        return ServerAnswer(None, "", str(error).partition("\n")[0][:300])
    fields = error.response.get("Error", {})
    metadata = error.response.get("ResponseMetadata", {})
    code = _element_text(fields.get("Code"))
    return ServerAnswer(
        metadata.get("HTTPStatusCode"),
        # For an answer without a body, botocore gives the status as the code.
        "" if code.isdigit() else code,
        _element_text(fields.get("Message")),
        _element_text(metadata.get("RequestId")),
    )


def _element_text(element: object) -> str:
    """Return the text of an XML element, at most 500 characters.

    botocore makes a list of an element that comes twice, and a dict of one with elements inside.
    """
    while isinstance(element, list) and element:
        element = element[0]
    if not isinstance(element, str):
        return ""
    return element[:500]


def is_unsupported(answer: ServerAnswer) -> bool:
    """Return whether the server does not implement the request, or one of its headers."""
    if answer.status in {501, 505} or answer.code == "NotImplemented":
        return True
    return answer.status == 400 and _UNSUPPORTED.search(answer.message) is not None


def why_unreachable(error: Exception) -> str | None:
    """Return why the client could not connect, or None if `error` has another cause."""
    text = None
    if isinstance(error, BaseError):
        if _CONNECTING.search(str(error)):
            text = str(error)
    elif isinstance(error, botocore_errors()):
        from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, SSLError

        if isinstance(error, ConnectTimeoutError | EndpointConnectionError | SSLError):
            text = str(error.kwargs["error"])
    if text is None:
        return None
    return next((cause for phrase, cause in CAUSES.items() if phrase in text), "no connection")


def unquoted(etag: str | None) -> str | None:
    """Return an ETag without its quotes, which JSON would escape in each outcome."""
    return etag.strip('"') if etag else None
