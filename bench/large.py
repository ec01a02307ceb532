"""Large members: the cost of a stream, the traffic of a copy, and the speed-up of splitting.

    uv run python -m bench.large [stream] [copy] [split] [mixed] [log]

Stream and copy run from S3 to S3 on VersityGW with one worker. `bench.splitting` measures
splitting, for one kind of data if you name one.
"""

import base64
import json
import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import boto3
from botocore.config import Config
from isal.isal_zlib import crc32
from mypy_boto3_s3 import S3Client

from bench.archives import (
    ArchiveFile,
    deflate_whole,
    inflate_once,
    noise,
    repeat_deflated,
    repeat_stored,
    samples,
)
from bench.measure import RUNS, Cost, median, print_figure, print_step, run_command
from bench.server import s3_server
from bench.splitting import KINDS, measure_splitting
from s3unzip.model import Report, decode
from s3unzip.settings import MIB, Tuning
from tests.support.memory import MemoryBucket, MemoryStores, World

SIZE = int(os.environ.get("S3UNZIP_BENCH_LARGE", "1000")) * 10**6  # bytes of the large member
TOOL = (sys.executable, "-m", "s3unzip", "run", "--json", "--quiet", "--workers", "1")
NOTHING = "small.zip"  # size for the fixed cost of a run that streams almost nothing


def put_archive(client: S3Client, folder: str, key: str, kind: str) -> None:
    """Store an archive with one large member in one request: VersityGW then copies from it."""
    print_step(f"making and storing {key}: a {kind} member of {SIZE / 1e6:,.0f} MB")
    path = Path(folder, key)
    with ArchiveFile(path) as archive:
        if kind == "stored":
            archive.add("large.bin", repeat_stored([noise(16 * MIB)], SIZE))
        else:
            archive.add("large.bin", repeat_deflated(samples(kind), SIZE))
    with path.open("rb") as body:
        client.put_object(Bucket="source", Key=key, Body=body)
    path.unlink()


def run(key: str, **tuning: int) -> tuple[Cost, Report]:
    """Extract an archive with one worker and other tuning; return its cost and its output."""
    os.environ["S3UNZIP_TUNING"] = json.dumps(tuning)
    cost = run_command([*TOOL, f"s3://source/{key}", "s3://ours/out"])
    report = decode(cost.output, Report)
    assert report.verdict == "COMPLETED", report
    return cost, report


