"""What ``run`` does with one archive and with several: check options, dry run, extraction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from s3unzip.cli.terminal.warnings import warn
from s3unzip.errors import UsageError
from s3unzip.model import Location, Request
from s3unzip.stores.locations import parse_destination, parse_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.cli.options.archive_options import Reading
    from s3unzip.cli.options.destinations import RunConnection
    from s3unzip.cli.options.extra import Extra
    from s3unzip.cli.options.power import Power
    from s3unzip.model import Options


@dataclass(frozen=True, slots=True)
class Extraction:
    """What is extracted, and how."""

    words: Sequence[str]  # archives; of several also folders, prefixes, globs
    dest: str
    options: Options
    reading: Reading
    connection: RunConnection
    extra: Extra
    power: Power
    max_cost: float | None  # dollars of each archive
    after_success: str | None
    quiet: bool
    json: bool
    dry_run: bool


class OneArchive(Extraction):
    """The extraction of one archive."""

    def check(self) -> None:
        """Refuse options that do not fit the places.

        Raises:
            UsageError: there are such.
        """
        self.connection.check_places(parse_source(self.words[0]), parse_destination(self.dest))
        self.connection.check_change(self.after_success)
        self.extra.check(dry_run=self.dry_run)

    def list_decisions(self) -> int:
        """Print what would be done with each member; return the exit code."""
        source, target = parse_source(self.words[0]), parse_destination(self.dest)
        return _decide(Request(source, target, self.options), self)

    def extract(self) -> int:
        """Extract it; return the exit code."""
        import s3unzip
        from s3unzip.cli.terminal.run_output import RunOutput
        from s3unzip.local.contexts import record_of

        output, password = RunOutput(quiet=self.quiet, json=self.json), self.reading.read()
        question = self.extra.question(output.stop, quiet=self.quiet)
        with self.connection.opened(parse_source(self.words[0])) as stores, output:
            output.connections = record_of(stores)
            report = s3unzip.extract(
                self.words[0],
                self.dest,
                self.options,
                password=password,
                workers=self.power.processes,
                tuning=self.power.tuning(self.power.processes),
                max_cost=self.max_cost,
                after_success=self.after_success,
                stores=stores,
                progress=output,
                warn=warn,
                delete_extra=question,
            )
        right = all(one.is_right for one in output.nested_runs)
        stays = question is not None and question.kept
        return report.verdict.exit_code or (0 if right and not stays else 1)


class SeveralArchives(Extraction):
    """The extraction of several archives: each its own run, one progress, one table."""

    def check(self) -> None:
        """Refuse options that do not go with several archives.

        Raises:
            UsageError: there are such.
        """
        self.connection.check_change(self.after_success)
        if self.extra.delete_extra:
            raise UsageError("--delete-extra: is for one archive; run them one by one")
        if "-" in self.words:
            raise UsageError("-: standard input is one archive; give it alone")
        for word in self.words:
            scheme, separator, _ = word.partition("://")
            place = Location(scheme.lower() if separator else "file", "", word)
            self.connection.check_places(place, parse_destination(self.dest))

    def list_decisions(self) -> int:
        """Print what would be done with each archive; return the highest exit code."""
        from s3unzip.api.several import check_apart, find_archives

        target = parse_destination(self.dest)
        found = find_archives(self.words, self.connection.config())
        requests = [Request(one.source, target, self.options) for one in found]
        check_apart(requests)
        return max([_decide(request, self) for request in requests])

    def extract(self) -> int:
        """Extract them; return the highest exit code."""
        from s3unzip.api.batch import extract_all
        from s3unzip.cli.terminal.batch_output import BatchOutput

        output = BatchOutput(quiet=self.quiet, json=self.json)
        with output:
            batch = extract_all(
                self.words,
                self.dest,
                self.options,
                password=self.reading.read(),
                workers=self.power.processes,
                tuning=self.power.tuning(self.power.processes),
                max_cost=self.max_cost,
                after_success=self.after_success,
                stores=self.connection.config(),
                progress=output,
            )
        output.print(batch)
        return batch.exit_code


def _decide(request: Request, how: Extraction) -> int:
    """Print what a run would do about each member; return the exit code."""
    from s3unzip.api.options import judge_selection, make_policy
    from s3unzip.cli.terminal.listing import print_decisions
    from s3unzip.context import Context
    from s3unzip.local.dry_run import decide
    from s3unzip.local.extra import check_extra
    from s3unzip.stores.clock import LocalClock
    from s3unzip.stores.factory import open_stores

    policy = make_policy(request.options, how.reading.read(), request.destination)
    deletes = how.extra.delete_extra
    with how.connection.opened(request.source) as config:
        context = Context(open_stores(config), LocalClock(), policy)
        if deletes:
            check_extra(request, config.work, context.stores)
        judge = judge_selection(request.options, warn)
        decisions = decide(request, context, judge, delete_extra=deletes)
        return print_decisions(decisions, json=how.json)
