"""CPU of short commands: what a user waits for before anything is done.

``start.ls_remote_1000`` lists an archive of 1,000 members in S3.
"""

from __future__ import annotations

import sys

import boto3

from bench.measure import median, print_figure, print_step, run_command
from bench.server import s3_server
from tests.zips import DEFLATE, Entry, build

MEMBERS = 1_000
TURNS = 7  # a command takes a fraction of a second; more turns make the median steady
COMMANDS = {
    "help": ["--help"],
    "version": ["--version"],
    "ls_remote_1000": ["ls", "s3://source/bench.zip"],
}


def main() -> None:
    """Run each command a few times; print the median CPU of each."""
    entries = [Entry(f"data/{n:04}.json", b"{}" * n, DEFLATE) for n in range(MEMBERS)]
    with s3_server(in_memory=True):
        client = boto3.client("s3")
        client.create_bucket(Bucket="source")
        client.put_object(Bucket="source", Key="bench.zip", Body=build(*entries))
        for name, words in COMMANDS.items():
            print_step(f"s3unzip {' '.join(words)}, {TURNS} times")
            command = [sys.executable, "-m", "s3unzip.cli", *words]
            run_command(command)  # the first run compiles
            costs = [run_command(command) for _ in range(TURNS)]
            print_figure(f"start.{name}.cpu_ms", 1e3 * median([one.cpu for one in costs]), "ms")
            print_figure(f"start.{name}.wall_ms", 1e3 * median([one.wall for one in costs]), "ms")


if __name__ == "__main__":
    main()
