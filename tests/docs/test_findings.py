"""The page of findings: each names the commit that mended it and a test that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.test_semantics import REFERENCE, names_in

PAGE = Path("docs/contributing/findings.md")
COMMIT = re.compile(r"[0-9a-f]{7}(, [0-9a-f]{7})*")
ROWS = [
    [cell.strip() for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.startswith(("| finding", "| assumption", "| ---"))
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_each_finding_has_a_commit_and_a_test(row: list[str]) -> None:
    """No name of a test is out of date, and no finding is without one."""
    _, commit, tests = row
    assert COMMIT.fullmatch(commit)
    references = REFERENCE.findall(tests)
    assert references
    for path, name in references:
        assert name in names_in(path), f"{path}::{name}"


def test_all_findings_are_listed() -> None:
    """The trials had 16 serious and medium ones, and more than 20 others."""
    assert len(ROWS) > 50
