"""Read responses from S3, and translate them into the errors of this package.

An error message contains the action, the bucket and key, the message of the service, and advice. No
message contains the XML from the service, which may include the access key id and the string to
sign.

This module imports botocore only if another module has already imported it. Before that, no
exception can come from botocore.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

from msgspec import Struct
from obstore.exceptions import BaseError, UnauthenticatedError

from s3unzip.errors import (
    AccessDeniedError,
    ConflictError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    SourceChangedError,
    StorageError,
    StoreFullError,
    ThrottledError,
    UnconfirmedError,
    UnsupportedError,
    UsageError,
)
from s3unzip.stores.config import PROXY_LOGIN
from s3unzip.stores.s3.plain_settings import botocore_errors

UNTRUSTED = "UntrustedCertificate"  # not an S3 code: the client rejected the certificate
NOT_S3 = "the answer does not follow the S3 protocol"
NO_ETAG = "ETag Header missing from response"  # end of an obstore message
# The field that `botocore_clients` adds to the response to ListObjectsV2. The field contains a
# `ListPage`; the fields that botocore would parse from a list are absent.
PARSED_PAGE = "Page"

# The exceptions that clients raise if a server violates the protocol. OverflowError means that a
# chunk is too large. RecursionError means that redirects contain no region. All other
# exceptions mean that an XML element is unexpected or repeated.
_PROTOCOL_ERRORS = (AttributeError, LookupError, OverflowError, RecursionError, TypeError)
# obstore raises FileNotFoundError for a 404, and ValueError for a setting that it cannot use.
_OBSTORE_ERRORS = (BaseError, FileNotFoundError, ValueError, *_PROTOCOL_ERRORS)

_GENERIC_PREFIX = "Generic S3 error: "  # beginning of an obstore message
# Patterns for obstore messages, which quote object_store, hyper and the operating system.
_STATUS = re.compile(r"status code: (\d{3})")
_XML_FIELDS = {  # a pattern for each field of `ServerAnswer`
    "code": re.compile(r"<Code>([^<]{1,100})</Code>"),
    "message": re.compile(r"<Message>([^<]{1,500})</Message>"),
    "request_id": re.compile(r"<RequestId>([\w-]{1,100})</RequestId>"),
}
_HTTP_ERROR = re.compile(r" - (HTTP error: [^\n]{1,200})")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)(?:\(\s*\w+\(\s*(\w+))?")
_HTTP_CAUSE = re.compile(r'(?:message|error): "([^"\n]{1,200})"')
_CONNECTING = re.compile(r"legacy::Error\(\s*Connect,")
# Messages of servers that do not support a header: Cloudflare R2 sends status 501, Backblaze B2
# sends 400.
_UNSUPPORTED = re.compile("unsupported header|not implemented", re.IGNORECASE)
# The reason why a connection failed, by phrase in the messages of obstore or botocore.
CAUSES = {
    "onnection refused": "connection refused",
    "failed to lookup": "there is no host with this name",
    "Failed to resolve": "there is no host with this name",
    "TimedOut": "no answer",
    "timed out": "no answer",
    "TunnelUnsuccessful": "the proxy refuses",
    "Tunnel connection failed": "the proxy refuses",
    "InvalidMessage": "the server does not use TLS",
    "WRONG_VERSION": "the server does not use TLS",
}
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
# The codes after which keys are looked up again, because the profile may contain other keys by now.
# The codes in the last row come from services other than S3.
REFUSED_KEYS = EXPIRED | {
    *("InvalidAccessKeyId", "InvalidToken", "InvalidTokenId"),
    *("InvalidClientTokenId", "UnrecognizedClientException"),
}
# The codes for a missing permission. A 403 with another code has another cause, such as a quota.
DENIED = frozenset({"", "AccessDenied", "Forbidden"})
_MISPLACED_CODES = {"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
_MISPLACED_STATUSES = {301, 307}
# The first row that contains the code or HTTP status of a response determines the error class. The
# codes are listed at https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html. S3 can
# send an error with the status 200, so a row may contain both a code and its usual status.
_ERROR_CLASSES: tuple[tuple[type[S3UnzipError], Collection[str], Collection[int]], ...] = (
    (ServiceFaultError, _MISPLACED_CODES, _MISPLACED_STATUSES),  # retried in another region
    (StorageError, {UNTRUSTED, "InvalidObjectState"}, ()),
    (ThrottledError, {"ServiceUnavailable", "SlowDown"}, {429, 503}),
    (
        ServiceFaultError,
        EXPIRED
        | {
            "BadDigest",  # received bytes differ from sent bytes
            "ConcurrentModification",  # Ceph
            "ConditionalRequestConflict",
            "IncompleteBody",
            "InternalError",
            "OperationAborted",
            "RequestTimeout",  # sent with status 400
            "XAmzContentChecksumMismatch",
            "XAmzContentSHA256Mismatch",  # received bytes of a signed body differ from sent bytes
        },
        {408},  # HAProxy and nginx, for a body that arrived too slowly
    ),
    (
        StoreFullError,
        {
            "QuotaExceeded",
            "StorageFull",
            "XAdminBucketQuotaExceeded",
            "XMinioAdminBucketQuotaExceeded",  # with status 400
            "XMinioStorageFull",
        },
        {507},
    ),
    (
        AccessDeniedError,
        {
            "InvalidToken",
            "KMS.DisabledException",
            "KMS.KMSInvalidStateException",
            "KMS.NotFoundException",
            "XAdminUserNotFound",  # VersityGW: unknown access key, with status 404
        },
        {401, 403, 407},
    ),
)
IN_THE_WAY = (
    "an object has the name of a folder of this key, and this server keeps objects as files: "
    "choose another --prefix"
)
ADVICE = {
    "AccessControlListNotSupported": (
        "ACLs are disabled for the bucket (Object Ownership): leave out --acl, or use "
        "bucket-owner-full-control"
    ),
    UNTRUSTED: "set AWS_CA_BUNDLE to a file with the certificate to trust",
    "InvalidAccessKeyId": "check the credentials (AWS_PROFILE, AWS_ACCESS_KEY_ID)",
    "InvalidObjectState": "the object is archived: restore it, then start again",
    "InvalidStorageClass": "this server does not support this --storage-class: choose another one",
    **dict.fromkeys(
        ("InvalidToken", "InvalidTokenId"),  # InvalidTokenId: MinIO
        "check the credentials (AWS_SESSION_TOKEN)",
    ),
    "KMS.DisabledException": "enable the KMS key",
    "KMS.KMSInvalidStateException": "the KMS key cannot be used: check its state",
    "KMS.NotFoundException": "the KMS key does not exist in this region",
    **dict.fromkeys(
        ("PathStyleDomainForbidden", "SecondLevelDomainForbidden"),  # Tencent COS, Aliyun OSS
        "this server wants the bucket in the host name: add --addressing-style virtual",
    ),
    "NoSuchBucket": "check the bucket's name, the region and the endpoint",
    "NoSuchKey": "check the key",
    "ObjectParentIsFile": IN_THE_WAY,  # VersityGW
    "RequestTimeTooSkewed": "set this machine's clock",
    "SignatureDoesNotMatch": "check the credentials (AWS_SECRET_ACCESS_KEY)",
    "XAdminUserNotFound": "check the credentials (AWS_ACCESS_KEY_ID)",
    "XMinioParentIsObject": IN_THE_WAY,
}
# Advice about responses without an error code.
_STATUS_ADVICE: dict[int | None, str] = {
    **dict.fromkeys((302, 303, 308), "the endpoint redirects: give its new URL, perhaps https://"),
    400: "an HTTPS server answers http:// requests in this way: check the endpoint",  # nginx, Go
    404: "check the bucket's name, the key and the endpoint",
    407: PROXY_LOGIN,
    413: "the server, or a proxy in front of it, limits the size of a request",  # nginx: 1 MiB
}
# Headers that some servers do not implement, and the options that add these headers.
HEADER_OPTIONS = {
    "if-none-match": "--on-conflict never",
    "x-amz-acl": "--acl",
    "x-amz-server-side-encryption": "--kms-key",
    "x-amz-storage-class": "--storage-class",
    "x-amz-tagging": "--tag",
}
# Advice by words in the message, for codes that have many causes.
_MESSAGE_ADVICE = {
    "explicit deny": "ask whoever manages that policy to allow the action",
    "form of Server Side Encryption": (
        "objects that are encrypted with a customer's key (SSE-C) are not supported: copy it "
        "with another encryption"
    ),
    "Part number must be an integer between": (  # Scaleway accepts at most 1,000 parts
        "this server accepts fewer parts per object than S3: set larger parts, for example "
        """S3UNZIP_TUNING='{"part_bytes": 134217728}'"""
    ),
}
_DENIED_ACTION = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)")
# obstore calls our credential provider in the thread of the request, and turns any exception of
# the provider into its own UnauthenticatedError with this text.
PROVIDER = "External AWS credential provider: "
_INTERRUPTED = re.compile(rf"[\w ]+ for path {PROVIDER}KeyboardInterrupt\b")


class ServerAnswer(NamedTuple):
    """A server's response, as a client reports it. Texts that a client does not report are ""."""

    status: int | None  # HTTP status; None if there was no response
    code: str
    message: str
    request_id: str = ""  # id by which AWS can find the request
    unreachable: str = ""  # reason why the client could not connect


