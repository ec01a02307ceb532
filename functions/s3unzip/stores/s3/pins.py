"""Pin a version of an object by its ETag, or else by the date of its last change.

Some servers return no ETag for a file that was put into their folder directly. Then
the pin holds the date, in the form of HTTP, and each range asks for
If-Unmodified-Since. A date has a resolution of a second, so size and date of
each answer are compared as well.
"""

from __future__ import annotations

import re
from email.utils import format_datetime, parsedate_to_datetime
from typing import TYPE_CHECKING

from s3unzip.errors import SourceChangedError, StorageError
from s3unzip.model import Pin

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from obstore import GetOptions

    from s3unzip.stores.s3.answers import Call

_DATE = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")
_WHOLE = re.compile(r"/([0-9]{1,19})\Z")


def make_pin(
    call: Call, size: int, etag: str | None, date: datetime | None, version: str | None
) -> Pin:
    """Return the pin of what a store described.

    Raises:
        StorageError: it said nothing by which a later version could be told apart.
    """
    if etag:
        return Pin(size, etag, version)
    if date is not None:
        return Pin(size, format_datetime(date, usegmt=True), version)
    if version is not None:
        return Pin(size, None, version)
    raise StorageError(
        f"{call}: the store gives neither an ETag nor a version nor a date, so a change in the "
        f"midst of a run could not be seen; copy the archive elsewhere"
    )


def date_of(pin: Pin) -> datetime | None:
    """Return the date of a pin that has no ETag."""
    if pin.etag is None or not _DATE.fullmatch(pin.etag):
        return None
    return parsedate_to_datetime(pin.etag)


def conditions(pin: Pin) -> GetOptions:
    """Return what a ranged GET asks for so that it gets this version or none."""
    options: GetOptions = {}
    date = date_of(pin)
    if date is not None:
        options["if_unmodified_since"] = date
    elif pin.etag is not None:
        options["if_match"] = pin.etag
    if pin.version_id is not None:
        options["version"] = pin.version_id
    return options


def check_answer(call: Call, pin: Pin, size: int | None, date: datetime | None) -> None:
    """Check size and date of an answer where there is no ETag to ask for.

    Raises:
        SourceChangedError: they are others.
    """
    if date_of(pin) is not None and (size, date) != (pin.size, date_of(pin)):
        raise SourceChangedError(f"{call}: the archive was overwritten since it was planned")


def header_date(headers: Mapping[str, str]) -> datetime | None:
    """Return the date of the last change that an answer's headers give."""
    text = headers.get("last-modified", "")
    return parsedate_to_datetime(text) if _DATE.fullmatch(text) else None


def whole_size(content_range: str) -> int | None:
    """Return the size of the whole object that a Content-Range gives."""
    found = _WHOLE.search(content_range)
    return int(found[1]) if found else None
