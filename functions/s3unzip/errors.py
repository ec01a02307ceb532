"""The result of a check (`Finding`), and all errors that s3unzip raises deliberately.

::

    S3UnzipError                    exit 1
    +- UsageError                   exit 2  the request is wrong: a URL, an option, a setting
    |  +- NothingSelectedError      exit 7  nothing is selected, or no member has a given name
    +- VerdictError                 exit 1  not COMPLETED; raised only by `Report.raise_for_verdict`
    +- ArchiveError                         the archive's bytes are wrong; carries a Finding
    |  +- RejectedError             exit 3  the directory is broken or ambiguous
    |  +- MemberError               exit 1  one member is bad; the others are not
    |  +- DeflateError              exit 1  the deflate core cannot join or inflate a stream
    +- StorageError                 exit 6  an object store refuses, and a retry cannot help
    |  +- SourceChangedError        exit 4  the archive is no longer the one that was planned
    |  +- NotFoundError             exit 6  the bucket or the key does not exist
    |  +- AccessDeniedError         exit 6  a permission is missing, or a KMS key is refused
    |  |  +- LinkRefusedError       exit 6  a web server does not serve the archive for the URL
    |  +- ConflictError             exit 6  a conditional write failed: the object exists or changed
    |  +- StoreFullError            exit 6  the destination has no space left
    |  +- NameRefusedError          exit 6  the file system does not accept a file's name
    |  +- StoreRefusesError         exit 6  a store refuses all requests of a kind
    |  |  +- StoreLacksError        exit 6  a store or web server does not support such requests
    |  +- UnorderedListError        exit 6  the store does not list keys in order
    |  +- UnsupportedError          exit 6  a store or web server does not support a request
    |  +- UnreadableRecordError     exit 6  a run's record is damaged, lost or from another version
    +- ServiceFaultError            exit 5  retryable: try the task again
    |  +- UnconfirmedError          exit 5  a response does not confirm that the object was written
    |  +- ExpiredKeysError          exit 6  the credentials expired, and no new ones were found
    |  +- ThrottledError            exit 5  503 SlowDown or similar until the retry budget was spent
    |  +- DeadlineError             exit 5  the worker's time ran out; the outcomes are written
    +- RunStoppedError              exit 5  another task had a fault that stops the whole run
    +- InterruptedRunError          exit 130  Ctrl-C; 143 SIGTERM, 129 SIGHUP

Verdicts are values: an `ArchiveError` never leaves the pipeline, because it becomes a verdict or an
outcome. Exceptions are retried: the state machine retries a function that raises an exception,
unless the exception is in `lasting_errors`. Lambda reports the class name as ``errorType``, so the
names here are a public interface. The ZIP and deflate cores import only this module from the rest
of the package.
"""

from __future__ import annotations

from typing import ClassVar, Self

from msgspec import Struct


class Finding(Struct, frozen=True):
    """The finding of a check: a reason code, and a sentence about the particular case.

    `offset` is the byte offset in the archive, and `member` is the member's printable name. Both
    are None if the finding is about the whole archive.
    """

    code: str
    message: str
    offset: int | None = None
    member: str | None = None

    def __str__(self) -> str:
        text = self.code
        if self.member is not None:
            text = f"{self.member!r}: {text}"
        if self.offset is not None:
            text += f" at byte {self.offset}"
        return f"{text}: {self.message}"


class S3UnzipError(Exception):
    """Base class. Any other exception that reaches a caller of this package is a bug."""

    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False