def s3_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that requests to S3 can raise."""
    return (*_OBSTORE_ERRORS, *botocore_errors())


def read_answer(error: Exception) -> ServerAnswer:
    """Return the server's response from an exception that botocore or obstore raised."""
    if isinstance(error, _PROTOCOL_ERRORS):
        return ServerAnswer(None, code="", message=NOT_S3)
    if isinstance(error, botocore_errors()):
        return _read_botocore(error)
    # obstore's message, then the errors that caused it.
    text, _, details = str(error).partition("\n\nDebug source:")
    if "redirect without LOCATION" in text:  # obstore's message for a 301 from S3
        return ServerAnswer(301, "PermanentRedirect", "the bucket is in another region")
    status = _STATUS.search(text)
    if status is None:
        return _explain_without_status(text, details)
    fields = {field: _match_xml(pattern, text) for field, pattern in _XML_FIELDS.items()}
    return ServerAnswer(int(status[1]), **fields)


def _explain_without_status(text: str, details: str) -> ServerAnswer:
    """Return the answer for an obstore message that contains no status.

    Args:
        text: the beginning of an obstore message.
        details: the end of the message, which quotes the underlying errors.
    """
    certificate = _CERTIFICATE.search(details)
    if certificate is not None:
        # Group 1 is the kind of refusal. Group 2 says more, but may be missing.
        return ServerAnswer(None, UNTRUSTED, certificate[2] or certificate[1])
    if "ProxyAuthRequired" in details:
        return ServerAnswer(407, "", "")
    message = text.partition("\n")[0][:300]
    # A message without "HTTP error" means that obstore cannot use the response, for example because
    # the range is wrong or missing, or because a header is malformed.
    if message.startswith(_GENERIC_PREFIX) and "HTTP error" not in message:
        return ServerAnswer(None, "", f"{NOT_S3}: {message.removeprefix(_GENERIC_PREFIX)}")
    http_error = _HTTP_ERROR.search(text)
    if http_error is not None:
        cause = _HTTP_CAUSE.search(details)
        message = http_error[1]
        if cause is not None:
            message += f": {cause[1]}"
    if _CONNECTING.search(details):
        return ServerAnswer(None, "", message, unreachable=_why_unreachable(text + details))
    return ServerAnswer(None, "", message)


