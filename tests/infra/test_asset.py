"""The asset is built when its inputs have changed, and not otherwise."""

from pathlib import Path

import pytest

from infra import bundle


class Builder:
    """A `build_bundle` that writes one file and counts; it can be told to fail."""

    def __init__(self) -> None:
        self.built = 0
        self.python: str | None = "python3.13"
        self.fails = False

    def __call__(self, folder: Path) -> bundle.Bundle:
        """Make the folder anew."""
        if self.fails:
            raise bundle.BundleError("uv failed")
        if folder.exists():
            (folder / "asset").unlink()
            folder.rmdir()
        folder.mkdir()
        (folder / "asset").write_text("the asset")
        self.built += 1
        return bundle.Bundle(9, self.python)


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Builder:
    """The builder, and a checkout of one module."""
    package = tmp_path / "functions" / "s3unzip"
    package.mkdir(parents=True)
    (package / "module.py").write_text("x = 1")
    (package / "__pycache__").mkdir()
    (tmp_path / "uv.lock").write_text("one")
    (tmp_path / "pyproject.toml").write_text("")
    made = Builder()
    monkeypatch.setattr(bundle, "ROOT", tmp_path)
    monkeypatch.setattr(bundle, "PACKAGE", package)
    monkeypatch.setattr(bundle, "build_bundle", made)
    monkeypatch.setattr(bundle, "find_uv", lambda: "uv")
    monkeypatch.setattr(bundle, "find_python", lambda _: made.python)
    return made


def test_it_is_built_once(builder: Builder, tmp_path: Path) -> None:
    """The second command reuses it; compiled files of the checkout change nothing."""
    folder = tmp_path / "build" / "lambda"
    assert bundle.ensure_asset(folder) == folder
    (tmp_path / "functions" / "s3unzip" / "__pycache__" / "module.pyc").write_bytes(b"x")
    bundle.ensure_asset(folder)
    assert builder.built == 1


@pytest.mark.parametrize("name", ["uv.lock", "functions/s3unzip/module.py", "functions/s3unzip/b"])
def test_a_changed_input_builds_it_again(builder: Builder, tmp_path: Path, name: str) -> None:
    """The lock file and each file of the package are inputs, new ones too."""
    folder = tmp_path / "build" / "lambda"
    bundle.ensure_asset(folder)
    (tmp_path / name).write_text("changed")
    bundle.ensure_asset(folder)
    assert builder.built == 2


def test_a_missing_or_replaced_folder_is_built_again(builder: Builder, tmp_path: Path) -> None:
    """An asset that this function did not build is not used."""
    folder = tmp_path / "build" / "lambda"
    bundle.ensure_asset(folder)
    folder.rename(tmp_path / "away")
    bundle.ensure_asset(folder)
    assert builder.built == 2
    (folder / "asset").unlink()
    (folder / "other").write_text("somebody's")
    (folder / "asset").write_text("somebody's")
    (folder / "other").unlink()
    bundle.ensure_asset(folder)
    assert builder.built == 3


def test_a_failed_build_leaves_no_promise(builder: Builder, tmp_path: Path) -> None:
    """After a failure the next command builds."""
    folder = tmp_path / "build" / "lambda"
    builder.fails = True
    with pytest.raises(bundle.BundleError):
        bundle.ensure_asset(folder)
    builder.fails = False
    bundle.ensure_asset(folder)
    assert builder.built == 1


def test_an_asset_without_byte_code_is_said(
    builder: Builder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command says that cold starts will be slower, and what to install."""
    bundle.ensure_asset(tmp_path / "build" / "compiled")
    assert capsys.readouterr().err == ""
    builder.python = None
    bundle.ensure_asset(tmp_path / "build" / "plain")
    assert "uv python install 3.13" in capsys.readouterr().err
    builder.python = "python3.13"  # installed meanwhile
    bundle.ensure_asset(tmp_path / "build" / "plain")
    assert (builder.built, capsys.readouterr().err) == (3, "")
