"""The keys that requests are signed with: looked for once by a program and all its processes.

* A program looks for the keys of a profile once, with botocore's chain: a person may have to type a
  code, and a program of the profile may be slow. All sessions of the profile share them.
* A worker process asks the program, through the pipe that brings its tasks (`local.workers`). Keys
  are in the memory of these processes and in the pipe: in no file, argument, variable or log.
* Any number of threads may ask at once: one looks, the others wait for it.
* Temporary keys are renewed by botocore before they expire. Keys that a store refuses are looked
  for again, in a new session of botocore. Answers to requests that were signed before the renewal
  come in for a while, so a second look is made only after `RENEWAL_SECONDS`.
* Nobody is asked for a code in mid-run: a run may be unattended, and the code would be read by a
  thread that Ctrl-C cannot end.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache
from getpass import GetPassWarning
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import botocore.session
from botocore import UNSIGNED, exceptions
from botocore.config import Config
from botocore.credentials import (
    Credentials,
    ReadOnlyCredentials,
    create_credential_resolver,
)

from s3unzip import errors
from s3unzip.stores.ports import Keys, KeysRequest

if TYPE_CHECKING:
    from obstore.store import S3Credential

    from s3unzip.stores.ports import AskForKeys

# botocore renews role credentials at least 10 minutes before they expire, and obstore asks again 5
# minutes before the time given here; a worker keeps an answer for 4 minutes. So no request is
# signed with expired ones.
CREDENTIALS_LAST = timedelta(minutes=10)
ANSWER_SECONDS = 240.0
RENEWAL_SECONDS = 90.0  # an answer to a PUT on a slow link may take so long
RELOOK_SECONDS = 2.0  # between two looks that find the same keys
# Of clients that say nothing else: those of services that give keys. botocore waits for minutes.
PATIENCE = Config(
    connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 2, "mode": "standard"}
)
MAX_PROFILES = 8  # that a program keeps the keys of
# What botocore's chain raises: its own errors, and what the files and programs of a profile cause.
CHAIN_ERRORS = (
    AttributeError,
    exceptions.BotoCoreError,
    exceptions.ClientError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
DEFAULT_REGION = "us-east-1"
ENVIRONMENT = "env"  # botocore's word for variables, which do not change in a process
_SENDABLE = re.compile(r"[!-~]+")  # what a request carries
NO_KEYS = (
    "no AWS credentials; set AWS_PROFILE or AWS_ACCESS_KEY_ID, or read a public archive with "
    "--no-sign-request"
)


class ProfileKeys:
    """The keys of one profile; threads and sessions share it.

    Args:
        profile: None: ``AWS_PROFILE``, or the variables and files that botocore's chain knows.
        ask: asks the program; None: this process looks for itself.
    """

    def __init__(self, profile: str | None, ask: AskForKeys | None = None) -> None:
        self._profile = profile
        self._ask = ask
        self._lock = threading.RLock()
        self._session: botocore.session.Session | None = None  # whose chain is used
        self._region: str | None = None
        self._credentials: Credentials | None = None  # what the chain found
        self._keys: Keys | None = None
        self._answered = self._looked = -math.inf
        self._has_renewed = False  # at the last look
        self._refusal: errors.S3UnzipError | None = None  # of the last look
        self.renewals = 0
        # The last look's failure; obstore passes on only its text.
        self.failure: errors.S3UnzipError | None = None

    def begin(self, session: botocore.session.Session, region: str | None) -> None:
        """Use the chain of a session that is open already; a new one takes 10 ms."""
        with self._lock:
            if self._session is None:
                self._session, self._region = session, region

    def current(self) -> Keys | None:
        """Return the keys to sign with now; None: there are none.

        Raises:
            AccessDeniedError: nobody gives them; the message says what to do.
            ServiceFaultError: a service that gives them does not answer.
        """
        with self._lock, self._explaining():
            if self._ask is None:
                return self._look()
            if time.monotonic() - self._answered > ANSWER_SECONDS:
                self._keys = self._ask(KeysRequest(self._profile))
                self._answered = time.monotonic()
            return self._keys

    def renew(self, renewals: int) -> bool:
        """Look again for keys that a store refuses; return whether there are others.

        Args:
            renewals: how often they had been renewed when the caller began to use them.
        """
        with self._lock:
            if renewals != self.renewals:
                return True
            lasts = RENEWAL_SECONDS if self._has_renewed else RELOOK_SECONDS
            if time.monotonic() - self._looked <= lasts:
                if self._refusal is not None:
                    raise self._refusal
                return self._has_renewed
            self._looked = time.monotonic()
            self._has_renewed = False
            self._refusal = None
            try:
                with self._explaining():
                    new = self._look_again()
            except errors.S3UnzipError as refusal:
                self._refusal = refusal
                raise
            # A file is empty while somebody writes it: then the next look finds more.
            if new is not None and (self._keys is None or new.access_key != self._keys.access_key):
                self._keys = new
                self._has_renewed = True
                self.renewals += 1
            return self._has_renewed

    def _look(self) -> Keys | None:
        """Return what the chain finds; botocore renews it in time."""
        if self._credentials is None:
            self._session = self._session or _open_session(self._profile, self._region)
            self._credentials = _load(self._session)
        self._keys = self._described(self._credentials)
        return self._keys

    def _look_again(self) -> Keys | None:
        """Return the keys that a new session finds, or the program; the old ones are refused."""
        if self._ask is not None:
            refused = None if self._keys is None else self._keys.access_key
            return self._ask(KeysRequest(self._profile, refused))
        session = _open_session(self._profile, self._region)
        if _asks_for_code(session):
            raise exceptions.RefreshWithMFAUnsupportedError
        credentials = _load(session)
        keys = self._described(credentials)
        if keys is not None:
            self._session, self._credentials = session, credentials
        return keys

    def _described(self, credentials: Credentials | None) -> Keys | None:
        """Return the keys of credentials, and what is known of them."""
        if credentials is None:
            return None
        now, method = credentials.get_frozen_credentials(), credentials.method
        for name, value in (("access key id", now.access_key), ("session token", now.token or "-")):
            if not isinstance(value, str) or not _SENDABLE.fullmatch(value):
                text = f"the {name} has a character that no request can have, or none"
                raise exceptions.InvalidConfigError(error_msg=text)
        return Keys(
            str(now.access_key),
            str(now.secret_key),
            now.token,
            now.account_id,
            advice=_advise(method, _name(self._profile)),
            is_fixed=method == ENVIRONMENT,
        )

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        self.failure = None
        try:
            yield
        except CHAIN_ERRORS as error:
            self.failure = _explain(error, _name(self._profile))
            if self._keys is None and isinstance(self.failure, errors.ServiceFaultError):
                # Nobody gave keys before: a wrong address is likely.
                self.failure = errors.StorageError(f"{self.failure}; check the network")
            raise self.failure from None
        except errors.S3UnzipError as error:  # the program's
            self.failure = error
            raise


@lru_cache(MAX_PROFILES)
def _shared(profile: str | None, variables: frozenset[tuple[str, str]]) -> ProfileKeys:  # noqa: ARG001 - other variables, other keys
    return ProfileKeys(profile)


def shared_keys(profile: str | None) -> ProfileKeys:
    """Return the keys of a profile that all sessions of this process share."""
    variables = frozenset(one for one in os.environ.items() if one[0].startswith("AWS_"))
    return _shared(profile, variables)


def answer_worker(request: KeysRequest) -> Keys | None:
    """Return the keys that a worker asks for; those that a store refused are looked for again."""
    shared = shared_keys(request.profile)
    keys = shared.current()
    if keys is not None and keys.access_key == request.refused:
        shared.renew(shared.renewals)
        keys = shared.current()
    return keys


class _SharedCredentials(Credentials):
    """What botocore's clients sign with: the profile's keys of the moment."""

    method = "s3unzip"

    def __init__(self, keys: ProfileKeys) -> None:
        self._profile_keys = keys

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the keys of the moment."""
        keys = self._profile_keys.current()
        if keys is None:
            raise errors.AccessDeniedError(NO_KEYS)
        return ReadOnlyCredentials(keys.access_key, keys.secret_key, keys.token, keys.account)

    @property
    def account_id(self) -> str | None:
        """The account, which some endpoints have in their names."""
        return self.get_frozen_credentials().account_id


