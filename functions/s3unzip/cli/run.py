"""``run``: extract an archive, or several, on this machine."""

import sys
from collections.abc import Sequence

import s3unzip
from s3unzip.cli.arguments import Arguments
from s3unzip.cli.commands import AFTERWARDS, LOOK, MEMBERS, ODD, PLACES, WHERE, command
from s3unzip.cli.decisions import asking_for_a_prefix, list_decisions
from s3unzip.cli.printing import warn
from s3unzip.cli.terminal import confirm
from s3unzip.contradictions import check_access
from s3unzip.errors import AccessDeniedError, UsageError
from s3unzip.figures import show_bytes, show_count
from s3unzip.model import Location, Request
from s3unzip.printable import printable_name
from s3unzip.stores.locations import parse_destination, parse_source
from s3unzip.stores.ports import ListedObject

EXTRA_SHOWN = 10  # keys before the question


@command(
    "sources dest workers",
    *(MEMBERS, WHERE, LOOK, ODD, PLACES, "kms_key", AFTERWARDS),
    "dry_run quiet json",
)
def run(arguments: Arguments) -> int:
    """Extract an archive, or several, on this machine.

    SRC is an archive, a folder, a prefix (s3://bucket/in/) or a glob; several may be given.
    Of several archives the exit code is the highest one.

    Exit code: 0 all extracted, 1 some members failed or extra objects stay, 3 archive rejected,
    4 archive changed, 5 a service failed (s3unzip resume continues),
    2 wrong request, 6 a store refused, 7 no member selected,
    74 stdout cannot be written, 130 stopped (143 by SIGTERM, 129 by SIGHUP).
    """
    from s3unzip.api.extraction import names_one

    if not arguments.sources:  # one word is taken as DEST
        lacks = "Missing argument 'DEST'"
        if not arguments.dest:
            lacks = "give an archive, and where its members go: s3unzip run SRC DEST"
        raise UsageError(f"{lacks} (see s3unzip run --help)")
    config = arguments.config()
    check_access(config, after_success=arguments.after_success)
    if len(arguments.sources) > 1 or not names_one(arguments.sources[0], config):
        from s3unzip.cli.several import extract_several

        return extract_several(arguments)
    return _extract_one(
        arguments, parse_source(arguments.sources[0]), parse_destination(arguments.dest)
    )


def _extract_one(arguments: Arguments, where: Location, target: Location) -> int:
    """Extract one archive; return the exit code."""
    from s3unzip.cli.output import RunOutput, shown_connections

    arguments.check_places(where, target)
    if arguments.dry_run:
        return list_decisions(arguments, Request(where, target, arguments.options()))
    stores, output = arguments.config(), RunOutput(quiet=arguments.quiet, json=arguments.json)
    output.reached = shown_connections(stores, where, target)
    kept: list[str] = []

    def may_delete(found: Sequence[ListedObject]) -> bool:
        output.stop()
        why = _ask_about_extra(found, arguments)
        kept.extend(filter(None, [why]))
        return why is None

    question = None if arguments.delete_extra is None else may_delete
    with output, asking_for_a_prefix(where):
        report = s3unzip.extract(
            arguments.sources[0],
            arguments.dest,
            arguments.options(),
            password=arguments.password(),
            workers=arguments.processes,
            tuning=arguments.tuning(),
            after_success=arguments.after_success,
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


def _ask_about_extra(found: Sequence[ListedObject], arguments: Arguments) -> str | None:
    """Decide about what is no member, on a terminal by asking; return why it stays, or None."""
    count = show_count(len(found), "object")
    size = show_bytes(sum(one.size for one in found))
    verb = "is no member" if len(found) == 1 else "are no members"
    what, limit = f"{count} ({size}) {verb} of the archive", arguments.delete_extra or 0
    why = None
    if len(found) > limit:
        why = f"{what}; nothing is deleted, because --delete-extra is {limit:,}"
    elif sys.stdin.isatty():
        sys.stderr.write(f"{what}:\n")
        sys.stderr.writelines(f"  {printable_name(one.key)}\n" for one in found[:EXTRA_SHOWN])
        if len(found) > EXTRA_SHOWN:
            sys.stderr.write(f"  and {len(found) - EXTRA_SHOWN:,} more; --dry-run lists them all\n")
        why = None if confirm("Delete them?") else "nothing is deleted"
    if why or not arguments.quiet:
        sys.stderr.write(f"{why or f'deleting {count} ({size})'}\n")
    return why
