"""One schedule: a world made from a seed, run until all is quiet, and compared with the model."""

from __future__ import annotations

import gc
import json
import logging
import os
import random
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zlib import crc32

from s3unzip.aws import environment, telemetry
from s3unzip.metric_names import SERVICE
from s3unzip.model import Options, encode
from s3unzip.settings import Tuning, Variable
from s3unzip.stores.ports import ObjectFacts
from tests.model.facts import NEVER, OVERWRITE, SKIP_UNCHANGED, ViolationError
from tests.model.nested import check_nested
from tests.model.run import Model
from tests.simulation.archives import KEY, TUNING, choose_recipe, make_archive, older_objects
from tests.simulation.faults import RATES, Fault, FaultPlan
from tests.simulation.machine import MACHINE
from tests.simulation.operator import Operator
from tests.simulation.scheduler import Process, Scheduler, StuckError
from tests.simulation.services import Services
from tests.simulation.stores import SimulatedStores
from tests.simulation.substitution import substituted
from tests.simulation.world import World

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tests.simulation.archives import Recipe

REDRIVES = 4  # that an operator tries, once nothing goes wrong any more
NESTED = 3  # last digit of the seeds whose archives have archives inside
DISTRIBUTED = 13  # rest by 20 of the seeds with Distributed Maps and many workers
VERSIONED = 6  # rest by 20 of the seeds whose bucket keeps versions of its archive
OVERLAPS = 2  # last digit of the seeds where what happens twice happens at the same moment
RETRIED = 0.3  # of the schedules whose runs have failed members


class FailedScheduleError(AssertionError):
    """A schedule ended otherwise than the documents say; `str` has all that is needed to see it."""

    def __init__(self, told: str, sentence: str, faults: int) -> None:
        super().__init__(told)
        self.sentence = sentence  # of the documents
        self.faults = faults  # that the plan had, with those left out


@dataclass(frozen=True, slots=True)
class Ended:
    """What one schedule was."""

    seed: int
    steps: int
    injected: tuple[str, ...]  # what went wrong
    trace: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """What is drawn from a seed."""

    seed: int
    rule: str
    versions: list[Recipe]  # of the archive
    scheduler: Scheduler
    faults: FaultPlan
    world: World

    def end(self) -> Ended:
        """Return what it was."""
        world = self.world
        return Ended(
            self.seed, self.scheduler.steps, tuple(self.faults.injected), tuple(world.trace)
        )


@contextmanager
def drawn(
    seed: int, skipped: frozenset[int], rules: Sequence[str], depth: int
) -> Iterator[Schedule]:
    """Draw the schedule of `seed`; compare what is there at its end with the model.

    Raises:
        FailedScheduleError: the model was violated, or the schedule never ended.
    """
    gc.disable()  # a generator that is closed at a random moment would take a step
    rng = random.Random(seed)
    scheduler = Scheduler(rng)
    faults = FaultPlan.choose(rng, skipped)
    rule = rng.choice(rules)
    versions = [choose_recipe(rng, version, depth) for version in range(3)]
    older = older_objects(rng, make_archive(versions[0])[1]) if rng.random() < 0.3 else {}
    world = World(scheduler, faults, Model(rule, older))
    put_older(world, older, versions)
    try:
        yield Schedule(seed, rule, versions, scheduler, faults, world)
        check_end(world)
    except (ViolationError, StuckError) as error:
        told = describe(seed, error, world, rule, versions)
        raise FailedScheduleError(told, str(error).split(" -- ", 1)[0], faults.number) from error
    finally:
        scheduler.close()
        gc.enable()


def run_schedule(seed: int, skipped: frozenset[int] = frozenset()) -> Ended:
    """Run the schedule of `seed`, without the faults of these numbers.

    Raises:
        FailedScheduleError: the model was violated, or the schedule never ended.
    """
    depth = int(seed % 10 == NESTED)
    rules = (OVERWRITE, OVERWRITE, SKIP_UNCHANGED, NEVER)
    with drawn(seed, skipped, rules, depth) as schedule:
        world = schedule.world
        if seed % 10 == OVERLAPS:
            _let_overlap(schedule)
        if seed % 20 == VERSIONED:
            _keep_versions(schedule)
        services = Services(world)
        with (
            substituted(schedule.scheduler),
            deployed(world, services, schedule.rule, _tuning_of(seed), depth=depth),
        ):
            _put_archives(world, services, schedule.versions)
            operator = Operator(world, services, MACHINE)
            world.abort = operator.abort
            _run_to_the_end(world, operator)
    return schedule.end()


def _tuning_of(seed: int) -> Mapping[str, float]:
    """Return the settings of a schedule; in some, slices wait beside the scans."""
    if seed % 20 == DISTRIBUTED:
        return {**TUNING, "max_inline_tasks": 0, "max_workers": 64}
    return TUNING


def _let_overlap(schedule: Schedule) -> None:
    """Let runs be redriven while functions of the aborted execution go on, and the like."""
    faults = schedule.faults
    faults.overlaps = True
    faults.left[Fault.ABORT] = faults.left.get(Fault.ABORT, 0) + faults.rng.choice((0, 1, 2))
    faults.rates.setdefault(Fault.ABORT, faults.rng.choice(RATES))


def _keep_versions(schedule: Schedule) -> None:
    """Let archives be replaced in a bucket that keeps their versions, so older runs go on."""
    world, faults = schedule.world, schedule.faults
    world.ingest.versions = {}
    if faults.left:
        faults.left[Fault.OVERWRITE] = 2
        faults.rates[Fault.OVERWRITE] = faults.rng.choice(RATES)