class ArchiveError(S3UnzipError):
    """An archive's bytes are wrong; `finding` contains the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding

    def __reduce__(self) -> tuple[type[Self], tuple[Finding]]:
        return type(self), (self.finding,)


class RejectedError(ArchiveError):
    """The central directory is broken or ambiguous: write nothing from this archive."""

    exit_code = 3


class MemberError(ArchiveError):
    """One member is bad; the other members can still be extracted."""


class DeflateError(ArchiveError):
    """The segments of a stream cannot be inflated one by one: inflate the stream from its start."""


class UsageError(S3UnzipError):
    """The request is wrong: a URL, an option or a setting."""

    exit_code = 2


class NothingSelectedError(UsageError):
    """No member is selected, or no member has a requested name."""

    exit_code = 7


class VerdictError(S3UnzipError):
    """The verdict of a run is not COMPLETED. Only `Report.raise_for_verdict` raises this error."""


class StorageError(S3UnzipError):
    """An object store refused a request, and would refuse it again."""

    exit_code = 6
    reason = "store-refused"  # used if the refusal concerns a single member


class SourceChangedError(StorageError):
    """The archive has been overwritten or deleted since it was planned."""

    exit_code = 4


class NotFoundError(StorageError):
    """The bucket or the key does not exist."""


class AccessDeniedError(StorageError):
    """A permission is missing, the bucket has another owner, or a KMS key cannot be used."""


class LinkRefusedError(AccessDeniedError):
    """The web server does not serve the archive at this URL. The URL may have expired."""


class ConflictError(StorageError):
    """A conditional write failed because the object already exists or has changed."""


class StoreFullError(StorageError):
    """The destination has no space left, or a quota has been reached."""


class NameRefusedError(StorageError):
    """The file system does not accept the name of a file."""

    reason = "name-refused"


class UnsupportedError(StorageError):
    """A store, web server or AWS service does not support the request or one of its headers."""

    reason = "not-implemented"


class UnreadableRecordError(StorageError):
    """A record of a run is damaged, lost or from another version. Start the run again."""


class StoreRefusesError(StorageError):
    """The destination refuses every object, or the archive cannot be read."""


class UnorderedListError(StorageError):
    """The store does not list keys in the order of their bytes."""


class StoreLacksError(StoreRefusesError):
    """A store or web server does not support a request that the whole run requires."""


class ServiceFaultError(S3UnzipError):
    """The service failed temporarily: the same task may succeed later."""

    exit_code = 5
    retryable = True
    trouble = ""  # tells a waiting user which URL does not answer or returns errors
    gave_up = False  # whether the call was retried until the time budget was spent
    is_down = False  # whether the store has been failing for longer than the time budget
    wait_seconds = 0.0  # time that the server asks the client to wait

    def as_given_up(self) -> ServiceFaultError:
        """Return a copy of this fault for a call that is not sent because the budget is spent."""
        fault = ServiceFaultError(str(self))
        fault.trouble = self.trouble
        fault.gave_up = True
        fault.is_down = self.is_down
        return fault


class UnconfirmedError(ServiceFaultError):
    """A response does not confirm that the object exists; the caller must check whether it does."""


class ThrottledError(ServiceFaultError):
    """The store kept asking the client to slow down until the task's retry budget was spent."""


class ExpiredKeysError(ServiceFaultError):
    """The credentials have expired, and no new ones were found, so the call is not retried."""

    exit_code = 6


class DeadlineError(ServiceFaultError):
    """The worker's time limit was near; the outcomes of finished members are recorded."""


class RunStoppedError(S3UnzipError):
    """Another task had a fault that stops the whole run. Fix the cause, then resume the run."""

    exit_code = 5


class InterruptedRunError(S3UnzipError):
    """The user stopped the run."""

    exit_code = 130


def lasting_errors(root: type[S3UnzipError] = S3UnzipError) -> list[str]:
    """Return the names of all errors for which a retry cannot help."""
    names = [name for error in root.__subclasses__() for name in lasting_errors(error)]
    if root.retryable:
        return names
    return [root.__name__, *names]


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out for an object or for a thread's stack.

    If a thread cannot be started, Python raises a `RuntimeError` with the message below.
    """
    return isinstance(error, MemoryError) or "can't start new thread" in str(error)
