"""``run``: extract an archive, or several, on this machine."""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import s3unzip
from s3unzip.cli.options import AFTERWARDS, LOOK, MEMBERS, ODD, PLACES, WHERE, Given, command
from s3unzip.cli.printing import print_json, warn
from s3unzip.cli.terminal import confirm
from s3unzip.errors import AccessDeniedError, NotFoundError, UsageError
from s3unzip.figures import show_bytes, show_count
from s3unzip.model import Location, Request
from s3unzip.printable import printable, printable_name
from s3unzip.stores.locations import parse_destination, parse_source
from s3unzip.stores.ports import ListedObject

EXTRA_SHOWN = 10  # keys before the question


@command(
    "sources dest workers",
    *(MEMBERS, WHERE, LOOK, ODD, PLACES, "kms_key", AFTERWARDS),
    "dry_run quiet json",
)
def run(given: Given) -> int:
    """Extract an archive, or several, on this machine.

    SRC is an archive, a folder, a prefix (s3://bucket/in/) or a glob; several may be given.
    Of several archives the exit code is the highest one.

    Exit code: 0 all extracted, 1 some members failed or extra objects stay, 3 archive rejected,
    4 archive changed, 5 a service failed (s3unzip resume continues),
    2 wrong request, 6 a store refused, 7 no member selected,
    74 stdout cannot be written, 130 stopped (143 by SIGTERM, 129 by SIGHUP).
    """
    from s3unzip.api.extraction import names_one

    if not given.sources:  # one word is taken as DEST
        lacks = "Missing argument 'DEST'"
        if not given.dest:
            lacks = "give an archive, and where its members go: s3unzip run SRC DEST"
        raise UsageError(f"{lacks} (see s3unzip run --help)")
    if given.after_success and given.no_sign_request:
        raise UsageError(
            "--after-success: with --no-sign-request the archive is reached without credentials, "
            "so it cannot be changed; leave out one of them"
        )
    if len(given.sources) > 1 or not names_one(given.sources[0], given.config()):
        from s3unzip.cli.several import extract_several

        return extract_several(given)
    return _extract_one(given, parse_source(given.sources[0]), parse_destination(given.dest))


def _extract_one(given: Given, where: Location, target: Location) -> int:
    """Extract one archive; return the exit code."""
    from s3unzip.cli.output import RunOutput, shown_connections

    given.check_places(where, target)
    if given.dry_run:
        return list_decisions(given, Request(where, target, given.options()))
    stores, output = given.config(), RunOutput(quiet=given.quiet, json=given.json)
    output.reached = shown_connections(stores, where, target)
    kept: list[str] = []

    def may_delete(found: Sequence[ListedObject]) -> bool:
        output.stop()
        why = _ask_about_extra(found, given)
        kept.extend(filter(None, [why]))
        return why is None

    question = None if given.delete_extra is None else may_delete
    with output, asking_for_a_prefix(where):
        report = s3unzip.extract(
            given.sources[0],
            given.dest,
            given.options(),
            password=given.password(),
            workers=given.processes,
            tuning=given.tuning(given.processes),
            after_success=given.after_success,
            stores=stores,
            progress=output,
            warn=warn,
            delete_extra=question,
        )
    if report.verdict.exit_code:
        return report.verdict.exit_code
    if kept or not all(one.is_right for one in output.nested_runs):
        return 1
    return AccessDeniedError.exit_code if report.archive_left else 0


def list_decisions(given: Given, request: Request) -> int:
    """Print what a run would do about each member; return 1 if it could not do all of it."""
    from s3unzip.api.options import judge_selection, make_policy
    from s3unzip.context import Context
    from s3unzip.local.dry_run import decide
    from s3unzip.local.extra import check_extra
    from s3unzip.stores.calls import LocalClock
    from s3unzip.stores.factory import open_stores

    policy = make_policy(request.options, given.password(), request.destination)
    config, deletes = given.config(), given.delete_extra is not None
    context = Context(open_stores(config), LocalClock(), policy)
    if deletes:
        check_extra(request, config.work, context.stores)
    counts: Counter[str] = Counter()
    with asking_for_a_prefix(request.source):
        judge = judge_selection(request.options, warn)
        for one in decide(request, context, judge, delete_extra=deletes):
            counts[one.action] += 1
            if given.json:
                print_json(one)
                continue
            why = f"  {printable(one.message or '')} ({one.reason})" if one.message else ""
            sys.stdout.write(f"{one.action:9}  {one.size:12,}  {printable_name(one.key)}{why}\n")
    shown = ", ".join(f"{count:,} {action}" for action, count in counts.items())
    sys.stderr.write(f"dry run, nothing is written: {shown or 'no members'}\n")
    return 1 if counts["fail"] or counts["refuse"] else 0


def _ask_about_extra(found: Sequence[ListedObject], given: Given) -> str | None:
    """Decide about what is no member, on a terminal by asking; return why it stays, or None."""
    count = show_count(len(found), "object")
    size = show_bytes(sum(one.size for one in found))
    verb = "is no member" if len(found) == 1 else "are no members"
    what, limit = f"{count} ({size}) {verb} of the archive", given.delete_extra or 0
    why = None
    if len(found) > limit:
        why = f"{what}; nothing is deleted, because --delete-extra is {limit:,}"
    elif sys.stdin.isatty():
        sys.stderr.write(f"{what}:\n")
        sys.stderr.writelines(f"  {printable_name(one.key)}\n" for one in found[:EXTRA_SHOWN])
        if len(found) > EXTRA_SHOWN:
            sys.stderr.write(f"  and {len(found) - EXTRA_SHOWN:,} more; --dry-run lists them all\n")
        why = None if confirm("Delete them?") else "nothing is deleted"
    if why or not given.quiet:
        sys.stderr.write(f"{why or f'deleting {count} ({size})'}\n")
    return why


@contextmanager
def asking_for_a_prefix(where: Location) -> Iterator[None]:
    """Ask whether an object that is not there is meant as a prefix."""
    try:
        yield
    except NotFoundError as error:
        last = where.key.rpartition("/")[2]
        if where.scheme != "s3" or "." in last or str(where) not in str(error):
            raise
        raise NotFoundError(
            f"{error}; is it a prefix? then end it with a slash: {where}/"
        ) from None
