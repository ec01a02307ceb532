"""botocore's chain of credentials, and its clients; to import this module imports botocore."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from getpass import GetPassWarning
from typing import Any

import botocore.session
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

# For clients without settings of their own: those of services that give keys. botocore's own
# timeouts are minutes long.
PATIENCE = Config(
    connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 2, "mode": "standard"}
)


class SharedCredentials(Credentials):
    """What botocore's clients sign with: a profile's keys of the moment.

    Args:
        current: returns the keys; raises if there are none.
    """

    method = "s3unzip"

    def __init__(self, current: Callable[[], Keys]) -> None:
        self._current = current

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the keys of the moment."""
        keys = self._current()
        return ReadOnlyCredentials(keys.access_key, keys.secret_key, keys.token, keys.account)

    @property
    def account_id(self) -> str | None:
        """The account, which some endpoints have in their names."""
        return self.get_frozen_credentials().account_id


class KeysProvider:
    """The credential provider of a botocore session whose clients share keys.

    Args:
        find: returns the keys of the moment; None: there are none.
        require: returns them; raises if there are none.
    """

    def __init__(self, find: Callable[[], Keys | None], require: Callable[[], Keys]) -> None:
        self._find = find
        self._require = require

    def load_credentials(self) -> SharedCredentials | None:
        """Return the credentials; None: there are none."""
        if self._find() is None:
            return None
        return SharedCredentials(self._require)


def open_session(profile: str | None, region: str | None) -> Session:
    """Return a session of botocore; None: the profile or region of variables and files."""
    session = botocore.session.get_session()
    session.set_default_client_config(PATIENCE)
    if profile is not None:
        session.set_config_variable("profile", profile)
    if region is not None:
        session.set_config_variable("region", region)
    return session


def load_credentials(session: Session) -> Credentials | None:
    """Return what the chain of a session finds; it may ask a person for a code."""
    region = session.get_config_variable("region") or DEFAULT_REGION
    chain = create_credential_resolver(session, region_name=region)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GetPassWarning)  # a code may come through a pipe
        credentials: Credentials | None = chain.load_credentials()
        if credentials is not None:
            credentials.get_frozen_credentials()  # some ask only now
    return credentials


def refuse_code(session: Session) -> None:
    """Raise an error if a person must type a code for the profile, or for one that it builds on."""
    profiles = session.full_config.get("profiles", {})
    name = session.get_config_variable("profile") or "default"
    for _ in range(len(profiles)):
        profile = profiles.get(name, {})
        if "mfa_serial" in profile:
            raise exceptions.RefreshWithMFAUnsupportedError
        name = profile.get("source_profile")


def frozen_keys(credentials: Credentials, profile: str) -> Keys:
    """Return the keys of credentials, which botocore renews in time; `profile` is for advice."""
    frozen = credentials.get_frozen_credentials()
    for name, value in (
        ("access key id", frozen.access_key),
        ("session token", frozen.token or "-"),
    ):
        if not isinstance(value, str) or not SENDABLE.fullmatch(value):
            text = f"the {name} has a character that no request can have, or none"
            raise exceptions.InvalidConfigError(error_msg=text)
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
        UsageError: it is no URL.
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


NO_URL = "it must begin with http:// or https://"


def create_client(
    session: Session,
    service: str,
    region: str | None,
    *,
    endpoint_url: str | None,
    settings: dict[str, Any],
) -> Any:
    """Return a new client; None leaves region and endpoint to the session."""
    try:
        return session.create_client(
            service, region_name=region, endpoint_url=endpoint_url, config=Config(**settings)
        )
    except ValueError as error:  # an endpoint from ~/.aws/config or a variable
        raise errors.UsageError(f"{error}: {NO_URL}") from None


def explain(error: Exception, profile: str) -> errors.S3UnzipError:
    """Return the error for what kept botocore's chain from giving keys."""
    who = f"credentials of the profile {profile}" if profile else "AWS credentials"
    cause = " ".join(str(error).split()).rstrip(".")
    advice = f"see what is configured: aws configure list{profile_option(profile)}"
    match error:
        case exceptions.ProfileNotFound():
            return errors.UsageError(f"{error}; see aws configure list-profiles")
        case exceptions.HTTPClientError() | exceptions.ConnectionError():
            return errors.ServiceFaultError(f"{who}: {cause}")
        case exceptions.ClientError() if error.response["ResponseMetadata"]["HTTPStatusCode"] > 499:
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
            cause = f"what a program or a file gives is not understood: {cause}"
        case EOFError():
            cause = "they need a code, and standard input is no terminal"
            advice = "start the command on a terminal"
    return errors.AccessDeniedError(f"{who}: {cause}; {advice}")
