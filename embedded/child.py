"""The child's side of `embedded.ministack`: runs MiniStack, and ends with its parent.

The interpreter of ``embedded/.venv`` runs it as ``python -I child.py``. Standard input is a pipe
whose other end only the parent has. When the parent ends for any reason, the pipe ends, and so does
this process group.
"""

import asyncio
import gc
import os
import re
import runpy
import signal
import sys
import threading
from functools import partial
from http import HTTPStatus
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

# Objects more before a collection of the youngest, of those between, and of all (module `gc`).
# MiniStack keeps what is stored as Python objects, and Python would look at all of them again
# whenever there are a quarter more.
RARELY = (10_000, 10, 10)


def _watch_parent() -> None:
    while os.read(0, 4096):
        pass
    os.killpg(0, signal.SIGKILL)


def _hasten_checksums() -> None:
    """Replace MiniStack's CRC-64/NVME, a loop in Python, with a native implementation."""
    fast = import_module("awscrt.checksums").crc64nvme
    vars(import_module("ministack.services.s3"))["_crc64nvme"] = fast


def _list_spaces_as_pluses() -> None:
    """Make a LIST with ``encoding-type=url`` write "+" for a space, as S3 and MinIO do.

    The pinned MiniStack 1.5.33 writes "%20".
    """
    s3 = vars(import_module("ministack.services.s3"))
    s3["_url_encode"] = partial(quote_plus, safe="/*")


def _serve_ranges_of_versions() -> None:
    """Make a GET of a version respect its Range, as S3 does.

    The pinned MiniStack 1.5.33 sends the whole object.
    """
    s3 = vars(
        import_module("ministack.services.s3")
    )  # private names, because MiniStack has no public hook
    whole = s3["_get_object"]

    def get_object(
        bucket: str, key: str, headers: dict[str, str], query: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        status, answer, body = whole(bucket, key, headers, query)
        wanted = headers.get("range", "")
        if status != HTTPStatus.OK or not wanted or "versionId" not in (query or {}):
            return status, answer, body
        span = s3["_parse_range"](wanted, len(body))
        if span is None:
            return HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, {}, b""
        start, end = span
        kept = {name: value for name, value in answer.items() if "checksum" not in name.lower()}
        kept["Content-Length"] = str(end + 1 - start)
        kept["Content-Range"] = f"bytes {start}-{end}/{len(body)}"
        return HTTPStatus.PARTIAL_CONTENT, kept, body[start : end + 1]

    s3["_get_object"] = get_object


def _slow_down_puts() -> None:
    """Answer some PUT requests late, as EMBEDDED_SLOW_PUTS says: seconds, a space, and a pattern.

    The regular expression is searched in the path, ``/bucket/key``. So the tasks of a bench can
    take seconds without using a processor.
    """
    seconds, _, wanted = os.environ.get("EMBEDDED_SLOW_PUTS", "").partition(" ")
    if not wanted:
        return
    s3, slow = import_module("ministack.services.s3"), re.compile(wanted)
    answer_at_once = s3.handle_request

    async def handle_request(method: str, path: str, *given: Any, **named: Any) -> Any:
        if method == "PUT" and slow.search(path):
            await asyncio.sleep(float(seconds))
        return await answer_at_once(method, path, *given, **named)

    vars(s3)["handle_request"] = handle_request


def _enforce_what_aws_documents() -> None:
    """Install the rules of `embedded.strict`, unless the variable EMBEDDED_STRICT is 0."""
    if os.environ.get("EMBEDDED_STRICT", "1") == "0":
        return
    sys.path.append(str(Path(__file__).resolve().parent.parent))  # last: it shadows nothing
    import_module("embedded.strict").install()


if __name__ == "__main__":
    threading.Thread(target=_watch_parent, daemon=True).start()
    _serve_ranges_of_versions()
    _list_spaces_as_pluses()
    _hasten_checksums()
    _slow_down_puts()
    _enforce_what_aws_documents()
    gc.set_threshold(*RARELY)
    sys.argv = ["ministack"]
    runpy.run_module("ministack", run_name="__main__", alter_sys=True)
