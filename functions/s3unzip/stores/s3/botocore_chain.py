"""botocore's chain of credentials, and its sessions. This module imports botocore."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from getpass import GetPassWarning

from botocore import exceptions
from botocore.config import Config
from botocore.configprovider import ConfiguredEndpointProvider
from botocore.credentials import (
    Credentials,
    ReadOnlyCredentials,
    create_credential_resolver,
)
from botocore.session import Session

from s3unzip import errors
from s3unzip.stores.ports import Keys
from s3unzip.stores.s3.plain_settings import (
    DEFAULT_REGION,
    ENVIRONMENT,
    SENDABLE,
    advise,
    profile_option,
)

# The default settings of clients. The clients of services that issue keys have only these. With
# botocore's own defaults, a service that does not answer would cost minutes.
PATIENCE = Config(
    connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 2, "mode": "standard"}
)
NO_URL = "it must begin with http:// or https://"


class SharedCredentials(Credentials):
    """The credentials of a botocore session, and its credential provider in the same object.

    Args:
        find: returns the current keys, or None if there are none.
        require: returns the current keys, or raises an error if there are none.
    """

    method = "s3unzip"

    def __init__(self, find: Callable[[], Keys | None], require: Callable[[], Keys]) -> None:
        self._find = find
        self._require = require

    def load_credentials(self) -> SharedCredentials | None:
        """Return these credentials, or None if there are no keys."""
        return None if self._find() is None else self

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the current keys, for the signature of one request."""
        keys = self._require()
        return ReadOnlyCredentials(keys.access_key, keys.secret_key, keys.token, keys.account)

    @property
    def account_id(self) -> str | None:
        """The id of the account, which is in the names of some endpoints."""
        return self._require().account


def open_session(profile: str | None, region: str | None) -> Session:
    """Return a session of botocore. None leaves profile or region to variables and files."""
    session = Session(profile=profile)
    session.set_default_client_config(PATIENCE)
    if region is not None:
        session.set_config_variable("region", region)
    return session


def load_credentials(session: Session) -> Credentials | None:
    """Return the credentials that botocore's chain finds. It may ask a person for a code."""
    region = session.get_config_variable("region") or DEFAULT_REGION
    chain = create_credential_resolver(session, region_name=region)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GetPassWarning)  # the code may come through a pipe
        credentials: Credentials | None = chain.load_credentials()
        if credentials is not None:
            credentials.get_frozen_credentials()  # some providers ask for the code only here
    return credentials


def refuse_code(session: Session) -> None:
    """Raise an error if the profile, or one that it builds on, needs a code from a person."""
    profiles = session.full_config.get("profiles", {})
    name = session.get_config_variable("profile") or "default"
    for _ in profiles:  # at most once for each: profiles may form a cycle
        profile = profiles.get(name, {})
        if "mfa_serial" in profile:
            raise exceptions.RefreshWithMFAUnsupportedError
        name = profile.get("source_profile")


def frozen_keys(credentials: Credentials, profile: str) -> Keys:
    """Return the current keys of credentials, which botocore renews before they expire.

    Args:
        profile: the name for the advice, or "" for the default profile.
    """
    frozen = credentials.get_frozen_credentials()
    for name, value in (
        ("access key id", frozen.access_key),
        ("session token", frozen.token or "-"),  # "-": there may be no token
    ):
        if not isinstance(value, str) or not SENDABLE.fullmatch(value):
            raise exceptions.InvalidConfigError(
                error_msg=f"the {name} is empty, or has a character that no request can have"
            )
    return Keys(
        str(frozen.access_key),
        str(frozen.secret_key),
        frozen.token,
        frozen.account_id,
        advice=advise(credentials.method, profile),
        is_fixed=credentials.method == ENVIRONMENT,
    )


def find_endpoint(session: Session) -> str | None:
    """Return the endpoint of S3 that variables or files name.

    Raises:
        UsageError: it is not a URL.
    """
    if session.get_config_variable("ignore_configured_endpoint_urls"):
        return None
    provider = ConfiguredEndpointProvider(
        full_config=session.full_config,
        scoped_config=session.get_scoped_config(),
        client_name="s3",
    )
    endpoint: str | None = provider.provide()
    if endpoint and not re.match(r"https?://[^/?#]", endpoint):
        raise errors.UsageError(f"Invalid endpoint: {endpoint}: {NO_URL}")
    return endpoint


def explain(error: Exception, profile: str) -> errors.S3UnzipError:
    """Return the error that says why botocore's chain gives no keys.

    Args:
        profile: the name of the profile, or "" for the default one.
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
            # The service that issues the keys has failed: a later attempt may succeed.
            return errors.ServiceFaultError(f"{who}: {cause}")
        case exceptions.ClientError():
            advice = "the right to do so, or the trust of the role, may be missing"
        case exceptions.SSOError() | exceptions.TokenRetrievalError():
            advice = advise("sso", profile)
        case exceptions.LoginError():
            advice = advise("login", profile)
        case exceptions.RefreshWithMFAUnsupportedError():
            cause = "they have expired, and new ones need a code"
            advice = "start the command again, or s3unzip resume"
        case AttributeError() | LookupError() | TypeError() | ValueError():
            cause = f"a program or a file gives unexpected data: {cause}"
        case EOFError():
            cause = "they need a code, and standard input is not a terminal"
            advice = "start the command on a terminal"
    return errors.AccessDeniedError(f"{who}: {cause}; {advice}")
