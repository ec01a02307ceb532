"""Sessions, credentials, clients and errors of botocore.

Other modules import this module only when they need botocore, whose import is slow.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing
from getpass import GetPassWarning
from ssl import get_default_verify_paths
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from botocore import UNSIGNED, exceptions
from botocore.config import Config
from botocore.configprovider import ConfiguredEndpointProvider
from botocore.credentials import (
    Credentials,
    ReadOnlyCredentials,
    create_credential_resolver,
)
from botocore.parsers import ResponseParserError
from botocore.session import Session
from urllib3.exceptions import HTTPError

from s3unzip import errors
from s3unzip.stores.config import StoreConfig, find_proxy
from s3unzip.stores.ports import Keys, ListPage, StoredObject
from s3unzip.stores.s3.errors import PARSED_PAGE, unquoted
from s3unzip.stores.s3.plain_settings import (
    DEFAULT_REGION,
    ENVIRONMENT,
    SENDABLE,
    AwsSettings,
    advise_renewal,
    profile_name,
    profile_option,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

# The default settings of clients. Clients for services that issue keys have no other settings. With
# botocore's own defaults, a service that does not respond would cause a delay of minutes.
PATIENCE = Config(
    connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 2, "mode": "standard"}
)
# Matches the successful response to a request that begins or completes a multipart upload.
RESULT_WITH_KEY = re.compile(
    rb"(\s*(?:<\?[^>]*>\s*)?<\w+MultipartUploadResult\b.*?)<Key>[^<]*</Key>", re.DOTALL
)
# The error codes that emulators return for operations that they do not support. The response to a
# HEAD has no body, so botocore uses the status as the code; some emulators send 404.
UNSUPPORTED = re.compile(
    "InvalidAction|NotImplemented(Exception)?|UnknownOperation(Exception)?|UnsupportedOperation|404"
)
# Patterns for the error codes of AWS, with the error class of this package and the advice.
ERROR_KINDS: dict[str, tuple[type[errors.S3UnzipError], str]] = {
    # SNS sends AuthorizationError.
    "403|.*AccessDenied.*|.*Unauthorized.*|AuthorizationError": (errors.AccessDeniedError, ""),
    "ExpiredToken(Exception)?": (errors.ExpiredKeysError, "; get new credentials"),
    # AWS also refuses valid keys in a region that the account has not enabled.
    "InvalidClientTokenId|UnrecognizedClientException": (
        errors.AccessDeniedError,
        "; check the credentials and whether the account has enabled the region",
    ),
    "SignatureDoesNotMatch|InvalidSignatureException": (
        errors.AccessDeniedError,
        "; check the credentials (AWS_SECRET_ACCESS_KEY) and this machine's clock",
    ),
    ".*Throttl.*|TooManyRequestsException": (
        errors.ThrottledError,
        "; run the command again in a minute",
    ),
    "ExecutionAlreadyExists": (
        errors.UsageError,
        "; a person or an event has already started it: follow it with s3unzip watch",
    ),
    "NoSuch.*|.*DoesNotExist.*|(Resource)?NotFound(Exception)?": (errors.NotFoundError, ""),
}
BODY_PIECE = 64 * 1024  # number of bytes per read; if a read fails, its bytes are lost


class SharedCredentials(Credentials):
    """The credentials of a botocore session; this object is also its credential provider.

    Args:
        require: function that returns the current keys, or raises an error if there are none.
    """

    method = "s3unzip"

    def __init__(self, require: Callable[[], Keys]) -> None:
        self._require = require

    def load_credentials(self) -> SharedCredentials:
        """Return this object. Keys are looked up when a request is signed."""
        return self

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the current keys for signing one request."""
        keys = self._require()
        return ReadOnlyCredentials(keys.access_key, keys.secret_key, keys.token)


def open_session(profile: str | None, region: str | None) -> Session:
    """Return a botocore session; if profile or region is None, variables and files determine it."""
    session = Session(profile=profile)
    try:
        # Read the files now, while no other thread uses the session. Later, another thread could
        # use the profiles before botocore has added every profile.
        session.get_scoped_config()
    except exceptions.BotoCoreError as error:
        raise explain_profile_error(error, profile_name(profile)) from None
    session.set_default_client_config(PATIENCE)
    session.set_config_variable("region", region)
    return session


