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
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from s3unzip import errors
from s3unzip.stores.ports import Keys, KeysRequest
from s3unzip.stores.s3.plain_settings import profile_name, read_plain_settings

if TYPE_CHECKING:
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


class ProfileKeys:
    """The keys of one profile. Threads and sessions may share this object.

    Args:
        profile: None stands for ``AWS_PROFILE``, or the variables and files of botocore's chain.
        ask: asks the program. It is None in the program itself.
    """

    def __init__(self, profile: str | None, ask: AskForKeys | None = None) -> None:
        self._profile = profile
        self._ask = ask
        self._lock = threading.RLock()
        self.region: str | None = None  # where a service that issues keys may be
        self._source: Callable[[], Keys] | None = None  # returns the current keys
        self._keys: Keys | None = None
        self._answered = -math.inf  # when the program answered
        self._looked = -math.inf  # when `renew` looked for other keys
        self._has_renewed = False  # whether that look found them
        self._refusal: errors.S3UnzipError | None = None  # the error of that look
        self.renewals = 0  # how often `renew` has found other keys
        # The error of the latest look. obstore passes on only its text.
        self.failure: errors.S3UnzipError | None = None

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
        """Look for keys other than those that a store refused; return whether there are any.

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
            # While somebody writes the file, there may be no keys: a later look finds them.
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
            again: whether this is a later look, during which no person may be asked for a code.
        """
        plain = read_plain_settings(self._profile)
        if plain is not None and plain.keys is not None:
            keys = plain.keys
            return lambda: keys
        from s3unzip.stores.s3 import botocore_clients

        session = botocore_clients.open_session(self._profile, self.region)
        if again:
            botocore_clients.refuse_code(session)
        credentials = botocore_clients.load_credentials(session)
        if credentials is None:
            return None
        return partial(botocore_clients.frozen_keys, credentials, profile_name(self._profile))

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Translate the exceptions of botocore's chain, and keep the latest error in `failure`."""
        self.failure = None
        try:
            yield
        except _chain_errors() as error:
            from s3unzip.stores.s3.botocore_clients import explain

            self.failure = explain(error, profile_name(self._profile))
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


def _chain_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of a profile's files, and those of botocore if it is imported."""
    library = sys.modules.get("botocore.exceptions")
    if library is None:
        return CHAIN_ERRORS
    return (*CHAIN_ERRORS, library.BotoCoreError, library.ClientError)
