"""The asset is built when its inputs have changed; a fingerprint tells whether sources have."""

import shutil
from pathlib import Path

import pytest

from infra import bundle
from infra.bundle import copy_package
from s3unzip.version import source_fingerprint


class Builder:
    """A `build_bundle` that writes one file and counts; it can be told to fail."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "build" / "lambda"
        self.built = 0
        self.python: str | None = "python3.13"
        self.fails = False

    def __call__(self, folder: Path) -> str | None:
        """Make the folder anew."""
        if self.fails:
            raise bundle.BundleError("uv failed")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "asset").write_text("the asset")
        self.built += 1
        return self.python

    def ensure(self) -> int:
        """Ask for the asset; return how often it was built until then."""
        assert bundle.ensure_asset(self.folder) == self.folder
        return self.built


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builder:
    package = tmp_path / "functions" / "s3unzip"
    (package / "__pycache__").mkdir(parents=True)
    for name in ("functions/s3unzip/module.py", "uv.lock", "pyproject.toml"):
        (tmp_path / name).write_text("one")
    made = Builder(tmp_path)
    for name, value in {
        "ROOT": tmp_path,
        "PACKAGE": package,
        "build_bundle": made,
        "find_uv": lambda: "uv",
        "find_python": lambda _: made.python,
    }.items():
        monkeypatch.setattr(bundle, name, value)
    return made


@pytest.mark.parametrize(
    ("changed", "built"),
    [
        ("functions/s3unzip/__pycache__/module.pyc", 1),
        ("functions/s3unzip/module.py", 2),
        ("functions/s3unzip/new.py", 2),
        ("uv.lock", 2),
        ("build/lambda/somebody.py", 2),  # an asset that is not as it was built is not used
    ],
)
def test_a_changed_input_builds_it_again(
    builder: Builder, tmp_path: Path, changed: str, built: int
) -> None:
    """The lock file and each file of the package are inputs, what is compiled is none."""
    assert (builder.ensure(), builder.ensure()) == (1, 1)
    (tmp_path / changed).write_text("changed")
    assert builder.ensure() == built


def test_a_failed_build_leaves_no_promise(builder: Builder, tmp_path: Path) -> None:
    """After a failure the next command builds, and so it does where the folder has gone."""
    builder.fails = True
    with pytest.raises(bundle.BundleError):
        builder.ensure()
    builder.fails = False
    assert builder.ensure() == 1
    builder.folder.rename(tmp_path / "away")
    assert builder.ensure() == 2


def test_an_asset_without_byte_code_is_said(
    builder: Builder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says that cold starts will be slower, and what to install."""
    builder.python = None
    builder.ensure()
    assert "uv python install 3.13" in capsys.readouterr().err
    builder.python = "python3.13"  # installed meanwhile
    assert (builder.ensure(), capsys.readouterr().err) == (2, "")


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
        ("settling/assets/page.css", False),
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
