"""What ``s3unzip --version`` prints; imports nothing that takes time."""

from __future__ import annotations

from s3unzip import __version__

VERSION_LINE = f"s3unzip {__version__}\n"
