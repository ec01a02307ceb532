"""The keys that requests are signed with: looked for once by a program and all its processes.

* A program looks for the keys of a profile once: a person may have to type a code, and a program of
  the profile may be slow. All sessions of the profile share them.
* Keys in variables or in a plain profile are read without botocore. All others come from its chain,
  which is imported then.
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

# botocore renews role credentials at least 10 minutes before they expire, and obstore asks again 5
# minutes before the time given here; a worker keeps an answer for 4 minutes. So no request is
# signed with expired ones.
CREDENTIALS_LAST = timedelta(minutes=10)
ANSWER_SECONDS = 240.0
RENEWAL_SECONDS = 90.0  # an answer to a PUT on a slow link may take so long
RELOOK_SECONDS = 2.0  # between two looks that find the same keys
MAX_PROFILES = 8  # that a program keeps the keys of
# What the files and programs of a profile cause.
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
FindKeys = Callable[[], Keys]
# Those whose endpoints end in amazonaws.com; botocore knows the others.
COMMON_REGION = re.compile(r"(af|ap|ca|eu|il|me|mx|sa|us)-(gov-)?[a-z]+-[0-9]")


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
        self._session: Session | None = None  # whose chain is used
        self._region: str | None = None
        self._find: FindKeys | None = None  # returns the keys of what was found
        self._keys: Keys | None = None
        self._answered = -math.inf
        self._looked = -math.inf
        self._has_renewed = False  # at the last look
        self._refusal: errors.S3UnzipError | None = None  # of the last look
        self.renewals = 0
        # The last look's failure; obstore passes on only its text.
        self.failure: errors.S3UnzipError | None = None

    def begin(self, session: Session | None, region: str | None) -> None:
        """Use the chain of a session that is open already, if any; a new one takes 10 ms.

        Args:
            region: of new sessions; the service that gives keys may be in it.
        """
        with self._lock:
            if self._session is None:
                self._session = session
                self._region = self._region or region

    def require(self) -> Keys:
        """Return the keys to sign with now; `AccessDeniedError`: there are none."""
        keys = self.current()
        if keys is None:
            raise errors.AccessDeniedError(NO_KEYS)
        return keys

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

        Soon after a look no other one is made: the last look's answer, or its error, stands.

        Args:
            renewals: how often they had been renewed when the caller began to use them.
        """
        with self._lock:
            if renewals != self.renewals:
                return True
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
            # A file is empty while somebody writes it: then the next look finds more.
            if new is not None and (self._keys is None or new.access_key != self._keys.access_key):
                self._keys = new
                self._has_renewed = True
                self.renewals += 1
            return self._has_renewed

    def _look(self) -> Keys | None:
        """Return what variables, files or botocore's chain give; botocore renews it in time."""
        if self._find is None:
            self._find = self._read_plain() or self._ask_chain()
        if self._find is None:
            return None
        self._keys = self._find()
        return self._keys

    def _look_again(self) -> Keys | None:
        """Return the keys that are there now, or the program's; the old ones are refused."""
        if self._ask is not None:
            refused = None
            if self._keys is not None:
                refused = self._keys.access_key
            return self._ask(KeysRequest(self._profile, refused))
        find = self._read_plain() or self._ask_chain(again=True)
        if find is None:
            return None
        keys = find()
        self._find = find
        return keys

    def _read_plain(self) -> FindKeys | None:
        """Return what finds keys that need no botocore; None: botocore may find others."""
        plain = read_plain_settings(self._profile)
        if plain is None or plain.keys is None:
            return None
        keys = plain.keys
        return lambda: keys

    def _ask_chain(self, *, again: bool = False) -> FindKeys | None:
        """Return the provider that finds credentials in botocore's chain; None: it has none.

        Args:
            again: in a new session, and without a question to a person.
        """
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
        return partial(botocore_chain.frozen_keys, credentials, _name(self._profile))

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise what botocore's chain raises as one of our errors, which `failure` keeps."""
        self.failure = None
        try:
            yield
        except _chain_errors() as error:
            self.failure = _explain(error, self._profile)
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
    variables = frozenset(pair for pair in os.environ.items() if pair[0].startswith("AWS_"))
    return _shared(profile, variables)


def answer_worker(request: KeysRequest) -> Keys | None:
    """Return the keys that a worker asks for; those that a store refused are looked for again."""
    shared = shared_keys(request.profile)
    keys = shared.current()
    if keys is not None and keys.access_key == request.refused:
        shared.renew(shared.renewals)
        keys = shared.current()
    return keys


