"""The fingerprint tells whether the functions' source files are the same."""

from pathlib import Path

import pytest

from infra.bundle import copy_package
from s3unzip.fingerprint import source_fingerprint


@pytest.fixture
def package(tmp_path: Path) -> Path:
    copy_package(tmp_path)
    return tmp_path / "s3unzip"


def test_the_asset_has_the_fingerprint_of_its_source(package: Path) -> None:
    """What the stack tells is true of the files that Lambda runs."""
    assert source_fingerprint(package) == source_fingerprint()


@pytest.mark.parametrize(
    ("name", "same"),
    [
        ("errors.py", False),
        ("handlers/new.py", False),
        ("settling/report_page/assets/page.css", False),
        ("operate/runs.py", True),
        ("cli/new.py", True),
        ("handlers/__pycache__/plan.cpython-313.pyc", True),
    ],
)
def test_only_source_files_count(package: Path, name: str, *, same: bool) -> None:
    """A changed or added file counts where a function uses it, compiled files never."""
    before = source_fingerprint(package)
    path = package / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"changed")
    assert (source_fingerprint(package) == before) is same
