"""Faults that are planted into a copy of the package: what the simulation must find.

Each is one replacement in one file. Neither the simulation nor the model knows of them.
`make simulate-mutants` runs the schedules 1, 2, ... against each until one fails, and prints how
many were caught and how long each took.
"""

from __future__ import annotations

import argparse
import os
import re
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
SENTENCE = re.compile(r"^seed (\d+): (.*?) -- ", re.MULTILINE)


class Mutant(NamedTuple):
    """One planted fault: `new` in place of `old`, which stands once in `file`."""

    name: str
    file: str  # below the package
    old: str
    new: str

    def apply(self, package: Path) -> None:
        """Plant the fault into a copy of the package.

        Raises:
            ValueError: the text is not there, or not once: write the mutant anew.
        """
        path = package / self.file
        source = path.read_text()
        if source.count(self.old) != 1:
            raise ValueError(f"mutant {self.name}: {self.old!r} is not once in {self.file}")
        path.write_text(source.replace(self.old, self.new))


class Caught(NamedTuple):
    """How a mutant was found."""

    mutant: str
    seconds: float  # until the first failure, the start of the interpreter included
    seed: int
    sentence: str  # of the documents


MUTANTS = (
    Mutant(
        "outcome-before-put",
        "extraction/batch.py",
        '            etag = calls.paced("put", put)\n',
        "            attempt.extracted(row, 0.0, len(body))\n"
        '            etag = calls.paced("put", put)\n'
        "            return\n",
    ),
    Mutant(
        "lost-outcome",
        "extraction/attempt.py",
        "self.records.write_outcomes(report, self.outcomes)",
        "self.records.write_outcomes(report, self.outcomes[:-1])",
    ),
    Mutant(
        "resume-forgets-outcomes",
        "extraction/attempt.py",
        "        self.outcomes.extend(earlier.outcomes)\n",
        "",
    ),
    Mutant(
        "resume-repeats-members",
        "extraction/task.py",
        "if row.member.index not in done]",
        "if done or row]",
    ),
    Mutant(
        "partial-record-taken-for-whole",
        "extraction/task.py",
        "if earlier is not None and earlier.complete:",
        "if earlier is not None:",
    ),
    Mutant(
        "stop-ignored",
        "runs/step.py",
        "    stop = (find_stop or records.find_stop)()\n",
        "    stop = None\n",
    ),
    Mutant(
        "stop-not-recorded",
        "runs/step.py",
        "        records.write_stop(stop_for(fault))\n",
        "        pass\n",
    ),
    Mutant(
        "stop-stays-when-resumed", "settling/loop.py", "    records.delete_stop()\n", "    pass\n"
    ),
    Mutant(
        "uploads-never-dropped",
        "settling/loop.py",
        "    if before.round and stop is None:",
        "    if before.round < 0:",
    ),
    Mutant(
        "stale-pin",
        "runs/step.py",
        ".pinned(run.source, run.pin)",
        ".pinned(run.source, stores.source(run.source).head(run.source))",
    ),
    Mutant(
        "lost-task",
        "settling/loop.py",
        "records.write_round(number, order_tasks(left))",
        "records.write_round(number, order_tasks(left)[1:])",
    ),
    Mutant(
        "plan-whole-before-its-round",
        "settling/loop.py",
        "    records.write_round(0, tasks)\n"
        "    summary = replace(plan.summary, requests=calls.requests)\n"
        "    records.write_plan(summary)\n",
        "    summary = replace(plan.summary, requests=calls.requests)\n"
        "    records.write_plan(summary)\n"
        "    records.write_round(0, tasks)\n",
    ),
    Mutant(
        "premature-verdict",
        "settling/report.py",
        "    missing = plan.failed + plan.selected - tally.members\n",
        "    missing = 0\n",
    ),
    Mutant(
        "partial-task-not-left",
        "settling/loop.py",
        "    if found is None or not found.complete:\n        state.left.append(task)\n",
        "    if found is None:\n        state.left.append(task)\n",
    ),
    Mutant(
        "rounds-without-end",
        "settling/loop.py",
        "    idle = 0 if state.done > before.done else before.idle + 1\n",
        "    idle = 0\n",
    ),
    Mutant(
        "failures-forgotten",
        "settling/report.py",
        "    if tally.counts[Status.FAILED]:\n",
        "    if not tally.counts:\n",
    ),
    Mutant(
        "late-failure-replaces-a-report",
        "settling/loop.py",
        "return report if records.create_report(report, render_page(report, context)) else None",
        "records.write_report(report, render_page(report, context))\n    return report",
    ),
    Mutant(
        "double-event",
        "aws/executions.py",
        '    announce(open_client("events"), config, report)\n',
        '    announce(open_client("events"), config, report)\n'
        '    announce(open_client("events"), config, report)\n',
    ),
    Mutant(
        "no-event-of-a-failure",
        "aws/settle.py",
        "        end_run(report, config, step, look=False)\n",
        "        pass\n",
    ),
    Mutant(
        "event-counts-wrong",
        "aws/events.py",
        '        "extracted": report.extracted,\n',
        '        "extracted": report.members,\n',
    ),
    Mutant(
        "message-consumed-after-a-fault",
        "aws/intake.py",
        "        return False\n    return True\n",
        "        return True\n    return True\n",
    ),
    Mutant(
        "faults-taken-for-gone",
        "aws/intake.py",
        '    except NotFoundError:\n        logger.info("archive is gone"',
        '    except (NotFoundError, S3UnzipError):\n        logger.info("archive is gone"',
    ),
    Mutant(
        "report-before-outcomes",
        "aws/intake.py",
        "        last = objects.pop(REPORT, None)\n",
        "        last = None\n        objects = dict(reversed(objects.items()))\n",
    ),
    Mutant(
        "body-resumed-at-its-beginning",
        "stores/calls.py",
        "archive.stream(want._replace(start=position))",
        "archive.stream(want)",
    ),
    Mutant(
        "leaked-share-of-the-limiter",
        "stores/calls.py",
        "            self.leave(entered, throttled=throttled, succeeded=False)\n",
        "",
    ),
    Mutant(
        "never-overwrites", "extraction/batch.py", "if_absent=self._if_absent)", "if_absent=False)"
    ),
    Mutant(
        "same-size-is-the-same",
        "extraction/objects.py",
        "(found.size, found.crc32) == (self.size, self.crc32)",
        "found.size == self.size",
    ),
    Mutant("copy-not-verified", "extraction/copy.py", "        _verify(parts, data, row)\n", ""),
    Mutant(
        "refused-members-lost",
        "planning/plan.py",
        "        records.write_outcomes(*_refused_members(reading))\n",
        "        pass\n",
    ),
    Mutant(
        "run-without-its-version",
        "model.py",
        "encode((request.source, pin, request.destination, request.options))",
        "encode((request.source, request.destination, request.options))",
    ),
    Mutant("pool-does-not-wait", "extraction/batch.py", "        pool.close()\n", ""),
    Mutant(
        "buffer-used-again-too-early",
        "extraction/multipart.py",
        "        self._pending.append((sent, self._buffer))\n",
        "        self._pending.append((sent, bytearray()))\n"
        "        self._free.append(self._buffer)\n",
    ),
    Mutant(
        "replaced-archives-not-seen",
        "aws/executions.py",
        "    if found.etag == report.pin.etag:\n",
        "    if found:\n",
    ),
    Mutant(
        "nested-archives-not-started",
        "aws/executions.py",
        "            _start_nested(request, config, context)\n",
        "            pass\n",
    ),
    Mutant(
        "nested-members-elsewhere",
        "settling/nested.py",
        '    return key[: -len(SUFFIX)] + "/"\n',
        '    return key + "/"\n',
    ),
    Mutant(
        "nested-archives-of-complete-runs-only",
        "settling/nested.py",
        "frozenset({Verdict.COMPLETED, Verdict.COMPLETED_WITH_ERRORS})",
        "frozenset({Verdict.COMPLETED})",
    ),
    Mutant(
        "archive-of-a-failed-run-deleted",
        "settling/after_success.py",
        "report.verdict is not Verdict.COMPLETED:",
        "report.verdict is Verdict.REJECTED:",
    ),
    Mutant(
        "program-begins-on-old-records", "local/machine.py", "        _forget(run, context)\n", ""
    ),
)


