"""Extract ZIP archives of any size from S3 to S3, in parallel and verified.

`open_archive` reads the directory of an archive, `extract` extracts an archive on this machine, and
`verify` compares a destination with an archive. `zip` and `deflate` are the cores: they take bytes
and return values, do no I/O, and can be used alone. The names below are public;
docs/reference/api.md says how stable each name is. A name is loaded when it is first used, so that
importing this package is cheap.
"""

from __future__ import annotations

from importlib import import_module

from s3unzip.version import __version__ as __version__

# Type checkers treat a variable with this name as true. The variable is defined here, because the
# import of `typing` is slow, and a command must be able to catch Ctrl-C before slow imports.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from s3unzip import (
        deflate as deflate,
        errors as errors,
        zip as zip,  # noqa: A004 - the name of the format
    )
    from s3unzip.api.archive import (
        Archive as Archive,
        ArchiveMember as ArchiveMember,
        open_archive as open_archive,
    )
    from s3unzip.api.extraction import extract as extract
    from s3unzip.api.verification import (
        Comparison as Comparison,
        Verification as Verification,
        verify as verify,
    )
    from s3unzip.context import Progress as Progress
    from s3unzip.model import (
        GzipForm as GzipForm,
        OnConflict as OnConflict,
        Options as Options,
        Report as Report,
        Verdict as Verdict,
    )
    from s3unzip.object_properties import ObjectProperties as ObjectProperties
    from s3unzip.settings import Tuning as Tuning
    from s3unzip.stores.config import StoreConfig as StoreConfig
    from s3unzip.zip.checks import Limits as Limits


if not TYPE_CHECKING:
    # The public names of each module. A public module is listed under its own name.
    _NAMES_OF = {
        "s3unzip.api.archive": ("Archive", "ArchiveMember", "open_archive"),
        "s3unzip.api.extraction": ("extract",),
        "s3unzip.api.verification": ("Comparison", "Verification", "verify"),
        "s3unzip.context": ("Progress",),
        "s3unzip.deflate": ("deflate",),
        "s3unzip.errors": ("errors",),
        "s3unzip.model": ("GzipForm", "OnConflict", "Options", "Report", "Verdict"),
        "s3unzip.object_properties": ("ObjectProperties",),
        "s3unzip.settings": ("Tuning",),
        "s3unzip.stores.config": ("StoreConfig",),
        "s3unzip.zip": ("zip",),
        "s3unzip.zip.checks": ("Limits",),
    }
    _MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names}
    __all__ = sorted(_MODULE_OF)  # noqa: PLE0605 - it is a list

    def __dir__() -> list[str]:
        return list(__all__)

    def __getattr__(name: str) -> object:
        """Load a public name. For an options class, add the options' help to the docstring."""
        if name not in _MODULE_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        module = import_module(_MODULE_OF[name])
        # `errors`, `zip` and `deflate` are the modules themselves.
        value = getattr(module, name, module)
        if hasattr(value, "__struct_fields__"):
            from s3unzip.options import describe_options  # noqa: PLC0415 - for options classes only

            describe_options(value)
        globals()[name] = value  # the next use does not call `__getattr__`
        return value
