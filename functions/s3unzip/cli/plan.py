"""The command ``plan``: about how long a run will take, and what it will cost."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, TextIO

from msgspec import structs
from msgspec.structs import replace

from s3unzip.api.options import judge_selection, make_policy
from s3unzip.cli.arguments import Arguments
from s3unzip.cli.commands import MEMBER_OPTIONS, ODD, PLACES, WHERE, command
from s3unzip.cli.decisions import suggesting_prefix
from s3unzip.cli.output import print_reasons
from s3unzip.cli.terminal import print_json, warn, write_table
from s3unzip.context import Context
from s3unzip.errors import UsageError
from s3unzip.estimate import Bin, Estimate, check_budget, estimate_archive
from s3unzip.figures import show_bytes, show_count, show_dollars, show_seconds
from s3unzip.local.machine import describe_machine
from s3unzip.model import Location, Options, Request
from s3unzip.planning.cut import choose_workers
from s3unzip.planning.plan import preview_plan
from s3unzip.platforms import Platform, aws
from s3unzip.pricing import Cost
from s3unzip.printable import printable
from s3unzip.settings import Tuning
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.locations import parse_destination, parse_source
from s3unzip.stores.open import open_stores

BAR = 28  # characters of the longest bar
MAX_BINS = 14
PLANNED_REQUESTS = ("get", "put", "create", "part", "copy", "complete", "list")
RIGHT_COLUMNS = frozenset({"from", "below", "members", "quantity", "dollars"})


class _Setting(NamedTuple):
    """Where the run would work, and by which rules."""

    platform: Platform
    options: Options
    destination: Location
    tuning: Tuning | None  # of an environment
    max_cost: float | None  # dollars


@command(
    *(
        "src dest workers platform env",
        MEMBER_OPTIONS,
        WHERE,
        "as_gzip",
        ODD,
        PLACES,
        "max_cost json",
    ),
    dest={"metavar": "[DEST]", "help": "Where members would go."},
)
def plan(arguments: Arguments) -> int:
    """Estimate a run: its work, time and cost; nothing is written."""
    setting = _find_setting(arguments)
    policy = make_policy(setting.options, arguments.password(), setting.destination)
    request = Request(parse_source(arguments.src), setting.destination, setting.options)
    arguments.check_places(request.source)
    tuning = arguments.tuning(setting.platform, setting.tuning)
    context = Context(open_stores(arguments.config()), LocalClock(), policy, tuning)
    with suggesting_prefix(request.source):
        made = _estimate(request, context, setting.platform)
    if arguments.json:
        print_json(made)
    else:
        print_estimate(made, sys.stdout)
    check_budget(made, setting.max_cost)
    return 0


def _find_setting(arguments: Arguments) -> _Setting:
    """Return where a run would work: in an environment, on this machine, or on AWS in general."""
    if arguments.env is not None:
        return _find_environment(arguments)
    options = arguments.options()
    destination = parse_destination(arguments.dest or ".")
    if arguments.platform in {None, "local"}:
        job = Request(parse_source(arguments.src), destination, options)
        platform = describe_machine(job, arguments.config(), arguments.processes)
    elif arguments.platform == "aws":
        platform = aws(workers=arguments.workers or aws().workers)
    else:
        raise UsageError(f"--on takes aws or local, not {arguments.platform!r}")
    return _Setting(platform, options, destination, tuning=None, max_cost=arguments.max_cost)


def _find_environment(arguments: Arguments) -> _Setting:
    """Return what a deployed environment does, replaced by what is typed."""
    if arguments.platform not in {None, "aws"}:
        raise UsageError(f"--env {arguments.env} is on aws, not on {arguments.platform}")
    environment = arguments.deployed().defaults
    tuning = environment.tuning
    defaults = environment.defaults_of(parse_source(arguments.src))
    destination = defaults.destination
    if arguments.dest:
        destination = parse_destination(arguments.dest)
    max_cost = environment.max_cost
    if arguments.max_cost is not None:
        max_cost = arguments.max_cost
    return _Setting(
        platform=replace(environment.platform, workers=arguments.workers or tuning.max_workers),
        options=override_options(defaults.options, arguments.options()),
        destination=destination,
        tuning=tuning,
        max_cost=max_cost,
    )


def override_options(environment: Options, typed: Options) -> Options:
    """Return an environment's options, replaced by the typed ones that are not the defaults."""
    defaults = Options()
    return replace(
        environment,
        **{
            name: value
            for name, value in structs.asdict(typed).items()
            if value != getattr(defaults, name)
        },
    )


