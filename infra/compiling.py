"""Byte code of the asset, for Lambda's Python.

``/var/task`` is read-only. So without byte code every cold start compiles what it imports: 0.7 CPU
seconds of the 1.2 that the import of `s3unzip.handlers.extract` takes. Python does not check the
files against their sources (PEP 552, unchecked), so the same sources always give the same bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSION = "3.13"
MAGIC = "f30d0d0a"  # magic number of the byte code of every release of CPython 3.13
TASK = "/var/task"
# Folders of interpreters that are not on PATH: pyenv, GitHub's runners, python.org.
PLACES = (
    "~/.pyenv/versions/3.13*/bin/python3.13",
    "/opt/hostedtoolcache/Python/3.13*/*/bin/python3.13",
    "/opt/python*/3.13*/bin/python3.13",
    "/usr/local/bin/python3.13",
    "/usr/bin/python3.13",
    "/Library/Frameworks/Python.framework/Versions/3.13/bin/python3.13",
    "/opt/homebrew/bin/python3.13",
)
NONE_FOUND = (
    f"no CPython {VERSION} on this machine: the asset is built without byte code, and each cold "
    f"start takes about half a second longer. Install one (`uv python install {VERSION}`) and "
    "build again."
)


class CompileError(Exception):
    """An interpreter could not compile the asset; the message is its output."""


def find_python(uv: str | None = None) -> str | None:
    """Return the path of a CPython 3.13 on this machine, None if there is none."""
    return next((path for path in _candidates(uv) if _is_right(path)), None)


def compile_folder(folder: Path, python: str) -> None:
    """Write ``__pycache__`` beside each module below `folder`, reproducibly.

    Raises:
        CompileError: a module is not Python.
    """
    command = [python, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    # One process, in order: marshal's output depends on what the process compiled before.
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [*command, "-j", "1", "-s", str(folder), "-p", TASK, str(folder)],
        env={"PYTHONHASHSEED": "0", "PATH": os.environ.get("PATH", "")},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CompileError(f"{python} cannot compile the asset:\n{done.stdout}{done.stderr}")


def _candidates(uv: str | None) -> Iterator[str]:
    yield sys.executable
    if uv is not None:
        found = subprocess.run(  # noqa: S603 - fixed arguments
            [uv, "python", "find", "--no-python-downloads", "--no-project", VERSION],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode == 0:
            yield found.stdout.strip()
    on_path = shutil.which(f"python{VERSION}")
    if on_path is not None:
        yield on_path
    for pattern in PLACES:
        whole = Path(pattern).expanduser()
        root = Path(whole.anchor)
        yield from (str(path) for path in sorted(root.glob(str(whole.relative_to(root)))))


def _is_right(python: str) -> bool:
    """Return whether this interpreter writes the byte code that Lambda's interpreter reads."""
    code = (
        "import importlib.util as u, sys; "
        "print(sys.implementation.name, u.MAGIC_NUMBER.hex(), sys.flags.optimize)"
    )
    try:
        said = subprocess.run(  # noqa: S603 - fixed arguments
            [python, "-I", "-c", code], capture_output=True, text=True, check=False
        )
    except OSError:
        return False
    return said.stdout.split() == ["cpython", MAGIC, "0"]
