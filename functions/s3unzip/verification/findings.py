"""The results of a verify so far; several threads add to them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.verification.results import Comparison, Difference, Judged, Kind, Witness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from s3unzip.context import Progress


class Expected(NamedTuple):
    """One object that should exist."""

    key: str
    size: int
    crc32: int | None  # None: the archive does not declare it
    wanted: bool  # False: a member that is not selected; its object does not count as extra


class Equal(NamedTuple):
    """An object that is as it should be."""

    key: str
    witness: Witness


class Findings:
    """Counts of the results, and the first differences of each kind.

    Args:
        progress: gets ``extracted`` (equal), ``failed`` and ``bytes_read``.
        listed: how many differences of each kind to keep; all are counted.
        each: called with every object and its result, by one thread at a time; may be None.
    """

    def __init__(
        self,
        progress: Progress | None,
        listed: int,
        each: Callable[[Judged], object] | None = None,
    ) -> None:
        self._progress = progress
        self._listed = listed
        self._each = each
        self._lock = threading.Lock()
        self._kept: dict[Kind, list[Difference]] = {kind: [] for kind in Kind}
        self.counts: Counter[Kind] = Counter()
        self.witnesses: Counter[Witness] = Counter()
        self.bytes_read = 0

    def add(self, differences: Sequence[Difference], equal: Sequence[Equal] = ()) -> None:
        """Add the results of some objects."""
        with self._lock:
            self.witnesses.update(one.witness for one in equal)
            for difference in differences:
                self.counts[difference.kind] += 1
                kept = self._kept[difference.kind]
                if len(kept) < self._listed:
                    kept.append(difference)
            if self._each is not None:
                for one in _as_lines(differences, equal):
                    self._each(one)
        if self._progress is not None:
            self._progress.finished({"extracted": len(equal), "failed": len(differences)})

    def add_equal(self, keys: Sequence[str], witness: Witness) -> None:
        """Add objects that are as they should be, all by the same witness."""
        with self._lock:
            self.witnesses[witness] += len(keys)
            if self._each is not None:
                for key in keys:
                    self._each(Judged(key, witness=witness))
        if self._progress is not None:
            self._progress.finished({"extracted": len(keys)})

    def add_bytes(self, size: int) -> None:
        """Add bytes that were read."""
        with self._lock:
            self.bytes_read += size
        if self._progress is not None:
            self._progress.finished({"bytes_read": size})

    @property
    def equal(self) -> int:
        """Objects that are as they should be."""
        return self.witnesses.total()

    @property
    def verdict(self) -> Comparison:
        """The verdict: whether all objects are as they should be."""
        return Comparison.DIFFERENT if self.counts else Comparison.EQUAL

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The kept differences, by kind and key."""
        return tuple(
            one for kind in Kind for one in sorted(self._kept[kind], key=lambda one: one.key)
        )


def _as_lines(differences: Iterable[Difference], equal: Iterable[Equal]) -> Iterator[Judged]:
    for one in equal:
        yield Judged(one.key, witness=one.witness)
    for other in differences:
        yield Judged(other.key, difference=other.kind)
