"""``run``: extract an archive on this machine."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer
from msgspec.structs import replace as replace_fields

from s3unzip.cli.commands.run_several import SeveralArchives
from s3unzip.cli.options import archive as o
from s3unzip.cli.options.destinations import RunConnection
from s3unzip.cli.options.extra import Extra
from s3unzip.cli.options.objects import Objects
from s3unzip.cli.options.power import Power
from s3unzip.cli.terminal.warnings import warn
from s3unzip.errors import UsageError
from s3unzip.model import OnConflict, Request
from s3unzip.stores.locations import parse_destination, parse_source

Conflict = Annotated[
    OnConflict, typer.Option("--on-conflict", help="What to do where DEST has the key.")
]
Nested = Annotated[
    int,
    typer.Option(
        "--nested", metavar="DEPTH", min=0, help="Extract archives inside it, so many levels deep."
    ),
]


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
    on_conflict: Conflict = OnConflict.OVERWRITE,
    as_gzip: o.AsGzip = None,
    trust_crc: Annotated[
        bool, typer.Option("--trust-crc", help="With --as-gzip: do not inflate to check.")
    ] = False,
    nested: Nested = 0,
    marker: Annotated[
        bool, typer.Option("--marker", help="Write _SUCCESS last, if all went well.")
    ] = False,
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
    import s3unzip
    from s3unzip.api.several import names_several
    from s3unzip.cli.terminal.run_output import RunOutput

    chosen = replace_fields(
        o.make_options(selection, layout, reading, as_gzip=as_gzip),
        on_conflict=on_conflict,
        trust_crc=trust_crc,
        password_ref=reading.reference,
        nested_depth=nested,
        marker=marker,
        objects=objects.properties(),
    )
    if not sources:  # the only word is taken as DEST
        raise UsageError("Missing argument 'DEST' (see --help)")
    if len(sources) > 1 or names_several(sources[0]):
        several = SeveralArchives(sources, dest, chosen, reading, connection)
        several.check(extra)
        if dry_run:
            show = partial(
                _list_decisions,
                reading=reading,
                connection=connection,
                delete_extra=False,
                json=json,
            )
            return several.list_decisions(show)
        return several.extract(power, max_cost, after_success, quiet=quiet, json=json)
    source = sources[0]
    connection.check_places(parse_source(source), parse_destination(dest))
    connection.check_change(after_success)
    extra.check(dry_run=dry_run)
    if dry_run:
        request = Request(parse_source(source), parse_destination(dest), chosen)
        deletes = extra.delete_extra
        return _list_decisions(request, reading, connection, delete_extra=deletes, json=json)
    output, password = RunOutput(quiet=quiet, json=json), reading.read()
    question = extra.question(output.display.stop, quiet=quiet)
    with connection.opened(parse_source(source)) as stores, output.display:
        report = s3unzip.extract(
            source,
            dest,
            chosen,
            password=password,
            workers=power.processes,
            tuning=power.tuning(power.processes),
            max_cost=max_cost,
            after_success=after_success,
            stores=stores,
            progress=output,
            warn=warn,
            delete_extra=question,
        )
    right = all(one.is_right for one in output.nested_runs)
    stays = question is not None and question.kept
    return report.verdict.exit_code or (0 if right and not stays else 1)


def _list_decisions(
    request: Request,
    reading: o.Reading,
    connection: RunConnection,
    *,
    delete_extra: bool,
    json: bool,
) -> int:
    """Print what a run would do about each member."""
    from s3unzip.api.options import judge_selection, make_policy
    from s3unzip.cli.terminal.listing import print_decisions
    from s3unzip.context import Context
    from s3unzip.local.clock import LocalClock
    from s3unzip.local.dry_run import decide
    from s3unzip.local.extra import Runs, check_extra
    from s3unzip.stores.factory import open_stores

    policy = make_policy(request.options, reading.read(), request.destination)
    with connection.opened(request.source) as config:
        context = Context(open_stores(config), LocalClock(), policy)
        if delete_extra:
            check_extra(request, Runs(config.work, context.stores))
        judge = judge_selection(request.options, warn)
        decisions = decide(request, context, judge, delete_extra=delete_extra)
        return print_decisions(decisions, json=json)
