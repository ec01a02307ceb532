"""The Lambda asset: the package and its dependencies from the lock file, without docker.

``python -m infra.bundle`` writes `BUILT` for Lambda (arm64, Python 3.13). The same inputs give the
same bytes: the lock file fixes the wheels, installer metadata is removed, byte code has no
timestamps, and CDK's asset hash covers content only.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from infra.compiling import NONE_FOUND, CompileError, compile_folder, find_python

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
# own. Functions call those of `s3unzip.stores.s3.clients` and of `open_client` in
# `s3unzip.aws.environment`. The sampler of aws_xray_sdk makes a client of X-Ray.
SERVICES = ("events", "s3", "secretsmanager", "sqs", "stepfunctions", "xray")


class BundleError(Exception):
    """The asset could not be built; the message names the command and its last output."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A built asset: its unpacked size, and the interpreter that compiled it, if any."""

    size_bytes: int
    compiled_by: str | None


@dataclass(frozen=True, slots=True)
class Target:
    """The machine of the asset's wheels; `platform` is uv's name for it, None is this machine."""

    python: str  # version, or the interpreter's path
    platform: str | None = None


# glibc 2.34 of Amazon Linux 2023, which Python 3.12 and later run on.
LAMBDA = Target("3.13", "aarch64-manylinux_2_28")


def build_bundle(folder: Path = BUILT, target: Target = LAMBDA) -> Bundle:
    """Write the asset into `folder`, completely or not at all.

        The asset has byte code if this machine has a CPython 3.13.

    Raises:
        BundleError: uv or the compilation failed, or the asset is too large.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".bundle-") as scratch:
        made = Path(scratch) / "asset"
        install_dependencies(made, target)
        _remove_services(made)
        copy_package(made)
        python = _compile(made)
        size = sum(path.stat().st_size for path in made.rglob("*") if path.is_file())
        if size > MAX_BYTES:
            raise BundleError(
                f"the asset has {size / 1024**2:.0f} MiB unpacked, more than "
                f"{MAX_BYTES // 1024**2}: find what grew with `du -s {folder}/*`"
            )
        if folder.exists():
            shutil.rmtree(folder)
        made.rename(folder)
    return Bundle(size, python)


def _compile(made: Path) -> str | None:
    python = find_python(find_uv())
    if python is not None:
        try:
            compile_folder(made, python)
        except CompileError as error:
            raise BundleError(str(error)) from error
    return python


def copy_package(folder: Path) -> None:
    """Copy the part of the package that Lambda runs into `folder`."""
    ignored = shutil.ignore_patterns("__pycache__", "__main__.py", "cli")
    shutil.copytree(PACKAGE, folder / "s3unzip", ignore=ignored)


def install_dependencies(folder: Path, target: Target) -> None:
    """Install the package's dependencies into `folder`, in the versions of the lock file.

    Raises:
        BundleError: uv failed.
    """
    # --color never: the CDK CLI forces colour, which uv would write into the requirements.
    uv = find_uv()
    export = [uv, "export", "--color", "never", "--quiet", "--frozen", "--no-default-groups"]
    export += ["--extra", "functions"]
    prune = [option for name in CLI_ONLY for option in ("--prune", name)]
    platform = ["--python-platform", target.platform] if target.platform else []
    with tempfile.TemporaryDirectory() as scratch:
        requirements = str(Path(scratch) / "requirements.txt")
        _run([*export, "--no-emit-project", *prune, "--output-file", requirements])
        _run(
            [
                *(uv, "pip", "install", "--color", "never", "--quiet"),
                *("--target", str(folder), "--python-version" if target.platform else "--python"),
                *(target.python, *platform),
                *("--only-binary", ":all:", "--no-installer-metadata", "--no-compile-bytecode"),
                *("--no-deps", "--require-hashes", "--requirements", requirements),
            ]
        )
    _prune(folder)


def find_uv() -> str:
    """Return uv's path: the one that `uv run` names, or the one that the Makefile installed.

    Raises:
        BundleError: there is none.
    """
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

    Files beside the folders of services are for all of them: partitions, endpoints, retries.
    """
    for path in (made / "botocore" / "data").iterdir():
        if path.is_dir() and path.name not in SERVICES:
            shutil.rmtree(path)


def _run(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - fixed arguments
    if done.returncode != 0:
        raise BundleError(f"`{' '.join(command)}` failed:\n{done.stderr.strip()}")


def main() -> None:
    """Build the asset; print its path and size."""
    parser = argparse.ArgumentParser(description="Build the Lambda asset.")
    parser.add_argument("--folder", type=Path, default=BUILT)
    folder: Path = parser.parse_args().folder
    try:
        built = build_bundle(folder)
    except BundleError as error:
        sys.exit(str(error))
    how = NONE_FOUND if built.compiled_by is None else f"byte code by {built.compiled_by}"
    sys.stderr.write(f"{folder}: {built.size_bytes / 1024**2:.1f} MiB unpacked; {how}\n")


if __name__ == "__main__":
    main()
