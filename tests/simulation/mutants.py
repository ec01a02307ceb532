"""Faults that are planted into a copy of the package: what the simulation must find.

Each is one replacement in one file. Neither the simulation nor the promises know of them.
`make simulate-mutants` plays the scenes and the tests of the file against each, then the schedules
1, 2, ... until one fails, and prints how many were caught and how long each took.
"""

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
ROOT = Path(__file__).parents[2]
TESTS = {  # of the guards in a file, beside the scenes
    "aws/executions.py": ("tests/unit/operate/test_runs.py",),
    "settling/report.py": (
        "tests/unit/settling/test_loop.py",
        "tests/functional/test_recovery.py",
    ),
    "settling/loop.py": (
        "tests/unit/settling/test_loop.py",
        "tests/functional/test_recovery.py",
        "tests/functional/large/test_kills.py",
    ),
    "settling/results.py": ("tests/unit/settling/test_loop.py",),
    "runs/records.py": (
        "tests/unit/settling/test_loop.py",
        "tests/functional/test_recovery.py",
    ),
    "extraction/uploads.py": ("tests/unit/extraction/test_flow.py",),
}
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
            'etag = attempt.calls.paced("put", send)',
            'attempt.note_extracted(row, 0, len(body)); attempt.calls.paced("put", send); return',
        ),
        ("never-overwrites", "if_absent=self._if_absent)", "if_absent=False)"),
        ("pool-does-not-wait", "        pool.close()\n", ""),
    ],
    "runs/step.py": [
        ("lost-outcome", "report, self.outcomes)", "report, self.outcomes[:-1])"),
        ("stale-pin", "run.pin, ", "stores.source(run.source).stat(run.source).pin, "),
        ("resume-forgets-outcomes", "self.outcomes.extend(earlier.outcomes)", "pass"),
    ],
    "extraction/task.py": [
        ("stop-ignored", "stop.result()", "None"),
        ("stop-not-recorded", "attempt.records.write_stop(stop_for(fault))", "pass"),
        ("resume-repeats-members", "if row.member.index not in done]", "if done or row]"),
        ("partial-record-taken-for-whole", " and earlier.is_complete:", ":"),
    ],
    "settling/loop.py": [
        ("stop-stays-when-resumed", "records.store.delete([STOP])", "pass"),
        ("uploads-never-dropped", "if state.round and stop is None:", "if state.round < 0:"),
        (
            "lost-task",
            "order_tasks(results.unfinished)",
            "order_tasks(results.unfinished)[1:]",
        ),
        ("task-of-the-first-round-forgotten", "write_round(0, tasks)", "write_round(0, tasks[1:])"),
        (
            "plan-before-its-round",
            "    records.write_round(0, tasks)",
            "    records.write_plan(plan.summary)\n    records.write_round(0, tasks)",
        ),
        ("rounds-without-end", "state.idle + 1", "0"),
        (
            "damaged-run-never-anew",
            "report.reason == RECORD_UNREADABLE",
            "report.reason is EXECUTION_FAILED",
        ),
    ],
    "settling/results.py": [
        (
            "partial-task-not-left",
            "elif outcomes is None or not outcomes.is_complete:",
            "elif outcomes is None:",
        ),
    ],
    "runs/records.py": [
        ("late-stream-counts-too", "effective = replace(recorded, outcomes=[])", "pass"),
        ("whole-outcomes-emptied", "if recorded is None or not recorded.is_complete:", "if True:"),
        (
            "damaged-outcomes-taken-for-none",
            "if len(outcomes) != report.extracted + report.unchanged + report.failed:",
            "if len(outcomes) < 0:",
        ),
        (
            "damaged-stop-ignored",
            "return Stop(Verdict.FAILED, RECORD_UNREADABLE, str(error))",
            "return None",
        ),
        ("lost-plan-ends-nothing", "raise self._unreadable(RUN, error) from error", "raise"),
        (
            "report-written-over-any",
            "self.store.replace(REPORT, over, encode(report))",
            "self.store.write(REPORT, [encode(report)])",
        ),
    ],
    "settling/report.py": [
        ("worse-verdict-replaces-a-better-one", "if rank > earlier_rank:", "if rank >= 0:"),
        (
            "late-verdict-replaces-a-newer-one",
            "earlier.finished <= outdated_until",
            "outdated_until >= 0",
        ),
        ("archive-of-a-failed-run-deleted", "is not Verdict.COMPLETED:", "is Verdict.REJECTED:"),
        (
            "premature-verdict",
            "missing = plan.failed + plan.selected - results.members",
            "missing = 0",
        ),
        (
            "lost-round-not-seen",
            "if not (results.unfinished or results.waiting):",
            "if stop is not None:",
        ),
        ("failures-forgotten", "elif results.counts[Status.FAILED]:", "elif not results.counts:"),
    ],
    "aws/executions.py": [
        (
            "double-event",
            'publish_run_event(open_client("events"), config, report)',
            '[publish_run_event(open_client("events"), config, report) for _ in "ab"]',
        ),
        (
            "equal-id-is-the-same-archive",
            "if archive is not None and earlier.request is not None:",
            "if archive is None:",
        ),
        ("ended-execution-is-at-work", 'if execution.status == "RUNNING" and', "if"),
        ("later-execution-is-failed", " or number > failed_number)", ")"),
        ("replaced-archives-not-seen", "if current.etag == report.pin.etag:", "if current:"),
        (
            "nested-archives-not-started",
            "for request in requests:",
            "for request in ():",
        ),
    ],
    "aws/settle.py": [
        (
            "failed-runs-do-not-follow",
            "is_first=is_first)\n        compare",
            "is_first=is_first, check_replaced=False)\n        compare",
        ),
        (
            "stopped-functions-not-waited-for",
            '        compare_later(report, config, detail["name"])\n',
            "",
        ),
    ],
    "aws/events.py": [("event-counts-wrong", "getattr(report, name)", "report.members + 1")],
    "aws/intake.py": [
        (
            "older-version-not-followed",
            "extract_current_version(request, cause, config, context)",
            "...",
        ),
        (
            "older-end-not-repeated",
            "is_current = archive is not None and not put.is_older(archive.tail)",
            "is_current = archive is None or not put.is_older(archive.tail)",
        ),
        (
            "message-consumed-after-a-fault",
            "    return not faults",
            "    return True",
        ),
        (
            "small-run-looks-at-no-report",
            "        if not is_completed:\n",
            "        if False:\n",
        ),
        (
            "report-before-outcomes",
            "for name, data in self._memory.objects.items():",
            "for name, data in ():",
        ),
    ],
    "stores/calls.py": [
        ("body-resumed-at-its-beginning", "want._replace(start=position)", "want"),
        (
            "leaked-share-of-the-limiter",
            "self._active -= 1",
            "self._active -= succeeded",
        ),
    ],
    "extraction/existing_objects.py": [
        (
            "same-size-is-the-same",
            "and stored.crc32 == member.crc32",
            "",
        )
    ],
    "planning/plan.py": [
        (
            "refused-members-lost",
            "records.write_outcomes(report, outcomes)",
            "pass",
        )
    ],
    "run_ids.py": [
        ("run-without-its-version", "request.source, pin, request", "request.source, request")
    ],
    "extraction/uploads.py": [
        (
            "buffer-used-again-too-early",
            "for _ in range(at_once + 1))",
            "for _ in range(at_once))",
        ),
    ],
    "stores/ports.py": [
        (
            "gone-upload-counts-as-done",
            "if may_be_done and is_written():",
            "if may_be_done or is_written():",
        )
    ],
    "extraction/large_members.py": [
        ("copy-not-verified", "            _check_copy(parts, data)\n", ""),
    ],
    "settling/nested.py": [
        ("nested-members-elsewhere", 'key[: -len(SUFFIX)] + "/"', 'key + "/"'),
    ],
}
MUTANTS = tuple(
    Mutant(name, file, old, new) for file, some in FAULTS.items() for name, old, new in some
)


def hunt(mutant: Mutant, seconds: float) -> str:
    """Try a package with the fault; return which test or schedule fails first, or nothing."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, PACKAGE.name)
        shutil.copytree(PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
        mutant.apply(package)
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join([folder, str(ROOT)])}
        tests = ("tests/simulation/test_scenes.py", *TESTS.get(mutant.file, ()))
        pytest = ("-m", "pytest", "-qx", "--timeout=120", "-p", "no:cacheprovider")
        tried = _run((*pytest, *tests), variables)
        failed = re.search(r"^FAILED \S+::(\S+)", tried.stdout, re.MULTILINE)
        if failed is not None:
            return failed[1]
        return _run(("-c", HUNT, str(seconds)), variables).stdout.strip()


def _run(words: tuple[str, ...], variables: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=ROOT,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


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
    return int(caught < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
