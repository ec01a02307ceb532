"""``run``: extract an archive, or several, on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer
from msgspec.structs import replace

from s3unzip.cli.commands.run_archives import OneArchive, SeveralArchives
from s3unzip.cli.options import archive_options as o
from s3unzip.cli.options.destinations import RunConnection
from s3unzip.cli.options.extra import Extra
from s3unzip.cli.options.messages import OptionGroup
from s3unzip.cli.options.objects import Objects
from s3unzip.cli.options.power import Power
from s3unzip.errors import UsageError
from s3unzip.model import OnConflict, Options


@dataclass(frozen=True)
class Writing(OptionGroup):
    """What is written for each member, and besides the members."""

    on_conflict: Annotated[
        OnConflict, typer.Option("--on-conflict", help="What to do if DEST already has the key.")
    ] = OnConflict.OVERWRITE
    as_gzip: o.AsGzip = None
    trust_crc: Annotated[
        bool,
        typer.Option(
            "--trust-crc", help="With --as-gzip: do not inflate members to check their CRC-32."
        ),
    ] = False
    nested: Annotated[
        int,
        typer.Option(
            "--nested",
            metavar="DEPTH",
            min=0,
            help="Also extract archives inside the archive, up to DEPTH levels deep.",
        ),
    ] = 0
    marker: Annotated[
        bool,
        typer.Option(
            "--marker", help="Write the object _SUCCESS last, if all members are extracted."
        ),
    ] = False

    def add_to(self, options: Options, reading: o.Reading, objects: Objects) -> Options:
        """Return `options` with those of a run.

        Raises:
            UsageError: an option of the objects is wrong.
        """
        return replace(
            options,
            on_conflict=self.on_conflict,
            as_gzip=self.as_gzip,
            trust_crc=self.trust_crc,
            password_ref=reading.reference,
            nested_depth=self.nested,
            marker=self.marker,
            objects=objects.properties(),
        )


def run_command(
    sources: o.Sources,
    dest: o.Dest,
    selection: o.Selection,
    layout: o.Layout,
    reading: o.Reading,
    power: Power,
    connection: RunConnection,
    objects: Objects,
    extra: Extra,
    writing: Writing,
    max_cost: o.MaxCost = None,
    after_success: o.AfterSuccess = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the keys and what would be done; write nothing.")
    ] = False,
    quiet: o.Quiet = False,
    json: o.Json = False,
) -> int:
    """Extract an archive, or several, on this machine.

    SRC is an archive, a folder, a prefix (s3://bucket/in/) or a glob; several may be given.
    Of several archives the exit code is the highest one.
    Exit code: 0 all extracted, 1 some members failed or extra objects stay, 3 archive rejected,
    4 archive changed, 5 a service failed (s3unzip redrive continues),
    2 wrong request, 6 a store refused, 7 no member selected,
    74 stdout cannot be written, 130 stopped (143 by SIGTERM, 129 by SIGHUP).
    """
    from s3unzip.api.several import names_several

    options = writing.add_to(o.make_options(selection, layout, reading), reading, objects)
    if not sources:  # the only word is taken as DEST
        raise UsageError("Missing argument 'DEST' (see s3unzip run --help)")
    several = len(sources) > 1 or names_several(sources[0])
    kind: type[OneArchive | SeveralArchives] = SeveralArchives if several else OneArchive
    archives = kind(
        *(sources, dest, options, reading, connection, extra, power),
        *(max_cost, after_success, quiet, json, dry_run),
    )
    archives.check()
    return archives.list_decisions() if dry_run else archives.extract()
