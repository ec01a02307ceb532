"""``python -m tests.fuzz --seconds 60 --target directory``: run the fuzzer and report."""

import argparse
import faulthandler
import sys
import time

from tests.fuzz.fuzzer import HANG_SECONDS, TARGETS, run_case


def run(target: str, seed: int, seconds: float, start: int) -> int:
    """Run cases from `start` on for some seconds of CPU; return how many crashed or hung."""
    case, refused, found = start, 0, list[tuple[int, str]]()
    first = began = time.process_time()
    while began - first < seconds:
        try:
            refused += run_case(target, seed, case)
        except Exception as error:  # noqa: BLE001 (anything that leaves the core is what is sought)
            found.append((case, repr(error)))
        ended = time.process_time()
        if ended - began > HANG_SECONDS:
            found.append((case, f"{ended - began:.1f} s"))
        began, case = ended, case + 1
    print(f"{target}: {case - start} executions, {refused} refused, {len(found)} crashed or hung")  # noqa: T201 (a report is what this is for)
    for number, what in found[:20]:
        print(f"  --seed {seed} --start {number}: {what}")  # noqa: T201 (as above)
    return len(found)


def main() -> int:
    """Run; return 1 if anything crashed or hung."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="of CPU, for each target")
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the first case's number")
    given = parser.parse_args()
    faulthandler.enable()
    targets = given.target or sorted(TARGETS)
    found = [run(target, given.seed, given.seconds, given.start) for target in targets]
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
