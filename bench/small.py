"""20,000 small JSON members, S3 to S3: s3unzip, zipfile with boto3, and a bare loop of PUTs."""

import io
import json
import os
import random
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

import boto3
from botocore.config import Config

from bench.measure import RUNS, Cost, median, print_figure, print_step, run_command, run_s3unzip
from bench.server import s3_server

MEMBERS = int(os.environ.get("S3UNZIP_BENCH_MEMBERS", "20000"))
PLAIN = 11_000  # bytes of a member
THREADS = 40
PAIRS = 3  # in each turn: the two differ little, so noise of the machine matters


class Pair(NamedTuple):
    """The tool and the bare PUTs right after it; CPU seconds, without the ZIP work."""

    ours: Cost
    bare: float
    loop: float


class Turn(NamedTuple):
    """Some pairs and the peer."""

    pairs: list[Pair]
    peer: Cost


def make_archive(members: int = MEMBERS) -> bytes:
    """Return an archive of members with 11 KB plain and about 5 KB zipped each."""
    rng = random.Random(7)
    words = [rng.randbytes(5).hex() for _ in range(4000)]
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(members):
            rows: list[dict[str, object]] = []
            size = 0
            while size < PLAIN:
                row = {"id": rng.randrange(10**9), "name": rng.choice(words), "v": rng.random()}
                size += len(json.dumps(row)) + 2
                rows.append(row)
            archive.writestr(f"case/{number % 97:02}/{number:06}.json", json.dumps(rows))
    return target.getvalue()


def peer() -> None:
    """Extract in the usual way: zipfile in memory, put_object in 40 threads."""
    client = boto3.client("s3", config=Config(max_pool_connections=THREADS))
    body = client.get_object(Bucket="source", Key="bench.zip")["Body"].read()
    archive = zipfile.ZipFile(io.BytesIO(body))

    def put(name: str) -> None:
        client.put_object(Bucket="peer", Key=f"bench/{name}", Body=archive.read(name))

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(put, archive.namelist()):
            pass


def bare() -> None:
    """PUT the same bodies to the same keys through obstore, without any ZIP work.

    Prints the CPU of its ZIP work, which happens before the first PUT and is subtracted from the
    program's CPU, and the CPU of the loop alone.
    """
    import time  # noqa: PLC0415

    import obstore  # noqa: PLC0415
    from obstore.store import S3Store  # noqa: PLC0415

    body = boto3.client("s3").get_object(Bucket="source", Key="bench.zip")["Body"].read()
    before = time.process_time()
    archive = zipfile.ZipFile(io.BytesIO(body))
    bodies = [(name, archive.read(name)) for name in archive.namelist()]
    unzipping = time.process_time() - before
    run = "bench-0123456789abcdef0123"
    facts = {"zip-crc32": "00000000", "mtime": "1700000000", "mode": "644", "s3unzip-run": run}
    store = S3Store(
        "bare",
        config={"checksum_algorithm": "CRC64NVME", "unsigned_payload": True},
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        client_options={"allow_http": True},
    )
    queue: SimpleQueue[tuple[str, bytes] | None] = SimpleQueue()
    before = time.process_time()

    def work() -> None:
        while (item := queue.get()) is not None:
            name, data = item
            obstore.put(
                store,
                f"bench/{name}",
                data,
                attributes={"Content-Type": "application/json", **facts},
                use_multipart=False,
            )

    threads = [Thread(target=work) for _ in range(32)]
    for thread in threads:
        thread.start()
    for item in bodies:
        queue.put(item)
    for _ in threads:
        queue.put(None)
    for thread in threads:
        thread.join()
    print(json.dumps([unzipping, time.process_time() - before]))


def main() -> None:
    """Measure all in turn, three times, and print medians of ratios."""
    if len(sys.argv) > 1:
        {"peer": peer, "bare": bare}[sys.argv[1]]()
        return
    with s3_server("source", "peer", "bare", "ours", in_memory=True) as client:
        print_step(f"storing an archive of {MEMBERS:,} members")
        client.put_object(Bucket="source", Key="bench.zip", Body=make_archive())
        figures = [measure_turn(turn) for turn in range(RUNS)]
    pairs = [pair for turn in figures for pair in turn.pairs]
    cpu = median([pair.ours.cpu for pair in pairs])
    print_figure("small.cpu_us_per_member", 1e6 * cpu / MEMBERS, "us")
    ratio = [median([pair.ours.cpu for pair in turn.pairs]) / turn.peer.cpu for turn in figures]
    print_figure("small.cpu_vs_zipfile_boto3", median(ratio), "ratio")
    rate = [turn.peer.wall / median([pair.ours.wall for pair in turn.pairs]) for turn in figures]
    print_figure("small.rate_vs_zipfile_boto3", median(rate), "ratio")
    # Compare with the whole program, including its start, and with the loop alone.
    over = [pair.ours.cpu / pair.bare for pair in pairs]
    print_figure("small.cpu_vs_bare_put", median(over), "ratio")
    over = [pair.ours.cpu / pair.loop for pair in pairs]
    print_figure("small.cpu_vs_bare_put_loop", median(over), "ratio")


def measure_turn(turn: int) -> Turn:
    """Measure the tool and the bare PUTs alternately, then the peer, which takes longest."""
    me = [sys.executable, "-m", "bench.small"]
    pairs = []
    for number in range(PAIRS):
        pair = f"turn {turn + 1} of {RUNS}, pair {number + 1} of {PAIRS}"
        print_step(f"{pair}: s3unzip, then bare PUTs")
        destination = f"s3://ours/{turn}-{number}"
        ours, report = run_s3unzip("run", "--quiet", "s3://source/bench.zip", destination)
        assert report["extracted"] == MEMBERS, report
        whole = run_command([*me, "bare"])
        unzipping, loop = json.loads(whole.output)
        pairs.append(Pair(ours, whole.cpu - unzipping, loop))
        print(
            f"turn {turn + 1}: s3unzip {ours.wall:.1f} s, {ours.cpu:.2f} CPU s; "
            f"bare PUTs {pairs[-1].bare:.2f} CPU s, {loop:.2f} of them the loop",
            flush=True,
        )
    print_step(f"turn {turn + 1} of {RUNS}: zipfile and boto3")
    peer = run_command([*me, "peer"])
    print(f"turn {turn + 1}: zipfile+boto3 {peer.wall:.1f} s, {peer.cpu:.2f} CPU s", flush=True)
    return Turn(pairs, peer)


if __name__ == "__main__":
    main()