def _why_unreachable(text: str) -> str:
    """Return why a client could not connect, based on its error message."""
    return next((cause for phrase, cause in CAUSES.items() if phrase in text), "no connection")


def _match_xml(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.search(text)
    if match is None:
        return ""
    from html import unescape

    return unescape(match[1])


def _read_botocore(error: Exception) -> ServerAnswer:
    from botocore import exceptions

    # Only a `ResponseParserError` belongs to neither of these classes.
    if not isinstance(error, exceptions.BotoCoreError | exceptions.ClientError):
        return ServerAnswer(None, code="", message=NOT_S3)
    if isinstance(error, exceptions.SSLError) and "certificate" in str(error):
        # The reason from OpenSSL comes after "[SSL: ...] ".
        return ServerAnswer(None, UNTRUSTED, message=str(error).rpartition("] ")[2][:200])
    if isinstance(error, exceptions.ClientError):
        fields = error.response.get("Error", {})
        metadata = error.response.get("ResponseMetadata", {})
        code = _element_text(fields.get("Code"))
        return ServerAnswer(
            metadata.get("HTTPStatusCode"),
            # For a response without a body, botocore returns the status as the error code.
            "" if code.isdigit() else code,
            _element_text(fields.get("Message")),
            _element_text(metadata.get("RequestId")),
        )
    unreachable = ""
    if isinstance(  # the client could not connect
        error,
        exceptions.ConnectTimeoutError
        | exceptions.EndpointConnectionError
        | exceptions.ProxyConnectionError
        | exceptions.SSLError,
    ):
        reason = str(error.kwargs["error"])
        if "failed: 407" in reason:  # "Tunnel connection failed: 407", from the proxy
            return ServerAnswer(407, "", "")
        unreachable = _why_unreachable(reason)
    message = str(error).partition("\n")[0][:300]
    return ServerAnswer(None, "", message, unreachable=unreachable)


def _element_text(element: object) -> str:
    """Return the text of an XML element, at most 500 characters; "" if it is not plain text.

    botocore returns a list for a repeated element, and a dict for an element with child elements.
    """
    if not isinstance(element, str):
        return ""
    return element[:500]


def is_unsupported(answer: ServerAnswer) -> bool:
    """Return whether the server does not implement the request or one of its headers."""
    return (
        answer.status in {501, 505}
        or answer.code == "NotImplemented"
        or (answer.status == 400 and _UNSUPPORTED.search(answer.message) is not None)
    )


def unquoted(etag: str | None) -> str | None:
    """Return an ETag without its quotes, which JSON would have to escape; None stays None."""
    return etag.strip('"') if etag else None


class Call(Struct, frozen=True):
    """A request to S3: how messages describe it, and what its status codes mean."""

    action: str  # required permission without its prefix "s3:", such as GetObject
    bucket: str
    key: str = ""
    pinned: bool = False  # whether 404, 405, 412 and 416 mean that the archive has changed
    conditional: bool = False  # whether 412 means a conflict with another write
    headers: tuple[str, ...] = ()  # headers of the request that are in `HEADER_OPTIONS`
    owner: str | None = None  # required owner of the bucket; only botocore sends this condition

    def __str__(self) -> str:
        return f"s3:{self.action} s3://{self.bucket}/{self.key}"


def get_action(version: str | None) -> str:
    """Return the permission that a GET needs; `version` is the version id in the GET, if any."""
    return "GetObject" if version is None else "GetObjectVersion"


def translate_error(error: Exception, call: Call) -> S3UnzipError:
    """Return the error for an exception that botocore or obstore raised during `call`.

    Raises:
        KeyboardInterrupt: Ctrl-C interrupted our credential provider; obstore wrapped the error.
    """
    if isinstance(error, UnauthenticatedError) and _INTERRUPTED.match(str(error)):
        raise KeyboardInterrupt from error
    if isinstance(error, UnicodeError):
        return UsageError(
            f"{call.bucket!r}, {call.key!r}: not valid Unicode, so nothing in S3 can have this name"
        )
    if _is_wrong_setting(error):
        return StorageError(f"{call}: {error}")
    return explain_answer(read_answer(error), call)


def explain_answer(answer: ServerAnswer, call: Call) -> S3UnzipError:
    """Return the error for a response to `call`."""
    return _choose_error_class(answer, call)(_write_message(answer, call))


def _is_wrong_setting(error: Exception) -> bool:
    """Return whether a wrong setting kept botocore from sending a request."""
    if not isinstance(error, botocore_errors()):  # an empty tuple if botocore is not imported
        return False
    from botocore import exceptions

    # The network or the server causes these exceptions. A wrong setting causes the others.
    faults = (
        exceptions.ConnectionError,
        exceptions.FlexibleChecksumError,
        exceptions.HTTPClientError,
        exceptions.IncompleteReadError,
    )
    return isinstance(error, exceptions.BotoCoreError) and not isinstance(error, faults)


def is_misplaced(answer: ServerAnswer) -> bool:
    """Return whether the request was for a region other than the bucket's."""
    return answer.code in _MISPLACED_CODES or answer.status in _MISPLACED_STATUSES


def is_missing_permission(answer: ServerAnswer) -> bool:
    """Return whether an S3 permission seems to be missing, and not a KMS permission."""
    return answer.status == 403 and answer.code in DENIED and "kms" not in answer.message.lower()


def _choose_error_class(answer: ServerAnswer, call: Call) -> type[S3UnzipError]:
    """Choose the error class by the code or status and, for some statuses, also by `call`."""
    if is_unsupported(answer):
        return UnsupportedError
    if "Throttl" in answer.code:  # in codes of AWS services such as KMS
        return ThrottledError
    if answer.message.endswith(NO_ETAG):  # obstore's message: the object may not have been written
        return UnconfirmedError
    for error_class, codes, statuses in _ERROR_CLASSES:
        if answer.code in codes or answer.status in statuses:
            return error_class
    return _choose_by_status(answer, call)


def _choose_by_status(answer: ServerAnswer, call: Call) -> type[S3UnzipError]:
    status = answer.status
    # 405: the current version is a delete marker. 416: the current version is smaller.
    if call.pinned and status in {404, 405, 412, 416}:
        return SourceChangedError
    if status == 404:
        return NotFoundError
    if call.conditional and status == 412:
        return ConflictError
    # A 409 without a code is treated as a conflict with another request, so a retry may succeed.
    is_fault = status is None or status >= 500 or (status == 409 and not answer.code)
    return ServiceFaultError if is_fault else StorageError


def _write_message(answer: ServerAnswer, call: Call) -> str:
    """Return an error message with the call, the message of the service, and advice."""
    code = answer.code
    if answer.status is not None and not code:
        code = f"HTTP {answer.status}"
    cause = ": ".join(part for part in (code, answer.message.rstrip(".")) if part)
    text = f"{call}: {cause or 'no answer'}"
    if is_unsupported(answer):  # advice on options is more useful than advice on the code
        advice = _advise_omitting_options(answer, call)
    elif answer.code in {"InvalidArgument", "InvalidRequest"} and not answer.message:  # Ceph
        advice = f"perhaps {_advise_omitting_options(answer, call)}"
    else:
        advice = _advise(answer, call)
    if advice:
        text += f"; {advice}"
    if answer.request_id:
        text += f" (request {answer.request_id})"
    return text


def _advise(answer: ServerAnswer, call: Call) -> str:
    """Return advice on what the user can do about a response, or "" if there is none."""
    if answer.code in ADVICE:
        return ADVICE[answer.code]
    for phrase, advice in _MESSAGE_ADVICE.items():
        if phrase in answer.message:
            return advice
    if answer.status == 403 and answer.code in DENIED:
        return (
            f"{_missing_permission(answer, call)} may be missing in the role, the bucket policy "
            "or the key policy"
        )
    if answer.status == 412 and call.pinned:
        return "the archive has been overwritten since it was planned"
    # The advice by status is for responses without a code. The advice for 400 is not for S3:
    # the response of S3 to a HEAD contains a request id, but no code.
    if answer.code or (answer.status == 400 and answer.request_id):
        return ""
    return _STATUS_ADVICE.get(answer.status, "")


def _advise_omitting_options(answer: ServerAnswer, call: Call) -> str:
    """Return the advice to leave out options whose headers the server may not implement.

    If the server names no header, it may have refused any header of the call.
    """
    refused = [header for header in call.headers if header in answer.message.lower()]
    options = sorted(HEADER_OPTIONS[header] for header in refused or call.headers)
    if not options:
        return "this server does not implement the request"
    return f"this server does not implement the request with {' or '.join(options)}: leave it out"


def _missing_permission(answer: ServerAnswer, call: Call) -> str:
    """Return the beginning of "... may be missing": the permission that the call requires.

    If the response names a permission, return that permission. Without s3:ListBucket, S3 responds
    with 403 for a missing key (API_GetObject, Permissions).
    """
    denied = _DENIED_ACTION.search(answer.message)
    if denied is not None:
        return denied[1]
    if "kms" in answer.message.lower():
        return "a kms: permission for the key"
    permission = f"s3:{call.action}"
    if "x-amz-acl" in call.headers:
        permission += " or s3:PutObjectAcl"
    if call.action == "GetObject" and not call.pinned:  # a pinned object is known to exist
        return f"{permission}, or s3:ListBucket if there is no such key,"
    return permission
