"""``run``: extract an archive, or several, on this machine."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import s3unzip
from s3unzip.cli.arguments import Arguments, suggesting_prefix
from s3unzip.cli.commands import AFTERWARDS, LOOK, MEMBER_OPTIONS, ODD, PLACES, WHERE, command
from s3unzip.cli.terminal import confirm, print_json, warn
from s3unzip.contradictions import check_access
from s3unzip.errors import AccessDeniedError, ConflictError, UsageError
from s3unzip.figures import choose_form, show_bytes, show_count
from s3unzip.model import Location, Request
from s3unzip.printable import printable, printable_name
from s3unzip.stores.locations import absolute_path, parse_destination, parse_source
from s3unzip.stores.ports import ListedObject

if TYPE_CHECKING:
    from s3unzip.cli.output import RunOutput
    from s3unzip.local.dry_run import Decision

EXTRA_SHOWN = 10  # keys that are listed before the question


@command(
    "sources dest workers",
    *(MEMBER_OPTIONS, WHERE, LOOK, ODD, PLACES, "kms_key", AFTERWARDS),
    "dry_run quiet json",
    dest={"required": False, "default": ""},
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
        from s3unzip.cli.several import extract_several, make_requests

        requests = make_requests(arguments, config)
        if arguments.dry_run:
            return max(_list_decisions(arguments, request) for request in requests)
        return extract_several(requests, arguments, config)
    return _extract_one(
        arguments, parse_source(arguments.sources[0]), parse_destination(arguments.dest)
    )


def _check_order(arguments: Arguments) -> None:
    """Refuse arguments that do not end with a destination."""
    if not arguments.sources:  # click takes a single argument as DEST
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
    from s3unzip.cli.output import RunOutput, shown_connections

    arguments.check_places(source, destination)
    if arguments.dry_run:
        return _list_decisions(arguments, Request(source, destination, arguments.options()))
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
    if question.objection or not all(run.is_right for run in output.nested_runs):
        return 1
    if report.archive_left:
        return AccessDeniedError.exit_code
    return 0


class _ExtraQuestion:
    """Decides whether the objects that are not members are deleted."""

    def __init__(self, arguments: Arguments, output: "RunOutput") -> None:
        self._limit = arguments.delete_extra or 0
        self._quiet = arguments.quiet
        self._output = output
        self.objection = ""  # why they stay

    def decide(self, extra: Sequence[ListedObject]) -> bool:
        """Return whether `extra` may be deleted; ask on a terminal, and print why not."""
        self._output.stop()
        count = show_count(len(extra), "object")
        size = show_bytes(sum(listed.size for listed in extra))
        verb = choose_form(len(extra), "is not a member", "are not members")
        summary = f"{count} ({size}) {verb} of the archive"
        if len(extra) > self._limit:
            self.objection = (
                f"{summary}; nothing is deleted, because --delete-extra is {self._limit:,}"
            )
        elif sys.stdin.isatty() and not _confirm_deleting(summary, extra):
            self.objection = "nothing is deleted"
        if self.objection:
            sys.stderr.write(f"{self.objection}\n")
        elif not self._quiet:
            sys.stderr.write(f"deleting {count} ({size})\n")
        return not self.objection


def _confirm_deleting(summary: str, extra: Sequence[ListedObject]) -> bool:
    sys.stderr.write(f"{summary}:\n")
    sys.stderr.writelines(f"  {printable_name(listed.key)}\n" for listed in extra[:EXTRA_SHOWN])
    if len(extra) > EXTRA_SHOWN:
        sys.stderr.write(f"  and {len(extra) - EXTRA_SHOWN:,} more; --dry-run lists them all\n")
    return confirm("Delete them?")


def _list_decisions(arguments: Arguments, request: Request) -> int:
    """Print what a run would do with each member; return 1 if it cannot write a member, else 0."""
    from s3unzip.api.options import judge_selection, make_policy
    from s3unzip.context import Context
    from s3unzip.local.dry_run import decide
    from s3unzip.local.extra import check_extra
    from s3unzip.stores.clock import LocalClock
    from s3unzip.stores.open import OpenedStores

    config = arguments.config()
    deletes = arguments.delete_extra is not None
    policy = make_policy(request.options, arguments.password(), request.destination)
    context = Context(OpenedStores(config), LocalClock(), policy)
    if deletes:
        check_extra(request, config.work, context.stores)
    counts = Counter[str]()
    check = judge_selection(request.options, warn)
    with suggesting_prefix(request.source):
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
    sys.stdout.write(
        f"{decision.action:9}  {decision.size:12,}  {printable_name(decision.key)}{detail}\n"
    )
