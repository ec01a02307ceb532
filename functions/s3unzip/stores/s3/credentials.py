"""The keys for signing requests, which the main process looks up for all its workers.

* The keys of a profile are looked up only once, because the user may have to type a code, and
  a credential process of the profile may be slow. All sessions for the profile share the keys.
* Keys in variables or in a plain profile are read without botocore. For all other keys, botocore is
  imported, because they come from botocore's chain.
* A worker process requests keys from the main process, through the pipe that delivers its tasks
  (`local.workers`). Keys exist only in the memory of the processes and in the pipe: keys are
  never written to a file, an argument, an environment variable or a log.
* Any number of threads may request keys concurrently: one thread looks up the keys while the other
  threads wait.
* botocore renews temporary keys before they expire. When a store refuses keys, the whole lookup is
  repeated. If other keys are found, the next lookup is at least `RENEWAL_SECONDS` later, because
  the store may still refuse requests that were signed with the old keys.
* The user is never asked for a code during a run: the run may be unattended, and Ctrl-C could not
  stop the thread that reads the code.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from s3unzip import errors
from s3unzip.stores.ports import AskForKeys, Keys, KeysRequest
from s3unzip.stores.s3.plain_settings import botocore_errors, profile_name, read_plain_settings

if TYPE_CHECKING:
    from obstore.store import S3Credential

_log = logging.getLogger("s3unzip.calls")
# No request is signed with expired keys, because botocore renews the keys of a role at least 10
# minutes before they expire. A worker caches the keys from the main process for 4 minutes. After
# that, obstore keeps the keys for at most 5 minutes, because it asks for new keys 5 minutes before
# the end of `CREDENTIALS_LIFETIME`.
CREDENTIALS_LIFETIME = timedelta(minutes=10)
ANSWER_SECONDS = 240.0  # time for which a worker caches the keys from the main process
RENEWAL_SECONDS = 90.0  # minimum time between renewals, because a slow PUT can take this long
RELOOK_SECONDS = 2.0  # time until the next lookup if the same keys were found
MAX_PROFILES = 8  # maximum number of profiles whose keys a process keeps
# The exceptions that the files and programs of a profile can cause.
CHAIN_ERRORS: tuple[type[Exception], ...] = (
    AttributeError,
    EOFError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
SILENT_SECONDS = 8.0  # time until the user is told that keys are being looked up
WAITING = "still waiting for AWS credentials (profile %s) from a program, a service or a typed code"
NO_KEYS = "no AWS credentials; set AWS_PROFILE or AWS_ACCESS_KEY_ID"


class ProfileKeys:
    """The keys of a profile. Threads and sessions may share this object.

    Args:
        profile: name of the profile. None means the profile in ``AWS_PROFILE`` or, without one, the
            variables and files in botocore's chain.
        ask_main_process: function that requests keys from the main process. None in the main
            process itself.
    """

    def __init__(self, profile: str | None, ask_main_process: AskForKeys | None = None) -> None:
        self._profile = profile
        self._ask_main_process = ask_main_process
        self._lock = threading.RLock()
        self.region: str | None = None  # region of a service that issues keys, if known
        self._read_source: Callable[[], Keys] | None = None  # returns the current keys
        self._keys: Keys | None = None
        self._last_answer = -math.inf  # time of the last response from the main process
        self._last_lookup = -math.inf  # time of the last lookup by `find_new_keys`
        # Whether the last lookup found other keys, or the error that the last lookup raised.
        self._lookup_result: bool | errors.S3UnzipError = False
        self.renewals = 0  # number of times that `find_new_keys` found other keys
        # The error raised by the latest call of `current` or `find_new_keys`. obstore passes on
        # only the text of this error.
        self.failure: errors.S3UnzipError | None = None

    def require(self) -> Keys:
        """Return the current signing keys, or raise `AccessDeniedError` if there are none."""
        keys = self.current()
        if keys is None:
            raise errors.AccessDeniedError(NO_KEYS)
        return keys

    def obstore_credential(self) -> S3Credential:
        """Return the current signing keys to obstore, which asks again before they expire."""
        keys = self.require()
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token,
            # The time when obstore asks again, not the time when the keys expire.
            "expires_at": datetime.now(UTC) + CREDENTIALS_LIFETIME,
        }

    def current(self) -> Keys | None:
        """Return the current signing keys, or None if there are none.

        Raises:
            AccessDeniedError: there is a source of keys, but it refuses to supply any.
            ServiceFaultError: the service that issues the keys does not respond.
        """
        with self._lock, self._explaining():
            if self._ask_main_process is None:  # this is the main process
                if self._read_source is None:
                    self._read_source = self._open_source()
                if self._read_source is not None:
                    self._keys = self._read_source()
            elif time.monotonic() - self._last_answer > ANSWER_SECONDS:  # the keys are too old
                self._keys = self._ask_main_process(KeysRequest(self._profile))
                self._last_answer = time.monotonic()
            return self._keys

    def find_new_keys(self, renewals: int) -> bool:
        """Replace keys that a store has refused; return whether there are other keys.

        After a lookup that found other keys, the next lookup waits for `RENEWAL_SECONDS`. After any
        other lookup, the next lookup waits for `RELOOK_SECONDS`. In the meantime, this method
        returns the last result again, or raises the last error again.

        Args:
            renewals: value of `self.renewals` when the caller last received new keys.
        """
        with self._lock:
            if renewals != self.renewals:  # another caller renewed the keys in the meantime
                return True
            # The wait after finding new keys is longer, because a request that was signed with the
            # previous keys may be refused only now.
            wait_seconds = RENEWAL_SECONDS if self._lookup_result is True else RELOOK_SECONDS
            if time.monotonic() - self._last_lookup <= wait_seconds:
                if isinstance(self._lookup_result, errors.S3UnzipError):
                    raise self._lookup_result
                return self._lookup_result
            self._last_lookup = time.monotonic()
            self._lookup_result = False
            try:
                with self._explaining():
                    new = self._repeat_lookup()
            except errors.S3UnzipError as error:
                self._lookup_result = error
                raise
            # If a file is being written, it may contain no keys yet, and a later lookup finds keys.
            if new is not None and (self._keys is None or new.access_key != self._keys.access_key):
                self._keys = new
                self._lookup_result = True
                self.renewals += 1
            return self._lookup_result

    def _repeat_lookup(self) -> Keys | None:
        """Return the keys found by a new lookup, or None if there are none."""
        if self._ask_main_process is not None:
            # The request contains the access key that was refused, or None if there were no keys.
            return self._ask_main_process(
                KeysRequest(self._profile, getattr(self._keys, "access_key", None))
            )
        read_source = self._open_source(again=True)
        if read_source is None:
            return None
        keys = read_source()
        self._read_source = read_source  # a source that fails is not kept
        return keys

    def _open_source(self, *, again: bool = False) -> Callable[[], Keys] | None:
        """Return a function that returns the current keys, or None if no source provides keys.

        Args:
            again: whether this is a repeated lookup, which must not ask the user for an MFA code.
        """
        settings = read_plain_settings(self._profile)
        if settings is not None and settings.keys is not None:
            keys = settings.keys
            return lambda: keys
        # Only botocore's chain of providers can find the keys. Importing botocore is slow.
        from s3unzip.stores.s3 import botocore_clients

        session = botocore_clients.open_session(self._profile, self.region)
        if again:
            botocore_clients.refuse_mfa_code(session)
        # A credential process or a service may keep the chain waiting indefinitely, so a timer
        # tells the user about the wait.
        report = threading.Timer(
            SILENT_SECONDS, _log.warning, (WAITING, profile_name(self._profile) or "default")
        )
        report.daemon = True
        report.start()
        try:
            credentials = botocore_clients.load_credentials(session)
        finally:
            report.cancel()
        if credentials is None:
            return None
        return partial(botocore_clients.frozen_keys, credentials, profile_name(self._profile))

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Translate exceptions from botocore's chain, and keep the latest error in `failure`."""
        self.failure = None
        try:
            yield
        except CHAIN_ERRORS + botocore_errors() as error:
            from s3unzip.stores.s3.botocore_clients import explain_profile_error

            self.failure = explain_profile_error(error, profile_name(self._profile))
            if self._keys is None and isinstance(self.failure, errors.ServiceFaultError):
                # The service has never issued keys, so its address is probably wrong.
                self.failure = errors.StorageError(f"{self.failure}; check the network")
            raise self.failure from None
        except errors.S3UnzipError as error:  # needs no translation
            self.failure = error
            raise


@lru_cache(MAX_PROFILES)
def _shared(
    profile: str | None,
    ask_main_process: AskForKeys | None,
    variables: frozenset[tuple[str, str]],  # noqa: ARG001 - part of the cache key
) -> ProfileKeys:
    return ProfileKeys(profile, ask_main_process)


def shared_keys(profile: str | None, ask_main_process: AskForKeys | None = None) -> ProfileKeys:
    """Return the keys of a profile, shared by all sessions of this process (see `ProfileKeys`)."""
    variables = frozenset(pair for pair in os.environ.items() if pair[0].startswith("AWS_"))
    return _shared(profile, ask_main_process, variables)


def find_keys_for_worker(request: KeysRequest) -> Keys | None:
    """Return the current keys for a worker; if these keys were refused, look for others."""
    shared = shared_keys(request.profile)
    keys = shared.current()
    if keys is not None and keys.access_key == request.refused:
        # The current keys are the refused keys, so the keys have not been renewed yet.
        shared.find_new_keys(renewals=shared.renewals)
    return shared.current()
