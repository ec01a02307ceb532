"""The Lambda asset: the package and its dependencies from the lock file, without Docker.

The asset is for Lambda (arm64, Python 3.13). Building it takes seconds to minutes, so it is built
only if its inputs have changed. The same inputs always give the same bytes: the lock file fixes the
wheels, installer metadata is removed, byte code has no timestamps, and CDK's asset hash covers only
content.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from glob import glob
from pathlib import Path

from infra import RefusedError

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "functions" / "s3unzip"
BUILT = ROOT / "build" / "lambda"
# Maximum size of the unpacked asset. Lambda allows 250 MiB, but each MiB makes uploads and cold
# starts slower.
MAX_BYTES = 105 * 1024**2

# The asset contains neither the command line nor its dependencies.
CLI_ONLY = ("click", "rich")
# Tests, headers, stubs, and modules that no function imports.
UNUSED = (
    "**/__pycache__",
    "*.dist-info/RECORD",
    "bin",
    "numpy*/**/tests",
    "numpy/_core/include",
    "numpy/_core/lib",
    "numpy/f2py",
    "Crypto/PublicKey",
    "Crypto/SelfTest",
    "Crypto/Signature",
    "aws_lambda_powertools/event_handler",
    "aws_lambda_powertools/utilities/data_classes",
    "aws_lambda_powertools/utilities/parser",
    "**/*.pyi",
)
# The services whose definitions are kept, of about 440 in botocore. Functions use the clients of
# `s3unzip.stores.s3.aws_session` and of `open_client` in `s3unzip.aws.environment`. The sampler of
# aws_xray_sdk uses a client of X-Ray.
SERVICES = ("events", "s3", "secretsmanager", "sqs", "stepfunctions", "xray")
# uv's options that choose the wheels. Python 3.12 and later run on Amazon Linux 2023, whose glibc
# 2.34 can load these.
LAMBDA_WHEELS = ("--python-version", "3.13", "--python-platform", "aarch64-manylinux_2_28")


def build_bundle(folder: Path, wheels: Sequence[str] = LAMBDA_WHEELS) -> str | None:
    """Write the asset to `folder`, completely or not at all.

    Args:
        folder: the folder of the asset.
        wheels: uv's options that choose the wheels; for this machine, ``--python`` with the path
            of an interpreter.

    Returns:
        The path of the CPython 3.13 that compiled the asset; None if this machine has none, so that
        the asset has no byte code.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".bundle-") as scratch:
        asset = Path(scratch) / "asset"
        install_dependencies(asset, wheels)
        _remove_services(asset)
        copy_package(asset)
        python = find_python(find_uv())
        if python is not None:
            compile_folder(asset, python)
        size = sum(path.stat().st_size for path in asset.rglob("*") if path.is_file())
        if size > MAX_BYTES:
            raise RefusedError(
                f"the unpacked asset is {size / 1024**2:.0f} MiB, more than "
                f"{MAX_BYTES // 1024**2}: find what grew with `du -s {folder}/*`"
            )
        if folder.exists():
            shutil.rmtree(folder)
        asset.rename(folder)
    return python


def copy_package(folder: Path) -> None:
    """Copy the part of the package that the functions need into `folder`."""
    ignored = shutil.ignore_patterns("__pycache__", "__main__.py", "cli", "filesystem.py")
    shutil.copytree(PACKAGE, folder / "s3unzip", ignore=ignored)


def install_dependencies(folder: Path, wheels: Sequence[str]) -> None:
    """Install the package's dependencies into `folder`, in the versions of the lock file.

    `wheels` are uv's options that choose the wheels.
    """
    # --color never: the CDK CLI forces colors, which uv would write into the requirements.
    uv = find_uv()
    export = (
        *(uv, "export", "--color", "never", "--quiet", "--frozen", "--no-default-groups"),
        *("--extra", "functions", "--no-emit-project"),
    )
    prune = [option for name in CLI_ONLY for option in ("--prune", name)]
    with tempfile.TemporaryDirectory() as scratch:
        requirements = str(Path(scratch) / "requirements.txt")
        _run([*export, *prune, "--output-file", requirements])
        _run(
            [
                *(uv, "pip", "install", "--color", "never", "--quiet"),
                *("--target", str(folder), *wheels),
                *("--only-binary", ":all:", "--no-installer-metadata", "--no-compile-bytecode"),
                *("--no-deps", "--require-hashes", "--requirements", requirements),
            ]
        )
    _remove_unused(folder)


def find_uv() -> str:
    """Return the path of uv: from `uv run`, from PATH, or as the Makefile installed it."""
    uv = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    if not Path(uv).is_file():
        raise RefusedError(f"{uv}: there is no uv; install it with `make cdk`")
    return uv


