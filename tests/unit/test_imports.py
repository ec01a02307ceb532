"""What imports cost: a package loads a module only when one of its names is used."""

import ast
import inspect
import subprocess
import sys
from types import ModuleType

import pytest

import s3unzip
import s3unzip.deflate
import s3unzip.zip


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after `statement`."""
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_errors_load_neither_core() -> None:
    """The error tree has the cores' error classes; the ZIP core has no codec before it is used."""
    assert not loaded_by("import s3unzip.errors") & {"isal", "s3unzip.zip", "s3unzip.deflate"}
    assert not loaded_by("import s3unzip.zip") & {"isal", "numpy", "lzma", "s3unzip.zip.decode"}
    assert "numpy" not in loaded_by("import s3unzip.deflate")


@pytest.mark.parametrize("package", [s3unzip.deflate, s3unzip.zip], ids=lambda core: core.__name__)
def test_the_cores_offer_what_they_import(package: ModuleType) -> None:
    """Each name that type checkers see is there."""
    tree = ast.parse(inspect.getsource(package))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {one.name for node in imports for one in node.names}
    assert all(getattr(package, name) is not None for name in names - {"TYPE_CHECKING"})


def typed_names(package: ModuleType) -> set[str]:
    """Return the names that type checkers see: imported as themselves, or from below."""
    tree = ast.parse(inspect.getsource(package))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {one.name for node in imports for one in node.names if one.asname == one.name}
    return names - {"__version__"}


def test_lists_exactly_its_public_names() -> None:
    """`__all__`, `dir` and type checkers name the same, and each name is there."""
    names: list[str] = vars(s3unzip)["__all__"]
    assert dir(s3unzip) == names
    assert set(names) == typed_names(s3unzip)
    assert all(getattr(s3unzip, name) is not None for name in names)


def test_unknown_name_is_an_attribute_error() -> None:
    """A name that a core does not have is refused as with any module."""
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        s3unzip.zip.no_such_name  # type: ignore[attr-defined]  # noqa: B018 - as said


def test_importing_the_package_loads_nothing() -> None:
    """`import s3unzip` costs three small modules; the public names come when they are used."""
    loaded = {name for name in loaded_by("import s3unzip") if name.startswith("s3unzip")}
    assert loaded == {"s3unzip", "s3unzip.lazy", "s3unzip.version"}


def test_listing_needs_no_aws() -> None:
    """`open_archive` of a file loads neither boto3 nor obstore, nor the worker processes."""
    loaded = loaded_by("import s3unzip; s3unzip.open_archive")
    assert not loaded & {"boto3", "obstore", "numpy", "click", "s3unzip.local.workers"}


def test_workers_import_nothing_that_few_need() -> None:
    """A worker process imports only what most workers need."""
    loaded = loaded_by("import s3unzip.local.workers, s3unzip.stores.s3.destination")
    assert not loaded & {"click", "rich", "numpy", "inflate64"}
