"""Run the extractor over the corpus of labelled archives and compare.

``python -m tests.corpus.runner`` prints every archive whose outcome or members
differ from the labels. What runs is one function, archive bytes to `Result`,
so the same comparison serves the core and the whole pipeline.
"""

from __future__ import annotations

import csv
import hashlib
import json
import sys
import tomllib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from s3unzip.errors import MemberError, RejectedError
from s3unzip.zipformat import (
    CentralHeader,
    DirectoryReader,
    Index,
    Member,
    MemberDecoder,
    NeedMoreBytes,
    OpenedMember,
    Policy,
    close_member,
    decode_whole,
    drive,
    finalize_index,
    inspect_prefix,
    locate_directory,
    open_member,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from s3unzip.errors import Finding

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
DIFFERENCES = Path(__file__).parent / "differences.toml"


@dataclass(frozen=True, slots=True)
class MemberResult:
    """What became of one member: `code` is None where it was written."""

    code: str | None
    key: str = ""
    size: int = 0
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one archive: `code` says why it was refused, if it was."""

    code: str | None
    members: dict[int, MemberResult] = field(default_factory=dict)
    warnings: frozenset[str] = frozenset()

    @property
    def outcome(self) -> str:
        """The word that the labels use."""
        if self.code is not None:
            return "reject"
        failed = sum(member.code is not None for member in self.members.values())
        if not failed:
            return "extract-all"
        return "extract-none" if failed == len(self.members) else "extract-some"


@dataclass(frozen=True, slots=True)
class LabelledMember:
    """What should become of one member."""

    index: int
    key: str
    is_directory: bool
    size: int
    sha256: str
    is_ok: bool
    reasons: frozenset[str]


@dataclass(frozen=True, slots=True)
class LabelledArchive:
    """What should become of one archive."""

    path: str
    expected: str
    policy_only: bool
    reasons: frozenset[str]
    warnings: frozenset[str]
    members: tuple[LabelledMember, ...]

    def read(self) -> bytes:
        """Return the archive's bytes."""
        return (CORPUS / "archives" / self.path).read_bytes()


def read_labels() -> list[LabelledArchive]:
    """Return every archive of the corpus with its labels."""
    members = defaultdict[str, list[LabelledMember]](list)
    with (CORPUS / "members.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            members[row["path"]].append(
                LabelledMember(
                    index=row["i"],
                    key=row["key"],
                    is_directory=row["dir"],
                    size=row["usize"],
                    sha256=row["sha256"],
                    is_ok=row["status"] == "ok",
                    reasons=frozenset(why.partition("@")[0] for why in row["why"]),
                )
            )
    with (CORPUS / "manifest.csv").open(encoding="utf-8", newline="") as table:
        return [
            LabelledArchive(
                path=row["path"],
                expected=row["expected"],
                policy_only=row["policy_only"] == "1",
                reasons=frozenset(row["reasons"].split()),
                warnings=frozenset(row["warnings"].split()),
                members=tuple(members[row["path"]]),
            )
            for row in csv.DictReader(table)
        ]


def read_differences() -> dict[str, str]:
    """Return the known differences: archive path to reason."""
    known: dict[str, str] = tomllib.loads(DIFFERENCES.read_text("utf-8"))["differences"]
    return known


@dataclass(frozen=True, slots=True)
class Cut:
    """How finely input is cut: bytes at a time, None for all at once."""

    length: int | None = None

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Cut `data`."""
        step = self.length or max(1, len(data))
        return (data[start : start + step] for start in range(0, len(data), step))


def read_index(raw: bytes, policy: Policy, cut: Cut) -> Index:
    """Read and settle an archive's index; keys are paths.

    Raises:
        RejectedError: the archive is refused.
    """
    tail = raw[-(cut.length or 1 << 17) :]
    location = drive(
        locate_directory(tail, len(raw), policy), lambda want: raw[want.start : want.stop]
    )
    reader = DirectoryReader(location, policy)
    headers: list[CentralHeader] = []
    for piece in cut.pieces(raw[location.start : location.stop]):
        headers += reader.feed(piece)
    reader.finish()
    index = finalize_index(headers, location, policy, str)
    before = inspect_prefix(tail, location, index.first)
    for finding in drive(before, lambda want: raw[want.start : want.stop]):
        index.warnings.add(finding)
    return index


def open_at(raw: bytes, member: Member, policy: Policy, cut: Cut) -> OpenedMember:
    """Open a member, giving its header as many bytes as it asks for."""
    length = cut.length or 1 << 17
    while True:
        head = raw[member.offset : min(member.stop, member.offset + length)]
        opened = open_member(member, head, policy)
        if not isinstance(opened, NeedMoreBytes):
            return opened
        assert opened.length > length
        length = opened.length


def extract_member(raw: bytes, member: Member, policy: Policy, cut: Cut) -> tuple[bytes, set[str]]:
    """Return a member's content and warnings.

    Raises:
        MemberError: it cannot be extracted.
    """
    content, warnings, _ = extract_up_to(raw, member, member.stop, policy, cut)
    return content, warnings


def extract_up_to(
    raw: bytes, member: Member, bound: int, policy: Policy, cut: Cut
) -> tuple[bytes, set[str], int]:
    """Return a member's content and warnings, and where it ends; it may not pass `bound`.

    Raises:
        MemberError: it cannot be extracted.
    """
    own_stop, member = member.stop, member._replace(stop=bound)
    opened = open_at(raw, member, policy, cut)
    start = member.offset + opened.data_start
    stop = start + member.compressed_size
    warnings = {finding.code for finding in opened.warnings}
    warnings |= {w.code for w in close_member(member, opened, raw[stop:own_stop], policy)}
    if cut.length is None:
        odd: list[Finding] = []
        content = bytes(decode_whole(member, raw[start:stop], policy, opened, odd))
        return content, warnings | {finding.code for finding in odd}, stop
    decoder = MemberDecoder(member, policy, opened)
    content = b"".join(
        bytes(piece) for part in cut.pieces(raw[start:stop]) for piece in decoder.feed(part)
    )
    decoder.finish()
    return content, warnings | {finding.code for finding in decoder.warnings}, stop


def extract(raw: bytes, policy: Policy | None = None, cut: Cut | None = None) -> Result:
    """Extract an archive in memory through the core."""
    policy, cut = policy or Policy(), cut or Cut()
    try:
        index = read_index(raw, policy, cut)
    except RejectedError as error:
        return Result(error.finding.code)
    results = {f.index: MemberResult(f.finding.code) for f in index.failures}
    warnings = set(index.warnings.counts)
    reach = 0  # where the member before ends: only local headers can tell
    members = list(index.members)
    for place, member in enumerate(members):
        if member.offset < reach:
            results[member.index] = MemberResult("overlap")
            continue
        bound = members[-1].stop if place + 1 < len(members) else member.stop
        try:
            content, noted, reach = extract_up_to(raw, member, bound, policy, cut)
        except MemberError as error:
            results[member.index] = MemberResult(error.finding.code)
        else:
            warnings |= noted
            results[member.index] = MemberResult(
                None, member.path, len(content), hashlib.sha256(content).hexdigest()
            )
    return Result(None, results, frozenset(warnings))


def compare(label: LabelledArchive, result: Result) -> list[str]:
    """Return what differs from the labels, one line each."""
    if result.outcome != label.expected:
        codes = Counter(m.code for m in result.members.values() if m.code)
        got = f"{result.outcome} ({result.code or dict(codes)})"
        return [f"expected {label.expected} ({' '.join(sorted(label.reasons))}), got {got}"]
    if result.code is not None:
        return []
    return [line for member in label.members for line in _compare_member(member, result)]


def _compare_member(label: LabelledMember, result: Result) -> Iterator[str]:
    got = result.members.get(label.index)
    if got is None:
        if not (label.is_directory and label.is_ok):
            yield f"member {label.index}: no result"
    elif label.is_ok and got.code:
        yield f"member {label.index}: expected ok, got {got.code}"
    elif not label.is_ok and not got.code:
        yield f"member {label.index}: expected {sorted(label.reasons)}, got {got.size} bytes"
    elif not got.code:
        yield from _compare_content(label, got)


def _compare_content(label: LabelledMember, got: MemberResult) -> Iterator[str]:
    if got.key != label.key:
        yield f"member {label.index}: expected key {label.key!r}, got {got.key!r}"
    if got.size != label.size:
        yield f"member {label.index}: expected {label.size} bytes, got {got.size}"
    if label.sha256 and got.sha256 != label.sha256:
        yield f"member {label.index}: wrong bytes"


def compare_codes(label: LabelledArchive, result: Result) -> list[str]:
    """Return the codes that differ where the outcomes agree: worth a look, not an error."""
    if result.code is not None:
        return [] if result.code in label.reasons else [f"{result.code} for {set(label.reasons)}"]
    lines = [
        f"member {member.index}: {got.code} for {set(member.reasons)}"
        for member in label.members
        if (got := result.members.get(member.index)) and got.code
        if got.code not in member.reasons
    ]
    if result.warnings != label.warnings:
        more, fewer = result.warnings - label.warnings, label.warnings - result.warnings
        lines.append(f"warnings: more {set(more)}, fewer {set(fewer)}")
    return lines


def main(run: Callable[[bytes], Result] = extract) -> int:
    """Print the table; return 1 if an archive differs that is not listed as known."""
    known, labels = read_differences(), read_labels()
    outcomes: Counter[tuple[str, str]] = Counter()
    unknown = 0
    for label in labels:
        result = run(label.read())
        outcomes[label.expected, result.outcome] += 1
        lines = compare(label, result)
        unknown += bool(lines) and label.path not in known
        for line in lines:
            mark = "known" if label.path in known else "policy" if label.policy_only else "DIFFERS"
            print(f"{mark:8}{label.path}: {line}")  # noqa: T201 (a report is what this is for)
        if "--codes" in sys.argv:
            for line in compare_codes(label, result):
                print(f"code    {label.path}: {line}")  # noqa: T201 (as above)
    for (expected, got), count in sorted(outcomes.items()):
        print(f"{expected:14} {got:14} {count:5}")  # noqa: T201 (as above)
    print(f"{len(labels)} archives, {unknown} unknown differences")  # noqa: T201 (as above)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
