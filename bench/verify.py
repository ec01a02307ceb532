"""Verify 100,000 objects with and without the run's record, compared with HEAD in a boto3 loop.

The loop has 16 threads, asks for a tenth of the objects, and compares nothing. Rates are of objects
a second, each program's start included.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import boto3
from botocore.config import Config

from bench.measure import RUNS, Cost, median, print_figure, print_step, run_command, run_s3unzip
from bench.server import s3_server
from bench.small import make_archive

MEMBERS = int(os.environ.get("S3UNZIP_BENCH_MEMBERS", "100000"))
PEER_HEADS = max(1, MEMBERS // 10)  # they take 2 ms of CPU each
THREADS = 16


def peer() -> None:
    """HEAD objects by their keys and compare nothing: less than a verify does."""
    client = boto3.client("s3", config=Config(max_pool_connections=THREADS))
    keys = [f"bench/case/{number % 97:02}/{number:06}.json" for number in range(PEER_HEADS)]
    with ThreadPoolExecutor(THREADS) as pool:
        found = pool.map(lambda key: client.head_object(Bucket="ours", Key=key), keys)
        assert all("zip-crc32" in answer["Metadata"] for answer in found)


@dataclass(frozen=True, slots=True)
class Turn:
    """The cost of one turn: three ways to check the same objects."""

    recorded: Cost
    unrecorded: Cost
    peer: Cost
    heads: int  # of the verify with the record


def measure(places: list[str]) -> Turn:
    """Verify twice, then run the peer."""
    recorded, found = run_s3unzip("verify", *places)
    assert found["proofs"] == {"record": MEMBERS}, found
    unrecorded, told = run_s3unzip("verify", *places, "--no-records")
    assert told["proofs"] == {"metadata": MEMBERS}, told
    peer_cost = run_command([sys.executable, "-m", "bench.verify", "peer"])
    return Turn(recorded, unrecorded, peer_cost, found["requests"].get("head", 0))


def main() -> None:
    """Measure the three in turn, three times, and print ratios of medians."""
    if len(sys.argv) > 1:
        peer()
        return
    places = ["s3://source/bench.zip", "s3://ours/"]
    with s3_server("source", "ours", in_memory=True) as client:
        print_step(f"storing and extracting an archive of {MEMBERS:,} members")
        client.put_object(Bucket="source", Key="bench.zip", Body=make_archive(MEMBERS))
        run, _ = run_s3unzip("run", "--quiet", *places)
        turns = []
        for number in range(RUNS):
            print_step(f"verify twice, then HEAD by boto3, turn {number + 1} of {RUNS}")
            turns.append(turn := measure(places))
            print(
                f"turn {number + 1}: with record {turn.recorded.wall:.2f} s, "
                f"{turn.recorded.cpu:.2f} CPU s; without {turn.unrecorded.wall:.1f} s, "
                f"{turn.unrecorded.cpu:.2f} CPU s; "
                f"HEAD by boto3 {turn.peer.wall:.1f} s, {turn.peer.cpu:.2f} CPU s",
                flush=True,
            )
    share = MEMBERS / PEER_HEADS
    rate = share * median([turn.peer.wall / turn.recorded.wall for turn in turns])
    print_figure("verify.rate_vs_boto3_head", rate, "ratio")
    print_figure("verify.heads_with_record", max(turn.heads for turn in turns), "requests")
    rate = share * median([turn.peer.wall / turn.unrecorded.wall for turn in turns])
    print_figure("verify.rate_without_record", rate, "ratio")
    for name, costs in (
        ("with_record", [turn.recorded for turn in turns]),
        ("without_record", [turn.unrecorded for turn in turns]),
    ):
        cpu = median([cost.cpu for cost in costs])
        peer_cpu = median([turn.peer.cpu for turn in turns])
        print_figure(f"verify.{name}.cpu_vs_boto3_head", share * peer_cpu / cpu, "ratio")
        print_figure(f"verify.{name}.cpu_us_per_object", 1e6 * cpu / MEMBERS, "us")
        wall = median([cost.wall for cost in costs])
        print_figure(f"verify.{name}.objects_per_second", MEMBERS / wall, "1/s")
    print_figure("verify.run.cpu_us_per_member", 1e6 * run.cpu / MEMBERS, "us")


if __name__ == "__main__":
    main()
