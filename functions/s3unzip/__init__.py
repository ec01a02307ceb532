"""Extract ZIP archives of any size from S3 to S3, in parallel and verified.

`open_archive` looks into an archive, `extract` extracts it on this machine, `verify` compares a
destination with it. `zipformat` and `deflate` are the cores: they take bytes and return values, do
no I/O, and can be used alone. The names below are public; docs/reference/api.md says what that
promises. They are loaded when they are first used, so that importing this package is cheap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.lazy import lazy_names
from s3unzip.version import __version__ as __version__

if TYPE_CHECKING:
    from s3unzip import deflate, errors, zipformat
    from s3unzip.api.archive import open_archive
    from s3unzip.api.extraction import Progress, extract
    from s3unzip.api.members import Archive, ArchiveMember
    from s3unzip.api.verification import verify
    from s3unzip.model import GzipForm, OnConflict, Options, Report, Verdict
    from s3unzip.object_properties import ObjectProperties
    from s3unzip.settings import Tuning
    from s3unzip.stores.factory import StoreConfig
    from s3unzip.stores.web.access import WebAccess
    from s3unzip.verification.results import Comparison, Verification
    from s3unzip.zipformat.policy import Limits


__all__ = [
    "Archive",
    "ArchiveMember",
    "Comparison",
    "GzipForm",
    "Limits",
    "ObjectProperties",
    "OnConflict",
    "Options",
    "Progress",
    "Report",
    "StoreConfig",
    "Tuning",
    "Verdict",
    "Verification",
    "WebAccess",
    "deflate",
    "errors",
    "extract",
    "open_archive",
    "verify",
    "zipformat",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "s3unzip.api.archive": ("open_archive",),
            "s3unzip.api.extraction": ("Progress", "extract"),
            "s3unzip.api.members": ("Archive", "ArchiveMember"),
            "s3unzip.api.verification": ("verify",),
            "s3unzip.deflate": ("",),
            "s3unzip.errors": ("",),
            "s3unzip.model": ("GzipForm", "OnConflict", "Options", "Report", "Verdict"),
            "s3unzip.object_properties": ("ObjectProperties",),
            "s3unzip.settings": ("Tuning",),
            "s3unzip.stores.factory": ("StoreConfig",),
            "s3unzip.stores.web.access": ("WebAccess",),
            "s3unzip.verification.results": ("Comparison", "Verification"),
            "s3unzip.zipformat": ("",),
            "s3unzip.zipformat.policy": ("Limits",),
        },
    )