def load_credentials(session: Session) -> Credentials | None:
    """Return the credentials found by botocore's chain, or None if there are none.

    The chain may ask the user for an MFA code.
    """
    chain = create_credential_resolver(
        session, region_name=session.get_config_variable("region") or DEFAULT_REGION
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GetPassWarning)  # the MFA code may come from a pipe
        credentials: Credentials | None = chain.load_credentials()
        if credentials is not None:
            credentials.get_frozen_credentials()  # some providers ask for the MFA code only now
    return credentials


def refuse_mfa_code(session: Session) -> None:
    """Raise an error if the profile, or one of its source profiles, needs an MFA code."""
    unread_profiles = dict(session.full_config.get("profiles", {}))
    name = session.get_config_variable("profile") or "default"
    while name in unread_profiles:  # each profile is read once, because profiles may form a cycle
        profile = unread_profiles.pop(name)
        if "mfa_serial" in profile:
            raise exceptions.RefreshWithMFAUnsupportedError
        name = profile.get("source_profile")


def frozen_keys(credentials: Credentials, profile: str) -> Keys:
    """Return the current keys from credentials that botocore renews before they expire.

    Args:
        profile: name of the profile to show in advice, or "" for the default profile.
    """
    frozen = credentials.get_frozen_credentials()
    for name, value in (
        ("access key id", frozen.access_key),
        ("session token", frozen.token or "-"),  # "-" if there is no token
    ):
        if not isinstance(value, str) or not SENDABLE.fullmatch(value):
            raise exceptions.InvalidConfigError(
                error_msg=f"the {name} is empty, or contains a character not allowed in a request"
            )
    return Keys(
        str(frozen.access_key),
        str(frozen.secret_key),
        frozen.token,
        advice=advise_renewal(credentials.method, profile),
        is_fixed=credentials.method == ENVIRONMENT,
    )


def read_settings(profile: str | None, session: Session) -> AwsSettings:
    """Return the settings of a botocore session that was opened for `profile`."""
    try:
        s3 = session.get_config_variable("s3")
        if not isinstance(s3, dict):
            s3 = {}
        return AwsSettings(
            region=session.get_config_variable("region"),
            endpoint_url=_find_endpoint(session),
            ca_bundle=session.get_config_variable("ca_bundle"),
            request_checksum_calculation=session.get_config_variable(
                "request_checksum_calculation"
            ),
            addressing_style=s3.get("addressing_style"),
            has_special_endpoint=bool(
                session.get_config_variable("use_fips_endpoint")
                or session.get_config_variable("use_dualstack_endpoint")
                or s3.get("use_dualstack_endpoint")
            ),
        )
    except exceptions.BotoCoreError as error:
        raise explain_profile_error(error, profile_name(profile)) from None


def _find_endpoint(session: Session) -> str | None:
    """Return the S3 endpoint set by variables or files, or None if there is none."""
    if session.get_config_variable("ignore_configured_endpoint_urls"):
        return None
    endpoint: str | None = ConfiguredEndpointProvider(
        full_config=session.full_config,
        scoped_config=session.get_scoped_config(),
        client_name="s3",
    ).provide()
    return endpoint


def explain_profile_error(error: Exception, profile: str) -> errors.S3UnzipError:
    """Return the error for an exception that the settings or keys of a profile caused.

    Args:
        profile: name of the profile, or "" for the default profile.
    """
    who = f"credentials of the profile {profile}" if profile else "AWS credentials"
    cause = " ".join(str(error).split()).rstrip(".")
    advice = f"see what is configured: aws configure list{profile_option(profile)}"
    match error:
        case exceptions.ProfileNotFound():
            return errors.UsageError(f"{error}; see aws configure list-profiles")
        case exceptions.HTTPClientError() | exceptions.ConnectionError():
            return errors.ServiceFaultError(f"{who}: {cause}")
        case exceptions.ClientError() if error.response["ResponseMetadata"]["HTTPStatusCode"] > 499:
            # The service that issues the keys failed, so a later attempt may succeed.
            return errors.ServiceFaultError(f"{who}: {cause}")
        case exceptions.ClientError():
            advice = "the permission may be missing, or the role may not trust the caller"
        case exceptions.SSOError() | exceptions.TokenRetrievalError():
            advice = advise_renewal("sso", profile)
        case exceptions.LoginError():
            advice = advise_renewal("login", profile)
        case exceptions.RefreshWithMFAUnsupportedError():
            cause = "the credentials have expired, and new credentials need an MFA code"
            advice = "run the command again, or s3unzip resume"
        # botocore does not check data from a credential process or a cache file.
        case AttributeError() | LookupError() | TypeError() | ValueError():
            cause = f"a credential process or a file returned unexpected data: {cause}"
        case EOFError():
            cause = "the credentials need an MFA code, but standard input is not a terminal"
            advice = "run the command in a terminal"
    return errors.AccessDeniedError(f"{who}: {cause}; {advice}")


