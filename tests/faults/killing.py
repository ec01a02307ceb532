"""Any process killed at random moments, under options that change: what is left in the end.

A program and its workers are killed with SIGKILL, whatever they do. A program that ended is
followed by another, with other options, or goes on. When enough was killed, the next one is left
alone.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from s3unzip.model import Location, OnConflict, Options, Request, encode
from tests.faults.archives import make_archive
from tests.faults.program import Order
from tests.faults.world import (
    DESTINATION,
    KEY,
    SOURCE,
    Listing,
    World,
    expected_listing,
    list_folder,
)

KILLS_A_SEQUENCE = 50
MEAN_SECONDS = 0.25  # between two kills: a worker needs as long to start
TO_PROGRAM = 0.03  # chance that a kill is the program's; else it is a worker's
TO_BEGINNER = 0.05  # chance that a program without workers yet is considered
LAST_SECONDS = 120.0  # of the program that is left alone
PLACES = ("s3", "folder")
RULES = (
    Options(),
    Options(on_conflict=OnConflict.SKIP_UNCHANGED),
    Options(on_conflict=OnConflict.NEVER),
    Options(exclude=("no-such-member",)),
)


class Sequence:
    """Programs that follow each other until an archive is extracted."""

    def __init__(self, world: World, place: str, folder: Path, dice: random.Random) -> None:
        self._world = world
        self._place = place
        self._folder = folder
        self._dice = dice
        self.kills: Counter[str] = Counter()  # by what was killed
        self.programs = 0
        self.survivors = 0  # processes that never ended
        self.codes: Counter[int] = Counter()  # exit codes; a killed program has -9

    def work_off(self, kills: int) -> int:
        """Kill so often, then let a program end; return its exit code."""
        while self.kills.total() < kills:
            self.codes[self._run(kills - self.kills.total())] += 1
        return self._run(0)

    def listing(self) -> Listing:
        """Return what lies in the destination; of a folder with the metadata that S3 would have."""
        if self._place == "s3":
            return self._world.listing()
        found = list_folder(self._folder / "out")
        return {key: one._replace(zip_crc32=one.crc32) for key, one in found.items()}

    def counts(self) -> dict[str, int]:
        """Return what was done, and what is left over."""
        ended = {f"exit_{'killed' if code < 0 else code}": n for code, n in self.codes.items()}
        return {
            "kills": self.kills.total(),
            **{f"of_{kind}": count for kind, count in sorted(self.kills.items())},
            "sequences": 1,
            "programs": self.programs,
            **ended,
            "uploads_left": self._world.uploads(),
            "files_left": sum(1 for _ in (self._folder / "out").rglob(".s3unzip-*")),
            "survivors": self.survivors,
        }

    def _run(self, kills: int) -> int:
        """Run one program, and kill up to so many of its processes; return its exit code."""
        self.programs += 1
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.program", encode(self._order()).decode()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        known: set[int] = set()
        while kills and program.poll() is None:
            time.sleep(self._dice.expovariate(1 / MEAN_SECONDS))
            children = descendants(program.pid)
            known.update(children)
            kills -= self._kill(program, children)
        code = program.wait(LAST_SECONDS)
        self.survivors += len(await_end(sorted(known), LAST_SECONDS))
        return code

    def _kill(self, program: subprocess.Popen[bytes], children: list[int]) -> int:
        """Kill one of the processes; return how many were killed."""
        chance = self._dice.random()
        if not children and self._dice.random() > TO_BEGINNER:  # else few would work at all
            return 0
        if chance < TO_PROGRAM:
            kind, pids = "program", [program.pid]
        else:
            kind, pids = "worker", children
        if not pids:  # not begun yet
            return 0
        pid = self._dice.choice(pids)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills[kind] += 1
            return 1
        return 0

    def _order(self) -> Order:
        """Return what the next program does: a run by some rule, or one that goes on."""
        where = Location("s3", DESTINATION, "")
        if self._place == "folder":
            where = Location("file", "", f"{self._folder}/out/")
        request = Request(Location("s3", SOURCE, KEY), where, self._dice.choice(RULES))
        home = Path(self._folder, "home/runs")
        planned = sorted(home.glob("*/*/run.json"))
        again = str(self._dice.choice(planned).parent.relative_to(home)) if planned else None
        resumed = again if self._dice.random() < 1 / 4 else None
        return Order(self._world.endpoint, f"{self._folder}/home/", request, resumed)


def kill_and_resume(world: World, kills: int, seed: int = 1) -> Counter[str]:
    """Return what `kills` random kills come to, to S3 and to folders in turn."""
    archive, dice = make_archive(small=200), random.Random(seed)
    total: Counter[str] = Counter()
    while total["kills"] < kills:
        world.clear()
        world.put_archive(archive)
        with tempfile.TemporaryDirectory(prefix="s3unzip-kills-") as folder:
            place = PLACES[total["sequences"] % len(PLACES)]
            sequence = Sequence(world, place, Path(folder), dice)
            code = sequence.work_off(min(KILLS_A_SEQUENCE, kills - total["kills"]))
            total.update(sequence.counts())
            total["equal_sequences"] += (code, sequence.listing()) == (0, expected_listing(archive))
    return total


# The processes of a program, as Linux lists them below /proc


def descendants(pid: int) -> list[int]:
    """Return the ids of the processes that `pid` started, and of those that these started."""
    found: list[int] = []
    for task in _tasks(pid):
        try:
            children = (task / "children").read_text().split()
        except OSError:  # it ended
            continue
        for child in map(int, children):
            found += [child, *descendants(child)]
    return found


def is_running(pid: int) -> bool:
    """Say whether a process runs; one that has ended and is not yet reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in {"Z", "X"}


def await_end(pids: list[int], seconds: float) -> list[int]:
    """Wait until none of the processes runs; return those that still do after `seconds`."""
    deadline = time.monotonic() + seconds
    while (left := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def _tasks(pid: int) -> list[Path]:
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return []
