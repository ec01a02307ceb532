"""``python -m tests.fuzz --seconds 60 --target directory``: run the fuzzer and report."""

import argparse
import faulthandler
import sys

from tests.fuzz.fuzzer import TARGETS, run


def main() -> int:
    """Run; return 1 if anything crashed or hung."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="of CPU, for each target")
    parser.add_argument("--target", choices=sorted(TARGETS), action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0, help="the first case's number")
    options = parser.parse_args()
    faulthandler.enable()
    is_clean = True
    for target in options.target or sorted(TARGETS):
        report = run(target, options.seed, options.seconds, options.start)
        print(report)  # noqa: T201 (a report is what this is for)
        for case, what in (*report.crashes[:20], *report.hangs[:20]):
            print(f"  --seed {options.seed} --start {case}: {what}")  # noqa: T201 (as above)
        is_clean &= not report.crashes and not report.hangs
    return 0 if is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
