"""Processes that are forked after their parent has opened an archive."""

import os
import sys
from pathlib import Path

import pytest

from infra.bundle import ROOT
from s3unzip.stores.ports import ObjectFacts
from tests.support.account import CREDENTIALS
from tests.support.memory_server import MemoryS3
from tests.support.processes import run_program
from tests.support.servers import HttpServer, WebFiles
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


def _run(source: str | Path, destination: str, home: Path, url: str = "") -> str:
    return run_program(
        [sys.executable, "-c", PROGRAM, source, destination],
        {**os.environ, **CREDENTIALS, "AWS_ENDPOINT_URL": url, "PYTHONPATH": str(ROOT)}
        | {"S3UNZIP_HOME": str(home / "home"), "PYTHONWARNINGS": "ignore"},
    )


@pytest.mark.parametrize("kind", ["s3", "botocore", "web"])
def test_forked_processes_read_and_extract(kind: str, tmp_path: Path) -> None:
    """An archive in S3 or on the web is read and extracted by forks, none hangs."""
    facts = ObjectFacts("application/zip", {})
    with MemoryS3("bucket") as s3, HttpServer(WebFiles({"a.zip": RAW})) as server:
        for key in ("a.zip", "a//b.zip"):  # obstore cannot name the latter
            s3.buckets["bucket"].put(key, RAW, facts, if_absent=False)
        sources = {"s3": "s3://bucket/a.zip", "botocore": "s3://bucket/a//b.zip"}
        source = sources.get(kind, f"{server.url}/a.zip")
        printed = _run(source, "s3://bucket/out", tmp_path, s3.url)
    size = sum(len(entry.content) for entry in MEMBERS)
    assert printed.split("\n") == ["set()", f"{size} [40, 40]", ""]
