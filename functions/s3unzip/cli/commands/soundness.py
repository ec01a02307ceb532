"""``test``: decode every member and check its CRC-32, nothing written."""

from __future__ import annotations

import tempfile

from msgspec.structs import replace

from s3unzip.cli.options import archive_options as o
from s3unzip.cli.options.connections import SourceConnection
from s3unzip.cli.options.power import Power
from s3unzip.cli.terminal.json_lines import print_json
from s3unzip.cli.terminal.warnings import warn
from s3unzip.model import Location, Request
from s3unzip.stores.locations import parse_source


def check_archive(
    source: o.Source,
    selection: o.Selection,
    reading: o.Reading,
    power: Power,
    connection: SourceConnection,
    quiet: o.Quiet = False,
    json: o.Json = False,
) -> int:
    """Decode every member and check its CRC-32; nothing is written.

    It makes the checks of a run, with as many processes, and keeps no record.

    Exit code: 0 all members are sound, 1 some are not, 3 archive rejected.
    """
    from s3unzip.api.options import judge_selection, make_policy
    from s3unzip.cli.terminal.output import print_test
    from s3unzip.cli.terminal.progress import RunDisplay
    from s3unzip.local.machine import Machine, Setup
    from s3unzip.local.runner import run_archive
    from s3unzip.stores.memory import NOWHERE

    options = o.make_options(selection, o.Layout(key_template="{member}"), reading)
    request = Request(parse_source(source), NOWHERE, options)
    policy = make_policy(options, reading.read(), NOWHERE)
    with (
        tempfile.TemporaryDirectory(prefix="s3unzip-test-") as home,
        connection.opened(request.source) as config,
    ):
        stores = replace(config, work=Location("file", "", f"{home}/"))
        setup = Setup(stores, policy, power.tuning(power.processes), power.processes)
        display = RunDisplay(quiet=quiet)
        with Machine(setup, request.source, NOWHERE, display) as machine, display:
            report = run_archive(
                request,
                machine.context,
                machine.make_pool,
                display.planned,
                judge_selection(options, warn),
            )
    if json:
        print_json(report)
    if not quiet:
        print_test(report)
    return report.verdict.exit_code
