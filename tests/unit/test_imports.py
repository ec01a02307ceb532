"""What imports cost: a package loads a module only when one of its names is used."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import s3unzip
import s3unzip.deflate
import s3unzip.zip

if TYPE_CHECKING:
    from types import ModuleType

PACKAGES = [s3unzip, s3unzip.deflate, s3unzip.zip]


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a new interpreter has loaded after `statement`."""
    code = f"{statement}; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


def test_errors_load_neither_core() -> None:
    """The error tree takes the cores' error classes, and none of their codecs."""
    loaded = loaded_by("import s3unzip.errors")
    assert "s3unzip.zip.values" in loaded
    assert not loaded & {"isal", "numpy", "s3unzip.zip.decode", "s3unzip.deflate.segments"}


def typed_names(package: ModuleType) -> set[str]:
    """Return the names that type checkers see: imported as themselves, or from below."""
    tree = ast.parse(inspect.getsource(package))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    names = {one.name for node in imports for one in node.names if one.asname == one.name}
    return names - {"__version__"}


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_lists_exactly_its_public_names(package: ModuleType) -> None:
    """`__all__`, `dir` and type checkers name the same, and each name is there."""
    names = package.__all__
    assert dir(package) == names
    assert set(names) == typed_names(package)
    assert all(getattr(package, name) is not None for name in names)


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
    assert not loaded & {"boto3", "obstore", "numpy", "click", "s3unzip.local.pool"}