def hunt(mutant: Mutant, seconds: float) -> Caught | None:
    """Run schedules against a package with the fault until one fails; None if none does."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, PACKAGE.name)
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        mutant.apply(package)
        paths = os.pathsep.join([folder, str(Path(__file__).parents[2])])
        command = [sys.executable, "-m", "tests.simulation", "--first", "1", "--processes", "1"]
        started = time.monotonic()
        ended = subprocess.run(
            [*command, "--until-failure", "--seconds", str(seconds)],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.monotonic() - started
    found = SENTENCE.search(ended.stdout)
    if found is None:
        return None
    return Caught(mutant.name, took, int(found[1]), found[2])


def main() -> int:
    """Hunt all mutants, or those that are named; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.mutants", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="for each, at most")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="+", metavar="NAME", default=[])
    asked = parser.parse_args()
    chosen = [one for one in MUTANTS if not asked.only or one.name in asked.only]
    caught = 0
    with ThreadPoolExecutor(asked.at_once) as pool:
        results = pool.map(lambda one: hunt(one, asked.seconds), chosen)
        for mutant, found in zip(chosen, results, strict=True):
            if found is None:
                sys.stdout.write(f"not caught: {mutant.name}\n")
                continue
            caught += 1
            sys.stdout.write(
                f"BENCH sim.seconds_to_first_failure.{found.mutant} {found.seconds:.1f} s"
                f"  seed {found.seed}: {found.sentence}\n"
            )
            sys.stdout.flush()
    sys.stdout.write(f"BENCH sim.mutants_caught {caught} of {len(chosen)}\n")
    return 0 if caught == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
