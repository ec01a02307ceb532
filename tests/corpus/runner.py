"""Run the extractor over the corpus of labelled archives and compare.

``python -m tests.corpus.runner`` prints every archive whose outcome or members
differ from the labels. What runs is one function, archive bytes to `Result`,
so the same comparison serves the public API, the core and the whole pipeline.
"""

import csv
import hashlib
import io
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

import s3unzip
from s3unzip import Options
from s3unzip.errors import MemberError, RejectedError

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
DIFFERENCES = Path(__file__).parent / "differences.toml"


class MemberResult(NamedTuple):
    """What became of one member: `code` is None where it was written."""

    code: str | None
    key: str = ""
    size: int = 0
    sha256: str = ""


class Result(Struct, frozen=True):
    """What became of one archive: `code` says why it was refused, if it was."""

    code: str | None
    members: dict[int, MemberResult] = {}
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


class LabelledMember(Struct, frozen=True):
    """What should become of one member: a line of ``members.jsonl``."""

    path: str  # of the archive
    index: int = field(name="i")
    key: str
    is_directory: bool = field(name="dir")
    size: int = field(name="usize")
    sha256: str
    status: str
    reasons: list[str] = field(name="why")


class LabelledArchive(NamedTuple):
    """What should become of one archive."""

    path: str
    expected: str
    policy_only: bool
    reasons: list[str]
    members: list[LabelledMember]

    def read(self) -> bytes:
        """Return the archive's bytes."""
        return (CORPUS / "archives" / self.path).read_bytes()


def read_labels() -> list[LabelledArchive]:
    """Return every archive of the corpus with its labels."""
    members = defaultdict[str, list[LabelledMember]](list)
    for line in (CORPUS / "members.jsonl").read_bytes().splitlines():
        member = msgspec.json.decode(line, type=LabelledMember)
        members[member.path].append(member)
    with (CORPUS / "manifest.csv").open(encoding="utf-8", newline="") as table:
        return [
            LabelledArchive(
                path=row["path"],
                expected=row["expected"],
                policy_only=row["policy_only"] == "1",
                reasons=sorted(row["reasons"].split()),
                members=members[row["path"]],
            )
            for row in csv.DictReader(table)
        ]


def read_differences(*, alone: bool = False) -> dict[str, str]:
    """Return the known differences: archive path to reason.

    Args:
        alone: whether each member was read without the others, as `extract` does here.
    """
    tables: dict[str, dict[str, str]] = tomllib.loads(DIFFERENCES.read_text("utf-8"))
    return tables["differences"] | (tables["alone"] if alone else {})


def extract(raw: bytes, options: Options | None = None, password: bytes | None = None) -> Result:
    """Read every member of an archive in memory through the public API."""
    try:
        archive = s3unzip.open_archive(io.BytesIO(raw), options, password=password)
    except RejectedError as error:
        return Result(error.finding.code)
    results = {member.index: _read_member(member) for member in archive.members()}
    return Result(None, results, frozenset(archive.warnings))


def _read_member(member: s3unzip.ArchiveMember) -> MemberResult:
    try:
        content = member.read()
    except MemberError as error:
        return MemberResult(error.finding.code)
    return MemberResult(None, member.name, len(content), hashlib.sha256(content).hexdigest())


def compare(label: LabelledArchive, result: Result) -> list[str]:
    """Return what differs from the labels, one line each."""
    if result.outcome != label.expected:
        codes = Counter(m.code for m in result.members.values() if m.code)
        got = f"{result.outcome} ({result.code or dict(codes)})"
        return [f"expected {label.expected} ({' '.join(label.reasons)}), got {got}"]
    if result.code is not None:
        return []
    return [line for member in label.members for line in _compare_member(member, result)]


def _compare_member(label: LabelledMember, result: Result) -> Iterator[str]:
    got, is_ok, name = (
        result.members.get(label.index),
        label.status == "ok",
        f"member {label.index}",
    )
    if got is None:
        if not (label.is_directory and is_ok):
            yield f"{name}: no result"
    elif is_ok and got.code:
        yield f"{name}: expected ok, got {got.code}"
    elif not is_ok and not got.code:
        reasons = sorted({why.partition("@")[0] for why in label.reasons})
        yield f"{name}: expected {reasons}, got {got.size} bytes"
    elif not got.code:
        wanted = (label.key, label.size, label.sha256 or got.sha256)
        if wanted != (got.key, got.size, got.sha256):
            yield f"{name}: expected {wanted}, got {(got.key, got.size, got.sha256)}"


def main(run: Callable[[bytes], Result] = extract) -> int:
    """Print the table; return 1 if an archive differs that is not listed as known."""
    known, labels = read_differences(alone=run is extract), read_labels()
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
    for (expected, got), count in sorted(outcomes.items()):
        print(f"{expected:14} {got:14} {count:5}")  # noqa: T201 (as above)
    print(f"{len(labels)} archives, {unknown} unknown differences")  # noqa: T201 (as above)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
