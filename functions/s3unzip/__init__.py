"""Extract ZIP archives of any size from S3 to S3, in parallel and verified."""

from __future__ import annotations

__version__ = "0.1.0"