def _remove_unused(asset: Path) -> None:
    for pattern in UNUSED:
        # A folder may contain other matches, so it comes after them.
        for path in sorted(asset.glob(pattern), reverse=True):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _remove_services(asset: Path) -> None:
    """Remove botocore's definitions of all services except `SERVICES`.

    The files next to the folders are for all services: partitions, endpoints, retries.
    """
    for path in (asset / "botocore" / "data").iterdir():
        if path.is_dir() and path.name not in SERVICES:
            shutil.rmtree(path)


def _run(command: list[str]) -> None:
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    if process.returncode != 0:
        raise RefusedError(f"`{' '.join(command)}` failed:\n{process.stderr.strip()}")


# Byte code. ``/var/task`` is read-only: without byte code, every cold start would compile the
# modules that it imports, which takes more than half of its CPU time. The files are of the kind
# that Python does not compare with their sources (PEP 552, unchecked), so they have no timestamps.

VERSION = "3.13"
MAGIC = "f30d0d0a"  # magic number of CPython 3.13's byte code, the same for all its releases
TASK = "/var/task"
# Interpreters of pyenv, GitHub's runners and python.org, which uv might not find, for example
# because a broken shim of pyenv is on PATH.
INTERPRETERS = (
    "~/.pyenv/versions/3.13*/bin/python3.13",
    "/opt/hostedtoolcache/Python/3.13*/*/bin/python3.13",
    "/opt/python*/3.13*/bin/python3.13",
    "/usr/local/bin/python3.13",
    "/usr/bin/python3.13",
    "/Library/Frameworks/Python.framework/Versions/3.13/bin/python3.13",
    "/opt/homebrew/bin/python3.13",
)
NO_PYTHON = (
    f"no CPython {VERSION} on this machine: the asset is built without byte code, and each cold "
    f"start takes about half a second longer. Install one (`uv python install {VERSION}`) and "
    "build again."
)


def find_python(uv: str) -> str | None:
    """Return the path of a CPython 3.13 on this machine; None if there is none."""
    search = subprocess.run(  # noqa: S603 - fixed arguments
        [uv, "python", "find", "--no-python-downloads", "--no-project", VERSION],
        capture_output=True,
        text=True,
        check=False,
    )
    paths = [
        sys.executable,
        search.stdout.strip(),
        *(path for form in INTERPRETERS for path in sorted(glob(os.path.expanduser(form)))),  # noqa: PTH111, PTH207
    ]
    return next((path for path in paths if _is_compatible(path)), None)


def compile_folder(folder: Path, python: str) -> None:
    """Write ``__pycache__`` beside each module below `folder`, reproducibly."""
    command = [python, "-I", "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    # With -j 1, one process compiles all files in order: the output of marshal depends on what the
    # process compiled before.
    process = subprocess.run(  # noqa: S603 - fixed arguments
        [*command, "-j", "1", "-s", str(folder), "-p", TASK, str(folder)],
        env={"PYTHONHASHSEED": "0", "PATH": os.environ.get("PATH", "")},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise RefusedError(f"{python} cannot compile the asset:\n{process.stdout}{process.stderr}")


def _is_compatible(python: str) -> bool:
    """Return whether this interpreter writes the byte code that Lambda's interpreter reads."""
    code = (
        "import importlib.util as u, sys; "
        "print(sys.implementation.name, u.MAGIC_NUMBER.hex(), sys.flags.optimize)"
    )
    try:
        process = subprocess.run(  # noqa: S603 - fixed arguments
            [python, "-I", "-c", code], capture_output=True, text=True, check=False
        )
    except OSError:  # there is no such program
        return False
    return process.stdout.split() == ["cpython", MAGIC, "0"]


def ensure_asset(folder: Path = BUILT) -> Path:
    """Return `folder`, which contains the asset; build the asset if its inputs have changed.

    If two commands run concurrently, one builds the asset and the other waits.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".inputs").open("a+", encoding="utf-8") as stamp:
        fcntl.flock(stamp, fcntl.LOCK_EX)
        stamp.seek(0)
        if stamp.read() != _describe(folder):
            stamp.truncate(0)
            if build_bundle(folder) is None:
                sys.stderr.write(f"warning: {NO_PYTHON}\n")
            stamp.write(_describe(folder))
    return folder


def _describe(folder: Path) -> str:
    # The time of the folder is included, because a user may replace the asset.
    built = folder.stat().st_mtime_ns if folder.is_dir() else None
    return f"{fingerprint()} {built}"


def fingerprint() -> str:
    """Return a digest of all inputs of the asset's bytes: lock file, builder, package."""
    files = [
        *(ROOT / "uv.lock", ROOT / "pyproject.toml", Path(__file__)),
        *sorted(
            file
            for file in PACKAGE.rglob("*")
            if file.is_file() and "__pycache__" not in file.parts
        ),
    ]
    # If a CPython 3.13 is installed later, an asset without byte code is built again.
    compiled = MAGIC if find_python(find_uv()) else "no byte code"
    digest = hashlib.sha256(compiled.encode())
    for file in files:
        digest.update(f"{os.path.relpath(file, ROOT)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
