"""The identity of this code: its version, and a hash of the deployed source files.

The build, the command line and the report page read the version from here and nowhere else. The
hash is an output of the stack. `s3unzip doctor` compares it with the hash of its own package, and
so shows whether the deployed code is the same as the local code.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as in s3unzip/__init__.py
if TYPE_CHECKING:
    from pathlib import Path

__version__ = "0.1.0"
# Paths and top folders that no Lambda function imports: a change to them does not make a function
# out of date.
NOT_DEPLOYED = {"__main__.py", "cli", "local", "operate", "api/filesystem.py"}


def source_fingerprint(package: Path | None = None) -> str:
    """Return 16 hexadecimal digits that change with the path or the content of a deployed file.

    Timestamps, compiled files and the files in `NOT_DEPLOYED` are ignored.

    Args:
        package: the folder of the source files. None means the folder of this package.
    """
    import hashlib  # noqa: PLC0415 - importing the package must be cheap
    from pathlib import Path  # noqa: PLC0415

    package = package or Path(__file__).resolve().parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        parts = path.relative_to(package).parts
        name = "/".join(parts)
        if (
            not path.is_file()
            or "__pycache__" in parts
            or parts[0] in NOT_DEPLOYED
            or name in NOT_DEPLOYED
        ):
            continue
        body = path.read_bytes()
        digest.update(f"{name}\0{len(body)}\0".encode())
        digest.update(body)
    return digest.hexdigest()[:16]
