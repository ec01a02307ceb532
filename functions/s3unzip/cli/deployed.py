"""Commands on a deployed environment: ``submit``, ``reconcile``, ``doctor``."""

import sys
import time
from itertools import chain

from s3unzip.cli.options import SERVER, Given, command
from s3unzip.cli.printing import print_json
from s3unzip.cli.terminal import confirm
from s3unzip.errors import BudgetError, InterruptedRunError, UsageError
from s3unzip.figures import show_bytes, show_count, show_dollars, show_time
from s3unzip.model import Location
from s3unzip.operate import reconcile as reconciling
from s3unzip.operate.canary import try_canary
from s3unzip.operate.doctor import CheckStatus, Diagnosis, diagnose
from s3unzip.operate.runs import DeployedRuns
from s3unzip.operate.submit import Submission, find_archives, send_events
from s3unzip.pricing import price_archives
from s3unzip.printable import printable

DAY = 86_400.0
INDENT = " " * 9  # the width of the status of a check
TOLD_EVERY = 10_000  # archives
REQUIRED = {"required": True}


@command(
    *("sources env", SERVER, "max_cost dry_run yes json"),
    env=REQUIRED,
    sources={"required": True, "help": "s3://bucket/prefix/, a glob, or an archive."},
    dry_run={"help": "Print what was found; queue nothing."},
)
def submit(given: Given) -> int:
    """Queue archives that are already there.

    The same command can be given again: archives whose runs have begun or ended start nothing.

    Exit code: 0 queued, 1 the answer was no, 2 wrong request or above --max-cost.
    """
    if not (given.yes or given.dry_run or sys.stdin.isatty()):
        raise UsageError(
            "submit: standard input is no terminal, so nobody can be asked; look with "
            "--dry-run first, then add --yes"
        )
    runs, limit = given.deployed(), given.max_cost
    found, outside = find_archives(given.sources, runs)
    count, size, env = len(found), sum(found.values()), runs.environment
    made = Submission(env, count, size, outside, price_archives(count, size))
    if not given.json:
        left_out = f"; left out: {outside:,} that {env} does not take" if outside else ""
        sys.stdout.write(
            f"{show_count(count, 'archive')} to extract, {show_bytes(made.size)}, about "
            f"{show_dollars(made.dollars)} by their sizes{left_out}\n"
        )
    if limit is not None and made.dollars > limit:
        raise BudgetError(
            f"the estimate is {show_dollars(made.dollars, limit)} for {count:,} archives, "
            f"above the limit of {show_dollars(limit, made.dollars)}. Nothing is queued: raise "
            "--max-cost, or name fewer archives"
        )
    agreed = not given.dry_run and bool(count)
    if agreed and not given.yes:
        agreed = confirm(f"Queue {show_count(count, 'archive')}?")
    if agreed:
        made.queued = _queue(runs, list(found))
    else:
        why = "" if count else f": there is no archive that {env} takes"
        sys.stderr.write(f"nothing is queued{why}\n")
    if given.json:
        print_json(made)
    return 0 if agreed or given.dry_run or not count else 1


def _queue(runs: DeployedRuns, keys: list[str]) -> int:
    queued, now, bucket = 0, time.time(), runs.defaults.trigger.bucket
    # The events have the time of now: archives that were put long ago are not ahead of new ones.
    events = [(Location("s3", bucket, key), now) for key in keys]
    client, queue = runs.client("sqs"), runs.outputs["QueueUrl"]
    try:
        for count in send_events(client, queue, events, "submit"):
            if count // TOLD_EVERY > queued // TOLD_EVERY:
                sys.stderr.write(f"queued {count:,} archives\n")
            queued = count
    except KeyboardInterrupt:
        raise InterruptedRunError(
            f"stopped after {queued:,} of {len(keys):,} archives; the same command queues all, and "
            "none is extracted twice"
        ) from None
    sys.stderr.write(f"queued {show_count(queued, 'archive')}: s3unzip runs{runs.found_by}\n")
    return queued


@command("env", SERVER, "days start json", env=REQUIRED)
def reconcile(given: Given) -> int:
    """Find archives whose event or verdict never came.

    Compares the ingest bucket with the runs. Also finds archives that were to be deleted or tagged
    after their runs (``[after_success]``), and were not.

    Exit code: 0 every archive has its verdict or is being extracted, 1 some have not, or are left.
    """
    runs = given.deployed()
    found = reconciling.reconcile(runs, time.time() - given.days * DAY)
    left = sum(one.state == "archive left" for one in found.unsettled)
    if given.json:
        print_json(found)
    else:
        for one in found.unsettled:
            mend = f"  s3unzip resume {one.run}{runs.found_by}"
            if one.state == "no run":
                mend = ""
            elif one.state == "not readable":
                mend = f"  {printable(one.message)}"
            sys.stdout.write(
                f"{show_time(one.put)}  {one.state:12}  "
                f"{show_bytes(one.size):>9}  {printable(str(one.source))}{mend}\n"
            )
        sys.stdout.write(
            f"{found.archives:,} archives: {found.running:,} running, "
            f"{len(found.unsettled) - left:,} without a verdict"
            + (f", {left:,} left after success\n" if left else "\n")
        )
    if given.start and found.unsettled:
        count = reconciling.start(runs, found.unsettled)
        sys.stderr.write(f"{count:,} started: s3unzip runs{runs.found_by}\n")
    return 1 if found.unsettled else 0


@command("env", SERVER, "no_canary wait json", env=REQUIRED)
def doctor(given: Given) -> int:
    """Check a deployed environment, and say what to do.

    Exit code: 0 all is well or there are only warnings, 1 a check failed.
    """
    runs, found = given.deployed(), []
    for one in chain(diagnose(runs), () if given.no_canary else try_canary(runs, given.wait)):
        found.append(one)
        if not given.json:
            advice = f"{INDENT}-> {printable(one.advice)}\n" if one.advice else ""
            sys.stdout.write(f"{one.status:8} {one.name:19} {printable(one.message)}\n{advice}")
            sys.stdout.flush()
    statuses = [one.status for one in found]
    ok, warnings, failures = map(statuses.count, CheckStatus)
    if given.json:
        print_json(Diagnosis(given.env or "", tuple(found)))
    else:
        counts = f"{show_count(warnings, 'warning')}, {show_count(failures, 'failure')}"
        sys.stdout.write(f"{ok} ok, {counts}\n")
    return 1 if failures else 0
