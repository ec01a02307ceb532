"""The Lambda asset for `cdk`: built if its inputs have changed, otherwise reused.

Building takes seconds to minutes. `cdk synth`, `diff` and `deploy` each need the asset, and usually
nothing changes between two of them.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from pathlib import Path

from infra import bundle, compiling


def ensure_asset(folder: Path = bundle.BUILT) -> Path:
    """Return `folder` with the asset in it; build it unless it was built from the same inputs.

    If two commands run concurrently, one builds the asset and the other waits.

    Raises:
        BundleError: uv failed, or the asset is too large.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".inputs").open("a+", encoding="utf-8") as stamp:
        fcntl.flock(stamp, fcntl.LOCK_EX)
        stamp.seek(0)
        if stamp.read() != _describe(folder):
            stamp.truncate(0)
            if bundle.build_bundle(folder).compiled_by is None:
                sys.stderr.write(f"warning: {compiling.NONE_FOUND}\n")
            stamp.write(_describe(folder))
    return folder


def _describe(folder: Path) -> str:
    # Include the folder's time, because `python -m infra.bundle` may have replaced the asset.
    built = folder.stat().st_mtime_ns if folder.is_dir() else None
    return f"{fingerprint()} {built}"


def fingerprint() -> str:
    """Return a digest of all inputs of the asset's bytes: lock file, builder, package."""
    files = [bundle.ROOT / "uv.lock", bundle.ROOT / "pyproject.toml"]
    files += [Path(bundle.__file__), Path(compiling.__file__)]
    files += sorted(
        file
        for file in bundle.PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    )
    # With or without byte code: somebody may have installed a CPython 3.13 since.
    compiled = compiling.MAGIC if compiling.find_python(bundle.find_uv()) else "no byte code"
    digest = hashlib.sha256(compiled.encode())
    for file in files:
        digest.update(f"{os.path.relpath(file, bundle.ROOT)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