def translate_client_error(error: exceptions.ClientError, action: str) -> errors.S3UnzipError:
    """Return the error of this package for an error from the AWS control plane.

    `action` is the IAM action of the request; the message begins with it.
    """
    fields = error.response.get("Error", {})
    code = fields.get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    message = str(fields.get("Message") or "")
    # Some emulators report an unsupported operation only in the message.
    if UNSUPPORTED.fullmatch(code) or "not yet implemented" in str(error).lower():
        return errors.UnsupportedError(f"this endpoint does not support {action}")
    # AWS always sends a code. A message that begins with "<" is the page of a web server.
    if (not code or message.lstrip().startswith("<")) and status < 500:
        return errors.StorageError(
            f"{action}: the endpoint does not answer as AWS does (HTTP {status}); check "
            "--endpoint-url and AWS_ENDPOINT_URL"
        )
    text = f"{action}: {code}: {message}"
    for pattern, (error_class, advice) in ERROR_KINDS.items():
        if re.fullmatch(pattern, code):
            return error_class(text + advice)
    if "does not exist" in text:  # CloudFormation has no error code for a missing stack
        return errors.NotFoundError(text)
    if status >= 500:
        return errors.ServiceFaultError(text)
    return errors.StorageError(text)


def create_client(
    session: Session,
    service: str,
    *,
    region: str | None,
    endpoint_url: str | None,
    **settings: Any,
) -> Any:
    """Return a new client for `service`; `settings` are arguments for botocore's `Config`."""
    try:
        client = session.create_client(
            service,
            region_name=region,
            endpoint_url=endpoint_url,
            # Without a setting for certificates, trust the certificates that obstore trusts. True
            # stands for botocore's own certificates. With None, botocore would fail if
            # AWS_CA_BUNDLE is set but empty.
            verify=session.get_config_variable("ca_bundle")
            or os.environ.get("REQUESTS_CA_BUNDLE")
            or get_default_verify_paths().cafile
            or True,
            config=Config(**settings),
        )
    except ValueError as error:  # caused by ~/.aws/config or an environment variable
        raise errors.UsageError(
            f"{error}: a region looks like eu-west-1, and an endpoint begins with http:// or https://"
        ) from None
    find_proxy(client.meta.endpoint_url)  # refuses an invalid proxy
    return client


def create_s3_client(
    session: Session,
    access: StoreConfig,
    purpose: str,
    *,
    region: str,
    style: str,
    signs_payload: bool,
) -> S3Client:
    """Return a client for `AwsSession.s3_client`, without retries, because `Calls` retries."""
    # botocore has a single timeout for connecting and for sending each 128 KiB of a body. Sending
    # parts over a slow, shared uplink takes longer than connecting, so clients that send parts use
    # `put_seconds`.
    connect_seconds, read_seconds = {
        "control": (access.connect_seconds, access.stall_seconds),
        "bodies": (access.put_seconds, access.put_seconds),
        "slow": (access.put_seconds, access.slow_seconds),
    }[purpose]
    client: S3Client = create_client(
        session,
        "s3",
        region=region,
        endpoint_url=access.endpoint_url,
        ignore_configured_endpoint_urls=True,  # `access` contains the configured endpoint
        connect_timeout=connect_seconds,
        read_timeout=read_seconds,
        max_pool_connections=access.connections,
        retries={"total_max_attempts": 1, "mode": "standard"},
        tcp_keepalive=True,
        signature_version=UNSIGNED if access.unsigned else "s3v4",
        # Our requests specify checksums themselves. The data of members is verified with the CRC-32
        # in the archive.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        s3={
            "addressing_style": style,
            "payload_signing_enabled": signs_payload,
            # By default, botocore sends requests for us-east-1 to the global endpoint.
            "us_east_1_regional_endpoint": "regional",
        },
    )
    if access.request_payer:
        client.meta.events.register("before-call.s3", let_requester_pay)
    client.meta.events.register("before-parse.s3.ListObjectsV2", _parse_list_quickly)
    for operation in ("CreateMultipartUpload", "CompleteMultipartUpload"):
        client.meta.events.register(f"before-parse.s3.{operation}", _drop_unparsable_key)
    return client


