"""The page of semantics: each sentence has a test, and the figures of s3-tests are the lists'."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

PAGE = Path("docs/semantics.md")
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
LISTS = Path("tests/s3_tests")
SERVERS = ("memory", "versitygw", "ministack")  # in the order of the table's columns


@cache
def names_in(path: str) -> set[str]:
    """Return the names of the tests in a file, those of classes included."""
    tree = ast.parse(Path(path).read_text())
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_each_sentence_has_a_test_that_exists() -> None:
    """No sentence stands alone, and no name is out of date."""
    sentences = [line for line in PAGE.read_text().splitlines() if line.startswith("* ")]
    assert len(sentences) > 40
    for sentence in sentences:
        references = REFERENCE.findall(sentence)
        assert references, sentence
        for path, name in references:
            assert name in names_in(path), f"{path}::{name}"


def test_the_table_of_s3_tests_is_that_of_the_lists() -> None:
    """What a server passes is what is named less what differs."""
    named = tomllib.loads((LISTS / "named.toml").read_text())
    differences = tomllib.loads((LISTS / "differences.toml").read_text())
    page = PAGE.read_text()
    for subject, names in named.items():
        passed = [sum(name not in differences[one] for name in names) for one in SERVERS]
        cells = " | ".join(str(count) for count in (len(names), *passed))
        assert f"| {subject} | {cells} |" in page
