"""One S3 server, one proxy, and runs of the product between them.

What a run left is read from the server's disk: the bytes themselves, and the
metadata beside them, past every layer that could err.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from s3unzip.context import Context
from s3unzip.errors import SourceChangedError
from s3unzip.local.machine import resume_run, run_archive
from s3unzip.local.workers import Workers
from s3unzip.model import AfterSuccess, Location, Options, Report, Request, Verdict
from s3unzip.settings import Tuning
from s3unzip.stores.clock import LocalClock
from s3unzip.zip import Policy
from tests.faults.archives import PREFIX, TUNING
from tests.faults.proxy import FaultProxy
from tests.faults.stores import DESTINATION, SOURCE, WORK, ContextMaker, open_client

KEY = "archive.zip"
BUCKETS = (SOURCE, DESTINATION, WORK)
METADATA = "user.metadata"  # the attribute in which VersityGW keeps x-amz-meta-*


class Entry(NamedTuple):
    """One object as it lies on the disk."""

    size: int
    crc32: int  # of its bytes
    zip_crc32: int | None  # that it carries as metadata


Listing = dict[str, Entry]


def expected_listing(archive: bytes) -> Listing:
    """Return what a clean run of `archive` leaves, by Python's own reader."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {
            PREFIX + info.filename: Entry(info.file_size, info.CRC, info.CRC)
            for info in opened.infolist()
        }


def list_folder(root: Path) -> Listing:
    """Return the files below a folder; those of VersityGW's own left out."""
    found: Listing = {}
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != ".sgwtmp"]
        for name in names:
            path = Path(folder, name)
            body = path.read_bytes()
            found[str(path.relative_to(root))] = Entry(len(body), zlib.crc32(body), _zip_crc(path))
    return found


class World:
    """A server with three buckets, seen through a proxy by the product."""

    def __init__(self, endpoint: str, objects: Path, proxy: FaultProxy) -> None:
        self.endpoint = endpoint  # past the proxy
        self.objects = objects  # the folder whose folders are the buckets
        self.proxy = proxy
        self.client = open_client(endpoint)

    def clear(self) -> None:
        """Begin anew: empty buckets, no rules, no records."""
        for bucket in BUCKETS:
            folder = self.objects / bucket
            if folder.exists():
                for entry in folder.iterdir():
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            else:
                self.client.create_bucket(Bucket=bucket)
        self.proxy.set_rules()
        self.proxy.take_records()

    def put_archive(self, archive: bytes) -> None:
        """Put the archive, or put another one over it, past the proxy."""
        self.client.put_object(Bucket=SOURCE, Key=KEY, Body=archive)

    def maker(self, tuning: Tuning = TUNING, policy: Policy | None = None) -> ContextMaker:
        """Return what makes a context here and in workers."""
        return ContextMaker(self.proxy.endpoint, tuning, policy or Policy())

    def request(
        self, options: Options | None = None, after_success: AfterSuccess | None = None
    ) -> Request:
        """Return the request for the archive."""
        source, destination = Location("s3", SOURCE, KEY), Location("s3", DESTINATION, "")
        return Request(source, destination, options or Options(), after_success=after_success)

    def run(
        self,
        *,
        options: Options | None = None,
        tuning: Tuning = TUNING,
        policy: Policy | None = None,
        processes: int = 2,
        after_success: AfterSuccess | None = None,
    ) -> Report:
        """Extract the archive with worker processes, or in this one where `processes` is 0."""
        with self._at_work(self.maker(tuning, policy), processes) as (context, workers):
            return run_archive(self.request(options, after_success), context, workers)

    def run_to_verdict(self) -> Verdict:
        """Extract the archive; what the plan raises is a verdict too."""
        try:
            return self.run().verdict
        except SourceChangedError:
            return Verdict.SOURCE_CHANGED

    def resume(self, run: str, processes: int = 2, *, failed: bool = False) -> Report:
        """Do what a run left; `failed`: also the members that failed."""
        with self._at_work(self.maker(), processes) as (context, workers):
            return resume_run(run, context, workers, failed=failed)

    def listing(self) -> Listing:
        """Return what lies in the destination."""
        return list_folder(self.objects / DESTINATION)

    def uploads(self) -> int:
        """Return how many multipart uploads are incomplete."""
        answers = [self.client.list_multipart_uploads(Bucket=bucket) for bucket in BUCKETS]
        return sum(len(answer.get("Uploads", [])) for answer in answers)

    @staticmethod
    @contextmanager
    def _at_work(maker: ContextMaker, processes: int) -> Iterator[tuple[Context, Workers]]:
        context = maker(LocalClock())
        opening = maker if processes else None
        with Workers(processes, context, opening, ["tests.faults.stores"]) as workers:
            yield context, workers


def _zip_crc(path: Path) -> int | None:
    try:
        metadata = json.loads(os.getxattr(path, METADATA))
    except OSError:
        return None
    return int(metadata["zip-crc32"], 16)