class _Provider:
    """The credential provider of a botocore session whose clients share keys."""

    def __init__(self, keys: ProfileKeys) -> None:
        self._keys = keys

    def load_credentials(self) -> _SharedCredentials | None:
        """Return the credentials; None: there are none."""
        return None if self._keys.current() is None else _SharedCredentials(self._keys)


class AwsSession:
    """One profile and region of an account; None uses ``AWS_PROFILE`` and the other AWS variables.

    Threads may share it and its clients. A profile that does not exist is an error of the first
    client.

    Args:
        keys: what its clients sign with; None: what this process shares.
    """

    def __init__(
        self, profile: str | None = None, region: str | None = None, keys: ProfileKeys | None = None
    ) -> None:
        self._profile = profile
        self._region = region
        self._lock = threading.Lock()  # for `_core`: botocore's sessions are for one thread
        self.keys = keys or shared_keys(profile)

    @cached_property
    def _core(self) -> botocore.session.Session:
        core = _open_session(self._profile, self._region)
        core.full_config  # noqa: B018 - threads that read the files at once see half of the profiles
        self.keys.begin(core, self._region)
        core.register_component("credential_provider", _Provider(self.keys))
        return core

    @property
    def region(self) -> str | None:
        """The region of the session; None: it has none."""
        region: str | None = self._configured("region")
        return region

    @property
    def addressing_style(self) -> str | None:
        """The ``addressing_style`` of the profile's ``s3`` settings; None: it is not set."""
        settings = self._configured("s3")
        style = settings.get("addressing_style") if isinstance(settings, dict) else None
        return style if style in {"path", "virtual"} else None

    @cached_property
    def own_endpoint(self) -> str | None:
        """The URL of another server than AWS that variables or files name; None: they name none."""
        with self._lock:
            files = str(self._core.full_config)
        if not any(name.startswith("AWS_ENDPOINT_URL") for name in os.environ) and (
            "endpoint_url" not in files
        ):
            return None
        region = self.region or DEFAULT_REGION
        url: str = self.client("s3", region=region, signature_version=UNSIGNED).meta.endpoint_url
        return None if is_aws(url) else url

    @property
    def sends_checksums(self) -> bool:
        """Whether the configuration allows checksums that a request does not need.

        ``AWS_REQUEST_CHECKSUM_CALCULATION`` or ``request_checksum_calculation`` of a profile; see
        sdkref/latest/guide/feature-dataintegrity.html
        """
        calculation = self._configured("request_checksum_calculation")
        return str(calculation).lower() != "when_required"

    @property
    def ca_bundle(self) -> str | None:
        """The file of certificates to trust; None: the default ones."""
        bundle = self._configured("ca_bundle")
        return bundle if isinstance(bundle, str) and bundle else None

    def _configured(self, name: str) -> Any:
        """Return a setting of variables or files."""
        try:
            with self._lock:
                return self._core.get_config_variable(name)
        except exceptions.BotoCoreError as error:
            raise _explain(error, _name(self._profile)) from None

    def credentials(self) -> Callable[[], ReadOnlyCredentials] | None:
        """Return a function that returns the current credentials; None: there are none."""
        with self._lock:
            found = self._core.get_credentials()
        return None if found is None else found.get_frozen_credentials

    def client(
        self,
        service: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        **settings: object,
    ) -> Any:
        """Return a new client of `service`; None leaves region and endpoint to the session.

        Args:
            service: botocore's name of the service.
        """
        config: Any = Config(**settings)  # type: ignore[arg-type]  # each of its own type
        try:
            with self._lock:
                return self._core.create_client(
                    service, region_name=region, endpoint_url=endpoint_url, config=config
                )
        except ValueError as error:  # an endpoint from ~/.aws/config or a variable
            raise errors.UsageError(f"{error}: it must begin with http:// or https://") from None


