"""An archive with ZIP64 in every field and huge members, and what must have become of it."""

import zlib
from pathlib import Path

from mypy_boto3_s3 import S3Client

from bench.archives import (
    ArchiveFile,
    Content,
    deflate_whole,
    mixed_files,
    noise,
    repeat_deflated,
    repeat_stored,
)
from s3unzip.model import Report
from s3unzip.settings import KIB, MIB

SMALL = 100


def write_archive(path: Path) -> dict[str, Content]:
    """Write the archive; return its large members."""
    files = mixed_files(8 * MIB)
    pairs = [files[at : at + 256 * KIB] + noise(256 * KIB, at) for at in range(0, 8 * MIB, MIB)]
    mixed = [b"".join(pairs)]
    large = {
        "deflated.bin": repeat_deflated(mixed, 62_000_000),
        "stored.bin": repeat_stored(mixed, 21_000_000),
    }
    with ArchiveFile(path) as archive:
        for name, content in large.items():
            archive.add(name, content)
        for number in range(SMALL):
            archive.add(f"small/{number:05d}", deflate_whole(b"%d" % number * 200))
    return large


def check(client: S3Client, bucket: str, report: Report, large: dict[str, Content]) -> None:
    """Assert that every object is there; of the large ones read every byte."""
    assert report.verdict == "COMPLETED", report
    assert report.extracted == SMALL + len(large)
    for name, content in large.items():
        answer = client.get_object(Bucket=bucket, Key=f"huge/{name}")
        size = crc = 0
        for piece in answer["Body"].iter_chunks(8 * MIB):
            size += len(piece)
            crc = zlib.crc32(piece, crc)
        assert (size, crc) == (content.size, content.crc32), name
    assert not client.list_multipart_uploads(Bucket=bucket).get("Uploads")
