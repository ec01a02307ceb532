"""Faults that are planted into a copy of the package: what the simulation must find.

Each is one replacement in one file. Neither the simulation nor the promises know of them.
`make simulate-mutants` runs the schedules 1, 2, ... against each until one fails, and prints how
many were caught and how long each took.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import s3unzip

PACKAGE = Path(s3unzip.__file__).parent
HUNT = """
import sys
from tests.simulation.__main__ import find_failure, search
for seed in search(1, 1, float(sys.argv[1]), one=True)[1]:
    print(f"seed {seed}: {find_failure(seed).sentence}")
"""


class Mutant(NamedTuple):
    """One planted fault: `new` in place of `old`, which stands once in `file`."""

    name: str
    file: str  # below the package
    old: str
    new: str

    def apply(self, package: Path) -> None:
        """Plant the fault into a copy of the package."""
        path = package / self.file
        source = path.read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"mutant {self.name}: {self.old!r} is not once in {self.file}")
        path.write_text(source.replace(self.old, self.new))


# By file below the package: name, old text, new text.
FAULTS: dict[str, list[tuple[str, str, str]]] = {
    "extraction/batch.py": [
        (
            "outcome-before-put",
            '            etag = calls.paced("put", put)\n',
            '            attempt.extracted(row, 0, len(body)); calls.paced("put", put); return\n',
        ),
        ("never-overwrites", "if_absent=self._if_absent)", "if_absent=False)"),
        ("pool-does-not-wait", "        pool.close()\n", ""),
    ],
    "runs/step.py": [
        (
            "lost-outcome",
            "self.records.write_outcomes(report, self.outcomes)",
            "self.records.write_outcomes(report, self.outcomes[:-1])",
        ),
        ("stop-ignored", "    stop = (find_stop or records.find_stop)()\n", "    stop = None\n"),
        ("stop-not-recorded", "        records.write_stop(stop_for(fault))\n", "        pass\n"),
        (
            "stale-pin",
            ".pinned(run.source, run.pin)",
            ".pinned(run.source, stores.source(run.source).head(run.source))",
        ),
        ("resume-forgets-outcomes", "        self.outcomes.extend(earlier.outcomes)\n", ""),
    ],
    "extraction/task.py": [
        ("resume-repeats-members", "if row.member.index not in done]", "if done or row]"),
        (
            "partial-record-taken-for-whole",
            "if earlier is not None and earlier.complete:",
            "if earlier is not None:",
        ),
    ],
    "settling/loop.py": [
        ("stop-stays-when-resumed", "    records.delete_stop()\n", "    pass\n"),
        (
            "uploads-never-dropped",
            "    if before.round and stop is None:",
            "    if before.round < 0:",
        ),
        (
            "lost-task",
            "records.write_round(number, order_tasks(left))",
            "records.write_round(number, order_tasks(left)[1:])",
        ),
        (
            "task-of-the-first-round-forgotten",
            "records.write_round(0, tasks)",
            "records.write_round(0, tasks[1:])",
        ),
        (
            "partial-task-not-left",
            "        elif found is None or not found.complete:\n",
            "        elif found is None:\n",
        ),
        (
            "rounds-without-end",
            "    idle = 0 if state.done > before.done else before.idle + 1\n",
            "    idle = 0\n",
        ),
        (
            "late-failure-replaces-a-report",
            "if records.create_report(report, render_page(report, context)) else",
            "if [records.write_report(report, render_page(report, context))] else",
        ),
    ],
    "settling/report.py": [
        (
            "archive-of-a-failed-run-deleted",
            "report.verdict is not Verdict.COMPLETED:",
            "report.verdict is Verdict.REJECTED:",
        ),
        (
            "premature-verdict",
            "    missing = plan.failed + plan.selected - tally.members\n",
            "    missing = 0\n",
        ),
        (
            "failures-forgotten",
            "    if tally.counts[Status.FAILED]:\n",
            "    if not tally.counts:\n",
        ),
    ],
    "aws/executions.py": [
        (
            "double-event",
            'announce(open_client("events"), config, report)',
            '[announce(open_client("events"), config, report) for _ in "ab"]',
        ),
        (
            "replaced-archives-not-seen",
            "    if found.etag == report.pin.etag:\n",
            "    if found:\n",
        ),
        (
            "nested-archives-not-started",
            "            _start_nested(request, config, context)\n",
            "            pass\n",
        ),
    ],
    "aws/events.py": [
        (
            "event-counts-wrong",
            '        "extracted": report.extracted,\n',
            '        "extracted": report.members,\n',
        )
    ],
    "aws/intake.py": [
        (
            "message-consumed-after-a-fault",
            "        return False\n    return True\n",
            "        return True\n    return True\n",
        ),
        (
            "faults-taken-for-gone",
            '    except NotFoundError:\n        logger.info("archive is gone"',
            '    except (NotFoundError, S3UnzipError):\n        logger.info("archive is gone"',
        ),
        (
            "report-before-outcomes",
            "        last = objects.pop(REPORT, None)\n",
            "        last = None\n        objects = dict(reversed(objects.items()))\n",
        ),
    ],
    "stores/calls.py": [
        (
            "body-resumed-at-its-beginning",
            "archive.stream(want._replace(start=position))",
            "archive.stream(want)",
        ),
        (
            "leaked-share-of-the-limiter",
            "                self._active -= 1\n",
            "                self._active -= succeeded\n",
        ),
    ],
    "extraction/objects.py": [
        (
            "same-size-is-the-same",
            "(found.size, found.crc32) == (stored_size(member, options), member.crc32)",
            "found.size == stored_size(member, options)",
        )
    ],
    "planning/plan.py": [
        (
            "refused-members-lost",
            "        records.write_outcomes(*_refused_members(reading))\n",
            "        pass\n",
        )
    ],
    "model.py": [
        (
            "run-without-its-version",
            "encode((request.source, pin, request.destination, request.options))",
            "encode((request.source, request.destination, request.options))",
        )
    ],
    "extraction/large.py": [
        ("copy-not-verified", "if combine_parts(parts) != (row.", "if not row and () != (row."),
        (
            "buffer-used-again-too-early",
            "self._pending.append((sent, self._buffer))",
            "self._pending.append((sent, bytearray())); self._free.append(self._buffer)",
        ),
    ],
    "settling/after.py": [
        (
            "nested-members-elsewhere",
            '    return key[: -len(SUFFIX)] + "/"\n',
            '    return key + "/"\n',
        ),
        (
            "nested-archives-of-complete-runs-only",
            "frozenset({Verdict.COMPLETED, Verdict.COMPLETED_WITH_ERRORS})",
            "frozenset({Verdict.COMPLETED})",
        ),
    ],
}
MUTANTS = tuple(
    Mutant(name, file, old, new) for file, some in FAULTS.items() for name, old, new in some
)


def hunt(mutant: Mutant, seconds: float) -> str:
    """Run schedules against a package with the fault; return how the first fails, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, PACKAGE.name)
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        mutant.apply(package)
        paths = os.pathsep.join([folder, str(Path(__file__).parents[2])])
        ended = subprocess.run(
            [sys.executable, "-c", HUNT, str(seconds)],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
    return ended.stdout.strip()


def main() -> int:
    """Hunt all mutants, or those that are named; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="for each, at most")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    asked = parser.parse_args()
    chosen = [one for one in MUTANTS if not asked.only or one.name in asked.only]
    caught = 0

    def find(mutant: Mutant) -> tuple[str, float]:
        started = time.monotonic()
        return hunt(mutant, asked.seconds), time.monotonic() - started

    with ThreadPoolExecutor(asked.at_once) as pool:
        for mutant, (found, took) in zip(chosen, pool.map(find, chosen), strict=True):
            caught += bool(found)
            line = f"BENCH sim.seconds_to_first_failure.{mutant.name} {took:.1f} s  {found}"
            print(line if found else f"not caught: {mutant.name}", flush=True)  # noqa: T201
    print(f"BENCH sim.mutants_caught {caught} of {len(chosen)}")  # noqa: T201
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
