"""The larger corpus of other projects' archives, which may lie beside the checkout.

Its labels are tables: `manifest.csv` has a row for each archive, `members.jsonl` a line for each
member. They are less exact than those of the project's own archives.
"""

import csv
import os
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct, field

from tests.corpus.labels import Result

VARIABLE = "S3UNZIP_CORPUS"
BESIDE = Path(__file__).parents[3] / "shared" / "corpus"
CORPUS = Path(os.environ.get(VARIABLE, BESIDE))
ABSENCE = f"the larger corpus does not lie beside the checkout, and {VARIABLE} names no place"
DIFFERENCES = Path(__file__).parent / "differences.toml"


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
    """Return every archive with its labels; none if the corpus is absent."""
    if VARIABLE not in os.environ and not CORPUS.is_dir():
        return []
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


def read_differences() -> dict[str, str]:
    """Return the known differences: archive path to reason."""
    tables: dict[str, dict[str, str]] = tomllib.loads(DIFFERENCES.read_text("utf-8"))
    return tables["differences"]


def compare(label: LabelledArchive, result: Result) -> list[str]:
    """Return what differs from the labels, one line each."""
    if result.outcome != label.expected:
        return [f"expected {label.expected} ({' '.join(label.reasons)}), got {result}"]
    if result.code is not None:
        return []
    return [line for member in label.members for line in _compare_member(member, result)]


def _compare_member(label: LabelledMember, result: Result) -> Iterator[str]:
    got = result.members.get(label.index)
    is_sound = label.status == "ok"
    name = f"member {label.index}"
    if got is None:
        if not (label.is_directory and is_sound):
            yield f"{name}: no result"
    elif is_sound and got.code:
        yield f"{name}: expected ok, got {got.code}"
    elif not is_sound and not got.code:
        reasons = sorted({why.partition("@")[0] for why in label.reasons})
        yield f"{name}: expected {reasons}, got {got.size} bytes"
    elif not got.code:
        expected = (label.key, label.size, label.sha256 or got.sha256)
        if expected != (got.key, got.size, got.sha256):
            yield f"{name}: expected {expected}, got {(got.key, got.size, got.sha256)}"
