"""The command ``plan``: estimate the time and the cost of a run."""

import sys
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import asdict, replace

from s3unzip.api.options import open_context
from s3unzip.cli.arguments import Arguments, hint_at_prefix_if_missing
from s3unzip.cli.commands import (
    ARCHIVE_OPTIONS,
    KEY_OPTIONS,
    MEMBER_OPTIONS,
    STORE_OPTIONS,
    command,
)
from s3unzip.cli.output import print_findings
from s3unzip.cli.terminal import print_json, warn, write_table
from s3unzip.errors import UsageError
from s3unzip.estimate import Bin, Estimate, check_budget, estimate_archive
from s3unzip.local.machine import describe_machine
from s3unzip.model import Location, Options, Request
from s3unzip.planning.cut import choose_workers
from s3unzip.planning.plan import preview_tasks
from s3unzip.planning.reading import read_archive
from s3unzip.planning.select import check_selection
from s3unzip.pricing import Cost, Platform, aws
from s3unzip.printable import (
    printable,
    show_bytes,
    show_count,
    show_dollars,
    show_quantity,
    show_seconds,
)
from s3unzip.settings import Tuning
from s3unzip.stores.config import parse_destination, parse_source

BAR = 28  # length of the longest bar, in characters
MAX_BINS = 14
PLANNED_REQUESTS = ("get", "put", "create", "part", "copy", "complete", "list")


@command(
    f"src dest workers platform env {MEMBER_OPTIONS} {KEY_OPTIONS} as_gzip {ARCHIVE_OPTIONS}"
    f" {STORE_OPTIONS} max_cost json",
    dest={
        "metavar": "[DEST]",
        "required": False,
        "default": "",
        "help": "Where members would be written.",
    },
)
def plan(arguments: Arguments) -> int:
    """Estimate a run: its work, time and cost; nothing is written."""
    source = parse_source(arguments.src)
    arguments.check_locations(source)
    if arguments.env is None:  # the run is on this machine, or on AWS with the default settings
        request = Request(source, parse_destination(arguments.dest or "."), arguments.options())
        platform = _choose_platform(request, arguments)
        estimate = _estimate(request, platform, arguments.tuning(platform), arguments)
        environment_limit = None
    else:
        estimate, environment_limit = _estimate_in_environment(source, arguments)
    if arguments.json:
        print_json(estimate)
    else:
        _print_estimate(estimate)
    if arguments.max_cost is None:
        check_budget(estimate, environment_limit, limit_name="runs.max_cost")
    else:
        check_budget(estimate, arguments.max_cost)
    return 0


def _choose_platform(request: Request, arguments: Arguments) -> Platform:
    """Return the platform that `--on` names; the default is this machine."""
    match arguments.platform:
        case None | "local":
            return describe_machine(request, arguments.config(), arguments.processes)
        case "aws":
            return aws(workers=arguments.workers or aws().workers)
        case unknown:
            raise UsageError(f"--on takes aws or local, not {unknown!r}")


def _estimate_in_environment(
    source: Location, arguments: Arguments
) -> tuple[Estimate, float | None]:
    """Return the estimate of a run in an environment, and the environment's limit in dollars.

    Options given on the command line replace the settings of the environment.
    """
    if arguments.platform not in {None, "aws"}:
        raise UsageError(f"--env {arguments.env} is on aws, not on {arguments.platform}")
    settings = arguments.deployed().config
    # If no route applies to the archive, these are the defaults of the environment.
    defaults = settings.defaults_of(source)
    destination = defaults.destination
    if arguments.dest:
        destination = parse_destination(arguments.dest)
    request = Request(source, destination, override_options(defaults.options, arguments.options()))
    platform = replace(settings.platform, workers=arguments.workers or settings.tuning.max_workers)
    tuning = arguments.tuning(platform, settings.tuning)
    return _estimate(request, platform, tuning, arguments), settings.max_cost


def override_options(environment: Options, given: Options) -> Options:
    """Return an environment's options, some of them replaced by given options.

    A given option that has its default value replaces nothing.
    """
    defaults = Options()
    return replace(
        environment,
        **{
            name: value for name, value in asdict(given).items() if value != getattr(defaults, name)
        },
    )


