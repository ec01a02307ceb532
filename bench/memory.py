"""Memory of a whole run: 2 GB of small and large members, S3 to S3, at the default settings.

    uv run python -m bench.memory

Prints the peak resident set of the largest process. The archive has every kind
of task: 20,000 small members, streams, a stored member that is copied and a
deflated one that is split.
"""

import os
import sys
import tempfile
from pathlib import Path

from bench.archives import (
    ArchiveFile,
    deflate_whole,
    mixed_files,
    noise,
    repeat_deflated,
    repeat_stored,
    samples,
)
from bench.measure import print_figure, print_step, run_s3unzip
from bench.server import s3_server
from s3unzip.settings import KIB, MIB

SMALL = 20_000
MAX_MB = 400


def write_archive(path: Path, scale: float = 1.0) -> None:
    """Write the archive: about 2 GB at scale 1."""
    mixed, logs = samples("mixed"), samples("log")
    text = mixed_files(64 * MIB)
    with ArchiveFile(path) as archive:
        for number in range(int(SMALL * scale)):
            start = number * 7 * KIB % (60 * MIB)
            body = text[start : start + 8 * KIB + number % 40 * KIB]
            archive.add(f"small/{number:06d}.bin", deflate_whole(body, 1))
        for number in range(4):
            size = int(300 * MIB * scale)
            archive.add(f"large/stream-{number}.bin", repeat_deflated(mixed, size))
        archive.add("large/logs.log", repeat_deflated(logs, int(600 * MIB * scale)))
        archive.add("large/stored.bin", repeat_stored([noise(16 * MIB)], int(920 * MIB * scale)))
        archive.add("large/split.bin", repeat_deflated(mixed, int(1_400 * MIB * scale)))


def main() -> None:
    """Run once and print the peak."""
    scale = float(os.environ.get("S3UNZIP_BENCH_SCALE", "1"))
    with (
        s3_server("source", "ours") as client,
        tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder,
    ):
        path = Path(folder, "archive.zip")
        print_step("making and storing the archive")
        write_archive(path, scale)
        print(f"archive: {path.stat().st_size / 1e6:,.0f} MB", flush=True)
        with path.open(
            "rb"
        ) as body:  # in one request: VersityGW copies no parts of multipart objects
            client.put_object(Bucket="source", Key="bench.zip", Body=body)
        path.unlink()
        print_step("running it")
        cost, report = run_s3unzip("run", "--quiet", "s3://source/bench.zip", "s3://ours/out")
        assert report["verdict"] == "COMPLETED", report
        print(
            f"{report['extracted']:,} members, {report['bytes_out'] / 1e6:,.0f} MB out in "
            f"{cost.wall:.1f} s, {cost.cpu:.1f} CPU s",
            flush=True,
        )
    print_figure("memory.run_2gb.rss_mb", cost.rss_mb, "MB")
    if cost.rss_mb > MAX_MB:
        sys.exit(f"above the {MAX_MB} MB that a worker may take")


if __name__ == "__main__":
    main()
