"""``run --dry-run``: print what a run would do about each member."""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from s3unzip.cli.arguments import Arguments
from s3unzip.cli.printing import print_json, warn
from s3unzip.errors import NotFoundError
from s3unzip.model import Location, Request
from s3unzip.printable import printable, printable_name


def list_decisions(arguments: Arguments, request: Request) -> int:
    """Print what a run would do about each member; return 1 if it could not do all of it."""
    from s3unzip.api.options import judge_selection, make_policy
    from s3unzip.context import Context
    from s3unzip.local.dry_run import decide
    from s3unzip.local.extra import check_extra
    from s3unzip.stores.clock import LocalClock
    from s3unzip.stores.open import open_stores

    policy = make_policy(request.options, arguments.password(), request.destination)
    config, deletes = arguments.config(), arguments.delete_extra is not None
    context = Context(open_stores(config), LocalClock(), policy)
    if deletes:
        check_extra(request, config.work, context.stores)
    counts: Counter[str] = Counter()
    with asking_for_a_prefix(request.source):
        judge = judge_selection(request.options, warn)
        for one in decide(request, context, judge, delete_extra=deletes):
            counts[one.action] += 1
            if arguments.json:
                print_json(one)
                continue
            why = f"  {printable(one.message or '')} ({one.reason})" if one.message else ""
            sys.stdout.write(f"{one.action:9}  {one.size:12,}  {printable_name(one.key)}{why}\n")
    shown = ", ".join(f"{count:,} {action}" for action, count in counts.items())
    sys.stderr.write(f"dry run, nothing is written: {shown or 'no members'}\n")
    return 1 if counts["fail"] or counts["refuse"] else 0


@contextmanager
def asking_for_a_prefix(where: Location) -> Iterator[None]:
    """Ask whether an object that is not there is meant as a prefix."""
    try:
        yield
    except NotFoundError as error:
        last = where.key.rpartition("/")[2]
        if not where.store.has_prefixes or "." in last or str(where) not in str(error):
            raise
        raise NotFoundError(
            f"{error}; is it a prefix? then end it with a slash: {where}/"
        ) from None
