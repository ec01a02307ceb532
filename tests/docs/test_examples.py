"""The examples in public docstrings and in the how-to of the Python API do what they show."""

import doctest
import importlib
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.commands import ROOT

MODULES = [
    "s3unzip.api.archive",
    "s3unzip.api.extraction",
    "s3unzip.api.verification",
    "s3unzip.deflate",
    "s3unzip.zip",
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the records of the examples' runs in the test's folder."""
    monkeypatch.setenv("S3UNZIP_HOME", str(tmp_path))


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    """Each example in the module's docstrings gives what is written below it."""
    module: ModuleType = importlib.import_module(name)
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


def test_python_examples_print_what_the_page_says() -> None:
    """Each example of docs/howto/python.md gives what is written below it."""
    result = doctest.testfile(str(ROOT / "docs/howto/python.md"), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0
