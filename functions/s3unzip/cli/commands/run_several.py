"""``run`` of several archives: each its own run, one progress, one table, one exit code."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from s3unzip.errors import UsageError
from s3unzip.model import Location, Request
from s3unzip.stores.locations import parse_destination

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from s3unzip.cli.options.archive import Reading
    from s3unzip.cli.options.destinations import RunConnection
    from s3unzip.cli.options.extra import Extra
    from s3unzip.cli.options.power import Power
    from s3unzip.model import Options


class SeveralArchives(NamedTuple):
    """What is extracted, and how."""

    words: Sequence[str]  # archives, folders, prefixes, globs
    dest: str
    options: Options
    reading: Reading
    connection: RunConnection

    def check(self, extra: Extra) -> None:
        """Refuse options that do not go with several archives.

        Raises:
            UsageError: there are such.
        """
        if extra.delete_extra:
            raise UsageError("--delete-extra: is for one archive; run them one by one")
        if "-" in self.words:
            raise UsageError("-: standard input is one archive; give it alone")
        for word in self.words:
            scheme, separator, _ = word.partition("://")
            place = Location(scheme.lower() if separator else "file", "", word)
            self.connection.check_places(place, parse_destination(self.dest))

    def list_decisions(self, show: Callable[[Request], int]) -> int:
        """Show what would be done with each archive; return the highest exit code."""
        from s3unzip.api.several import check_apart, find_archives

        target = parse_destination(self.dest)
        found = find_archives(self.words, self.connection.config())
        requests = [Request(one.source, target, self.options) for one in found]
        check_apart(requests)
        return max(show(request) for request in requests)

    def extract(
        self,
        power: Power,
        max_cost: float | None,
        after_success: str | None,
        *,
        quiet: bool,
        json: bool,
    ) -> int:
        """Extract them; return the highest exit code."""
        from s3unzip.api.batch import extract_all
        from s3unzip.cli.terminal.batch_output import BatchOutput

        output = BatchOutput(quiet=quiet, json=json)
        with output.display:
            batch = extract_all(
                self.words,
                self.dest,
                self.options,
                password=self.reading.read(),
                workers=power.processes,
                tuning=power.tuning(power.processes),
                max_cost=max_cost,
                after_success=after_success,
                stores=self.connection.config(),
                progress=output,
            )
        output.print(batch)
        return batch.exit_code
