"""``python -m tools.mutants``: try the mutants of the listed modules and record the survivors.

Recorded results are not tried again, so a second run is short. If only the tests of a module have
changed, only its survivors are tried.

* ``--only zip/local.py`` (or the beginning of a path) chooses modules;
* ``--again`` tries all of their mutants;
* ``--seconds`` ends after so long with the modules that are done.

The exit code is 1 if a survivor has no reason in ``tools/records/survivors.toml``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tools.mutants.mutate import Mutant, choose, make_mutants
from tools.mutants.record import (
    RECORD,
    ROOT,
    Result,
    Target,
    digest_source,
    digest_tests,
    find_unexplained,
    read_record,
    read_targets,
    write_record,
)
from tools.mutants.trying import (
    PACKAGE,
    CopiedPackage,
    Limits,
    TestsError,
    Verdict,
    preload,
    run_tests,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

SOURCES = ROOT / "functions"
SECONDS = 3_600.0
BASELINE = Limits(wall=900.0, cpu=300.0)  # of the tests without a mutant


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def list_mutants(
    target: Target, source: str, known: Result | None
) -> tuple[list[Mutant], list[Mutant]]:
    """Return the chosen mutants of a module, and those of them to try.

    If the module is unchanged since `known`, killed mutants are not tried again.
    """
    every = make_mutants(source)
    if known is None or known.source != digest_source(target):
        chosen = choose(every, target.limit)
        return chosen, chosen
    chosen = choose(every, max(target.limit, known.tried))
    killed = {one.name for one in choose(every, known.tried)} - set(known.survived)
    return chosen, [one for one in chosen if one.name not in killed]


def try_target(
    target: Target, copied: CopiedPackage, until: float, known: Result | None
) -> Result | None:
    """Try the mutants of one module; return None if the time ends before all were tried.

    Raises:
        TestsError: the tests fail without a mutant, or there are none.
    """
    source = (SOURCES / PACKAGE / target.module).read_bytes()
    chosen, left = list_mutants(target, source.decode(), known)
    log = copied.folder.parent / "log"
    first = run_tests(target.tests, copied.folder, ROOT, BASELINE, log)
    if first.verdict is not Verdict.SURVIVED:
        raise TestsError(
            f"{target.module}: its tests do not pass without a mutant ({first.verdict}):\n"
            + log.read_text(errors="replace")[-3_000:]
        )
    survived = []
    began = time.monotonic()
    try:
        for mutant in left:
            if time.monotonic() > until:
                return None
            copied.write(target.module, mutant.apply(source))
            trial = run_tests(target.tests, copied.folder, ROOT, first.limits(), log)
            if trial.verdict is Verdict.SURVIVED:
                survived.append(mutant.name)
                say(f"  survived, line {mutant.line}: {mutant.name}")
    finally:
        copied.write(target.module, source)
    say(
        f"{target.module}: {len(chosen) - len(survived)} of {len(chosen)} killed; "
        f"{len(left)} tried in {time.monotonic() - began:.0f} s"
    )
    return Result(
        digest_source(target), digest_tests(target), len(chosen), target.limit, tuple(survived)
    )


def choose_targets(targets: Sequence[Target], only: Sequence[str]) -> list[Target]:
    """Return the targets whose path begins with one of `only`; all where it is empty."""
    return [one for one in targets if not only or one.module.startswith(tuple(only))]


def is_current(known: Result, target: Target) -> bool:
    """Return whether no change could alter a result."""
    if known.source != digest_source(target) or known.limit != target.limit:
        return False
    return not known.survived or known.tests == digest_tests(target)


def main() -> int:
    """Try the mutants of changed modules; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", default=[], metavar="PATH")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    arguments = parser.parse_args()
    targets = read_targets()
    results = {name: one for name, one in read_record().items() if name in targets}
    until = time.monotonic() + arguments.seconds
    preload()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copied = CopiedPackage(SOURCES, Path(folder) / "package")
        for target in choose_targets(list(targets.values()), arguments.only):
            known = None if arguments.again else results.get(target.module)
            if known and is_current(known, target):
                continue
            result = try_target(target, copied, until, known)
            if result is None:
                say(f"{target.module}: not finished within {arguments.seconds:.0f} s")
                break
            results[target.module] = result
            write_record(results)
    tried = sum(one.tried for one in results.values())
    survived = sum(len(one.survived) for one in results.values())
    say(
        f"{tried - survived} of {tried} mutants killed, in {len(results)} of {len(targets)} modules"
    )
    unexplained = find_unexplained(results)
    for line in unexplained:
        say(f"error: {line}")
    say(f"written to {RECORD.relative_to(ROOT)}")
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
