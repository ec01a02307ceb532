"""What the pages name exists: links of all, tests of semantics.md, files of architecture.md."""

import ast
import doctest
import re
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.commands import BLOCK, ROOT, show_page
from tools.walk import walk_member

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _anchors(page: Path) -> set[str]:
    headings = re.findall(
        r"^#+ (.+)$", BLOCK.sub("", page.read_text(encoding="utf-8")).lower(), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=show_page)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link names a file of the repository, and a heading that is in it."""
    targets = LINK.findall(re.sub(r"`[^`]*`", "`", BLOCK.sub("", page.read_text(encoding="utf-8"))))
    inside = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in inside if _leads_nowhere(page, target)] == []


def _leads_nowhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    return not file.exists() or bool(
        anchor and file.suffix == ".md" and anchor not in _anchors(file)
    )


def test_every_page_is_in_the_index() -> None:
    """The map of the documentation, and that of its site, name every page that people write."""
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
    assert pages <= {"index.md", *LINK.findall((ROOT / "docs" / "index.md").read_text("utf-8"))}
    assert pages <= set((ROOT / "mkdocs.yml").read_text("utf-8").split())


@cache
def _names_in(path: str) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, ast.FunctionDef)
    }


def test_each_sentence_has_a_test_that_exists() -> None:
    """No sentence stands alone, and no name is out of date."""
    sentences = re.findall(r"^\* .*", (ROOT / "docs/semantics.md").read_text(), re.MULTILINE)
    assert len(sentences) > 40
    reference = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")
    assert [sentence for sentence in sentences if not reference.search(sentence)] == []
    named = [pair for sentence in sentences for pair in reference.findall(sentence)]
    assert [(path, name) for path, name in named if name not in _names_in(path)] == []


ARCHITECTURE = ROOT / "docs" / "architecture.md"


def test_every_file_of_the_page_exists() -> None:
    """A path in the page leads to a file or folder of the checkout, the package or the tests."""
    named = set(re.findall(r"`([a-z_0-9/]+(?:\.py|/))`", ARCHITECTURE.read_text()))
    assert len(named) > 30
    assert [
        name
        for name in named
        if not any((ROOT / top / name).exists() for top in ("", "functions/s3unzip", "tests"))
    ] == []


def test_the_walk_is_as_long_as_the_page_says(tmp_path: Path) -> None:
    """Modules and functions that one member passes differ from the page by a tenth at most."""
    steps = "|".join(walks := walk_member(tmp_path))
    row = rf"\| ({steps}) \|.*\| (\d+) modules, (\d+) functions \|$"
    told = {
        step: (int(modules), int(functions))
        for step, modules, functions in re.findall(row, ARCHITECTURE.read_text(), re.MULTILINE)
    }
    for step, walk in walks.items():
        found = len(walk.modules), len(walk.functions)
        assert found == pytest.approx(told[step], rel=0.1), f"{step}: {found}; update the page"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the records of the examples' runs in the test's folder."""
    monkeypatch.setenv("S3UNZIP_HOME", str(tmp_path))


MODULES = ("api.archive", "api.extraction", "api.verification", "deflate", "zip")


@pytest.mark.parametrize(
    "run",
    [
        *(partial(doctest.testmod, import_module(f"s3unzip.{name}")) for name in MODULES),
        partial(doctest.testfile, str(ROOT / "docs/howto/python.md"), module_relative=False),
    ],
    ids=[*MODULES, "docs/howto/python.md"],
)
def test_examples_print_what_is_written_below_them(run: Callable[[], doctest.TestResults]) -> None:
    """Each example in a docstring of these modules, and of the page, gives what it says."""
    result = run()
    assert (result.failed, result.attempted > 0) == (0, True)
