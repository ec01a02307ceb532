"""The page of semantics: each sentence has a test."""

import ast
import re
from functools import cache
from pathlib import Path

PAGE = Path("docs/semantics.md")
REFERENCE = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@cache
def _names_in(path: str) -> set[str]:
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
            assert name in _names_in(path), f"{path}::{name}"
