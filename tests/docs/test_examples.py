"""The examples in public docstrings and in the how-to of the Python API do what they show."""

import doctest
import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

import s3unzip

PAGES = ["docs/howto/python.md"]
MODULES = [
    "s3unzip.api.archive",
    "s3unzip.api.extraction",
    "s3unzip.api.verification",
    "s3unzip.deflate",
    "s3unzip.zip",
]
ROOT = Path(__file__).parents[2]


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


@pytest.mark.parametrize("page", PAGES)
def test_pages(page: str) -> None:
    """Each example on the page gives what is written below it."""
    result = doctest.testfile(str(ROOT / page), module_relative=False)
    assert result.attempted > 0
    assert result.failed == 0


def test_the_reference_names_each_public_name() -> None:
    """docs/reference/api.md lists the public names of the package, all of them."""
    text = (ROOT / "docs/reference/api.md").read_text("utf-8")
    assert [
        name for name in dir(s3unzip) if not re.search(rf"(`|^##+ ){name}\b", text, re.MULTILINE)
    ] == []
