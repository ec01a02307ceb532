"""The Lambda asset: the package and its dependencies from the lock file, without docker.

It is for Lambda (arm64, Python 3.13), and built if its inputs have changed, otherwise reused:
building takes seconds to minutes. The same inputs give the same bytes: the lock file fixes the
wheels, installer metadata is removed, byte code has no timestamps, and CDK's asset hash covers
content only.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from glob import glob
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "functions" / "s3unzip"
BUILT = ROOT / "build" / "lambda"
# Unpacked: Lambda allows 250 MiB, and each MiB makes an upload and a cold start slower.
MAX_BYTES = 105 * 1024**2

# The asset contains neither the command line nor its dependencies.
CLI_ONLY = ("click", "rich")
# Tests, headers, stubs, and parts of wheels that no function imports.
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
# botocore has a folder of definitions for each of some 440 services, and a client needs that of its
# own. Functions call those of `s3unzip.stores.s3.aws_session` and of `open_client` in
# `s3unzip.aws.environment`. The sampler of aws_xray_sdk makes a client of X-Ray.
SERVICES = ("events", "s3", "secretsmanager", "sqs", "stepfunctions", "xray")


class BundleError(Exception):
    """The asset could not be built; the message names the command and its last output."""


@dataclass(frozen=True, slots=True)
class Target:
    """The machine of the asset's wheels; `platform` is uv's name for it, None is this machine."""

    python: str  # version, or the interpreter's path
    platform: str | None = None


# glibc 2.34 of Amazon Linux 2023, which Python 3.12 and later run on.
LAMBDA = Target("3.13", "aarch64-manylinux_2_28")


def build_bundle(folder: Path, target: Target = LAMBDA) -> str | None:
    """Write the asset into `folder`, completely or not at all.

    Returns:
        The path of the CPython 3.13 that compiled the asset. None: this machine has none, so the
        asset has no byte code.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".bundle-") as scratch:
        made = Path(scratch) / "asset"
        install_dependencies(made, target)
        _remove_services(made)
        copy_package(made)
        python = find_python(find_uv())
        if python is not None:
            compile_folder(made, python)
        size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
        if size > MAX_BYTES:
            raise BundleError(
                f"the unpacked asset is {size / 1024**2:.0f} MiB, more than "
                f"{MAX_BYTES // 1024**2}: find what grew with `du -s {folder}/*`"
            )
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    return python


def copy_package(folder: Path) -> None:
    """Copy the part of the package that Lambda runs into `folder`."""
    ignored = shutil.ignore_patterns("__pycache__", "__main__.py", "cli", "filesystem.py")
    shutil.copytree(PACKAGE, folder / "s3unzip", ignore=ignored)


def install_dependencies(folder: Path, target: Target) -> None:
    """Install the package's dependencies into `folder`, in the versions of the lock file."""
    # --color never: the CDK CLI forces colour, which uv would write into the requirements.
    uv = find_uv()
    export = (
        *(uv, "export", "--color", "never", "--quiet", "--frozen", "--no-default-groups"),
        *("--extra", "functions", "--no-emit-project"),
    )
    prune = [option for name in CLI_ONLY for option in ("--prune", name)]
    machine = ["--python", target.python]
    if target.platform is not None:
        machine = ["--python-version", target.python, "--python-platform", target.platform]
    with tempfile.TemporaryDirectory() as scratch:
        requirements = str(Path(scratch) / "requirements.txt")
        _run([*export, *prune, "--output-file", requirements])
        _run(
            [
                *(uv, "pip", "install", "--color", "never", "--quiet"),
                *("--target", str(folder), *machine),
                *("--only-binary", ":all:", "--no-installer-metadata", "--no-compile-bytecode"),
                *("--no-deps", "--require-hashes", "--requirements", requirements),
            ]
        )
    _prune(folder)


def find_uv() -> str:
    """Return uv's path: the one that `uv run` names, or the one that the Makefile installed."""
    found = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".uv" / "bin" / "uv")
    if not Path(found).is_file():
        raise BundleError(f"{found}: there is no uv; install it with `make cdk`")
    return found


def _prune(made: Path) -> None:
    for pattern in UNUSED:
        for path in sorted(made.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _remove_services(made: Path) -> None:
    """Remove botocore's definitions of all services but `SERVICES`.

    The files beside the folders of services are for all: partitions, endpoints, retries.
    """
    for path in (made / "botocore" / "data").iterdir():
        if path.is_dir() and path.name not in SERVICES:
            shutil.rmtree(path)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    if done.returncode != 0:
        raise BundleError(f"`{' '.join(command)}` failed:\n{done.stderr.strip()}")


# Byte code. ``/var/task`` is read-only, so without it every cold start compiles what it imports,
# more than half of its CPU time. Python does not check the files against their sources (PEP 552,
# unchecked), so the same sources always give the same bytes.

VERSION = "3.13"
MAGIC = "f30d0d0a"  # magic number of the byte code of every release of CPython 3.13
TASK = "/var/task"
# Folders of interpreters that uv does not find, or not where one on PATH is broken, as a shim of
# pyenv may be: pyenv, GitHub's runners, python.org.
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


def find_python(uv: str) -> str | None:
    """Return the path of a CPython 3.13 on this machine, None if there is none."""
    search = subprocess.run(  # noqa: S603 - fixed arguments
        [uv, "python", "find", "--no-python-downloads", "--no-project", VERSION],
        capture_output=True,
        text=True,
        check=False,
    )
    paths = [
        sys.executable,
        search.stdout.strip(),
        *(path for form in PLACES for path in sorted(glob(os.path.expanduser(form)))),  # noqa: PTH111, PTH207
    ]
    return next((path for path in paths if _is_right(path)), None)


def compile_folder(folder: Path, python: str) -> None:
    """Write ``__pycache__`` beside each module below `folder`, reproducibly."""
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
        raise BundleError(f"{python} cannot compile the asset:\n{done.stdout}{done.stderr}")


def _is_right(python: str) -> bool:
    """Return whether this interpreter writes the byte code that Lambda's interpreter reads."""
    code = (
        "import importlib.util as u, sys; "
        "print(sys.implementation.name, u.MAGIC_NUMBER.hex(), sys.flags.optimize)"
    )
    try:
        answer = subprocess.run(  # noqa: S603 - fixed arguments
            [python, "-I", "-c", code], capture_output=True, text=True, check=False
        )
    except OSError:
        return False
    return answer.stdout.split() == ["cpython", MAGIC, "0"]


def ensure_asset(folder: Path = BUILT) -> Path:
    """Return `folder` with the asset in it; build it unless it was built from the same inputs.

    If two commands run concurrently, one builds the asset and the other waits.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".inputs").open("a+", encoding="utf-8") as stamp:
        fcntl.flock(stamp, fcntl.LOCK_EX)
        stamp.seek(0)
        if stamp.read() != _describe(folder):
            stamp.truncate(0)
            if build_bundle(folder) is None:
                sys.stderr.write(f"warning: {NONE_FOUND}\n")
            stamp.write(_describe(folder))
    return folder


def _describe(folder: Path) -> str:
    # Include the folder's time: somebody may have replaced the asset.
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
    # An asset without byte code is built again when a CPython 3.13 has been installed.
    compiled = MAGIC if find_python(find_uv()) else "no byte code"
    digest = hashlib.sha256(compiled.encode())
    for file in files:
        digest.update(f"{os.path.relpath(file, ROOT)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
