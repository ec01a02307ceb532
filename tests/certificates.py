"""Which certificates of the system the processes of the tests read."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

FILE, FOLDER = "SSL_CERT_FILE", "SSL_CERT_DIR"


def read_each_once(variables: MutableMapping[str, str]) -> None:
    """Name the system's file of certificates alone, where a folder has the same; trust stays.

    obstore reads both for each store that it opens, but only those that are named, if one is.
    Debian's folder has 290 files, which take 8 of the 10 ms of processor time of a store. A folder
    of one's own is left.

    Args:
        variables: of this process and of those that tests start.
    """
    file = ssl.get_default_verify_paths().cafile
    if not file:
        return
    folder = variables.get(FOLDER)
    if folder is None or Path(folder).resolve() == Path(file).resolve().parent:
        variables.pop(FOLDER, None)
        variables[FILE] = file
