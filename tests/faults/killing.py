"""Commands and their workers killed at random moments, under options that change.

A command and its workers are killed with SIGKILL, whatever they do. One that ended is followed by
another, with other options, or that resumes. When enough was killed, the next one is left alone.
"""

import os
import random
import signal
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from msgspec.json import encode

from tests.faults.bombs import TUNING, make_archive
from tests.faults.conftest import (
    CREDENTIALS,
    DESTINATION,
    KEY,
    SOURCE,
    Listing,
    World,
    expected_listing,
    list_folder,
)
from tests.support import processes, servers

RULES = (
    (),
    ("--on-conflict", "skip-unchanged"),
    ("--on-conflict", "never"),
    ("--exclude", "no-such-member"),
)


class Sequence:
    """Commands that follow each other until an archive is extracted, to S3 or into a folder."""

    def __init__(self, world: World, folder: Path, dice: random.Random, *, to_s3: bool) -> None:
        self._world = world
        self._folder = folder
        self._dice = dice
        self._out = None if to_s3 else folder / "out"
        self.tally = Counter(sequences=1)

    def work_off(self, kills: int) -> int:
        """Kill so often, then let a command end; return its exit code."""
        while (left := kills - self.tally["kills"]) > 0:
            code = self._run(left)
            self.tally[f"exit_{'killed' if code < 0 else code}"] += 1
        code = self._run(0)
        self.tally["uploads_left"] = self._world.uploads()
        self.tally["files_left"] = sum(1 for _ in self._folder.glob("out/**/.s3unzip-*"))
        return code

    def listing(self) -> Listing:
        """Return what lies in the destination; of a folder with the metadata that S3 would have."""
        if self._out is None:
            return self._world.listing()
        return {
            key: one._replace(zip_crc32=one.crc32) for key, one in list_folder(self._out).items()
        }

    def _run(self, kills: int) -> int:
        self.tally["programs"] += 1
        program = subprocess.Popen(
            [
                *processes.COMMAND,
                *self._words(),
                "--workers",
                "3",
                "--endpoint-url",
                self._world.endpoint,
            ],
            env={
                **os.environ,
                **CREDENTIALS,
                "S3UNZIP_HOME": f"{self._folder}/home",
                "S3UNZIP_TUNING": encode(TUNING).decode(),
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        known: set[int] = set()
        while kills and program.poll() is None:
            # A quarter of a second on average: a worker needs as long to start.
            time.sleep(self._dice.expovariate(4))
            children = processes.descendants(program.pid)
            known.update(children)
            kills -= self._kill(program.pid, children)
        code = program.wait(servers.HANG_SECONDS)
        has_ended = any(not any(map(processes.is_running, known)) for _ in servers.looks())
        self.tally["survivors"] += not has_ended
        return code

    def _kill(self, program: int, children: list[int]) -> int:
        victims = [program] if self._dice.random() < 0.03 else children
        with suppress(ProcessLookupError, IndexError):  # it has ended, or none has begun yet
            victim = self._dice.choice(victims)
            os.kill(victim, signal.SIGKILL)
            self.tally.update(["kills", "of_program" if victim == program else "of_worker"])
            return 1
        return 0

    def _words(self) -> list[str]:
        home = Path(self._folder, "home/runs")
        planned = sorted(home.glob("*/*/run.json"))
        if planned and self._dice.random() < 1 / 4:
            return ["resume", str(self._dice.choice(planned).parent.relative_to(home))]
        where = f"{self._out or f's3://{DESTINATION}'}/"
        return ["run", f"s3://{SOURCE}/{KEY}", where, *self._dice.choice(RULES)]


def kill_and_resume(world: World, kills: int) -> Counter[str]:
    """Return what `kills` random kills come to, to S3 and to folders in turn."""
    archive, dice = make_archive(small=200), random.Random(1)
    total: Counter[str] = Counter()
    while total["kills"] < kills:
        world.clear()
        world.put_archive(archive)
        with tempfile.TemporaryDirectory(prefix="s3unzip-kills-") as folder:
            sequence = Sequence(world, Path(folder), dice, to_s3=(total["sequences"] % 2 == 0))
            code = sequence.work_off(min(50, kills - total["kills"]))
            total += sequence.tally
            total["equal_sequences"] += (code, sequence.listing()) == (0, expected_listing(archive))
    return total
