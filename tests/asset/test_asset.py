"""The asset's bytes: the same each time, with byte code that is used."""

import ast
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from infra import RefusedError, bundle
from infra.bundle import (
    SERVICES,
    build_bundle,
    compile_folder,
    copy_package,
    find_python,
    find_uv,
)
from s3unzip.version import source_fingerprint
from tests.support.assemblies import make_once


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
            raise RefusedError("uv failed")
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
    with pytest.raises(RefusedError):
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


class Asset(NamedTuple):
    """A built asset: its folder, and the interpreter it is for."""

    folder: Path
    python: str


@pytest.fixture(scope="session")
def asset(tmp_path_factory: pytest.TempPathFactory) -> Asset:
    """The asset with wheels of this machine, as `cdk deploy` builds it for Lambda's."""
    python = find_python(find_uv())
    if python is None:
        pytest.skip("no CPython 3.13 on this machine: install one with `uv python install 3.13`")
    wheels = ("--python", python)
    made = make_once(tmp_path_factory, "asset", lambda to: build_bundle(to / "lambda", wheels))
    return Asset(made / "lambda", python)


def test_the_same_bytes_each_time(asset: Asset, tmp_path: Path) -> None:
    """Built again elsewhere, later, with other times on the files, the asset is the same."""
    again = tmp_path / "elsewhere" / "deeper" / "lambda"
    assert build_bundle(again, ("--python", asset.python)) == asset.python
    first, second = (
        {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
        for root in (asset.folder, again)
    )
    assert [name for name in first | second if first.get(name) != second.get(name)] == []


def test_every_module_has_byte_code(asset: Asset) -> None:
    """No module is left to be compiled at a cold start; tracebacks name the path on Lambda."""
    for path in (asset.folder / "s3unzip").rglob("*.py"):
        compiled = path.parent / "__pycache__" / f"{path.stem}.cpython-313.pyc"
        name = path.relative_to(asset.folder).as_posix()
        paths = (f"/var/task/{name}", str(asset.folder))
        assert [one.encode() in compiled.read_bytes() for one in paths] == [True, False]


def test_imports_use_the_byte_code(asset: Asset, tmp_path: Path) -> None:
    """A module whose source is changed after the build is imported as it was built."""
    copy = tmp_path / "s3unzip"
    shutil.copytree(asset.folder / "s3unzip", copy)
    module = copy / "version.py"
    module.write_text(module.read_text() + "\nCHANGED = True\n")

    code = "import s3unzip.version as e; print(hasattr(e, 'CHANGED'), e.__doc__ is not None)"
    assert _run_python(asset.python, tmp_path, code) == "False True\n"
    compile_folder(copy, asset.python)
    assert _run_python(asset.python, tmp_path, code) == "True True\n"


IMPORTS = """
import json, sys
from importlib import import_module
for module, names in json.load(sys.stdin):
    found = import_module(module)
    for name in names:
        hasattr(found, name) or import_module(f"{module}.{name}")
"""


def test_everything_that_the_package_imports_is_in_the_asset(asset: Asset) -> None:
    """No import, also none that only a rare member or a rare event needs, was left out."""
    wanted = {
        (module, names)
        for path in (asset.folder / "s3unzip").rglob("*.py")
        for module, names in read_imports(ast.parse(path.read_text()))
    }
    assert ("Crypto.Cipher", ("AES",)) in wanted  # inside of a function
    _run_python(asset.python, asset.folder, IMPORTS, json.dumps(sorted(wanted)))


def read_imports(tree: ast.AST) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield module and names of each import at run time, those inside of functions too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", tuple(alias.name for alias in node.names)
        elif isinstance(node, ast.If) and "version_info" in ast.unparse(node.test):
            yield from read_imports(ast.Module(node.orelse, []))  # of the asset's older Python
        elif not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield from read_imports(node)


CLIENTS = """
import typing
from aws_xray_sdk.core.sampling.connector import ServiceConnector
from s3unzip.aws import environment
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.s3.aws_session import AwsSession
ServiceConnector()
services = typing.get_args(typing.get_type_hints(environment.open_client)["service"])
for service in ("s3", *services):
    AwsSession(StoreConfig(region="cn-north-1")).client(service)
print(*services)
"""


def test_a_client_of_each_service_can_be_made(asset: Asset) -> None:
    """The services that functions call have their definitions in the asset; others have none."""
    printed = _run_python(asset.python, asset.folder, CLIENTS)
    assert {"events", "sqs"} < set(printed.split()) < set(SERVICES)
    assert {
        path.name for path in (asset.folder / "botocore" / "data").iterdir() if path.is_dir()
    } == set(SERVICES)


def _run_python(python: str, folder: Path, program: str, words: str = "") -> str:
    done = subprocess.run(
        [python, "-S", "-s", "-B", "-c", program],
        env={"PYTHONPATH": str(folder), "LAMBDA_TASK_ROOT": str(folder)},
        input=words,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
