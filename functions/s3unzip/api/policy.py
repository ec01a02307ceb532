"""The policy that a caller's options ask for."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.errors import UsageError
from s3unzip.zipformat import Limits, Policy

if TYPE_CHECKING:
    from s3unzip.model import Location, Options


def make_policy(
    options: Options,
    password: bytes | str | None = None,
    destination: Location | None = None,
    limits: Limits | None = None,
) -> Policy:
    """Return the policy that `options` ask for.

    Args:
        options: `lenient` and `encoding` are used.
        password: opens encrypted members. A string is used as UTF-8.
        destination: a folder's own path does not count in the limit of keys.
        limits: None: the defaults.

    Raises:
        UsageError: Python does not know the encoding.
    """
    if options.encoding is not None:
        try:
            "".encode(options.encoding)
        except LookupError as error:
            raise UsageError(f"encoding {options.encoding!r} is unknown to Python") from error
    limits = limits or Limits()
    if destination is not None and destination.scheme == "file":
        folder_bytes = len(os.fsencode(destination.key))
        limits = replace(limits, key_bytes=limits.key_bytes + folder_bytes)
    secret = password.encode() if isinstance(password, str) else password
    return Policy(
        lenient=options.lenient, encoding=options.encoding, password=secret, limits=limits
    )
