"""A destination that dies in the middle of a run: two workers, one budget, few requests."""

import json
import random
from pathlib import Path

from tests.memory_server import Asked, MemoryS3, run_memory_s3
from tests.processes import Program
from tests.servers import Reply
from tests.zips import Entry, build

MEMBERS = 400
DIES_AFTER = 40  # objects
IN_VAIN = 200  # requests, at most


class DyingS3(MemoryS3):
    """A store that hangs up on every request after some PUTs, until it is revived."""

    def __init__(self) -> None:
        super().__init__()
        self.lives = True
        self.in_vain = 0

    def answer(self, asked: Asked) -> Reply:
        """Answer while the store lives; else close the connection."""
        if self.lives and asked.method == "PUT" and len(self.buckets["out"].objects) >= DIES_AFTER:
            self.lives = False
        if not self.lives:
            self.in_vain += 1
            raise ConnectionAbortedError
        return super().answer(asked)

    def revive(self) -> None:
        """Answer again, for good."""
        self.lives = True
        self.answer = super().answer  # type: ignore[method-assign]


def test_a_destination_that_dies(tmp_path: Path) -> None:
    """One line says so; the run ends FAILED when the budget is spent, and `resume` completes it."""
    data = random.Random(1)
    entries = (Entry(f"{number:03}", data.randbytes(20_000)) for number in range(MEMBERS))
    (tmp_path / "a.zip").write_bytes(build(*entries))
    program, store = Program(tmp_path), DyingS3()
    program.variables["S3UNZIP_TUNING"] = json.dumps({"retry_seconds": 6, "batch_bytes": 1_000_000})
    out = store.create_bucket("out")
    with run_memory_s3(store) as url:
        ended = program.run("run", "a.zip", "s3://out/to", "--endpoint-url", url, "-w", "2")
        assert ended.code == 5, ended.err
        lines = [line for line in ended.err.splitlines() if line.startswith("no answer from")]
        assert len(lines) == 1, ended.err
        assert url in lines[0]
        assert ", retrying for " in lines[0]
        assert "FAILED" in ended.err
        assert "service-fault" in ended.err
        assert store.in_vain <= IN_VAIN
        assert DIES_AFTER <= len(out.objects) < MEMBERS  # some PUTs were on their way
        store.revive()
        again = program.run("resume", "latest", "-w", "2")
    assert again.code == 0, again.err
    assert len(out.objects) == MEMBERS
