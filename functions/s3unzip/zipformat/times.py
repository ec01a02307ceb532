"""MS-DOS dates and times as Unix seconds (APPNOTE 4.4.6)."""

from __future__ import annotations

from datetime import date
from functools import lru_cache

_EPOCH = date(1970, 1, 1).toordinal()
_DAY_SECONDS = 86_400


def read_dos_time(stamp: int) -> int | None:
    """Return Unix seconds of a DOS date (high 16 bits) and time (low 16), taken as UTC.

    DOS times have no zone; taking them as UTC gives the same answer on every
    machine. Return None for an invalid date: many writers leave zeros.
    """
    day, time = stamp >> 16, stamp & 0xFFFF
    hour, minute, second = time >> 11, time >> 5 & 0x3F, (time & 0x1F) * 2
    if hour > 23 or minute > 59 or second > 59:
        return None
    midnight = _read_day(day)
    return None if midnight is None else midnight + hour * 3600 + minute * 60 + second


@lru_cache(maxsize=4096)
def _read_day(day: int) -> int | None:
    try:
        ordinal = date(1980 + (day >> 9), day >> 5 & 0xF, day & 0x1F).toordinal()
    except ValueError:
        return None
    return (ordinal - _EPOCH) * _DAY_SECONDS
