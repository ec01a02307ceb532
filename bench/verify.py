"""Verify 20,000 objects, S3 to S3, and beside it HEAD in a boto3 loop with 16 threads."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import boto3
from botocore.config import Config

from bench.measure import RUNS, median, print_figure, print_step, run_command
from bench.server import s3_server
from bench.small import make_archive

MEMBERS = int(os.environ.get("S3UNZIP_BENCH_MEMBERS", "20000"))
THREADS = 16


def peer() -> None:
    """HEAD every object by its key and compare nothing: less than a verify does."""
    client = boto3.client("s3", config=Config(max_pool_connections=THREADS))
    keys = [f"bench/case/{number % 97:02}/{number:06}.json" for number in range(MEMBERS)]
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda key: client.head_object(Bucket="ours", Key=key), keys)
        assert all("zip-crc32" in answer["Metadata"] for answer in found)


def main() -> None:
    """Measure the two in turn, three times, and print ratios of medians."""
    if len(sys.argv) > 1:
        peer()
        return
    tool = [sys.executable, "-m", "s3unzip.cli"]
    places = ["s3://source/bench.zip", "s3://ours/"]
    with s3_server():
        client = boto3.client("s3")
        for bucket in ("source", "ours"):
            client.create_bucket(Bucket=bucket)
        print_step(f"storing and extracting an archive of {MEMBERS:,} members")
        client.put_object(Bucket="source", Key="bench.zip", Body=make_archive())
        run_command([*tool, "run", "--json", "--quiet", *places])
        ours, theirs = [], []
        for turn in range(RUNS):
            print_step(f"verify, then HEAD by boto3, turn {turn + 1} of {RUNS}")
            cost = run_command([*tool, "verify", "--json", *places])
            found = json.loads(cost.output)
            assert found["equal"] == MEMBERS, found
            ours.append(cost)
            theirs.append(run_command([sys.executable, "-m", "bench.verify", "peer"]))
            print(
                f"turn {turn + 1}: verify {cost.wall:.1f} s, {cost.cpu:.2f} CPU s; "
                f"HEAD by boto3 {theirs[-1].wall:.1f} s, {theirs[-1].cpu:.2f} CPU s",
                flush=True,
            )
    rate = [b.wall / a.wall for a, b in zip(ours, theirs, strict=True)]
    print_figure("verify.rate_vs_boto3_head", median(rate), "ratio")
    print_figure("verify.objects_per_second", MEMBERS / median([c.wall for c in ours]), "1/s")
    cpu = [b.cpu / a.cpu for a, b in zip(ours, theirs, strict=True)]
    print_figure("verify.cpu_vs_boto3_head", median(cpu), "ratio")
    print_figure("verify.cpu_us_per_object", 1e6 * median([c.cpu for c in ours]) / MEMBERS, "us")


if __name__ == "__main__":
    main()