def check_end(world: World) -> None:
    """Compare what is there when all is quiet with the model.

    Raises:
        ViolationError: something happened that the documents forbid.
    """
    stored = {key: one.body for key, one in world.members.objects.items()}
    uploads = {
        upload: pending.facts.metadata["s3unzip-run"]
        for upload, pending in world.members.pending.items()
    }
    if world.model.violations:
        raise world.model.violations[0]
    world.model.all_quiet(stored, uploads, calm=world.faults.calm)
    check_nested(world.model)


def _put_archives(world: World, services: Services, recipes: list[Any]) -> None:
    """Put the first version; the others replace it where the fault plan says so."""
    coming = list(recipes)
    direct = world.scheduler.rng.random() < 0.5  # else the state machine does all archives
    world.ingest.neighbours = world.members.neighbours = {
        "ingest": world.ingest,
        "members": world.members,
    }

    def put() -> None:
        data, facts = make_archive(coming.pop(0))
        world.ingest.put(KEY, data, ObjectFacts("application/zip", {}), if_absent=False)
        world.modified = float(int(world.scheduler.now)) if direct else None
        world.model.archive_put(world.ingest.objects[KEY].etag, facts)
        services.send(json.dumps(object_created()))
        if not coming:
            world.overwrite = None

    world.overwrite = put
    world.scheduler.spawn(Process("somebody"), put)


def put_older(world: World, older: dict[str, bytes], recipes: Iterable[Recipe]) -> None:
    """Put what lies at the destination before any run."""
    for key, body in older.items():
        metadata = {"zip-crc32": f"{crc32(body):08x}", "s3unzip-run": "older"}
        world.members.put(key, body, ObjectFacts("text/plain", metadata), if_absent=False)
    for recipe in recipes:  # an archive inside may be there already
        facts = make_archive(recipe)[1]
        for inner, known in facts.nested:
            stored = world.members.objects.get(inner)
            if stored and any(stored.body == member.body for member in facts.members):
                world.model.versions[stored.etag] = known


def _run_to_the_end(world: World, operator: Operator) -> None:
    """Run until all is quiet; then mend what was broken, redrive what failed, and maybe retry."""
    scheduler = world.scheduler
    scheduler.run()
    for _ in range(REDRIVES):
        world.faults.clear()
        world.denied.clear()
        if not operator.redrive():
            break
        scheduler.run()
    if world.faults.rng.random() < RETRIED and operator.retry():
        scheduler.run()


def object_created() -> dict[str, Any]:
    """Return EventBridge's event of an archive that was put."""
    return {
        "detail-type": "Object Created",
        "time": "2027-01-15T08:00:00Z",
        "detail": {"bucket": {"name": "ingest"}, "object": {"key": KEY}},
    }


@contextmanager
def deployed(
    world: World,
    services: Services,
    rule: str,
    tuning: Mapping[str, float] = TUNING,
    *,
    depth: int = 0,
) -> Iterator[None]:
    """Let the functions find the simulated services in place of AWS."""
    options = Options(on_conflict=rule, nested_depth=depth)  # type: ignore[arg-type]  # a value of the enumeration
    variables = {
        Variable.ENVIRONMENT: "simulated",
        Variable.WORK_BUCKET: "work",
        Variable.DESTINATION: "s3://members/out/",
        Variable.TRIGGER_BUCKET: "ingest",
        Variable.TRIGGER_SUFFIX: ".zip",
        Variable.STATE_MACHINE: MACHINE,
        Variable.QUEUE: "https://queue",
        Variable.OPTIONS: encode(options).decode(),
    }
    names = vars(environment)
    kept = {name: names[name] for name in ("S3Stores", "AwsSession", "make_tuning")}
    before = dict(os.environ)
    metrics, told = telemetry.metrics, vars(telemetry.metrics)
    try:
        told["flush_metrics"] = metrics.clear_metrics  # else each invocation writes a line
        _forget()
        os.environ.update({str(name): value for name, value in variables.items()})
        names["S3Stores"] = lambda *_, **__: SimulatedStores(world)
        names["AwsSession"] = lambda: services
        # The settings have lower bounds: those of S3, and what is worth a request.
        names["make_tuning"] = lambda _: Tuning(**tuning)  # type: ignore[arg-type]  # int and float fields
        with quiet():
            yield
    finally:
        told.pop("flush_metrics", None)
        names.update(kept)
        os.environ.clear()
        os.environ.update(before)
        _forget()


@contextmanager
def quiet() -> Iterator[None]:
    """Write no lines of the log."""
    logger = logging.getLogger(SERVICE)
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def _forget() -> None:
    for cached in (environment.open_worker, environment.open_client, environment._session):
        cached.cache_clear()


def describe(seed: int, error: Exception, world: World, rule: str, recipes: list[Any]) -> str:
    """Return all that is needed to see a failure again."""
    without = ",".join(map(str, sorted(world.faults.skipped)))
    lines = [
        f"seed {seed}: {error}",
        f"replay: make simulate SEED={seed}" + (f" WITHOUT={without}" if without else ""),
        f"on_conflict {rule}; archives: {recipes}",
        f"faults: {', '.join(world.faults.injected) or 'none'}",
        *(f"  {line}" for line in world.trace),
    ]
    return "\n".join(lines)
