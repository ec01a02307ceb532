"""Reason codes in words: every one has a sentence and an advice that works."""

import re

import pytest

from s3unzip.cli.main import COMMANDS, load_command
from s3unzip.explanations import OTHER, Explanation, describe, explain
from s3unzip.zip import CHECKS

CODES = sorted(CHECKS.keys() | OTHER.keys())


@pytest.mark.parametrize("code", CODES)
def test_a_code_has_a_sentence_and_an_advice(code: str) -> None:
    """Both are whole sentences, and neither repeats the code."""
    for text in explain(code):
        assert text[0].isupper() or text.startswith("--")
        assert text.endswith(".")
        if "-" in code:
            assert code not in text.replace("--", "")


def test_commands_and_options_of_the_advice_exist() -> None:
    """What an advice tells to type is there."""
    options = {name for one in COMMANDS for p in load_command(one).params for name in p.opts}
    text = " ".join(explain(code).advice for code in CODES)
    assert set(re.findall(r"s3unzip ([a-z]+)\b", text)) <= COMMANDS.keys()
    assert set(re.findall(r"--[a-z-]+", text)) <= options


def test_an_unknown_code_is_still_said() -> None:
    """A report that another version wrote has codes that this one does not know."""
    assert explain("of-tomorrow") == Explanation("of-tomorrow.", "See docs/reference/checks.md.")


def test_the_sentence_of_a_check_precedes_its_fact() -> None:
    """A check's fact follows its sentence; a store's answer is a sentence of its own."""
    assert describe("wrong-password", "the check byte differs") == (
        "The password does not open the member: the check byte differs"
    )
    assert describe("access-denied", "s3:PutObject s3://b/k: no") == "s3:PutObject s3://b/k: no"
    assert describe("encrypted", None) == explain("encrypted").sentence
