"""The requests of sources and destinations in the log, for ``-vv``.

An adapter that is opened at the level DEBUG logs each attempt of a request: its kind, what it asks
for, how it ended and how long it took. Without DEBUG nothing is added to an adapter. The records of
runs are not logged, because `OpenedStores.run_store` does not call these functions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from s3unzip.errors import S3UnzipError

if TYPE_CHECKING:
    from s3unzip.stores.archives import Source
    from s3unzip.stores.ports import Destination

AnySource = TypeVar("AnySource", bound="Source")
AnyDestination = TypeVar("AnyDestination", bound="Destination")
_log = logging.getLogger("s3unzip.requests")

# Methods, and what the log says of their arguments; `root` stands before a key.
SOURCE_TEXTS = {
    "tail": "get {location} last {length} bytes",
    "stat": "head {location}",
    "stream": "get {location} bytes [{want.start}, {want.stop})",
    "delete": "delete {location}",
    "tag": "put tags of {location}",
    "tags": "get tags of {location}",
}
DESTINATION_TEXTS = {
    "put": "put {root}{key}",
    "head": "head {root}{key}",
    "list_page": "list {root}{prefix}",
    "read": "get {root}{key}",
    "delete": "delete {root}{keys[0]} and the keys after it",
    "create_upload": "create {root}{key}",
    "upload_part": "part {number} of {root}{upload.key}",
    "copy_part": "copy part {number} of {root}{upload.key} from bytes [{span.start}, {span.stop})",
    "complete_upload": "complete {root}{upload.key}",
    "abort_upload": "abort {root}{upload.key}",
    "uploads": "list uploads of {root}{prefix}",
}


def trace_source(source: AnySource) -> AnySource:
    """Return `source`, which logs its requests at the level DEBUG."""
    if not _log.isEnabledFor(logging.DEBUG):
        return source
    _trace(source, SOURCE_TEXTS)
    return source


def trace_destination(destination: AnyDestination, root: str = "") -> AnyDestination:
    """Return `destination`, which logs its requests at the level DEBUG.

    Args:
        root: the text before each key.
    """
    if _log.isEnabledFor(logging.DEBUG):
        _trace(destination, DESTINATION_TEXTS, root)
    return destination


def _trace(adapter: object, texts: Mapping[str, str], root: str = "") -> None:
    """Replace an adapter's methods for requests with ones that also log the requests."""
    for name, text in texts.items():
        method = getattr(adapter, name, None)
        if method is not None:
            setattr(adapter, name, _log_calls(method, text, root))


def _log_calls(method: Callable[..., Any], text: str, root: str) -> Callable[..., Any]:
    """Return a method that logs its calls; a generator logs when it ends."""
    import inspect  # noqa: PLC0415 - for -vv only

    signature = inspect.signature(method)

    def call(*arguments: object, **options: object) -> Any:
        names = signature.bind(*arguments, **options).arguments
        request = text.format(root=root, **names)
        if inspect.isgeneratorfunction(method):
            return _yield_logged(method(*arguments, **options), request)
        with _logged(request):
            return method(*arguments, **options)

    return call


def _yield_logged(pieces: Iterator[Any], request: str) -> Iterator[Any]:
    with _logged(request):
        yield from pieces


@contextmanager
def _logged(request: str) -> Iterator[None]:
    """Log a request, how it ended and how long it took."""
    began = time.monotonic()
    status = "ok"
    try:
        yield
    except S3UnzipError as error:
        status = str(error)
        raise
    finally:
        _log.debug("%s: %s, %.0f ms", request, status, 1000 * (time.monotonic() - began))
