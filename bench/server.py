"""The S3 server of the benches: VersityGW on a folder, or any endpoint given.

``S3UNZIP_BENCH_ENDPOINT`` with the usual AWS variables names another server.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import boto3
from mypy_boto3_s3 import S3Client

from embedded.ministack import free_port
from tests.support.servers import await_http, find_versitygw

ACCESS, SECRET = "bench", "bench-secret"
MEMORY = Path("/dev/shm")  # noqa: S108 - of this machine alone, and the folder in it is private


@contextlib.contextmanager
def s3_server(*buckets: str, in_memory: bool = False) -> Iterator[S3Client]:
    """Run a server, set the AWS variables to it, and yield a client; make empty buckets.

    With `in_memory`, its folder is in memory if the machine has such a file system, because writing
    tens of thousands of files to a disk would disturb the measurement.
    """
    given = os.environ.get("S3UNZIP_BENCH_ENDPOINT")
    if given:
        os.environ["AWS_ENDPOINT_URL"] = given
        yield _make_buckets(buckets)
        return
    binary = find_versitygw()
    if binary is None:
        sys.exit(
            "the benches need VersityGW: go install "
            "github.com/versity/versitygw/cmd/versitygw@v1.8.0, or set S3UNZIP_BENCH_ENDPOINT"
        )
    parent = MEMORY if in_memory and _takes_attributes(MEMORY) else None
    with tempfile.TemporaryDirectory(prefix="s3unzip-bench-", dir=parent) as folder:
        port = free_port()
        data = Path(folder, "data")
        data.mkdir()
        # Without --keep-alive it closes the connection after every response, and clients measure
        # TCP.
        command = [binary, "--access", ACCESS, "--secret", SECRET, "--keep-alive"]
        command += ["--port", f"127.0.0.1:{port}"]
        process = subprocess.Popen(
            [*command, "posix", str(data)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.environ.update(
            AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
            AWS_ACCESS_KEY_ID=ACCESS,
            AWS_SECRET_ACCESS_KEY=SECRET,
            AWS_REGION="us-east-1",
            AWS_DEFAULT_REGION="us-east-1",
            S3UNZIP_HOME=str(Path(folder, "home")),
        )
        try:
            await_http(port, seconds=20.0)
            yield _make_buckets(buckets)
        finally:
            process.terminate()
            process.wait()


def _make_buckets(buckets: tuple[str, ...]) -> S3Client:
    client = boto3.client("s3")
    for bucket in buckets:
        client.create_bucket(Bucket=bucket)
    return client


def _takes_attributes(folder: Path) -> bool:
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            os.setxattr(file.name, "user.s3unzip", b"")
    except (OSError, AttributeError):  # no such folder, no attributes, or no Linux
        return False
    return True
