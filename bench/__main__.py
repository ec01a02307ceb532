"""``python -m bench [NAME...]``: run benches one after the other, then print one table.

Each bench is a module (bench/README.md) and runs in a separate process. Its output appears at once.
While a bench prints nothing, a line every half minute says which bench is running and for how long.
"""

import argparse
import ast
import queue
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

NAMES = (
    "small",
    "sizes",
    "plan",
    "memory",
    "large",
    "verify",
    "cloud",
    "everyday",
    "burst",
)
AIM_SECONDS = 600.0  # of each bench, on two cores
SILENCE_SECONDS = 30.0


@dataclass(slots=True)
class Outcome:
    """The result of one bench."""

    name: str
    seconds: float = 0.0
    exit_code: int = 0
    figures: list[tuple[str, str, str]] = field(default_factory=list)  # name, value, unit


def describe(name: str) -> str:
    """Return the first line of a bench's docstring."""
    source = Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or name).partition("\n")[0]


def run_bench(name: str, command: list[str], silence: float = SILENCE_SECONDS) -> Outcome:
    """Run a bench, pass on its output, and keep its figures.

    Args:
        name: the name of the bench.
        command: its command line.
        silence: seconds without output after which a progress line appears.
    """
    outcome = Outcome(name)
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in _lines(process, silence):
            if line is None:
                print(f"... {name}: at work for {time.monotonic() - began:.0f} s", flush=True)
                continue
            print(line, flush=True)
            match line.split():
                case [word, figure, value, unit] if word == "BENCH":
                    outcome.figures.append((figure, value, unit))
    outcome.exit_code = process.returncode
    outcome.seconds = time.monotonic() - began
    return outcome


def _lines(process: subprocess.Popen[str], silence: float) -> Iterator[str | None]:
    """Yield the output lines of a process, and None for each `silence` seconds without a line."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    Thread(target=_read_lines, args=(process, lines), daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=silence)
        except queue.Empty:
            yield None
            continue
        if line is None:
            return
        yield line


def _read_lines(process: subprocess.Popen[str], lines: queue.SimpleQueue[str | None]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line.rstrip("\n"))
    lines.put(None)


def make_table(outcomes: list[Outcome]) -> list[str]:
    """Return the lines of one table: each bench with its seconds, and below it its figures."""
    figures = [figure for outcome in outcomes for figure in outcome.figures]
    width = max([len(name) for name, _, _ in figures], default=0)
    lines = []
    for outcome in outcomes:
        remark = ""
        if outcome.exit_code:
            remark = f", FAILED with exit code {outcome.exit_code}"
        elif outcome.seconds > AIM_SECONDS:
            remark = f", longer than the aim of {AIM_SECONDS:.0f} s"
        lines.append(f"{outcome.name} ({outcome.seconds:.0f} s{remark})")
        lines += [
            f"  {name:<{width}}  {value:>10}  {unit}" for name, value, unit in outcome.figures
        ]
    return lines


def main() -> int:
    """Run the named benches, or all; return 1 if one failed."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    names = parser.parse_args().names or list(NAMES)
    unknown = set(names) - set(NAMES)
    if unknown:
        parser.error(
            f"no bench is called {', '.join(sorted(unknown))}; there are: {' '.join(NAMES)}"
        )
    outcomes = []
    for number, name in enumerate(names, 1):
        print(f"== {name} ({number} of {len(names)}): {describe(name)}", flush=True)
        outcomes.append(run_bench(name, [sys.executable, "-m", f"bench.{name}"]))
    print(flush=True)
    for line in make_table(outcomes):
        print(line, flush=True)
    return 1 if any(outcome.exit_code for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