def peer() -> None:
    """Inflate the member and discard the output; then upload prepared parts of its size."""
    content = repeat_deflated(samples("mixed"), SIZE)
    before = time.process_time()
    assert inflate_once(content) == content.size
    inflated = time.process_time() - before
    config = Config(
        retries={"total_max_attempts": 1},
        s3={"addressing_style": "path", "payload_signing_enabled": False},
    )
    client = boto3.client("s3", config=config)
    body = noise(Tuning().part_bytes)
    checksum = base64.b64encode(crc32(body).to_bytes(4, "big")).decode()
    place = {"Bucket": "peer", "Key": "out"}
    upload = client.create_multipart_upload(
        **place,  # type: ignore[arg-type]  # a dict of two strings
        ChecksumAlgorithm="CRC32",
        ChecksumType="COMPOSITE",
    )["UploadId"]
    before = time.process_time()

    def send(number: int) -> str:
        answer = client.upload_part(
            **place,  # type: ignore[arg-type]  # a dict of two strings
            UploadId=upload,
            PartNumber=number,
            Body=body,
            ChecksumCRC32=checksum,
        )
        return answer["ETag"]

    with ThreadPoolExecutor(Tuning().parts_in_flight) as pool:
        list(pool.map(send, range(1, -(-content.size // len(body)) + 1)))
    uploaded = time.process_time() - before
    client.abort_multipart_upload(**place, UploadId=upload)  # type: ignore[arg-type]  # likewise
    print(json.dumps([inflated, uploaded]))


def measure_stream() -> None:
    """Print the cost of a stream over its inflate and its upload."""
    ratios, peaks, walls = [], [], []
    # Starting interpreters, planning and opening clients costs as much for a stream of 1 KB.
    print_step("the stream of 1 KB, which is subtracted")
    idle = median([run(NOTHING, small_member=1)[0].cpu for _ in range(2 * RUNS + 1)])
    for turn in range(RUNS):
        print_step(f"stream, turn {turn + 1} of {RUNS}")
        cost, _ = run("mixed.zip", split_from=1 << 40)
        inflated, uploaded = json.loads(
            run_command([sys.executable, "-m", "bench.large", "peer"]).output
        )
        ratios.append((cost.cpu - idle) / (inflated + uploaded))
        peaks.append(cost.rss_mb)
        walls.append(cost.wall)
        print(
            f"turn {turn + 1}: stream {cost.cpu:.2f} CPU s, {cost.wall:.1f} s; a stream of 1 KB "
            f"{idle:.2f} CPU s; inflate {inflated:.2f} and upload {uploaded:.2f} CPU s",
            flush=True,
        )
    print_figure("stream.cpu_vs_inflate_plus_upload", median(ratios), "ratio")
    print_figure("stream.rss_mb", max(peaks), "MB")
    print_figure("stream.mb_s", SIZE / 1e6 / median(walls), "MB/s")


def measure_copy() -> None:
    """Print the traffic of a copy through the worker, and its time beside that of a stream."""
    ratios = []
    for turn in range(RUNS):
        print_step(f"copy and stream of a stored member, turn {turn + 1} of {RUNS}")
        copied, report = run("stored.zip")
        streamed, _ = run("stored.zip", copy_from=1 << 40)
        ratios.append(copied.wall / streamed.wall)
        print(f"turn {turn + 1}: copy {copied.wall:.1f} s, stream {streamed.wall:.1f} s")
    assert report.requests.part == 0
    print_figure("copy.member_bytes_uploaded", report.requests.part * Tuning().part_bytes, "B")
    print_figure("copy.member_bytes_read.no_part_checksums", report.bytes_in, "B")
    print_figure("copy.member_bytes_read.part_checksums", read_with_checksums(), "B")
    print_figure("copy.wall_vs_stream", median(ratios), "ratio")


def read_with_checksums() -> int:
    """Return the bytes that tasks read if the store returns part checksums, as Amazon S3 does."""
    with tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder:
        path = Path(folder, "archive.zip")
        with ArchiveFile(path) as archive:
            archive.add("large.bin", repeat_stored([noise(MIB)], 100 * MIB))
        data = path.read_bytes()
    world = World(buckets=MemoryStores(out=MemoryBucket(part_checksums=True)))
    report = world.run(data)
    assert (report.requests.part, report.requests.copy) == (0, 1)
    # Without the member itself: the archive's end, the local header, and the bytes after the data.
    return max(0, report.bytes_in - world.tuning.tail_bytes - 2_000)


def main() -> None:
    """Measure the named parts, or all."""
    if sys.argv[1:] == ["peer"]:
        peer()
        return
    wanted = set(sys.argv[1:]) or {"stream", "copy", "split"}
    if wanted & {"stream", "copy"}:
        with (
            s3_server("source", "ours", "peer") as client,
            tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder,
        ):
            if "stream" in wanted:
                put_archive(client, folder, "mixed.zip", "mixed")
                with ArchiveFile(Path(folder, NOTHING)) as archive:
                    archive.add("one.bin", deflate_whole(noise(1_000)))
                client.upload_file(str(Path(folder, NOTHING)), "source", NOTHING)
                measure_stream()
            if "copy" in wanted:
                put_archive(client, folder, "stored.zip", "stored")
                measure_copy()
    kinds = [kind for kind in KINDS if wanted & {"split", kind}]
    if kinds:
        measure_splitting(kinds)


if __name__ == "__main__":
    main()
