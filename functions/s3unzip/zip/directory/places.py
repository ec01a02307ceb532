"""Check where members lie: in order, without overlap, before the directory."""

from __future__ import annotations

from array import array
from itertools import islice
from operator import gt
from typing import TYPE_CHECKING

from s3unzip.finding import Finding
from s3unzip.zip.directory.names import cut_name
from s3unzip.zip.errors import RejectedError

if TYPE_CHECKING:
    from s3unzip.zip.directory.columns import MemberColumns


def resolve_places(columns: MemberColumns, start: int) -> None:
    """Sort by offset, and set where each member must stop; `start` is the directory's.

    Raises:
        RejectedError: a member reaches the next one, or the directory.
    """
    last = max(columns.end, default=0)
    if last > start:
        message = f"a member would end at {last}, the directory begins at {start}"
        raise RejectedError(Finding("member-out-of-bounds", message, start))
    columns.sort()
    offsets, ends = columns.offset, columns.end
    if any(map(gt, ends, islice(offsets, 1, None))):
        _refuse_overlap(columns)
    columns.stop = offsets[1:]
    if offsets:
        columns.stop.append(start)
    columns.end = array("Q")


def _refuse_overlap(columns: MemberColumns) -> None:
    offsets, ends = columns.offset, columns.end
    for place in range(len(offsets) - 1):
        if ends[place] > offsets[place + 1]:
            path, following = cut_name(columns.path(place)), cut_name(columns.path(place + 1))
            message = (
                f"it ends at {ends[place]} or later, {following!r} begins at {offsets[place + 1]}"
            )
            raise RejectedError(Finding("overlap", message, offsets[place], path))
