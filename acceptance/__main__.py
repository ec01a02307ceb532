"""``python -m acceptance --env dev``: the acceptance set against a deployed environment.

Credentials, region and endpoint are boto3's own (AWS_PROFILE, AWS_ENDPOINT_URL, ...).
Exit codes: 0 if every case is ok or not applicable, 1 if one failed or something is left, 2 for
wrong arguments, 130 after Ctrl-C, 143 after SIGTERM. Before the first case, s3unzip's own codes
apply, such as 6 for a missing stack.
"""

import argparse
import json
import secrets
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from boto3.exceptions import Boto3Error
from botocore.exceptions import BotoCoreError, ClientError

from acceptance.cases import CASES, FULL_DOLLARS, Case, Done, published_cases
from acceptance.incidents import INCIDENTS
from acceptance.leftovers import drop_dead_letters, remove_all, shown, take_inventory
from acceptance.listener import remove_listener
from acceptance.site import Mismatch, NotApplicableError, Site
from s3unzip.cli.terminal import Stopping
from s3unzip.errors import S3UnzipError, UsageError

SECONDS = {"small": 900.0, "full": 3_600.0}  # limit of a run until its report
TOKEN = "acceptance-"  # noqa: S105 - what everything of a set is called by
LINE = "{:10}  {:46}  {:64}  {:>8}  {:>10}  {}"  # a long cell moves the others and is never cut


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one case."""

    case: str
    expected: str
    got: str
    seconds: float
    dollars: float  # by counted requests and seconds
    verdict: Literal["ok", "FAILED", "not applicable"]

    def __str__(self) -> str:
        seconds, dollars = f"{self.seconds:.1f}", f"${self.dollars:.4f}"
        return LINE.format(self.case, self.expected, self.got, seconds, dollars, self.verdict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the set; return the exit code."""
    chosen = _parser().parse_args(arguments)
    rows: list[Row] = []
    stopping = Stopping()
    try:
        return _run(chosen, rows, stopping)
    except S3UnzipError as error:
        sys.stderr.write(f"acceptance: {error}\n")
        return error.exit_code
    except (BotoCoreError, ClientError) as error:
        sys.stderr.write(f"acceptance: {type(error).__name__}: {error}\n")
        return 1
    except KeyboardInterrupt:
        return stopping.exit_code
    finally:
        if chosen.json is not None and rows:
            table = {
                "environment": chosen.env,
                "scale": chosen.scale,
                "cases": [asdict(row) for row in rows],
            }
            chosen.json.write_text(json.dumps(table, indent=2) + "\n", encoding="utf-8")


def _run(chosen: argparse.Namespace, rows: list[Row], stopping: Stopping) -> int:
    full = chosen.scale == "full"
    token = chosen.clean or TOKEN + secrets.token_hex(4)
    if not token.startswith(TOKEN) or len(token) < len(TOKEN) + 8:
        raise UsageError(f"--clean {token}: no set has this token; it is {TOKEN}XXXXXXXX")
    cases = _choose([*CASES, *INCIDENTS, *published_cases(full=full)], chosen.only)
    site = Site(chosen.env, token, chosen.timeout or SECONDS[chosen.scale])
    _say(f"environment {chosen.env}, scale {chosen.scale}, everything of this set: {token}")
    if chosen.clean:
        clean = _remove(site)
        remove_listener(site)
        return 0 if clean else 1
    if full and not chosen.yes:
        _say(f"the published archives in full size cost about ${FULL_DOLLARS:.2f}")
        sys.stderr.write("acceptance: nothing was put; to continue, add --yes (make: YES=1)\n")
        return 2
    return 0 if _run_set(site, cases, rows, stopping) else 1


def _choose(cases: list[Case], names: Sequence[str]) -> list[Case]:
    """Return the cases with these names, or all without names."""
    known = [case.name for case in cases]
    for name in names:
        if name not in known:
            raise UsageError(f"--only {name}: no such case; there are: {', '.join(known)}")
    return [case for case in cases if not names or case.name in names]


def _run_set(site: Site, cases: Sequence[Case], rows: list[Row], stopping: Stopping) -> bool:
    """Run the cases, add their rows, remove everything; return whether all succeeded.

    Ctrl-C and SIGTERM end the current case; KeyboardInterrupt propagates after everything is
    removed, and `stopping` knows which one it was.
    """
    _say(f"before: {shown(take_inventory(site))}")
    try:
        _say(LINE.format("case", "expected", "got", "seconds", "dollars", "").rstrip())
        with stopping.like_ctrl_c():
            for case in cases:
                rows.append(_run_case(site, case))
                _say(str(rows[-1]))
        _say(_sum_line(rows))
    finally:
        clean = _remove(site)
    return clean and not any(row.verdict == "FAILED" for row in rows)


def _run_case(site: Site, case: Case) -> Row:
    """Run one case; an error of AWS becomes its row."""
    started = time.monotonic()
    verdict: Literal["ok", "FAILED", "not applicable"] = "ok"
    done = Done("")
    try:
        done = case.act(site)
        got = done.got
    except NotApplicableError as reason:
        verdict, got = "not applicable", str(reason)
    except Mismatch as mismatch:
        verdict, got = "FAILED", str(mismatch)
    except (S3UnzipError, Boto3Error, BotoCoreError, ClientError) as error:
        verdict, got = "FAILED", f"{type(error).__name__}: {error}".splitlines()[0]
    seconds = round(time.monotonic() - started, 3)
    dollars = sum(one.cost or 0.0 for one in done.reports)
    return Row(case.name, case.expected, got, seconds, dollars, verdict)


def _remove(site: Site) -> bool:
    """Remove all that the set left, print it, and return whether nothing remains."""
    _say(f"after:  {shown(take_inventory(site))}; removing")
    left = remove_all(site)
    _say(f"left:   {shown(left)}")
    letters = drop_dead_letters(site)
    if letters:
        _say(f"{letters} dead letters of this set deleted")
    if not left.total():
        return True
    _say(f"not all could be removed; again: python -m acceptance --clean {site.token}")
    return False


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _sum_line(rows: Sequence[Row]) -> str:
    """Return the last line: number of cases, seconds, dollars."""
    count = Counter(row.verdict for row in rows)
    return (
        f"{count['ok']} ok, {count['FAILED']} failed, {count['not applicable']} not applicable; "
        f"{sum(row.seconds for row in rows):.1f} s, ${sum(row.dollars for row in rows):.4f}"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="acceptance", description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--env", default="dev", help="the environment: its stack is s3unzip-NAME")
    add("--scale", choices=sorted(SECONDS), default="small", help="of the published archives")
    add("--only", action="append", default=[], metavar="CASE", help="again for more")
    add("--json", type=Path, metavar="FILE", help="write the table there too")
    add("--timeout", type=float, metavar="SECONDS", help="of each run")
    add("--yes", action="store_true", help="agree to the cost of --scale full")
    add("--clean", metavar="TOKEN", help="only remove what a killed set left")
    return parser


if __name__ == "__main__":
    sys.exit(main())
