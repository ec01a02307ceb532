"""The keys that requests are signed with: a program and all its processes look for them once.

* A program looks for the keys of a profile once: a person may have to type a code, and a credential
  process of the profile may be slow. All sessions of the profile share the keys.
* Keys in variables or in a plain profile are read without botocore. All others come from botocore's
  chain, and botocore is imported for that.
* A worker process asks the program, through the pipe that brings its tasks (`local.workers`). Keys
  are in the memory of these processes and in the pipe: in no file, argument, variable or log.
* Any number of threads may ask at once: one of them looks, the others wait.
* botocore renews temporary keys before they expire. When a store refuses keys, they are looked for
  again, in a new session of botocore. After that, the store still answers requests that were
  signed with the refused keys. So the next look is at least `RENEWAL_SECONDS` later.
* Nobody is asked for a code during a run: a run may be unattended, and the thread that reads the
  code could not be ended by Ctrl-C.
"""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from s3unzip import errors
from s3unzip.stores.ports import Keys, KeysRequest
from s3unzip.stores.s3.plain_settings import PlainSettings, read_plain_settings

if TYPE_CHECKING:
    from botocore.session import Session
    from obstore.store import S3Credential

    from s3unzip.stores.ports import AskForKeys

# No request is signed with expired keys: botocore renews the keys of a role at least 10 minutes
# before they expire. obstore asks again 5 minutes before the end of `CREDENTIALS_LAST`, and a
# worker keeps the program's answer for 4 minutes.
CREDENTIALS_LAST = timedelta(minutes=10)
ANSWER_SECONDS = 240.0
RENEWAL_SECONDS = 90.0  # between two renewals: a PUT over a slow link may take so long
RELOOK_SECONDS = 2.0  # until the next look, if a look finds the same keys
MAX_PROFILES = 8  # the most profiles whose keys a process keeps
# The exceptions that the files and programs of a profile cause.
CHAIN_ERRORS = (
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
NO_KEYS = (
    "no AWS credentials; set AWS_PROFILE or AWS_ACCESS_KEY_ID, or read a public archive with "
    "--no-sign-request"
)
# The regions whose endpoints end in amazonaws.com. botocore knows the endpoints of all others.
COMMON_REGION = re.compile(r"(af|ap|ca|eu|il|me|mx|sa|us)-(gov-)?[a-z]+-[0-9]")


class ProfileKeys:
    """The keys of one profile; threads and sessions share it.

    Args:
        profile: None stands for ``AWS_PROFILE``, or the variables and files of botocore's chain.
        ask: asks the program. It is None in the program itself.
    """

    def __init__(self, profile: str | None, ask: AskForKeys | None = None) -> None:
        self._profile = profile
        self._ask = ask
        self._lock = threading.RLock()
        self._session: Session | None = None  # botocore's session, whose chain gives the keys
        self._region: str | None = None  # the region of new sessions
        self._source: Callable[[], Keys] | None = None  # returns the current keys
        self._keys: Keys | None = None
        self._answered = -math.inf  # when the program answered
        self._looked = -math.inf  # when `renew` looked for other keys
        self._has_renewed = False  # whether that look found them
        self._refusal: errors.S3UnzipError | None = None  # the error of that look
        self.renewals = 0
        # The error of the latest look. obstore passes on only its text.
        self.failure: errors.S3UnzipError | None = None

    def use_session(self, session: Session | None, region: str | None) -> None:
        """Use the chain of a session that is open already, if any; a new one takes 10 ms.

        Args:
            region: the region of new sessions, where a service that issues keys may be.
        """
        with self._lock:
            if self._session is None:
                self._session = session
                self._region = self._region or region

    def require(self) -> Keys:
        """Return the keys to sign with now, or raise `AccessDeniedError` if there are none."""
        keys = self.current()
        if keys is None:
            raise errors.AccessDeniedError(NO_KEYS)
        return keys

    def obstore_credential(self) -> S3Credential:
        """Return the keys to sign with now to obstore, which asks again before they expire."""
        keys = self.require()
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            "expires_at": datetime.now(UTC) + CREDENTIALS_LAST,
        }

    def current(self) -> Keys | None:
        """Return the keys to sign with now, or None if there are none.

        Raises:
            AccessDeniedError: there is a source of keys, and it refuses to give any.
            ServiceFaultError: a service that gives them does not answer.
        """
        with self._lock, self._explaining():
            if self._ask is None:
                if self._source is None:
                    self._source = self._open_source()
                if self._source is not None:
                    self._keys = self._source()
            elif time.monotonic() - self._answered > ANSWER_SECONDS:
                self._keys = self._ask(KeysRequest(self._profile))
                self._answered = time.monotonic()
            return self._keys

    def renew(self, renewals: int) -> bool:
        """Look for other keys than those that a store refused; return whether there are some.

        Within `RENEWAL_SECONDS` or `RELOOK_SECONDS` of a look, its result or error is repeated.

        Args:
            renewals: `self.renewals` when the caller began to use the refused keys.
        """
        with self._lock:
            if renewals != self.renewals:  # another caller has renewed the keys in the meantime
                return True
            # After new keys were found, the store may still refuse requests signed with old ones.
            valid_seconds = RENEWAL_SECONDS if self._has_renewed else RELOOK_SECONDS
            if time.monotonic() - self._looked <= valid_seconds:
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
            # While somebody writes the file, there are no new keys: a later look finds them.
            if new is not None and (self._keys is None or new.access_key != self._keys.access_key):
                self._keys = new
                self._has_renewed = True
                self.renewals += 1
            return self._has_renewed

    def _look_again(self) -> Keys | None:
        """Return the keys that a new look finds, or None if it finds none."""
        if self._ask is not None:
            refused = None  # no keys have been refused
            if self._keys is not None:
                refused = self._keys.access_key
            return self._ask(KeysRequest(self._profile, refused))
        source = self._open_source(again=True)
        if source is None:
            return None
        keys = source()
        self._source = source  # after its first success: a source that raises is not kept
        return keys

    def _open_source(self, *, again: bool = False) -> Callable[[], Keys] | None:
        """Return a function that returns the current keys, or None if no source has keys.

        Args:
            again: whether to open a new session of botocore, and to ask no person for a code.
        """
        plain = read_plain_settings(self._profile)
        if plain is not None and plain.keys is not None:
            keys = plain.keys
            return lambda: keys
        from s3unzip.stores.s3 import botocore_chain

        session = self._session
        if again or session is None:
            session = botocore_chain.open_session(self._profile, self._region)
        if again:
            botocore_chain.refuse_code(session)
        credentials = botocore_chain.load_credentials(session)
        if credentials is None:
            return None
        self._session = session
        return partial(botocore_chain.frozen_keys, credentials, _profile_name(self._profile))

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Translate the exceptions of botocore's chain, and keep the latest error in `failure`."""
        self.failure = None
        try:
            yield
        except _chain_errors() as error:
            self.failure = _explain(error, self._profile)
            if self._keys is None and isinstance(self.failure, errors.ServiceFaultError):
                # The service has never given keys, so its address is probably wrong.
                self.failure = errors.StorageError(f"{self.failure}; check the network")
            raise self.failure from None
        except errors.S3UnzipError as error:  # `ask` raises those of the program
            self.failure = error
            raise