def _estimate(
    request: Request, platform: Platform, tuning: Tuning, arguments: Arguments
) -> Estimate:
    """Print why members are refused; return the estimate for the other members."""
    context = open_context(
        request.options,
        arguments.config(),
        arguments.password(),
        request.destination,
        tuning=tuning,
    )
    with hint_at_prefix_if_missing(request.source):
        reading = read_archive(request, context, context.calls())
        tasks = preview_tasks(request, reading, context)
        check_selection(request.options, reading.index, warn)
        print_findings(
            Counter(finding.code for _, finding in reading.index.failures), reading.index.warnings
        )
        return estimate_archive(
            request,
            tasks,
            platform,
            tuning,
            workers=choose_workers(tasks, tuning, request.destination.store),
            sizes=[member.size for member in reading.index.selected],
        )


def _print_estimate(estimate: Estimate) -> None:
    cost = estimate.cost
    speed = f"{show_bytes(estimate.bytes_out / estimate.seconds)}/s"
    if estimate.members >= estimate.seconds:  # a rate below one per second would be shown as 0
        speed = f"{estimate.members / estimate.seconds:,.0f} members/s"
    kinds = ", ".join(f"{members:,} by {kind}" for kind, members in estimate.kinds.items())
    counts = ((kind, getattr(estimate.requests, kind)) for kind in PLANNED_REQUESTS)
    requests = ", ".join(f"{count:,} {kind}" for kind, count in counts if count)
    warnings = "".join(f"Warning: {printable(warning)}\n" for warning in estimate.warnings)
    sys.stdout.write(
        f"{printable(estimate.title)} on {estimate.platform}\n"
        f"about {show_seconds(estimate.seconds)}, {speed}, {show_dollars(cost.total)}\n"
        f"{warnings}"
        f"\nthe duration is determined by {estimate.bound}\n"
        f"members: {kinds or 0}; in {show_count(estimate.tasks, 'task')} "
        f"by {show_count(estimate.workers, 'worker')}\n"
        f"read {show_bytes(estimate.bytes_in)}, written {show_bytes(estimate.bytes_out)}\n"
        f"requests: {requests}\n"
    )
    for rows in (_size_rows(estimate.sizes), _cost_rows(cost)):
        if len(rows) > 1:
            sys.stdout.write("\n")
            write_table(rows, sys.stdout, right={"from", "below", "members", "quantity", "dollars"})
    if not cost.lines:
        sys.stdout.write("\nnothing is billed for this run\n")
    elif cost.unavoidable:
        sys.stdout.write(
            f"{cost.unavoidable_share:.1%} is for one PUT per member, which every tool needs\n"
        )


def _size_rows(sizes: Sequence[Bin]) -> list[tuple[str, ...]]:
    """Return the titles and rows of a histogram of member sizes.

    Each of the `MAX_BINS` bins with the largest sizes has its own row; smaller sizes share one.
    """
    bins = list(sizes[-MAX_BINS:])
    smaller = sum(span.members for span in sizes[:-MAX_BINS])
    if smaller:
        bins.insert(0, Bin(start=0, stop=bins[0].start, members=smaller))
    largest = max((span.members for span in bins), default=1)
    rows: list[tuple[str, ...]] = [("from", "below", "members", "")]
    for span in bins:
        bar = "#" * max(1, round(BAR * span.members / largest))
        rows.append((show_bytes(span.start), show_bytes(span.stop), f"{span.members:,}", bar))
    return rows


def _cost_rows(cost: Cost) -> list[tuple[str, ...]]:
    """Return the titles, the lines of the bill and the total; without a bill, only the titles."""
    rows: list[tuple[str, ...]] = [("dollars", "quantity", "service")]
    rows += [
        (
            show_dollars(line.dollars),
            show_quantity(line.quantity, line.unit),
            f"{line.service} {line.item}".rstrip(),
        )
        for line in cost.lines
        if line.quantity
    ]
    if cost.lines:
        rows.append((show_dollars(cost.total), "", "total"))
    return rows
