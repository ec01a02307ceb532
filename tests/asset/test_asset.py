"""The asset's bytes: the same each time, with byte code that is used."""

import ast
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from infra.bundle import SERVICES, Target, build_bundle, compile_folder
from tests.asset.conftest import Asset


def test_the_same_bytes_each_time(asset: Asset, tmp_path: Path) -> None:
    """Built again elsewhere, later, with other times on the files, the asset is the same."""
    again = tmp_path / "elsewhere" / "deeper" / "lambda"
    assert build_bundle(again, Target(asset.python)) == asset.python
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
        assert f"/var/task/{name}".encode() in compiled.read_bytes()
        assert str(asset.folder).encode() not in compiled.read_bytes()


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


def test_handlers_import_nothing_large_that_they_do_not_use(asset: Asset) -> None:
    """A cold start pays for each module; a scan imports numpy when it begins."""
    names = ("aws_xray_sdk", "wrapt", "numpy")
    code = "import sys, s3unzip.aws.intake, s3unzip.aws.plan, s3unzip.aws.extract\n"
    code += f"import s3unzip.aws.settle; print([n for n in {names} if n in sys.modules])"
    assert _run_in_asset(asset, code).strip() == "[]"


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
    _run_in_asset(asset, IMPORTS, json.dumps(sorted(wanted)))


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
    assert {"events", "sqs"} < set(_run_in_asset(asset, CLIENTS).split()) < set(SERVICES)
    data = asset.folder / "botocore" / "data"
    assert {path.name for path in data.iterdir() if path.is_dir()} == set(SERVICES)


def _run_in_asset(asset: Asset, program: str, words: str = "") -> str:
    return _run_python(asset.python, asset.folder, program, words)


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
