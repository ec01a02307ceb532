"""Archives of 1 to 20,000 members, S3 to S3, beside s3-unspool; and the start of each command."""

import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from mypy_boto3_s3 import S3Client

from bench.measure import RUNS, Cost, median, print_figure, print_step, run_command, run_s3unzip
from bench.server import s3_server
from bench.small import make_archive

SIZES = tuple(map(int, os.environ.get("S3UNZIP_BENCH_SIZES", "1,200,2000,20000").split(",")))
S3UNZIP = (sys.executable, "-m", "s3unzip")
ARCHIVE = "s3://source/bench.zip"  # of each size in turn


class Pair(NamedTuple):
    """The tool and the peer right after it."""

    ours: Cost
    peer: Cost


class Peer(NamedTuple):
    """The tool that ours is compared with."""

    name: str
    command: Sequence[str]  # with {destination}


def find_peer() -> Peer:
    """Return s3-unspool; where it is not installed, the program of `bench.small`."""
    binary = shutil.which(os.environ.get("S3UNZIP_BENCH_UNSPOOL", "s3-unspool"))
    if binary is not None:
        command = (binary, "--quiet", "unzip", ARCHIVE, "s3://peer/{destination}/")
        return Peer("s3_unspool", command)
    print(
        "s3-unspool is not installed (cargo install s3-unspool-cli), so the peer is zipfile with "
        "boto3",
        flush=True,
    )
    return Peer("zipfile_boto3", (sys.executable, "-m", "bench.small", "peer"))


def measure_pair(members: int, turn: int, peer: Peer) -> Pair:
    """Extract an archive with the tool, then with the peer."""
    destination = f"{members}-{turn}"
    ours, report = run_s3unzip("run", "--quiet", ARCHIVE, f"s3://ours/{destination}")
    assert report["extracted"] == members, report
    command = [word.format(destination=destination) for word in peer.command]
    pair = Pair(ours, run_command(command))
    print(
        f"{members:,} members: s3unzip {ours.wall:.2f} s, {ours.cpu:.2f} CPU s; "
        f"{peer.name} {pair.peer.wall:.2f} s, {pair.peer.cpu:.2f} CPU s",
        flush=True,
    )
    return pair


def _print_ratios(members: int, peer: Peer, pairs: Sequence[Pair]) -> None:
    name = f"sizes.{members}"
    print_figure(f"{name}.cpu", median([pair.ours.cpu for pair in pairs]), "s")
    cpu = median([pair.ours.cpu / pair.peer.cpu for pair in pairs])
    print_figure(f"{name}.cpu_vs_{peer.name}", cpu, "ratio")
    rate = median([pair.peer.wall / pair.ours.wall for pair in pairs])
    print_figure(f"{name}.rate_vs_{peer.name}", rate, "ratio")


def measure_starts(client: S3Client, folder: Path) -> None:
    """Print the CPU of short commands and of the imports of each handler."""
    archive = folder / "200.zip"
    archive.write_bytes(make_archive(200))
    member = "case/00/000000.json"
    commands = {
        "python": [sys.executable, "-c", "pass"],
        "help": [*S3UNZIP, "--help"],
        "ls_file": [*S3UNZIP, "ls", str(archive)],
        "cat_file": [*S3UNZIP, "cat", str(archive), member],
        "ls_s3": [*S3UNZIP, "ls", "s3://starts/200.zip"],
        "import": [sys.executable, "-c", "import s3unzip"],
    }
    for name in ("intake", "plan", "extract", "settle"):
        commands[f"import_{name}"] = [sys.executable, "-c", f"import s3unzip.aws.{name}"]
    client.put_object(Bucket="starts", Key="200.zip", Body=archive.read_bytes())
    for name, command in commands.items():
        run_command(command)  # it writes the byte code
        cpu = median([run_command(command).cpu for _ in range(RUNS)])
        print_figure(f"start.{name}.cpu", cpu, "s")


def main() -> None:
    """Measure each size in turn, then the starts."""
    peer = find_peer()
    with s3_server("source", "peer", "ours", "starts", in_memory=True) as client:
        for members in SIZES:
            print_step(f"{members:,} members, {RUNS} turns: s3unzip, then {peer.name}")
            client.put_object(Bucket="source", Key="bench.zip", Body=make_archive(members))
            pairs = [measure_pair(members, turn, peer) for turn in range(RUNS)]
            _print_ratios(members, peer, pairs)
        print_step("the start of each command")
        with tempfile.TemporaryDirectory() as folder:
            measure_starts(client, Path(folder))


if __name__ == "__main__":
    main()
