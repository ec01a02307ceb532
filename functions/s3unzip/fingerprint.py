"""The identity of the functions' code: its version, and a hash of its source files.

Both are outputs of the stack, and `s3unzip doctor` compares them with its own package. So a user
sees whether the deployed code equals the checked-out code.
"""

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# No function imports these, so a change in them does not make a deployed function stale.
NOT_DEPLOYED = {"__main__.py", "cli", "local", "operate", "api/filesystem.py"}


def source_fingerprint(package: Path = PACKAGE) -> str:
    """Return 16 hexadecimal digits that change with the path or the content of a deployed file.

    Times, compiled files and the files of `NOT_DEPLOYED` do not count.
    """
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        parts = path.relative_to(package).parts
        name = "/".join(parts)
        if not path.is_file() or "__pycache__" in parts or NOT_DEPLOYED & {parts[0], name}:
            continue
        body = path.read_bytes()
        digest.update(f"{name}\0{len(body)}\0".encode())
        digest.update(body)
    return digest.hexdigest()[:16]
