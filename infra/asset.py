"""The Lambda asset as `cdk` needs it: built when what goes into it has changed, else reused.

Building takes seconds to minutes; `cdk synth`, `diff` and `deploy` each need the
asset, and mostly nothing has changed between two of them.
"""

from __future__ import annotations

import fcntl
import hashlib
from typing import TYPE_CHECKING

from infra import bundle

if TYPE_CHECKING:
    from pathlib import Path


def ensure_asset(folder: Path = bundle.BUILT) -> Path:
    """Return `folder` with the asset in it; build it unless it was built from the same inputs.

    Two commands at once build it once: the other waits.

    Raises:
        BundleError: uv failed, or the asset is too large.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".inputs").open("a+", encoding="utf-8") as stamp:
        fcntl.flock(stamp, fcntl.LOCK_EX)
        stamp.seek(0)
        if stamp.read() != _describe(folder):
            stamp.truncate(0)
            bundle.build_bundle(folder)
            stamp.write(_describe(folder))
    return folder


def _describe(folder: Path) -> str:
    # The folder's own time as well: `python -m infra.bundle` may have replaced it since.
    built = folder.stat().st_mtime_ns if folder.is_dir() else None
    return f"{fingerprint()} {built}"


def fingerprint() -> str:
    """Return a digest of all that decides the asset's bytes: lock file, builder, package."""
    files = [bundle.ROOT / "uv.lock", bundle.ROOT / "pyproject.toml"]
    files += sorted(bundle.ROOT.glob("infra/bundle*.py"))
    files += sorted(
        file
        for file in bundle.PACKAGE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    )
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(bundle.ROOT)}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()
