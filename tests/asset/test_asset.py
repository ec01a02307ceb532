"""The asset's bytes: the same each time, with byte code that is used."""

import ast
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.bundle import SERVICES, Target, build_bundle, compile_folder
from tests.asset.conftest import Asset


def digest(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_the_same_bytes_each_time(asset: Asset, tmp_path: Path) -> None:
    """Built again elsewhere, later, with other times on the files, the asset is the same."""
    again = tmp_path / "elsewhere" / "deeper" / "lambda"
    assert build_bundle(again, Target(asset.python)) == asset.built
    assert digest(again) == digest(asset.folder)


def test_every_module_has_byte_code(asset: Asset) -> None:
    """No module that a function may import is left to be compiled at a cold start."""
    assert asset.built.compiled_by == asset.python
    for path in (asset.folder / "s3unzip").rglob("*.py"):
        assert (path.parent / "__pycache__" / f"{path.stem}.cpython-313.pyc").is_file(), path


def test_imports_use_the_byte_code(asset: Asset, tmp_path: Path) -> None:
    """A module whose source is changed after the build is imported as it was built."""
    copy = tmp_path / "s3unzip"
    shutil.copytree(asset.folder / "s3unzip", copy)
    module = copy / "version.py"
    module.write_text(module.read_text() + "\nCHANGED = True\n")

    def is_changed() -> str:
        code = "import s3unzip.version as e; print(hasattr(e, 'CHANGED'), e.__doc__ is not None)"
        done = subprocess.run(
            [asset.python, "-S", "-B", "-c", code],
            env={"PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    assert is_changed() == "False True"
    compile_folder(copy, asset.python)
    assert is_changed() == "True True"


def test_tracebacks_name_the_path_on_lambda(asset: Asset) -> None:
    """The byte code says /var/task, not the folder it was compiled in."""
    compiled = asset.folder / "s3unzip" / "__pycache__" / "errors.cpython-313.pyc"
    assert b"/var/task/s3unzip/errors.py" in compiled.read_bytes()
    assert str(asset.folder).encode() not in compiled.read_bytes()


@pytest.mark.parametrize("name", ["intake", "plan", "extract", "settle"])
def test_a_handler_imports_nothing_large_that_it_does_not_use(asset: Asset, name: str) -> None:
    """A cold start pays for each module; a scan imports numpy when it begins."""
    names = ("aws_xray_sdk", "wrapt", "numpy")
    code = f"import sys, s3unzip.aws.{name}; print([n for n in {names} if n in sys.modules])"
    assert run_in_asset(asset, code).strip() == "[]"


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
    run_in_asset(asset, IMPORTS, json.dumps(sorted(wanted)))


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
from s3unzip.stores.s3.session import AwsSession
ServiceConnector()
services = typing.get_args(typing.get_type_hints(environment.open_client)["service"])
for service in ("s3", *services):
    AwsSession(region="cn-north-1").client(service)
print(*services)
"""


def test_a_client_of_each_service_can_be_made(asset: Asset) -> None:
    """The services that functions call have their definitions in the asset; others have none."""
    called = run_in_asset(asset, CLIENTS).split()
    assert {"events", "sqs"} < set(called) < set(SERVICES)
    data = asset.folder / "botocore" / "data"
    assert {path.name for path in data.iterdir() if path.is_dir()} == set(SERVICES)


def run_in_asset(asset: Asset, program: str, words: str = "") -> str:
    """Run a program that can import the asset and the standard library; return what it printed."""
    done = subprocess.run(
        [asset.python, "-S", "-s", "-B", "-c", program],
        env={"PYTHONPATH": str(asset.folder), "LAMBDA_TASK_ROOT": str(asset.folder)},
        input=words,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