@lru_cache(MAX_PROFILES)
def _shared(profile: str | None, variables: frozenset[tuple[str, str]]) -> ProfileKeys:  # noqa: ARG001 - other variables, other keys
    return ProfileKeys(profile)


def shared_keys(profile: str | None) -> ProfileKeys:
    """Return the keys of a profile that all sessions of this process share."""
    variables = frozenset(pair for pair in os.environ.items() if pair[0].startswith("AWS_"))
    return _shared(profile, variables)


def answer_worker(request: KeysRequest) -> Keys | None:
    """Return the keys that a worker asks for; look again if a store refused the current ones."""
    shared = shared_keys(request.profile)
    keys = shared.current()
    if keys is not None and keys.access_key == request.refused:
        shared.renew(shared.renewals)
        keys = shared.current()
    return keys


class AwsSession:
    """One profile and region of an account. Threads may share it and its clients.

    The first request reports that a profile does not exist.

    Args:
        profile: None stands for ``AWS_PROFILE``.
        region: None stands for the region of variables and files.
        keys: the keys of its clients. None stands for the keys that this process shares.
    """

    def __init__(
        self, profile: str | None = None, region: str | None = None, keys: ProfileKeys | None = None
    ) -> None:
        self._profile = profile
        self._region = region
        self._lock = threading.RLock()  # for `_core`: threads cannot share a session of botocore
        self.keys = keys or shared_keys(profile)

    @cached_property
    def _plain(self) -> PlainSettings | None:
        return read_plain_settings(self._profile)

    @cached_property
    def _core(self) -> Session:
        """The session of botocore, whose clients sign with `keys`."""
        from s3unzip.stores.s3.botocore_chain import SharedCredentials, open_session

        core = open_session(self._profile, self._region)
        core.full_config  # noqa: B018 - reads the files now: two threads at once would miss profiles
        self.keys.use_session(core, self._region)
        credentials = SharedCredentials(self.keys.current, self.keys.require)
        core.register_component("credential_provider", credentials)
        return core

    @property
    def region(self) -> str | None:
        """The region of the session, or None if no option, variable or file names one."""
        if self._region is not None:
            return self._region
        region: str | None = self._configured("region")
        return region

    @property
    def addressing_style(self) -> str | None:
        """The ``addressing_style`` of the profile's ``s3`` settings: "path", "virtual" or None."""
        style = self._s3_settings().get("addressing_style")
        if style not in {"path", "virtual"}:
            return None
        return str(style)

    @cached_property
    def compatible_endpoint(self) -> str | None:
        """The URL of an S3-compatible server that variables or files name, or None."""
        url = self._find_endpoint()
        if url is None or is_aws(url):
            return None
        return url

    def _find_endpoint(self) -> str | None:
        """Return the endpoint of S3 that variables or files name, whether AWS or another server."""
        if self._plain is not None:
            return self._plain.endpoint_url
        from s3unzip.stores.s3.botocore_chain import find_endpoint

        with self._lock, self._explaining():
            return find_endpoint(self._core)

    def aws_endpoint(self, region: str) -> str | None:
        """Return the endpoint of S3 in a region, or None if only a client of botocore knows it.

        https://docs.aws.amazon.com/general/latest/gr/s3.html
        """
        if not COMMON_REGION.fullmatch(region) or self._find_endpoint() is not None:
            return None
        # Only a client of botocore knows the special endpoints that these settings choose.
        if self._plain is None and (
            self._configured("use_fips_endpoint")
            or self._configured("use_dualstack_endpoint")
            or self._s3_settings().get("use_dualstack_endpoint")
        ):
            return None
        return f"https://s3.{region}.amazonaws.com"

    @property
    def sends_checksums(self) -> bool:
        """Whether the configuration allows checksums that a request does not need.

        ``AWS_REQUEST_CHECKSUM_CALCULATION`` or ``request_checksum_calculation`` of a profile; see
        sdkref/latest/guide/feature-dataintegrity.html
        """
        return str(self._configured("request_checksum_calculation")).lower() != "when_required"

    @property
    def ca_bundle(self) -> str | None:
        """The file of certificates to trust, or None for the default ones."""
        bundle = self._configured("ca_bundle")
        if not isinstance(bundle, str) or not bundle:
            return None
        return bundle

    def _s3_settings(self) -> dict[str, Any]:
        """Return the ``s3`` settings of the profile. `PlainSettings` cannot have any."""
        if self._plain is None:
            settings = self._configured("s3")
            if isinstance(settings, dict):
                return settings
        return {}

    def _configured(self, name: str) -> Any:
        """Return a setting of variables or files, or None if it is not set."""
        if self._plain is not None:
            return getattr(self._plain, name)
        with self._lock, self._explaining():
            return self._core.get_config_variable(name)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Turn botocore's exceptions about settings into errors of this package."""
        from botocore.exceptions import BotoCoreError

        try:
            yield
        except BotoCoreError as error:
            raise _explain(error, self._profile) from None

    def find_keys(self) -> Keys | None:
        """Return the keys to sign with now, or None if there are none."""
        if self._plain is not None:
            self.keys.use_session(None, self._region)  # plain keys need no botocore session
        else:
            with self._lock:
                self._core  # noqa: B018 - from now on `keys` uses its chain
        return self.keys.current()

    def client(
        self,
        service: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        **settings: Any,
    ) -> Any:
        """Return a new client of `service`. Region and endpoint default to those of the session.

        Args:
            service: botocore's name of the service.
            settings: the arguments of botocore's `Config`.
        """
        from botocore.config import Config

        from s3unzip.stores.s3.botocore_chain import NO_URL

        with self._lock:
            try:
                return self._core.create_client(
                    service,
                    region_name=region,
                    endpoint_url=endpoint_url,
                    config=Config(**settings),
                )
            except ValueError as error:  # an endpoint from ~/.aws/config or a variable
                raise errors.UsageError(f"{error}: {NO_URL}") from None


def is_aws(url: str) -> bool:
    """Return whether a URL leads to AWS."""
    host = urlsplit(url).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))


def _profile_name(profile: str | None) -> str:
    """Return the name of the profile in use, or "" if none is named."""
    return profile or os.environ.get("AWS_PROFILE", "")


def _chain_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a profile's files, and those of botocore if it is imported."""
    library = sys.modules.get("botocore.exceptions")
    if library is None:
        return CHAIN_ERRORS
    return (*CHAIN_ERRORS, library.BotoCoreError, library.ClientError)


def _explain(error: Exception, profile: str | None) -> errors.S3UnzipError:
    """Return the error that an exception of botocore's chain means."""
    from s3unzip.stores.s3.botocore_chain import explain

    return explain(error, _profile_name(profile))
