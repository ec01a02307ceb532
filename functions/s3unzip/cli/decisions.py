"""``run --dry-run``, and the question that commands add to the error of a missing archive."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from s3unzip.cli.arguments import Arguments
from s3unzip.cli.terminal import print_json, warn
from s3unzip.errors import NotFoundError
from s3unzip.model import Location, Request
from s3unzip.printable import printable, printable_name

if TYPE_CHECKING:
    from s3unzip.local.dry_run import Decision


def list_decisions(arguments: Arguments, request: Request) -> int:
    """Print what a run would do with each member; return 1 if it cannot write a member, else 0."""
    from s3unzip.api.options import judge_selection, make_policy
    from s3unzip.context import Context
    from s3unzip.local.dry_run import decide
    from s3unzip.local.extra import check_extra
    from s3unzip.stores.clock import LocalClock
    from s3unzip.stores.open import open_stores

    config = arguments.config()
    deletes = arguments.delete_extra is not None
    policy = make_policy(request.options, arguments.password(), request.destination)
    context = Context(open_stores(config), LocalClock(), policy)
    if deletes:
        check_extra(request, config.work, context.stores)
    counts: Counter[str] = Counter()
    with suggesting_prefix(request.source):
        check = judge_selection(request.options, warn)
        for decision in decide(request, context, check, delete_extra=deletes):
            counts[decision.action] += 1
            if arguments.json:
                print_json(decision)
            else:
                _print_decision(decision)
    totals = ", ".join(f"{count:,} {action}" for action, count in counts.items())
    sys.stderr.write(f"dry run, nothing is written: {totals or 'no members'}\n")
    return int(counts["fail"] > 0 or counts["refuse"] > 0)


def _print_decision(decision: "Decision") -> None:
    detail = ""
    if decision.message:
        detail = f"  {printable(decision.message)} ({decision.reason})"
    key = printable_name(decision.key)
    sys.stdout.write(f"{decision.action:9}  {decision.size:12,}  {key}{detail}\n")


@contextmanager
def suggesting_prefix(source: Location) -> Iterator[None]:
    """Add a question to the error of a missing object: its key may be meant as a prefix."""
    try:
        yield
    except NotFoundError as error:
        name = source.key.rpartition("/")[2]
        if not source.store.has_prefixes or "." in name or str(source) not in str(error):
            raise
        raise NotFoundError(
            f"{error}; is it a prefix? then end it with a slash: {source}/"
        ) from None
