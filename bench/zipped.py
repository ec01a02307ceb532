"""Small archives for the benches, written in memory by zipfile."""

from __future__ import annotations

import random
import zipfile
from io import BytesIO


def random_archive(members: int, size: int, *, stored: bool) -> bytes:
    """Return an archive of members of random bytes."""
    made = BytesIO()
    rng = random.Random(1)
    method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(made, "w", method, compresslevel=1) as archive:
        for number in range(members):
            archive.writestr(f"member-{number:06d}.bin", rng.randbytes(size))
    return made.getvalue()