def read_pieces(answer: GetObjectOutputTypeDef) -> Iterator[bytes]:
    """Yield the body of a response in pieces of `BODY_PIECE` bytes."""
    try:
        with closing(answer["Body"]) as body:
            yield from body.iter_chunks(BODY_PIECE)
    except HTTPError as error:  # botocore does not translate all errors raised by urllib3
        raise exceptions.HTTPClientError(error=error) from error


def _parse_list_quickly(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    """Parse the response to ListObjectsV2 in place of botocore, using a tenth of the CPU time.

    Parsing takes about 5 us per object; botocore takes 70 us. obstore also takes 5 us, but drops
    the slash at the end of a key and refuses some keys.
    """
    if response_dict["status_code"] == 200:
        customized_response_dict[PARSED_PAGE] = _parse_page(response_dict["body"])
        response_dict["body"] = b"<ListBucketResult/>"  # botocore has nothing left to parse


def _drop_unparsable_key(response_dict: dict[str, Any], **_: object) -> None:
    """Remove the key from a complete result of a multipart request, and set the status to 200.

    A key may contain control characters that XML cannot represent. botocore treats a result with
    such a key as truncated, and changes the status to 500 before it calls this function.
    """
    body = response_dict["body"]
    result = RESULT_WITH_KEY.match(body)
    if result is not None and body.rstrip().endswith(b"MultipartUploadResult>"):
        response_dict["body"] = result[1] + body[result.end() :]
        response_dict["status_code"] = 200


def _parse_page(body: bytes) -> ListPage:
    """Return the objects on a page, and the token for the next page, which is None at the end.

    If the ``EncodingType`` is "url", keys are encoded as in HTML forms: Amazon S3 and MinIO send
    "+" for a space and "%2B" for a plus sign. botocore decodes keys in the same way
    (`decode_list_object_v2`).
    """
    try:
        root = ET.fromstring(body)  # noqa: S314 - expat limits the expansion of entities
    except ET.ParseError as error:
        raise ResponseParserError(f"the list is not XML: {error}") from None
    name = root.tag.rpartition("}")[2]  # ElementTree writes "{namespace}name"
    if name != "ListBucketResult":
        raise ResponseParserError(f"not a list of objects: {name}")
    namespace = root.tag.removesuffix(name)
    key_tag = f"{namespace}Key"
    size_tag = f"{namespace}Size"
    etag_tag = f"{namespace}ETag"
    is_encoded = root.findtext(f"{namespace}EncodingType") == "url"
    objects = []
    for element in root.iterfind(f"{namespace}Contents"):
        key = element.findtext(key_tag) or ""
        if is_encoded and ("%" in key or "+" in key):  # calling `unquote_plus` takes more time
            key = unquote_plus(key)
        try:
            size = int(element.findtext(size_tag) or "")
        except ValueError:
            raise ResponseParserError(f"the list does not contain the size of {key!r}") from None
        # None, because a list contains no CRC-32.
        objects.append(StoredObject(key, size, None, unquoted(element.findtext(etag_tag))))
    token = root.findtext(f"{namespace}NextContinuationToken", "")
    # Without the element IsTruncated, a token means that there is a next page.
    truncated = root.findtext(f"{namespace}IsTruncated", str(bool(token)))
    if truncated.strip().lower() in {"false", "0", ""}:
        return objects, None
    # If the token is missing, `token` is "", and `list_page` raises an error.
    return objects, token


def let_requester_pay(params: dict[str, Any], **_: object) -> None:
    """Add the header that makes the requester pay, before botocore signs the request."""
    params["headers"]["x-amz-request-payer"] = "requester"
