"""The generated reference: what it must hold."""

from pathlib import Path

import pytest

from docs.generate import FOLDER, make_pages, write_reference
from docs.sources import check_described
from s3unzip import errors, metric_names
from s3unzip.cli.main import COMMANDS
from s3unzip.model import Verdict
from s3unzip.settings import Tuning, Variable
from s3unzip.zip import CHECKS


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return make_pages()


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("cli.md", [f"## s3unzip {name}" for name in COMMANDS]),
        ("checks.md", [f"| `{code}` |" for code in CHECKS]),
        ("errors.md", [f"`{name}`" for name in vars(errors) if name.endswith("Error")]),
        ("errors.md", [f"| `{verdict}` | {verdict.exit_code} |" for verdict in Verdict]),
        ("metrics.md", [f"`{name}`" for name in metric_names.METRICS]),
        ("settings.md", [f"| `{name}` |" for name in Tuning.__struct_fields__]),
        ("settings.md", [f"`{variable.value}`" for variable in Variable]),
    ],
)
def test_pages_are_complete(pages: dict[str, str], page: str, names: list[str]) -> None:
    """A page has everything that the code has."""
    assert names
    assert not [name for name in names if name not in pages[page]]


def test_stale_pages_are_named(pages: dict[str, str], tmp_path: Path) -> None:
    """What is missing or old is named; what was written is not."""
    assert set(write_reference(tmp_path, pages)) == {f"docs/reference/{name}" for name in pages}
    (tmp_path / "cli.md").write_text("old")
    assert write_reference(tmp_path, pages, check=True) == ["docs/reference/cli.md"]
    assert (tmp_path / "cli.md").read_text() == "old"
    assert write_reference(tmp_path, pages) == ["docs/reference/cli.md"]
    assert write_reference(tmp_path, pages, check=True) == []


def test_the_pages_are_what_the_code_says(pages: dict[str, str]) -> None:
    """None is stale, and none is there that nothing writes."""
    assert {file.name: file.read_text("utf-8") for file in FOLDER.iterdir()} == pages


def test_undescribed_names_stop_the_generator() -> None:
    """A name that the code has and the table has not is told, and the other way round."""
    with pytest.raises(LookupError, match="table and the code disagree about new, old"):
        check_described("table", ["same", "new"], ["same", "old"])
