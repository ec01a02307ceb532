"""``run``: extract an archive, or several, on this machine."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import s3unzip
from s3unzip.cli.arguments import Arguments
from s3unzip.cli.commands import AFTERWARDS, LOOK, MEMBER_OPTIONS, ODD, PLACES, WHERE, command
from s3unzip.cli.decisions import list_decisions, suggesting_prefix
from s3unzip.cli.terminal import confirm, warn
from s3unzip.contradictions import check_access
from s3unzip.errors import AccessDeniedError, ConflictError, UsageError
from s3unzip.figures import choose_form, show_bytes, show_count
from s3unzip.model import Location, Request
from s3unzip.printable import printable_name
from s3unzip.stores.locations import absolute_path, parse_destination, parse_source
from s3unzip.stores.ports import ListedObject

if TYPE_CHECKING:
    from s3unzip.cli.output import RunOutput

EXTRA_SHOWN = 10  # keys before the question


@command(
    "sources dest workers",
    *(MEMBER_OPTIONS, WHERE, LOOK, ODD, PLACES, "kms_key", AFTERWARDS),
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

    _check_order(arguments)
    config = arguments.config()
    check_access(config, after_success=arguments.after_success)
    if len(arguments.sources) > 1 or not names_one(arguments.sources[0], config):
        from s3unzip.cli.several import extract_several

        return extract_several(arguments)
    return _extract_one(
        arguments, parse_source(arguments.sources[0]), parse_destination(arguments.dest)
    )


def _check_order(arguments: Arguments) -> None:
    """Refuse arguments without a destination, which is the last one; `UsageError`."""
    if not arguments.sources:  # one argument is taken as DEST
        if not arguments.dest:
            raise UsageError(
                "give an archive, and where its members go: s3unzip run SRC DEST (see s3unzip run "
                "--help)"
            )
        raise UsageError("Missing argument 'DEST' (see s3unzip run --help)")
    if Path(arguments.dest).is_file():
        raise ConflictError(
            f"{absolute_path(arguments.dest)}: a file is where a folder is needed: the last "
            "argument is DEST"
        )


def _extract_one(arguments: Arguments, source: Location, destination: Location) -> int:
    """Extract one archive; return the exit code."""
    from s3unzip.cli.output import RunOutput, shown_connections

    arguments.check_places(source, destination)
    if arguments.dry_run:
        return list_decisions(arguments, Request(source, destination, arguments.options()))
    stores = arguments.config()
    output = RunOutput(quiet=arguments.quiet, json=arguments.json)
    output.reached = shown_connections(stores, source, destination)
    question = _ExtraQuestion(arguments, output)
    may_delete = None
    if arguments.delete_extra is not None:
        may_delete = question.decide
    with output, suggesting_prefix(source):
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
            delete_extra=may_delete,
        )
    if report.verdict.exit_code:
        return report.verdict.exit_code
    if question.objections or not all(run.is_right for run in output.nested_runs):
        return 1
    if report.archive_left:
        return AccessDeniedError.exit_code
    return 0


class _ExtraQuestion:
    """Asks whether to delete what is no member; keeps why it stays."""

    def __init__(self, arguments: Arguments, output: "RunOutput") -> None:
        self._limit = arguments.delete_extra or 0
        self._quiet = arguments.quiet
        self._output = output
        self.objections: list[str] = []

    def decide(self, extra: Sequence[ListedObject]) -> bool:
        """Ask about `extra` on a terminal; return whether it may be deleted, and print why not."""
        self._output.stop()
        count = show_count(len(extra), "object")
        size = show_bytes(sum(listed.size for listed in extra))
        verb = choose_form(len(extra), "is no member", "are no members")
        summary = f"{count} ({size}) {verb} of the archive"
        if len(extra) > self._limit:
            self._refuse(
                f"{summary}; nothing is deleted, because --delete-extra is {self._limit:,}"
            )
        elif sys.stdin.isatty() and not _confirm_deleting(summary, extra):
            self._refuse("nothing is deleted")
        elif not self._quiet:
            sys.stderr.write(f"deleting {count} ({size})\n")
        return not self.objections

    def _refuse(self, objection: str) -> None:
        """Print why nothing is deleted, and keep it for the exit code."""
        self.objections.append(objection)
        sys.stderr.write(f"{objection}\n")


def _confirm_deleting(summary: str, extra: Sequence[ListedObject]) -> bool:
    """Show the first keys, and ask."""
    sys.stderr.write(f"{summary}:\n")
    sys.stderr.writelines(f"  {printable_name(listed.key)}\n" for listed in extra[:EXTRA_SHOWN])
    if len(extra) > EXTRA_SHOWN:
        sys.stderr.write(f"  and {len(extra) - EXTRA_SHOWN:,} more; --dry-run lists them all\n")
    return confirm("Delete them?")
