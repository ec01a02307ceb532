"""Load the public names of a package when they are first used (PEP 562).

Importing a package is then cheap: a function on Lambda, or ``s3unzip --version``, loads only the
modules that it uses.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False  # as in s3unzip/__init__.py
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def lazy_names(
    package: str, homes: Mapping[str, Iterable[str]]
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, the `__dir__` and the `__all__` of a package.

    Args:
        homes: mapping from each module to the public names that it defines. An empty name means the
            module itself.
    """
    home_of = {
        name or home.rpartition(".")[2]: (home, name)
        for home, names in homes.items()
        for name in names
    }

    def load(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}", name=name)
        home, attribute = home_of[name]
        module = import_module(home)
        value: object = getattr(module, attribute) if attribute else module
        setattr(sys.modules[package], name, value)  # the next use finds it directly
        return value

    names = sorted(home_of)
    return load, names.copy, names
