"""``run``: extract an archive, or several, on this machine."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from s3unzip.cli.figures import warn
from s3unzip.cli.options import (
    AFTERWARDS,
    Layout,
    Objects,
    Power,
    Reading,
    RunConnection,
    Selection,
    Writing,
    argument,
    json,
    option,
    quiet,
)
from s3unzip.errors import AccessDeniedError, NotFoundError, UsageError
from s3unzip.model import Location, Options, Request
from s3unzip.stores.locations import parse_destination, parse_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.model import Report
    from s3unzip.stores.factory import StoreConfig


@dataclass(frozen=True)
class Ending(RunConnection):
    """What is done after a complete run."""

    section = AFTERWARDS

    after_success: str | None = option(
        "--after-success",
        metavar="ACTION",
        help="Delete the archive, or tag=NAME=VALUE, if all of it is extracted.",
    )
    delete_extra: int | None = option(
        "--delete-extra",
        metavar="N",
        type=click.IntRange(min=1),
        help="Delete up to N other objects below the prefix; asks first on a terminal.",
    )
    marker: bool = option(
        "--marker",
        default=False,
        help="Write the object _SUCCESS last, if all members are extracted.",
    )

    def options(self) -> Options:
        """Return the options of a run."""
        return replace(super().options(), marker=self.marker)

    def check_change(self) -> None:
        """Check that the archive may be changed after the run: not if it is read without rights."""
        if self.after_success and self.no_sign_request:
            raise UsageError(
                "--after-success: with --no-sign-request the archive is reached without "
                "credentials, so it cannot be changed; leave out one of them"
            )


@dataclass(frozen=True)
class Run(Selection, Layout, Objects, Writing, Reading, Ending, Power):
    """Extract an archive, or several, on this machine.

    SRC is an archive, a folder, a prefix (s3://bucket/in/) or a glob; several may be given.
    Of several archives the exit code is the highest one.

    Exit code: 0 all extracted, 1 some members failed or extra objects stay, 3 archive rejected,
    4 archive changed, 5 a service failed (s3unzip resume continues),
    2 wrong request, 6 a store refused, 7 no member selected,
    74 stdout cannot be written, 130 stopped (143 by SIGTERM, 129 by SIGHUP).
    """

    src: tuple[str, ...] = argument(
        "SRC...",
        nargs=-1,
        help="Archives: s3://bucket/key, a path, http(s)://...; a folder, a prefix, a glob.",
    )
    dest: str = argument(
        "DEST", default="", help="Where members go: s3://bucket/prefix or a folder."
    )
    dry_run: bool = option(
        "--dry-run", default=False, help="List the keys and what would be done; write nothing."
    )
    quiet: bool = quiet()
    json: bool = json()

    def act(self) -> int:
        """Extract what is named; return the exit code."""
        from s3unzip.api.several import names_several

        given = click.get_current_context().get_parameter_source("dest")
        if given is not None and given.name == "DEFAULT":
            raise UsageError(
                "give an archive, and where its members go: s3unzip run SRC DEST "
                "(see s3unzip run --help)"
            )
        if not self.src:  # the only word is taken as DEST
            raise UsageError("Missing argument 'DEST' (see s3unzip run --help)")
        self.check_change()
        if len(self.src) == 1 and not names_several(self.src[0]):
            return self._extract_one(parse_source(self.src[0]), parse_destination(self.dest))
        return self._extract_several()

    def _extract_one(self, where: Location, target: Location) -> int:
        """Extract one archive; return the exit code."""
        import s3unzip
        from s3unzip.cli.output import Question, RunOutput
        from s3unzip.settling.after_success import is_left

        self.check_places(where, target)
        if self.dry_run:
            return self._decide(Request(where, target, self.options()))
        stores = self.config()
        output = RunOutput(quiet=self.quiet, json=self.json)
        output.reached = shown_connections(stores, where, target)
        limit = self.delete_extra
        question = None if limit is None else Question(limit, output.stop, quiet=self.quiet)
        with output, asking_for_a_prefix(where):
            report = s3unzip.extract(
                self.src[0],
                self.dest,
                self.options(),
                password=self.read_password(),
                workers=self.processes,
                tuning=self.tuning(self.processes),
                after_success=self.after_success,
                stores=stores,
                progress=output,
                warn=warn,
                delete_extra=question,
            )
        if report.verdict.exit_code:
            return report.verdict.exit_code
        if not all(one.is_right for one in output.nested_runs) or (question and question.kept):
            return 1
        return AccessDeniedError.exit_code if is_left(report) else 0

    def _extract_several(self) -> int:
        """Extract several archives, each as its own run; return the highest exit code."""
        from s3unzip.api.extraction import extract_all
        from s3unzip.api.several import check_apart, find_archives
        from s3unzip.cli.output import BatchOutput

        if self.delete_extra:
            raise UsageError("--delete-extra: is for one archive; run them one by one")
        target, stores = parse_destination(self.dest), self.config()
        for word in self.src:
            scheme, separator, _ = word.partition("://")
            self.check_places(Location(scheme.lower() if separator else "file", "", word), target)
        if self.dry_run:
            found = find_archives(self.src, stores)
            requests = [Request(one.source, target, self.options()) for one in found]
            check_apart(requests)
            return max([self._decide(request) for request in requests])
        output = BatchOutput(quiet=self.quiet, json=self.json)
        with output:
            batch = extract_all(
                self.src,
                self.dest,
                self.options(),
                password=self.read_password(),
                workers=self.processes,
                tuning=self.tuning(self.processes),
                after_success=self.after_success,
                stores=stores,
                progress=output,
            )
        output.print(batch, stores)
        return batch.exit_code

    def _decide(self, request: Request) -> int:
        """Print what a run would do about each member; return the exit code."""
        from s3unzip.api.options import judge_selection, make_policy
        from s3unzip.cli.output import print_decisions
        from s3unzip.context import Context
        from s3unzip.local.dry_run import decide
        from s3unzip.local.extra import check_extra
        from s3unzip.stores.clock import LocalClock
        from s3unzip.stores.factory import open_stores

        policy = make_policy(request.options, self.read_password(), request.destination)
        config, deletes = self.config(), self.delete_extra is not None
        context = Context(open_stores(config), LocalClock(), policy)
        if deletes:
            check_extra(request, config.work, context.stores)
        judge = judge_selection(request.options, warn)
        with asking_for_a_prefix(request.source):
            decisions = decide(request, context, judge, delete_extra=deletes)
            return print_decisions(decisions, json=self.json)


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


def shown_connections(config: StoreConfig, *places: Location) -> StoreConfig:
    """Return the options that a command needs to reach `places` again, as short as it can be.

    What comes from the environment's variables is not repeated, nor are options of S3 where no
    place is in S3.
    """
    from s3unzip.stores.factory import StoreConfig

    if all(place.scheme != "s3" for place in places):
        return StoreConfig(other_hosts=config.other_hosts)
    return config.recorded().typed()


def shown_of(report: Report, config: StoreConfig) -> StoreConfig:
    """Return the options that a command needs to reach the places of a run again."""
    return shown_connections(config, report.source, report.destination)
