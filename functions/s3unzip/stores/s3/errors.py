"""Translate S3 answers: exceptions of botocore and obstore to the tree of `errors`.

Only this module reads status and error codes. A message names the action, the bucket and key, what
the service said, and what to do. It never repeats the XML of the service, which may contain the
access key id and the string to sign.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING

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
    UnsupportedError,
    UsageError,
)
from s3unzip.stores.s3.answers import NOT_S3, UNTRUSTED, ServerAnswer

if TYPE_CHECKING:
    from types import ModuleType

# A server that breaks the protocol makes the clients raise these: of the size of a chunk
# OverflowError, of redirects that tell no region RecursionError, of elements that are not of the
# type or not as many as botocore expects the others.
_ODD_ANSWERS = (AttributeError, LookupError, OverflowError, RecursionError, TypeError)
# obstore raises FileNotFoundError for 404, ValueError for a setting it cannot use.
_OBSTORE_ERRORS = (BaseError, FileNotFoundError, ValueError, *_ODD_ANSWERS)


def s3_errors() -> tuple[type[Exception], ...]:
    """Return the errors of obstore, and those of botocore where it has been imported."""
    botocore_errors = _botocore_errors()
    if botocore_errors is None:
        return _OBSTORE_ERRORS
    return (*_OBSTORE_ERRORS, *botocore_errors.RAISED)


def _botocore_errors() -> ModuleType | None:
    """Return the module that knows botocore's exceptions, if there can be any."""
    if "botocore.exceptions" not in sys.modules:
        return None
    from s3unzip.stores.s3 import botocore_errors

    return botocore_errors


