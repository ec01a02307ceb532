"""Processes that are forked after their parent has opened an archive."""

import os
import sys
import threading
from pathlib import Path

import pytest

from infra.bundle import ROOT
from s3unzip.stores.ports import ObjectFacts
from tests.support.account import CREDENTIALS
from tests.support.memory_server import MemoryS3
from tests.support.processes import run_program
from tests.support.servers import Asked, HttpServer, Reply, WebFiles
from tests.support.zips import Entry, build

MEMBERS = [Entry(f"{number}.txt", b"%d" % number * 2_000) for number in range(40)]
RAW = build(*MEMBERS)
# Opens an archive, and prints what forked processes read of its copy, and of a pickled archive.
PROGRAM = """
import multiprocessing, sys
import s3unzip

source, destination = sys.argv[1:]
archive = s3unzip.open_archive(source)
names = list(archive)
archive.read(names[0])

def read(name):
    return archive.read(name)[:3]

def extract(number):
    return s3unzip.extract(source, f"{destination}{number}", workers=1).extracted

fork = multiprocessing.get_context("fork")
with fork.Pool(4, fork.Barrier(4).wait) as pool:  # all begin at once
    print(set(pool.map(read, names, 1)) - set(map(read, names)))
    print(sum(map(len, pool.map(archive.read, names))), pool.map(extract, range(2)))
"""


@pytest.mark.parametrize("kind", ["s3", "botocore", "web"])
def test_forked_processes_read_and_extract(kind: str, tmp_path: Path) -> None:
    """An archive in S3 or on the web is read and extracted by forks, none hangs.

    None of them uses the connection of their parent, which opens the archive and reads 41 members.
    """
    files = WebFiles({"a.zip": RAW})
    connections: list[int] = []  # of each request; the server has a thread for each

    def answer(request: Asked) -> Reply:
        connections.append(threading.get_ident())
        return files(request)

    with MemoryS3("bucket") as s3, HttpServer(answer) as server:
        for key in ("a.zip", "a//b.zip"):  # obstore cannot name the latter
            s3.buckets["bucket"].put(key, RAW, ObjectFacts("application/zip", {}), if_absent=False)
        printed = run_program(
            [
                sys.executable,
                "-c",
                PROGRAM,
                {"s3": "s3://bucket/a.zip", "botocore": "s3://bucket/a//b.zip"}.get(
                    kind, f"{server.url}/a.zip"
                ),
                "s3://bucket/out",
            ],
            {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": s3.url, "PYTHONPATH": str(ROOT)}
            | {"S3UNZIP_HOME": str(tmp_path / "home"), "PYTHONWARNINGS": "ignore"},
        )
    assert printed.split("\n") == [
        "set()",
        f"{sum(len(entry.content) for entry in MEMBERS)} [40, 40]",
        "",
    ]
    assert connections.count((connections or [0])[0]) in {0, 42}  # none, if the archive is in S3
