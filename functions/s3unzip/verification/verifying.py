"""Compares the objects of a destination with the archive's directory. Writes nothing.

LIST returns keys, sizes and ETags. An object whose ETag is on record needs no further request. For
the others, HEAD returns a CRC-32. An object that was replaced after a run wrote it is read.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from s3unzip.extraction.objects import stored_as
from s3unzip.planning.keys import parse_template
from s3unzip.planning.read import read_archive
from s3unzip.runs.written import WrittenObjects
from s3unzip.stores.calls import Calls
from s3unzip.verification.contents import ByteLooker, HeadLooker, compare_contents
from s3unzip.verification.findings import Expected, Findings
from s3unzip.verification.listing import KeyRanges, compare_listing
from s3unzip.verification.results import Judged, Kind, Verification, Witness

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.context import Context
    from s3unzip.model import Request
    from s3unzip.planning.read import Reading
    from s3unzip.verification.contents import Looker


class Effort(NamedTuple):
    """How many requests a verify may send, and what it trusts."""

    at_once: int = 64  # HEADs, or GETs of a deep verify, in flight
    listed: int = 20  # differences of each kind to keep; all are counted
    deep: bool = False  # read every object; trust no record and no stored CRC-32
    range_keys: int = 4_990  # members of one range of keys: five pages of LIST, and not a sixth


def verify_objects(
    request: Request,
    context: Context,
    effort: Effort,
    written: WrittenObjects | None = None,
    each: Callable[[Judged], object] | None = None,
    judge: Callable[[Reading], None] | None = None,
) -> Verification:
    """Compare every object with its member.

    Args:
        request: archive, destination and options, as the run had them.
        context: stores and rules; progress goes to ``extracted`` (equal) and ``failed``.
        effort: concurrency, and what to trust.
        written: the ETags that the store returned to runs.
        each: called with every object and its result.
        judge: called with what was read of the archive; may raise to stop here.

    Raises:
        RejectedError: the archive is refused; there is nothing to compare with.
        StorageError: a store refuses.
        ServiceFaultError: a store still fails after all retries.
    """
    known = WrittenObjects() if effort.deep or written is None else written
    run = _Verify(request, context, effort, known, Findings(context.progress, effort.listed, each))
    reading = read_archive(request, context, run.calls)
    if judge is not None:
        judge(reading)
    expected = _expect(request, reading)
    run.compare(expected)
    return run.result(reading, expected)


class _Verify:
    """One verify, from its first request to what it found."""

    def __init__(
        self,
        request: Request,
        context: Context,
        effort: Effort,
        known: WrittenObjects,
        found: Findings,
    ) -> None:
        self.calls = Calls(context.clock, context.tuning.retry_seconds, effort.at_once)
        self._clock = context.clock
        self._started = context.clock.now()
        self._request = request
        self._effort = effort
        self._known = known
        self._found = found
        self._destination = context.stores.destination(request.destination)
        self._prefix = parse_template(request).prefix

    def compare(self, expected: list[Expected]) -> None:
        """Compare by the listing, and what that does not prove by HEAD or by the bytes."""
        calls, found, effort = self.calls, self._found, self._effort
        ranges = KeyRanges(expected, self._prefix, effort.range_keys)
        suspects = compare_listing(ranges, self._destination, calls, self._known, found)
        for suspected, looker in zip(suspects, self._lookers(), strict=True):
            compare_contents(suspected, looker, calls, found, effort.at_once)

    def _lookers(self) -> tuple[Looker, Looker]:
        """Return what looks at objects that no run wrote, and at those that were replaced."""
        is_gzip = self._request.options.as_gzip is not None
        by_bytes = ByteLooker(self._destination, self._found, is_gzip=is_gzip)
        if self._effort.deep:
            return by_bytes, by_bytes
        # A folder stores no checksum: its HEAD reads the file.
        is_folder = self._request.destination.scheme == "file"
        witness = Witness.READ if is_folder else Witness.METADATA
        return HeadLooker(self._destination, witness, is_gzip=is_gzip), by_bytes

    def result(self, reading: Reading, expected: list[Expected]) -> Verification:
        """Return what was found."""
        request, found = self._request, self._found
        return Verification(
            verdict=found.verdict,
            source=request.source.public,
            pin=reading.pin,
            destination=request.destination,
            prefix=self._prefix,
            deep=self._effort.deep,
            members=sum(member.wanted for member in expected),
            refused=len(reading.failures),
            equal=found.equal,
            witnesses={who.value: found.witnesses[who] for who in Witness if found.witnesses[who]},
            records=tuple(self._known.runs),
            counts={kind.value: found.counts[kind] for kind in Kind if found.counts[kind]},
            differences=found.differences,
            bytes_read=found.bytes_read,
            requests=self.calls.requests,
            started=self._started,
            seconds=round(self._clock.now() - self._started, 3),
        )


def _expect(request: Request, reading: Reading) -> list[Expected]:
    """Return the objects that the directory declares, by key in UTF-8 order."""
    key_of = parse_template(request).key_of()
    members = reading.index.members
    chosen = None
    if len(reading.selected) < len(members):
        chosen = {member.index for member in reading.selected}
    expected = [
        Expected(
            key_of(m.path), *stored_as(m, request.options), chosen is None or m.index in chosen
        )
        for m in members
    ]
    expected.sort(key=itemgetter(0))  # code points are in the order of their UTF-8
    return expected
