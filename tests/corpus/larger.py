"""The larger corpus of other projects' archives, which may lie beside the checkout.

Its labels are tables: `manifest.csv` has a row for each archive, `members.jsonl` a line for each
member. They are less exact than those of the project's own archives.
"""

import csv
import json
import os
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.corpus.labels import Result

VARIABLE = "S3UNZIP_CORPUS"
CORPUS = Path(os.environ.get(VARIABLE, Path(__file__).parents[3] / "shared" / "corpus"))
MemberLabel = dict[str, Any]  # a line of `members.jsonl`


class ArchiveLabel(NamedTuple):
    """What should become of one archive."""

    path: str
    expected: str
    reasons: str
    members: list[MemberLabel]

    def read(self) -> bytes:
        return (CORPUS / "archives" / self.path).read_bytes()


def read_labels() -> list[ArchiveLabel]:
    """Return every archive with its labels; none if the corpus is absent and not asked for."""
    if not (VARIABLE in os.environ or CORPUS.is_dir()):
        return []
    members = defaultdict[str, list[MemberLabel]](list)
    for line in (CORPUS / "members.jsonl").read_bytes().splitlines():
        member = json.loads(line)
        members[member["path"]].append(member)
    with (CORPUS / "manifest.csv").open(encoding="utf-8", newline="") as table:
        return [
            ArchiveLabel(row["path"], row["expected"], row["reasons"], members[row["path"]])
            for row in csv.DictReader(table)
        ]


def read_differences() -> dict[str, str]:
    """Return the known differences: archive path to reason."""
    tables: dict[str, dict[str, str]] = tomllib.loads(
        (Path(__file__).parent / "differences.toml").read_text("utf-8")
    )
    return tables["differences"]


def compare(label: ArchiveLabel, result: Result) -> list[str]:
    """Return what differs from the labels, one line each."""
    if result.outcome != label.expected:
        return [f"expected {label.expected} ({label.reasons}), got {result.outcome}: {result}"]
    if result.code is not None:
        return []
    return [line for member in label.members for line in _compare_member(member, result)]


def _compare_member(label: MemberLabel, result: Result) -> Iterator[str]:
    got = result.members.get(label["i"])
    is_sound = label["status"] == "ok"
    if got is None:
        if not (label["dir"] and is_sound):
            yield f"member {label['i']}: no result"
        return
    if is_sound == bool(got.code):
        yield f"member {label['i']}: expected {label['why'] or 'ok'}, got {got}"
    elif is_sound:
        expected = (label["key"], label["usize"], label["sha256"] or got.sha256)
        if expected != got[1:]:
            yield f"member {label['i']}: expected {expected}, got {got}"