class AwsSession:
    """One profile and region of an account; None uses ``AWS_PROFILE`` and the other AWS variables.

    Threads may share it and its clients. A profile that does not exist is an error of the first
    request.

    Args:
        keys: what its clients sign with; None: what this process shares.
    """

    def __init__(
        self, profile: str | None = None, region: str | None = None, keys: ProfileKeys | None = None
    ) -> None:
        self._profile = profile
        self._region = region
        self._lock = threading.RLock()  # for `_core`: botocore's sessions are for one thread
        self.keys = keys or shared_keys(profile)

    @cached_property
    def _plain(self) -> PlainSettings | None:
        return read_plain_settings(self._profile)

    @cached_property
    def _core(self) -> Session:
        """The session of botocore; its clients sign with `keys`."""
        from s3unzip.stores.s3.botocore_chain import KeysProvider, open_session

        core = open_session(self._profile, self._region)
        core.full_config  # noqa: B018 - threads that read the files at once see half of the profiles
        self.keys.begin(core, self._region)
        provider = KeysProvider(self.keys.current, self.keys.require)
        core.register_component("credential_provider", provider)
        return core

    @property
    def region(self) -> str | None:
        """The region of the session; None: it has none."""
        if self._region is not None:
            return self._region
        region: str | None = self._configured("region")
        return region

    @property
    def addressing_style(self) -> str | None:
        """The ``addressing_style`` of the profile's ``s3`` settings; None: it is not set."""
        if self._plain is not None:
            return None
        style: str | None = self._s3_settings().get("addressing_style")
        if style not in {"path", "virtual"}:
            return None
        return style

    @cached_property
    def own_endpoint(self) -> str | None:
        """The URL of another server than AWS that variables or files name; None: they name none."""
        url = self._find_endpoint()
        if url is None or is_aws(url):
            return None
        return url

    def _find_endpoint(self) -> str | None:
        """Return the endpoint of S3 that variables or files name."""
        if self._plain is not None:
            return self._plain.endpoint_url
        from s3unzip.stores.s3.botocore_chain import find_endpoint

        with self._lock, self._explaining():
            return find_endpoint(self._core)

    def aws_endpoint(self, region: str) -> str | None:
        """Return the endpoint of S3 in a region of AWS; None: only a client of botocore knows it.

        https://docs.aws.amazon.com/general/latest/gr/s3.html
        """
        if not COMMON_REGION.fullmatch(region) or self._find_endpoint() is not None:
            return None
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
        calculation = self._configured("request_checksum_calculation")
        return str(calculation).lower() != "when_required"

    @property
    def ca_bundle(self) -> str | None:
        """The file of certificates to trust; None: the default ones."""
        bundle = self._configured("ca_bundle")
        if not isinstance(bundle, str) or not bundle:
            return None
        return bundle

    def _s3_settings(self) -> dict[str, Any]:
        """Return the ``s3`` settings of the profile, which only botocore reads."""
        settings = self._configured("s3")
        if not isinstance(settings, dict):
            return {}
        return settings

    def _configured(self, name: str) -> Any:
        """Return a setting of variables or files."""
        if self._plain is not None:
            return getattr(self._plain, name)
        with self._lock, self._explaining():
            return self._core.get_config_variable(name)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError

        try:
            yield
        except BotoCoreError as error:
            raise _explain(error, self._profile) from None

    def find_keys(self) -> Keys | None:
        """Return the keys to sign with now; None: there are none."""
        if self._plain is None:
            with self._lock:
                self._core  # noqa: B018 - its chain is used
        self.keys.begin(None, self._region)
        return self.keys.current()

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
        from s3unzip.stores.s3.botocore_chain import create_client

        with self._lock:
            return create_client(
                self._core, service, region, endpoint_url=endpoint_url, settings=settings
            )


def is_aws(url: str) -> bool:
    """Return whether a URL leads to AWS."""
    host = urlsplit(url).hostname or ""
    return host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws"))


def obstore_credentials(find: FindKeys) -> Callable[[], S3Credential]:
    """Return a function with the current credentials; obstore asks before they expire."""

    def provide() -> S3Credential:
        keys = find()
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            "expires_at": datetime.now(UTC) + CREDENTIALS_LAST,
        }

    return provide


def _name(profile: str | None) -> str:
    """Return the profile's name; empty: none is named."""
    return profile or os.environ.get("AWS_PROFILE", "")


def _chain_errors() -> tuple[type[Exception], ...]:
    """Return what the files of a profile cause, and botocore's chain, if it is imported."""
    library = sys.modules.get("botocore.exceptions")
    if library is None:
        return CHAIN_ERRORS
    return (*CHAIN_ERRORS, library.BotoCoreError, library.ClientError)


def _explain(error: Exception, profile: str | None) -> errors.S3UnzipError:
    from s3unzip.stores.s3.botocore_chain import explain

    return explain(error, _name(profile))
