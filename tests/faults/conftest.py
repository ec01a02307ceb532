"""One S3 server, one proxy, and runs of the product between them, for all tests of this folder.

What a run left is read from the server's disk: the bytes themselves, and the
metadata beside them, past every layer that could err.
"""

import io
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import boto3
import pytest
from botocore.config import Config

from s3unzip.context import Context, Progress
from s3unzip.local.machine import Machine
from s3unzip.local.workers import Workers
from s3unzip.model import Location, Options, Report, Request
from s3unzip.settings import Tuning
from s3unzip.stores import config, ports
from s3unzip.stores.open import OpenedStores
from s3unzip.zip import Policy
from tests.faults.bombs import PREFIX, TUNING
from tests.faults.proxy import FaultProxy
from tests.support.servers import VERSITY, find_versitygw, run_versitygw, set_variables

SOURCE, DESTINATION, WORK = "ingest", "members", "work"
REGION = "us-east-1"
CREDENTIALS = VERSITY | {"AWS_DEFAULT_REGION": REGION, "AWS_EC2_METADATA_DISABLED": "true"}
KEY = "archive.zip"
LONG = os.environ.get("FAULTS") == "long"
PROCESSES = 2 if LONG else 0  # of a run where they are not the point; each takes a second to start
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


@dataclass(frozen=True, slots=True)
class ContextMaker:
    """Makes a context in this process or in a worker's."""

    endpoint: str
    tuning: Tuning
    policy: Policy = field(default_factory=Policy)

    def __call__(
        self,
        clock: ports.Clock,
        progress: Progress | None = None,
        ask: ports.AskForKeys | None = None,
    ) -> Context:
        os.environ.update(CREDENTIALS)
        access = config.StoreConfig(
            Location("s3", WORK, ""), endpoint_url=self.endpoint, region=REGION, stall_seconds=5.0
        )
        return Context(
            OpenedStores(access, ask=ask), clock, self.policy, self.tuning, progress=progress
        )


class World:
    """A server with three buckets, seen through a proxy by the product."""

    def __init__(self, endpoint: str, objects: Path, proxy: FaultProxy) -> None:
        self.endpoint = endpoint  # past the proxy
        self.objects = objects  # the folder whose folders are the buckets
        self.proxy = proxy
        self.client = boto3.client(  # asks once: the test's own hand on the store
            "s3",
            endpoint_url=endpoint,
            region_name=REGION,
            aws_access_key_id=VERSITY["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=VERSITY["AWS_SECRET_ACCESS_KEY"],
            config=Config(
                s3={"addressing_style": "path"},
                max_pool_connections=32,
                retries={"total_max_attempts": 1},
            ),
        )

    def clear(self) -> None:
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
        self.client.put_object(Bucket=SOURCE, Key=KEY, Body=archive)

    def maker(self, tuning: Tuning = TUNING, policy: Policy | None = None) -> ContextMaker:
        return ContextMaker(self.proxy.url, tuning, policy or Policy())

    def request(self, options: Options | None = None) -> Request:
        source, destination = Location("s3", SOURCE, KEY), Location("s3", DESTINATION, "")
        return Request(source, destination, options or Options())

    def run(
        self,
        *,
        options: Options | None = None,
        tuning: Tuning = TUNING,
        policy: Policy | None = None,
        processes: int = PROCESSES,
    ) -> Report:
        """Extract the archive with worker processes, or in this one where `processes` is 0."""
        with open_machine(self.maker(tuning, policy), self.objects, processes) as machine:
            return machine.run(self.request(options))

    def resume(self, run: str) -> Report:
        with open_machine(self.maker(), self.objects, PROCESSES) as machine:
            return machine.resume(run)

    def listing(self) -> Listing:
        return list_folder(self.objects / DESTINATION)

    def uploads(self) -> int:
        answers = [self.client.list_multipart_uploads(Bucket=bucket) for bucket in BUCKETS]
        return sum(len(answer.get("Uploads", [])) for answer in answers)


def open_machine(maker: ContextMaker, objects: Path, processes: int) -> Machine:
    """Return a machine with worker processes; 0: the tasks are done in this one."""
    context = maker(ports.Clock())
    stores = config.StoreConfig(Location("file", "", f"{objects}-runs/"))
    return Machine(context, stores, Workers(processes or 1, context, maker))


def _zip_crc(path: Path) -> int | None:
    try:
        metadata = json.loads(os.getxattr(path, METADATA))
    except OSError:
        return None
    return int(metadata["zip-crc32"], 16)


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    set_variables(monkeypatch, CREDENTIALS)


@pytest.fixture(scope="session")
def shared_world() -> Iterator[World]:
    if find_versitygw() is None:
        pytest.skip("versitygw is not installed: docs/reliability.md says how")
    with run_versitygw() as (url, objects), FaultProxy(int(url.rpartition(":")[2])) as proxy:
        yield World(url, objects, proxy)


@pytest.fixture
def world(shared_world: World) -> World:
    shared_world.clear()
    return shared_world
