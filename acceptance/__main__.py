"""``python -m acceptance --env dev``: the acceptance set against a deployed environment.

Credentials, region and endpoint are boto3's own (AWS_PROFILE, AWS_ENDPOINT_URL, ...).
Exit codes: 0 if every case is ok or not applicable, 1 if one failed or something is left, 2 for
wrong arguments, 130 after Ctrl-C, 143 after SIGTERM. Before the first case, s3unzip's own codes
apply, such as 6 for a missing stack.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from acceptance.cases import CASES
from acceptance.incidents import INCIDENTS
from acceptance.listener import remove_listener
from acceptance.published import PUBLISHED, forecast, published_cases
from acceptance.session import remove, run_set, say
from acceptance.site import Site
from acceptance.table import Row, as_json
from s3unzip.cli.terminal.signals import Stopping
from s3unzip.errors import S3UnzipError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acceptance.checks import Case

SECONDS = {"small": 900.0, "full": 3_600.0}  # limit of a run until its report
TOKEN = "acceptance-"  # noqa: S105 - what everything of a set is called by


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
            chosen.json.write_text(as_json(chosen.env, chosen.scale, rows), encoding="utf-8")


def _run(chosen: argparse.Namespace, rows: list[Row], stopping: Stopping) -> int:
    full = chosen.scale == "full"
    token = chosen.clean or TOKEN + secrets.token_hex(4)
    if not token.startswith(TOKEN) or len(token) < len(TOKEN) + 8:
        raise UsageError(f"--clean {token}: no set has this token; it is {TOKEN}XXXXXXXX")
    cases = _choose([*CASES, *INCIDENTS, *published_cases(full=full)], chosen.only)
    site = Site(chosen.env, token, chosen.timeout or SECONDS[chosen.scale])
    say(f"environment {chosen.env}, scale {chosen.scale}, everything of this set: {token}")
    if chosen.clean:
        clean = remove(site)
        remove_listener(site)
        return 0 if clean else 1
    if full and not _agreed(site, cases, yes=chosen.yes):
        return 2
    return 0 if run_set(site, cases, rows, stopping) else 1


def _choose(cases: list[Case], names: Sequence[str]) -> list[Case]:
    """Return the cases with these names, or all without names.

    Raises:
        UsageError: there is no such case.
    """
    known = [case.name for case in cases]
    for name in names:
        if name not in known:
            raise UsageError(f"--only {name}: no such case; there are: {', '.join(known)}")
    return [case for case in cases if not names or case.name in names]


def _agreed(site: Site, cases: Sequence[Case], *, yes: bool) -> bool:
    """Print the forecast of the published archives; return whether the user agreed to it."""
    names = {case.name for case in cases}
    found = [forecast(site, one) for one in PUBLISHED if one.name in names]
    for one in found:
        say(f"{one.title}: {one.duration.expected:,.0f} s, ${one.cost.total:,.2f} by forecast")
    say(f"together ${sum(one.cost.total for one in found):,.2f}, besides the small cases")
    if not yes:
        sys.stderr.write("acceptance: nothing was put; to continue, add --yes (make: YES=1)\n")
    return yes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="acceptance", description=__doc__.splitlines()[0])
    parser.add_argument("--env", default="dev", help="the environment: its stack is s3unzip-NAME")
    parser.add_argument(
        "--scale",
        choices=sorted(SECONDS),
        default="small",
        help="of the published archives: scaled down, or in full size",
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="CASE", help="again for more"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there too")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="of each run")
    parser.add_argument("--yes", action="store_true", help="agree to the cost of --scale full")
    parser.add_argument("--clean", metavar="TOKEN", help="only remove what a killed set left")
    return parser


if __name__ == "__main__":
    sys.exit(main())
