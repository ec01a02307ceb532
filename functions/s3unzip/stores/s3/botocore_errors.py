"""What the exceptions of botocore mean; to import this module imports botocore."""

from botocore import exceptions
from botocore.parsers import ResponseParserError

from s3unzip.errors import AccessDeniedError, S3UnzipError, StorageError, UsageError
from s3unzip.stores.s3.answers import NOT_S3, UNTRUSTED, ServerAnswer

RAISED = (exceptions.BotoCoreError, exceptions.ClientError, ResponseParserError)
# What botocore raises if a server does not answer, or not wholly. Its other errors are of settings.
_NO_ANSWER = (
    exceptions.ConnectionError,
    exceptions.FlexibleChecksumError,
    exceptions.HTTPClientError,
    exceptions.IncompleteReadError,
)
_UNREACHABLE = (
    exceptions.ConnectTimeoutError,
    exceptions.EndpointConnectionError,
    exceptions.SSLError,
)


def explain_setting(error: Exception, call: object) -> S3UnzipError | None:
    """Return the error for what is wrong before a request is sent; None: one was sent."""
    if isinstance(error, exceptions.ProfileNotFound):
        return UsageError(f"{error}; see aws configure list-profiles")
    if isinstance(error, exceptions.NoCredentialsError | exceptions.PartialCredentialsError):
        return AccessDeniedError(f"{call}: {error}; set AWS_PROFILE or AWS_ACCESS_KEY_ID")
    if isinstance(error, exceptions.BotoCoreError) and not isinstance(error, _NO_ANSWER):
        return StorageError(f"{call}: {error}")
    return None


def read_response(error: Exception) -> ServerAnswer | None:
    """Return the answer in an exception; None: it has none, and its text says why."""
    if isinstance(error, ResponseParserError):
        return ServerAnswer(None, "", NOT_S3)
    if isinstance(error, exceptions.SSLError) and "certificate" in str(error):
        return ServerAnswer(None, UNTRUSTED, str(error).rpartition("] ")[2][:200])
    if not isinstance(error, exceptions.ClientError):
        return None
    answer = error.response.get("Error", {})
    about = error.response.get("ResponseMetadata", {})
    code = _text(answer.get("Code"))
    return ServerAnswer(
        about.get("HTTPStatusCode"),
        "" if code.isdigit() else code,  # a HEAD has no body: boto3 repeats the status
        _text(answer.get("Message")),
        _text(about.get("RequestId")),
    )


def unreachable_cause(error: Exception) -> str | None:
    """Return the text of an error that made no connection; None: it is another error."""
    if not isinstance(error, _UNREACHABLE):
        return None
    return str(error.kwargs["error"])


def _text(element: object) -> str:
    """Return the text of an element, at most 500 characters.

    botocore makes a list of an element that comes twice, and a dict of one with elements inside.
    """
    while isinstance(element, list) and element:
        element = element[0]
    if not isinstance(element, str):
        return ""
    return element[:500]