# https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html, as far as the status of an
# answer does not say it. S3 may also answer 200 and then tell of a fault.
THROTTLED = frozenset({"ServiceUnavailable", "SlowDown"})  # and what has "Throttl" in it
FOR_NOW = frozenset(
    {
        "BadDigest",  # what arrived is not what was sent
        "ConditionalRequestConflict",
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "RequestTimeout",  # a 400
        "XAmzContentChecksumMismatch",
    }
)
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"})
# A profile may have other keys by now.
REFUSED_KEYS = EXPIRED | {"InvalidAccessKeyId", "InvalidToken", "InvalidTokenId"}
FULL = frozenset({"QuotaExceeded", "StorageFull", "XMinioStorageFull", "XAdminBucketQuotaExceeded"})
MISPLACED = frozenset({"AuthorizationHeaderMalformed", "IllegalLocationConstraintException"})
DENIED = frozenset(
    {
        "InvalidToken",
        "KMS.DisabledException",
        "KMS.KMSInvalidStateException",
        "KMS.NotFoundException",
        "XAdminUserNotFound",  # VersityGW: an unknown access key is a 404
    }
)
IN_THE_WAY = (
    "an object has the name of a folder of this key, and this server keeps objects as files: "
    "choose another --prefix"
)
ADVICE = {
    "AccessControlListNotSupported": (
        "the bucket has no ACLs (Object Ownership): leave out --acl, or use "
        "bucket-owner-full-control"
    ),
    UNTRUSTED: "name the file of a certificate to trust in AWS_CA_BUNDLE",
    "InvalidAccessKeyId": "check the credentials (AWS_PROFILE, AWS_ACCESS_KEY_ID)",
    "InvalidObjectState": "the object is archived: restore it, then start again",
    "InvalidStorageClass": "this server has no such --storage-class: choose another one",
    "InvalidToken": "check the credentials (AWS_SESSION_TOKEN)",
    "KMS.DisabledException": "enable the KMS key",
    "KMS.KMSInvalidStateException": "the KMS key is not usable: see its state",
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
# A header that a server does not know: Cloudflare R2 answers 501, Backblaze B2 400.
_UNSUPPORTED = re.compile("unsupported header|not implemented", re.IGNORECASE)
# The options by which a request has a header that not every server implements.
HEADER_OPTIONS = {
    "if-none-match": "--on-conflict never",
    "x-amz-acl": "--acl",
    "x-amz-server-side-encryption": "--kms-key",
    "x-amz-storage-class": "--storage-class",
    "x-amz-tagging": "--tag",
}
_CUSTOMER_KEY = "form of Server Side Encryption"  # S3's words for an object with SSE-C
_ACTION = re.compile(r"not authorized to perform: ([a-z0-9-]+:[A-Za-z]+)")
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([^<]{1,100})</Code>")
_MESSAGE = re.compile(r"<Message>([^<]{1,500})</Message>")
_REQUEST = re.compile(r"<RequestId>([\w-]{1,100})</RequestId>")
_CAUSE = re.compile(r" - (HTTP error: [^\n]{1,200})")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)(?:\(\s*\w+\(\s*(\w+))?")
_REASON = re.compile(r'(?:message|error): "([^"\n]{1,200})"')  # the system's, in object_store's
# obstore asks for credentials in the thread that calls it, and makes any exception one of its own.
_PROVIDER = "External AWS credential provider: "
_STOPPED = re.compile(rf"[\w ]+ for path {_PROVIDER}KeyboardInterrupt\b")
_NO_LOCATION = "redirect without LOCATION"  # object_store, of a bucket in another region


# Why no connection is made, by words of both clients.
CAUSES = {
    "onnection refused": "connection refused",
    "failed to lookup": "there is no host of this name",
    "Failed to resolve": "there is no host of this name",
    "TimedOut": "no answer",
    "timed out": "no answer",
    "InvalidMessage": "it does not speak TLS",
    "WRONG_VERSION": "it does not speak TLS",
}
_CONNECTING = re.compile(r"legacy::Error\(\s*Connect,")  # hyper's, in object_store's


class Call(Struct, frozen=True):
    """One call: the right it needs, and what it is about."""

    action: str  # GetObject, as in "s3:GetObject"
    bucket: str
    key: str = ""
    pinned: bool = False  # 412 and 404 mean that the archive has changed
    conditional: bool = False  # 412 means that the object exists
    headers: tuple[str, ...] = ()  # of `HEADER_OPTIONS`

    def __str__(self) -> str:
        return f"s3:{self.action} s3://{self.bucket}/{self.key}"


def get_action(version: str | None) -> str:
    """Return the action of a GET: a request that names a version needs another right."""
    if version is None:
        return "GetObject"
    return "GetObjectVersion"


class MisplacedError(ServiceFaultError):
    """The bucket is in another region than expected; the next attempt goes there."""


def translate_error(error: Exception, call: Call) -> S3UnzipError:
    """Return the error that says what `error` means to `call`; a lost Ctrl-C is raised again."""
    if isinstance(error, UnauthenticatedError) and _STOPPED.match(str(error)):
        raise KeyboardInterrupt from error
    if isinstance(error, UnicodeError):
        return UsageError(f"{call.bucket!r}, {call.key!r}: not Unicode, so S3 has no such name")
    botocore_errors = _botocore_errors()
    if botocore_errors is not None:
        of_settings: S3UnzipError | None = botocore_errors.explain_setting(error, call)
        if of_settings is not None:
            return of_settings
    answer = read_answer(error)
    return _kind(answer, call)(_describe(answer, call))


def read_answer(error: Exception) -> ServerAnswer:
    """Return the status, code and message in an exception of botocore or obstore."""
    if isinstance(error, _ODD_ANSWERS):
        return ServerAnswer(None, "", NOT_S3)
    botocore_errors = _botocore_errors()
    if botocore_errors is not None:
        response: ServerAnswer | None = botocore_errors.read_response(error)
        if response is not None:
            return response
    text, _, details = str(error).partition("\n\nDebug source:")
    if _NO_LOCATION in text:
        return ServerAnswer(301, "PermanentRedirect", "the bucket is in another region")
    status = _STATUS.search(text)
    if status is not None:
        fields = [_first(pattern, text) for pattern in (_CODE, _MESSAGE, _REQUEST)]
        return ServerAnswer(int(status[1]), *fields)
    return _read_silence(text, details)


def _read_silence(text: str, details: str) -> ServerAnswer:
    """Return why obstore has no answer."""
    certificate = _CERTIFICATE.search(details)
    if certificate is not None:
        return ServerAnswer(None, UNTRUSTED, certificate[2] or certificate[1])
    cause = _CAUSE.search(text)
    if cause is None:
        return ServerAnswer(None, "", text.partition("\n")[0][:300])
    reason = _REASON.search(details)
    message = cause[1]
    if reason is not None:
        message += f": {reason[1]}"
    return ServerAnswer(None, "", message)


def is_unsupported(answer: ServerAnswer) -> bool:
    """Return whether the server does not implement the request, or one of its headers."""
    if answer.status in {501, 505} or answer.code == "NotImplemented":
        return True
    return answer.status == 400 and _UNSUPPORTED.search(answer.message) is not None


def is_mute(answer: ServerAnswer) -> bool:
    """Return whether a refusal has no code: a HEAD has no body, so expired keys are a bare 400."""
    return answer.status in {400, 403} and not answer.code


def is_without_right(answer: ServerAnswer) -> bool:
    """Return whether a right of S3 is missing, as far as the answer says."""
    is_denied = answer.status == 403 and answer.code in {"", "AccessDenied"}
    return is_denied and "kms" not in answer.message.lower()


def is_odd_answer(error: Exception) -> bool:
    """Return whether a server broke the protocol."""
    return read_answer(error).message == NOT_S3


def is_about_keys(error: Exception) -> bool:
    """Return whether obstore asked for keys, and got an exception."""
    return isinstance(error, UnauthenticatedError) and _PROVIDER in str(error)


def why_unreachable(error: Exception) -> str | None:
    """Return why no connection was made; None: one was made, or the error is about no request."""
    text = None
    botocore_errors = _botocore_errors()
    if isinstance(error, BaseError):
        if _CONNECTING.search(str(error)):
            text = str(error)
    elif botocore_errors is not None:
        text = botocore_errors.unreachable_cause(error)
    if text is None:
        return None
    return next((cause for pattern, cause in CAUSES.items() if pattern in text), "no connection")


def _first(pattern: re.Pattern[str], text: str) -> str:
    """Return what `pattern` finds in an XML document, without its entities."""
    match = pattern.search(text)
    if match is None:
        return ""
    from html import unescape

    return unescape(match[1])


def _kind(answer: ServerAnswer, call: Call) -> type[S3UnzipError]:
    """Return the error that an answer means: of the first row that has its code or status."""
    status = answer.status
    code = answer.code
    missing: type[S3UnzipError] = NotFoundError
    missing_statuses = {404}
    unmet: type[S3UnzipError] = StorageError  # a condition
    if call.conditional:
        unmet = ConflictError
    if call.pinned:
        missing = SourceChangedError
        missing_statuses = {404, 405}  # 405: the current version is a delete marker
        unmet = SourceChangedError
    if is_unsupported(answer):
        return UnsupportedError
    kinds: tuple[tuple[type[S3UnzipError], Collection[str], Collection[int]], ...] = (
        (MisplacedError, MISPLACED, {301, 307}),
        (StorageError, {UNTRUSTED, "InvalidObjectState"}, ()),
        (ThrottledError, {code} if "Throttl" in code else THROTTLED, {429, 503}),
        (ServiceFaultError, FOR_NOW | EXPIRED, () if code else {409}),
        (StoreFullError, FULL, {507}),
        (AccessDeniedError, DENIED, {401, 403}),
        (missing, (), missing_statuses),
        (unmet, (), {412}),
    )
    for kind, codes, statuses in kinds:
        if code in codes or status in statuses:
            return kind
    if status is None or status >= 500:
        return ServiceFaultError
    return StorageError


def _advise_without(answer: ServerAnswer, call: Call) -> str:
    """Return which options a server makes impossible that does not implement a request."""
    named = [header for header in call.headers if header in answer.message.lower()]
    options = sorted(HEADER_OPTIONS[header] for header in named or call.headers)
    advice = "this server does not implement the request"
    if not options:
        return advice
    return f"{advice} with {' or '.join(options)}: leave it out"


def _missing_right(answer: ServerAnswer, call: Call) -> str:
    """Return the right that may be missing: the one that the service names, else the usual one.

    Without s3:ListBucket S3 does not say that a key is missing (API_GetObject, Permissions).
    """
    named = _ACTION.search(answer.message)
    if named is not None:
        return named[1]
    if "kms" in answer.message.lower():
        return "the key's kms: rights"
    right = f"s3:{call.action}"
    if "x-amz-acl" in call.headers:
        right += " or s3:PutObjectAcl"
    if call.action == "GetObject" and not call.pinned:
        return f"{right}, or s3:ListBucket if there is no such key,"
    return right


def _describe(answer: ServerAnswer, call: Call) -> str:
    """Return the message of an error: the call, what the service said, and what to do."""
    code = answer.code
    if answer.status is not None and not code:
        code = f"HTTP {answer.status}"
    cause = ": ".join(part for part in (code, answer.message.rstrip(".")) if part)
    text = f"{call}: {cause or 'no answer'}"
    advice = _advise(answer, call)
    if is_unsupported(answer):
        advice = _advise_without(answer, call)
    if advice:
        text += f"; {advice}"
    if answer.request:
        text += f" (request {answer.request})"
    return text


def _advise(answer: ServerAnswer, call: Call) -> str:
    """Return what to do about an answer; empty: nothing is known."""
    if answer.code in ADVICE:
        return ADVICE[answer.code]
    if answer.status == 403:
        return (
            f"{_missing_right(answer, call)} may be missing in the role, the bucket policy or the "
            "key policy"
        )
    if _CUSTOMER_KEY in answer.message:
        return (
            "objects that are encrypted with a customer's key (SSE-C) are not supported: copy it "
            "with another encryption"
        )
    if answer.status == 412 and call.pinned:
        return "the archive was overwritten since it was planned"
    if answer.status == 404 and not answer.code:
        return "check the bucket's name, the key and the endpoint"
    return ""