def is_aws(url: str) -> bool:
    """Return whether a URL leads to AWS."""
    host = urlsplit(url).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))


def obstore_credentials(
    credentials: Callable[[], ReadOnlyCredentials],
) -> Callable[[], S3Credential]:
    """Return a function with a session's current credentials; obstore asks before they expire."""

    def provide() -> S3Credential:
        now = credentials()
        return {
            "access_key_id": now.access_key or "",
            "secret_access_key": now.secret_key or "",
            "token": now.token,
            "expires_at": datetime.now(UTC) + CREDENTIALS_LAST,
        }

    return provide


def _open_session(profile: str | None, region: str | None) -> botocore.session.Session:
    session = botocore.session.get_session()
    session.set_default_client_config(PATIENCE)
    if profile is not None:
        session.set_config_variable("profile", profile)
    if region is not None:
        session.set_config_variable("region", region)
    return session


def _load(session: botocore.session.Session) -> Credentials | None:
    """Return what the chain of a session finds."""
    region = session.get_config_variable("region") or DEFAULT_REGION
    chain = create_credential_resolver(session, region_name=region)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GetPassWarning)  # a code may come through a pipe
        credentials: Credentials | None = chain.load_credentials()
        if credentials is not None:
            credentials.get_frozen_credentials()  # some ask only now
    return credentials


