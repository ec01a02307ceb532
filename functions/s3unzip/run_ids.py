"""The ids of runs, and the names of executions, which are derived from these ids.

Rules:

* The same version of an archive with the same destination and options always has the same id, so a
  repeated event starts nothing.
* Ids sort by the time at which the archive was uploaded.
* Two archives may have the same hash. Therefore a step that finds records under an id compares the
  archive in the records with its own archive (`check_same_archive`).
"""

import re
from datetime import UTC, datetime
from typing import NamedTuple

from s3unzip.errors import UsageError
from s3unzip.model import NO_NAMES, Location, Pin, Report, Request, Run, encode

STEM_AT = len("2026-11-23/201532-")  # offset of the stem in the id of a run
STEM_CHARACTERS = 32  # maximum length, so that the name of an execution has at most 80 characters
LAST_SECOND = 253_402_300_799  # 9999-12-31 23:59:59, the last time that `datetime` supports
DIGEST_DIGITS = 16  # number of hexadecimal digits: 64 bits
# Suffix of a run id: this run follows a run during which the archive was replaced.
FOLLOW_UP_SUFFIX = "-again"


def run_id(request: Request, pin: Pin, modified: float | None) -> str:
    """Return the id of a run: day and time of the archive, its stem, and a hash.

    The id of a run that follows an earlier run of the archive (`Request.again`) ends in
    `FOLLOW_UP_SUFFIX`.

    Args:
        request: the archive, the destination and the options.
        pin: the version of the archive.
        modified: the Last-Modified of the archive (in S3, the time of the PUT) in Unix seconds;
            None: not known.
    """
    import hashlib  # noqa: PLC0415 - loads OpenSSL, which few callers need

    identity = encode((request.source, pin, request.destination, request.options))
    identity += (request.again or "").encode()
    digest = hashlib.sha256(identity).hexdigest()[:DIGEST_DIGITS]
    # A file system can store a time that `datetime` cannot represent.
    put = datetime.fromtimestamp(min(max(modified or 0.0, 0.0), LAST_SECOND), UTC)
    again = "" if request.again is None else FOLLOW_UP_SUFFIX
    return f"{put:%Y-%m-%d/%H%M%S}-{run_stem(request.source)}-{digest}{again}"


class ArchiveVersion(NamedTuple):
    """An archive and its version, which an execution processes."""

    source: Location
    pin: Pin | None  # None if the version is not known


def check_same_archive(
    run: str, source: Location, pin: Pin | None, recorded: Run | Report | ArchiveVersion | None
) -> None:
    """Raise `UsageError` if the records under the id of a run belong to another archive."""
    if recorded is None:
        return
    is_same_version = pin is None or recorded.pin is None or recorded.pin == pin
    if recorded.source.public != source.public or not is_same_version:
        version = recorded.pin and f"{recorded.pin.size:,} bytes, ETag {recorded.pin.etag}"
        raise UsageError(
            f"{source.public} is not extracted: its run would have the id {run}, but a run of "
            f"{recorded.source.public} (version: {version}) already has this id; put the archive "
            "under another key"
        )


def execution_name(run: str, number: int = 1) -> str:
    """Return the name of an execution of a run: 1-80 characters of [A-Za-z0-9_-].

    The name of the first execution is the id of the run, with ``-`` for the slash. The names of
    later executions end in -r2, -r3, ...
    """
    name = run.replace("/", "-")
    if number > 1:
        name += f"-r{number}"
    return name


def execution_number(name: str) -> int:
    """Return the number in the name of an execution; the first execution of a run has number 1."""
    _, _, number = name.rpartition("-r")
    return int(number) if number.isdecimal() else 1


def run_of_execution(name: str) -> str:
    """Return the id of the run to which an execution belongs, from the name of the execution.

    The names of executions that continue a run end in -r2, -r3, ... The names of executions that
    compare the archive after the end of its run end in -w1, ...
    """
    name = re.sub(r"-[rw]\d+$", "", name)
    return re.sub(r"^(\d{4}-\d\d-\d\d)-", r"\1/", name)  # an id has a slash after the day


def run_stem(source: Location) -> str:
    """Return the readable part of a run id: letters and digits of the archive's name."""
    return (
        re.sub(r"[^A-Za-z0-9]+", "-", archive_stem(source)).strip("-")[:STEM_CHARACTERS]
        or "archive"
    )


def archive_stem(source: Location) -> str:
    """Return the name of an archive without its suffix, such as ``.zip`` or ``.zip.001``.

    The stem is always a valid name for a folder: if it would be empty, ``.`` or ``..``, it includes
    the suffix. If the name itself is empty, ``.`` or ``..``, the stem is ``archive``.
    """
    name = source.name.rstrip("/").rsplit("/", 1)[-1]
    # ``.zip`` is always a suffix, with or without ``.001``, the number of the first volume. Other
    # extensions, and ``.001`` alone, are suffixes only if a name precedes the dot.
    stem = re.sub(
        r"(\.zip(\.0{2,}1)?|(?<=.)\.([a-z][a-z0-9]{0,9}|0{2,}1))$", "", name, flags=re.IGNORECASE
    )
    return next(part for part in (stem, name, "archive") if part not in NO_NAMES)


def time_of_run(run: str) -> float:
    """Return when the archive of a run was put, in Unix seconds; 0 if the id contains no time."""
    try:
        # The character before the stem is "-".
        return datetime.strptime(f"{run[: STEM_AT - 1]}+0000", "%Y-%m-%d/%H%M%S%z").timestamp()
    except ValueError:  # a user has chosen the name of the execution
        return 0.0