def _estimate(request: Request, context: Context, platform: Platform) -> Estimate:
    """Read the archive's directory, print what it refuses; return the estimate of the rest."""
    reading, tasks = preview_plan(request, context)
    judge_selection(request.options, warn)(reading)
    refused = Counter(failure.finding.code for failure in reading.failures)
    print_reasons(refused, reading.index.warnings)
    return estimate_archive(
        request,
        tasks,
        platform,
        context.tuning,
        workers=choose_workers(tasks, context.tuning),
        sizes=[member.size for member in reading.selected],
    )


def print_estimate(made: Estimate, out: TextIO) -> None:
    """Print the estimate for a person."""
    speed = f"{show_bytes(made.bytes_out / made.seconds)}/s"
    if made.members >= made.seconds:
        speed = f"{made.members / made.seconds:,.0f} members/s"
    kinds = ", ".join(f"{members:,} by {kind}" for kind, members in made.kinds.items())
    counts = ((kind, getattr(made.requests, kind)) for kind in PLANNED_REQUESTS)
    requests = ", ".join(f"{count:,} {kind}" for kind, count in counts if count)
    warnings = "".join(f"Warning: {printable(warning)}\n" for warning in made.warnings)
    out.write(
        f"{printable(made.title)} on {made.platform}\n"
        f"about {show_seconds(made.seconds)}, {speed}, {show_dollars(made.cost.total)}\n"
        f"{warnings}"
        f"\nthe duration is determined by {made.bound}\n"
        f"members: {kinds or 0}; in {show_count(made.tasks, 'task')} "
        f"by {show_count(made.workers, 'worker')}\n"
        f"read {show_bytes(made.bytes_in)}, written {show_bytes(made.bytes_out)}\n"
        f"requests: {requests}\n"
    )
    for rows in (_size_rows(made.sizes), _cost_rows(made.cost)):
        if len(rows) > 1:
            out.write("\n")
            write_table(rows, out, RIGHT_COLUMNS)
    if not made.cost.lines:
        out.write("\nnothing that is paid for by use\n")
    elif made.cost.unavoidable:
        share = f"{made.cost.unavoidable_share:.1%}"
        out.write(f"{share} is one PUT a member, which no tool avoids\n")


def _size_rows(sizes: Sequence[Bin]) -> list[tuple[str, ...]]:
    """Return the histogram of sizes, its titles first; the smallest ones share a row."""
    shown = list(sizes[-MAX_BINS:])
    smaller = sum(span.members for span in sizes[:-MAX_BINS])
    if smaller:
        shown.insert(0, Bin(start=0, stop=shown[0].start, members=smaller))
    largest = max((span.members for span in shown), default=1)
    rows: list[tuple[str, ...]] = [("from", "below", "members", "")]
    for span in shown:
        bar = "#" * max(1, round(BAR * span.members / largest))
        rows.append((show_bytes(span.start), show_bytes(span.stop), f"{span.members:,}", bar))
    return rows


def _cost_rows(cost: Cost) -> list[tuple[str, ...]]:
    """Return the bill, its titles first and the total last."""
    rows: list[tuple[str, ...]] = [("dollars", "quantity", "service")]
    for line in cost.lines:
        if line.quantity:
            unit = line.unit
            if unit != "GB-s" and line.quantity != 1:
                unit += "s"
            service = f"{line.service} {line.item}".rstrip()
            rows.append((show_dollars(line.dollars), f"{line.quantity:,.0f} {unit}", service))
    if cost.lines:
        rows.append((show_dollars(cost.total), "", "total"))
    return rows