def _asks_for_code(session: botocore.session.Session) -> bool:
    """Return whether a person must type a code for the profile, or for one that it builds on."""
    profiles = session.full_config.get("profiles", {})
    name = session.get_config_variable("profile") or "default"
    for _ in range(len(profiles)):
        profile = profiles.get(name, {})
        if "mfa_serial" in profile:
            return True
        name = profile.get("source_profile")
    return False


def _name(profile: str | None) -> str:
    """Return the profile's name; empty: none is named."""
    return profile or os.environ.get("AWS_PROFILE", "")


def _advise(method: str, name: str) -> str:
    """Return what gets new keys where botocore found them by `method`."""
    option = f" --profile {shlex.quote(name)}" if name else ""
    known = {
        ENVIRONMENT: "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN anew",
        "sso": f"log in again: aws sso login{option}",
        "login": f"log in again: aws login{option}",
    }
    return known.get(method, f"get new credentials{f' for the profile {name}' if name else ''}")


def _explain(error: Exception, name: str) -> errors.S3UnzipError:
    """Return the error for what kept botocore's chain from giving keys."""
    who = f"credentials of the profile {name}" if name else "AWS credentials"
    cause = " ".join(str(error).split()).rstrip(".")
    option = f" --profile {shlex.quote(name)}" if name else ""
    advice = f"see what is configured: aws configure list{option}"
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
            advice = _advise("sso", name)
        case exceptions.LoginError():
            advice = _advise("login", name)
        case exceptions.RefreshWithMFAUnsupportedError():
            cause = "they have expired, and new ones need a code"
            advice = "start the command again, or s3unzip resume"
        case AttributeError() | LookupError() | TypeError() | ValueError():
            cause = f"what a program or a file gives is not understood: {cause}"
        case EOFError():
            cause = "they need a code, and standard input is no terminal"
            advice = "start the command on a terminal"
    return errors.AccessDeniedError(f"{who}: {cause}; {advice}")
