"""Compare the contents of a destination with an archive.

>>> import tempfile, zipfile
>>> from pathlib import Path
>>> import s3unzip
>>> folder = tempfile.TemporaryDirectory()
>>> path = Path(folder.name, "a.zip")
>>> with zipfile.ZipFile(path, "w") as new:
...     new.writestr("one.txt", "1")
...     new.writestr("two.txt", "2")
>>> _ = Path(folder.name, "a").mkdir()
>>> _ = Path(folder.name, "a", "one.txt").write_text("1")
>>> found = s3unzip.verify(path, folder.name)
>>> found.members, found.equal, found.counts
(2, 1, {'missing': 1})
>>> folder.cleanup()
"""

import os
from collections.abc import Callable, Iterable

from s3unzip.api.options import as_text, at_endpoint, open_context
from s3unzip.context import Progress
from s3unzip.local.runs import runs_of_archive
from s3unzip.model import Options, Request
from s3unzip.runs.records import RunRecords
from s3unzip.stores.config import StoreConfig, parse_destination, parse_source
from s3unzip.verification import ComparedObject, Effort, Verification, read_written, verify_objects


def verify(  # noqa: PLR0913 - options of a public function
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    options: Options | None = None,
    *,
    deep: bool = False,
    records: Iterable[RunRecords] | None = None,
    at_once: int = 64,
    max_listed: int = 20,
    each: Callable[[ComparedObject], object] | None = None,
    password: bytes | str | None = None,
    endpoint_url: str | None = None,
    stores: StoreConfig | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], object] | None = None,
) -> Verification:
    """Compare each object in `destination` with its member in the archive's directory.

    Args:
        source: the archive, in any form that `extract` accepts.
        destination: the location to which `extract` wrote the members.
        options: the options given to `extract`; they determine which keys are compared.
        deep: whether to read every object. Otherwise a recorded CRC-32 of an S3 object is enough.
        records: the records of the runs that wrote the objects, earliest first. None means the runs
            of this machine. An object that has not changed since its run needs no request.
        at_once: number of concurrent requests.
        max_listed: maximum number of differences to list per kind; all are counted.
        each: function called with each object and its result, one call at a time.
        password: password for encrypted members. A string is encoded as UTF-8.
        endpoint_url: URL of the S3 server. None means the variable ``AWS_ENDPOINT_URL``, or AWS.
        stores: how to reach S3 and web servers. None means the defaults of boto3.
        progress: receives ``extracted`` (equal), ``failed`` (different) and ``bytes_read``.
        warn: called with a sentence for each glob without a member and each unreadable record.

    Raises:
        RejectedError: the archive is refused.
        UsageError: a location or an option is wrong, or nothing is selected.
        StorageError, ServiceFaultError: a store refused, or failed even after all retries.
    """
    target = parse_destination(as_text(destination))
    request = Request(parse_source(as_text(source)), target, options or Options())
    config = at_endpoint(stores, endpoint_url, at_once)
    context = open_context(request.options, config, password, target, progress=progress)
    if records is None:
        runs = runs_of_archive(config.work, request.source)
        records = (RunRecords.open(context.stores, run) for run in runs)
    written = None if deep else read_written(records, target, warn)  # None: every object is read
    effort = Effort(at_once, max_listed, deep=deep)
    return verify_objects(request, context, effort, written, each=each, warn=warn)
