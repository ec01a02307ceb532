"""The folders that an archive lists; only a folder as destination has folders without files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.planning.selection import selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.model import Options
    from s3unzip.planning.reading import Reading


def folder_keys(reading: Reading, options: Options) -> Iterator[str]:
    """Yield the keys of the folders that the archive lists and the options select.

    Globs are compared with the name as the archive has it, with a slash at its end. Names and a
    limit select members, so no folder is made for its own sake.
    """
    if options.names or options.limit is not None:
        return
    wanted = selector(options)
    for path in reading.index.folders:
        name = path.rstrip("/") + "/"
        key = reading.template.folder_key(name)
        if key is not None and (wanted is None or wanted(name)):
            yield key
