"""CRC-32s of copied parts: the store's where it gave all of them, else of the archive's bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast
from zlib import crc32

import pytest

from s3unzip.extraction.copy import _with_crcs
from s3unzip.model import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.extraction.member import MemberData

CONTENT = b"xxabcdef"
FIRST, SECOND = crc32(b"abc"), crc32(b"def")
WRONG = 1  # what the store gave: told from what is computed


class Held:
    """A member's data in memory, given two bytes at a time."""

    def pieces(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to before `stop`."""
        for at in range(start, stop, 2):
            yield CONTENT[at : min(at + 2, stop)]


@pytest.mark.parametrize(
    ("given", "trust", "expected"),
    [
        ((WRONG, WRONG), True, [WRONG, WRONG]),
        ((WRONG, WRONG), False, [FIRST, SECOND]),
        ((WRONG, None), True, [FIRST, SECOND]),
        ((None, WRONG), True, [FIRST, SECOND]),
        ((None, None), True, [FIRST, SECOND]),
    ],
)
def test_missing_checksums_are_computed(
    given: tuple[int | None, int | None], expected: list[int], *, trust: bool
) -> None:
    """One that is missing is enough to read the parts; so is a doubt."""
    parts = tuple(Part(number, f"e{number}", 3, crc) for number, crc in enumerate(given, 1))
    found = _with_crcs(parts, cast("MemberData", Held()), 2, trust=trust)
    assert [part.crc32 for part in found] == expected
    assert [(part.number, part.etag, part.size) for part in found] == [(1, "e1", 3), (2, "e2", 3)]
