"""``run --dry-run``: print what a run would do about each member."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from s3unzip.cli.arguments import Arguments
from s3unzip.cli.printing import print_json, warn
from s3unzip.errors import NotFoundError
from s3unzip.model import Location, Request
from s3unzip.printable import printable, printable_name

if TYPE_CHECKING:
    from s3unzip.local.dry_run import Decision


def list_decisions(arguments: Arguments, request: Request) -> int:
    """Print what a run would do about each member; return 1 if it could not do all of it."""
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
    with asking_for_a_prefix(request.source):
        judge = judge_selection(request.options, warn)
        for decision in decide(request, context, judge, delete_extra=deletes):
            counts[decision.action] += 1
            if arguments.json:
                print_json(decision)
            else:
                sys.stdout.write(_decision_line(decision))
    shown = ", ".join(f"{count:,} {action}" for action, count in counts.items())
    sys.stderr.write(f"dry run, nothing is written: {shown or 'no members'}\n")
    return 1 if counts["fail"] or counts["refuse"] else 0


def _decision_line(decision: "Decision") -> str:
    """Return the line of a member or an object."""
    detail = ""
    if decision.message:
        detail = f"  {printable(decision.message)} ({decision.reason})"
    key = printable_name(decision.key)
    return f"{decision.action:9}  {decision.size:12,}  {key}{detail}\n"


@contextmanager
def asking_for_a_prefix(source: Location) -> Iterator[None]:
    """Ask whether an object that is not there is meant as a prefix."""
    try:
        yield
    except NotFoundError as error:
        name = source.key.rpartition("/")[2]
        if not source.store.has_prefixes or "." in name or str(source) not in str(error):
            raise
        raise NotFoundError(
            f"{error}; is it a prefix? then end it with a slash: {source}/"
        ) from None
