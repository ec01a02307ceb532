"""One schedule: a world made from a seed, run until all is quiet, and compared with the promises.

Its last digit says what is special: 0 damages records, and sends each archive's event once more in
the end; 2 has aborted runs that are resumed while their functions go on, 3 has archives inside, 4
lets threads take turns at each lock, queue and event, 5 deletes archives after success, 6 keeps
their versions, 7 has all tasks in Distributed Maps, 8 has archives whose runs may have equal ids,
and in 9 nobody resumes what fails.

A *scene* is a schedule that is written, not drawn: it shows one guard of the protocol at work and
has no random faults. A cue is done at a call of one invocation of a function, before the call has
any effect: the invocation waits, is killed or refused while others go on. What is there in the end
is compared with the promises, and with what the scene says.
"""

from __future__ import annotations

import gc
import json
import logging
import pkgutil
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache, partial
from importlib import import_module
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4
from zlib import crc32

import pytest

import s3unzip
from s3unzip.aws import environment, extract, telemetry
from s3unzip.errors import AccessDeniedError, ServiceFaultError
from s3unzip.model import AfterSuccess, OnConflict, Options, SourceAction, encode
from s3unzip.settings import Tuning, Variable
from s3unzip.stores.ports import ObjectFacts
from tests.simulation import threads
from tests.simulation.archives import (
    KEY,
    PREFIX,
    SAME_STEM,
    TUNING,
    Recipe,
    choose_recipe,
    make_archive,
    older_objects,
)
from tests.simulation.promises import (
    NEVER,
    OVERWRITE,
    SKIP_UNCHANGED,
    Promises,
    RunState,
    ViolationError,
)
from tests.simulation.services import MACHINE, Execution, Services, run_of
from tests.simulation.world import (
    RATES,
    Fault,
    FaultPlan,
    Process,
    ProcessDiedError,
    Scheduler,
    SimulatedStores,
    StuckError,
    World,
    current,
)

# Modules of the package hold `threading`, `time`, `random` and some of their names. Each name that
# is one of those is exchanged while a schedule lasts, wherever it is, so that the simulation knows
# no module of the product by name. All modules are imported before: one that a function imports at
# its first use would keep the real threads and the real clock.
PACKAGE = "s3unzip"
# By identity: a name of a module may hold what has no hash, or equals whatever it is asked.
LASTING = {
    id(threading): threads,
    id(threading.Thread): threads.Thread,
    id(SimpleQueue): threads.SimpleQueue,
    id(ThreadPoolExecutor): threads.ThreadPoolExecutor,
}
OF_SCHEDULE = (time, random, uuid4)

for module_info in pkgutil.walk_packages(s3unzip.__path__, f"{PACKAGE}."):
    if not module_info.name.endswith("__main__"):
        with suppress(ImportError):  # of an extra that is not installed
            import_module(module_info.name)


def _substitute(patch: pytest.MonkeyPatch, scheduler: Scheduler) -> None:
    """Let the product run on the threads, the clock and the rng of `scheduler`."""
    rng = scheduler.rng

    def make_rng(seed: object = None) -> random.Random:
        return random.Random(rng.random() if seed is None else seed)  # type: ignore[arg-type]  # what the product gives

    def make_uuid() -> UUID:
        return UUID(int=rng.getrandbits(128))

    def now() -> float:
        return scheduler.now

    clock = SimpleNamespace(
        time=now, monotonic=now, perf_counter=now, sleep=scheduler.sleep, strftime=time.strftime
    )
    chance = SimpleNamespace(Random=make_rng, uniform=rng.uniform, random=rng.random)
    exchanged = LASTING | dict(zip(map(id, OF_SCHEDULE), (clock, chance, make_uuid), strict=True))
    for names, name, real in _find_places(len(sys.modules)):
        patch.setitem(names, name, exchanged[id(real)])


@lru_cache(maxsize=1)
def _find_places(modules: int) -> list[tuple[dict[str, Any], str, object]]:
    """Return where the package holds what is exchanged; it is the same until `modules` grows."""
    wanted = {*LASTING, *map(id, OF_SCHEDULE)}
    return [
        (vars(module), name, value)
        for path, module in list(sys.modules.items())
        if path.partition(".")[0] == PACKAGE and module is not None
        for name, value in vars(module).items()
        if id(value) in wanted
    ]


# Last digits of seeds.
DAMAGED, OVERLAPS, NESTED, TURNS, DELETED, VERSIONED, MANY, EQUAL, LEFT = 0, 2, 3, 4, 5, 6, 7, 8, 9
ADDED = {  # faults that schedules of a kind have often
    DAMAGED: (Fault.DAMAGE,),
    VERSIONED: (Fault.OVERWRITE,),
    OVERLAPS: (Fault.ABORT, Fault.DELAY),
    LEFT: (Fault.ABORT, Fault.OVERWRITE, Fault.CRASH_AFTER),
}


class FailedScheduleError(AssertionError):
    """A schedule ended otherwise than the documents say; `str` has all that is needed to see it."""

    def __init__(self, told: str, sentence: str, faults: int) -> None:
        super().__init__(told)
        self.sentence = sentence  # of the documents
        self.faults = faults  # that the plan had, with those left out


@dataclass(frozen=True, slots=True)
class Ended:
    """What one schedule was."""

    steps: int
    injected: tuple[str, ...]  # what went wrong
    trace: tuple[str, ...]


def run_seed(seed: int, skipped: frozenset[int] = frozenset()) -> Ended:
    """Run the schedule of `seed`, without the faults of these numbers."""
    rng, kind = random.Random(seed), seed % 10
    faults = FaultPlan(rng, skipped)
    rule = rng.choice((OVERWRITE, OVERWRITE, SKIP_UNCHANGED, NEVER))
    versions = [choose_recipe(rng, version, int(kind == NESTED)) for version in range(3)]
    older = older_objects(rng, make_archive(versions[0])[1]) if rng.random() < 0.3 else {}
    world = World(Scheduler(rng), faults, Promises(rule, older))
    world.scheduler.preemptive = kind == TURNS
    services = Services(world)
    _put_older(world, older, versions)
    try:
        with deployed(world, services, rule, kind):
            if kind == EQUAL:
                _put_same_stems(world, rng, services)
            else:
                _put_versions(world, versions, services)
            _run_to_the_end(world, services, kind)
            check_end(world, services)
    except (ViolationError, StuckError) as error:
        told = _describe(seed, error, world, rule, versions)
        raise FailedScheduleError(told, str(error).split(" -- ", 1)[0], faults.number) from error
    return Ended(world.scheduler.steps, tuple(faults.injected), tuple(world.trace))


def _choose_tuning(world: World, kind: int, given: Mapping[str, float]) -> Tuning:
    faults, changes = world.faults, dict(TUNING)
    changes["tail_bytes"] = faults.rng.choice((150, 400, 2_000, 262_144))
    changes.update(given)
    if kind == MANY:
        changes["max_few_tasks"] = 0
    if kind == VERSIONED:
        world.ingest.versions = {}
    for fault in ADDED.get(kind, ()) if faults.left else ():
        faults.left[fault] = 3
        faults.rates[fault] = faults.rng.choice(RATES)
    # Not by `make_tuning`: settings have lower bounds, those of S3 and of what is worth a request.
    return Tuning(**changes)  # type: ignore[arg-type]  # int and float fields


def check_end(world: World, services: Services) -> None:
    """Compare what is there when all is quiet with the promises."""
    if world.promises.violations:
        raise world.promises.violations[0]
    uploads = {
        upload: pending.facts.metadata["s3unzip-run"]
        for upload, pending in world.members.pending.items()
    }
    world.promises.outlived = any(
        fault.startswith(("abort", "lose the answer", "delay")) for fault in world.faults.injected
    )
    world.promises.check_end(
        world.members.bodies,
        uploads,
        calm=all(  # all other faults may repeat work
            fault.startswith(("throttle", "refuse", "busy")) for fault in world.faults.injected
        ),
        unfollowed=services.is_unfollowed(),
    )


def _put_versions(world: World, recipes: Iterable[Recipe], services: Services) -> None:
    coming = list(recipes)

    def put() -> None:
        put_archive(world, services, coming.pop(0))
        world.overwrite = put if coming else None
        world.remove = remove

    def remove() -> None:
        del world.ingest.objects[KEY]
        world.promises.archive_removed(KEY)
        world.note("the archive is deleted")
        world.remove = None

    world.scheduler.spawn(Process("somebody"), put)


def _put_same_stems(world: World, rng: random.Random, services: Services) -> None:
    recipes = [Recipe(10 + number, small=rng.choice((1, 3, 14))) for number in range(4)]
    for key, recipe in zip(SAME_STEM, recipes, strict=True):
        put = partial(put_archive, world, services, recipe, key, f"out/{key.removesuffix('.zip')}/")
        world.scheduler.spawn(Process("somebody"), put)


def put_archive(
    world: World,
    services: Services,
    recipe: Recipe,
    key: str = KEY,
    prefix: str = PREFIX,
    *,
    upload_seconds: int = 0,
) -> None:
    """Put an archive whose members go below a prefix; its event follows.

    The Last-Modified of the archive is the time at which its upload began.
    """
    world.ingest.neighbours = world.members.neighbours = {
        "ingest": world.ingest,
        "members": world.members,
    }
    data, facts = make_archive(recipe, prefix)
    world.ingest.add(key, data)
    stored = world.ingest.objects[key]
    stored.modified = world.scheduler.now
    world.promises.archive_put(key, stored.etag, facts)
    services.send(event_of(world, key))
    stored.modified -= upload_seconds


def event_of(world: World, key: str) -> str:
    """Return EventBridge's event of an archive that was put now."""
    etag = world.ingest.objects[key].etag.strip('"')
    stored = {"key": key, "etag": etag, "size": len(world.ingest.objects[key].body)}
    if world.ingest.versions is not None:
        stored["version-id"] = world.ingest.objects[key].etag
    time = datetime.fromtimestamp(world.ingest.objects[key].modified, UTC)
    return json.dumps(
        {
            "detail-type": "Object Created",
            "time": f"{time:%Y-%m-%dT%H:%M:%SZ}",
            "detail": {"bucket": {"name": "ingest"}, "object": stored},
        }
    )


def _put_older(world: World, older: Mapping[str, bytes], recipes: Iterable[Recipe]) -> None:
    for key, body in older.items():
        metadata = {"zip-crc32": f"{crc32(body):08x}", "s3unzip-run": "older"}
        world.members.put(key, body, ObjectFacts("text/plain", metadata), if_absent=False)
    for recipe in recipes:  # an archive inside may be there already
        facts = make_archive(recipe)[1]
        for inner, known in facts.nested:
            stored = world.members.objects.get(inner)
            if stored and any(stored.body == member.body for member in facts.members):
                world.promises.versions[stored.etag] = known


def _run_to_the_end(world: World, services: Services, kind: int) -> None:
    """Run until all is quiet; then mend what was broken, resume what failed, and maybe retry."""
    scheduler, promises = world.scheduler, world.promises
    world.abort = services.abort
    promises.mended = kind != LEFT
    promises.equal_ids = kind == EQUAL
    scheduler.run()
    if kind != DAMAGED and not promises.violations:
        promises.check_visible(
            visible=any(services.failed().values())
            or bool(services.dead_letters or services.undelivered)
        )
    if promises.mended:
        _mend(world, services)
    if kind == DAMAGED and not promises.violations:
        for key in promises.current:
            services.send(event_of(world, key))
        scheduler.run()
        _mend(world, services)
    if kind == EQUAL and not promises.violations:
        promises.check_ids(services.refused())
    retries = world.faults.rng.random() < 0.3 and promises.mended
    if retries and not promises.violations and services.retry():
        scheduler.run()


def _mend(world: World, services: Services) -> None:
    # An operator resumes what failed, once nothing goes wrong any more.
    for _ in range(4):
        world.faults.left.clear()
        world.denied.clear()
        world.outages.clear()
        if world.promises.violations or not services.mend():
            break
        world.scheduler.run()


@contextmanager
def deployed(
    world: World, services: Services, rule: str, kind: int, **tuning: float
) -> Iterator[None]:
    """Let the functions find the simulated services in place of AWS, and write no log."""
    template = "{archive_dir}/{archive_stem}/{member}" if kind == EQUAL else Options().key_template
    options = Options(template, OnConflict(rule), nested_depth=int(kind == NESTED))
    deletion = encode(AfterSuccess(SourceAction.DELETE)).decode()
    variables = {
        Variable.ENVIRONMENT: "simulated",
        Variable.WORK_BUCKET: "work",
        Variable.DESTINATION: "s3://members/out/",
        Variable.TRIGGER_BUCKET: "ingest",
        Variable.TRIGGER_SUFFIX: ".zip",
        Variable.STATE_MACHINE: MACHINE,
        Variable.QUEUE: "https://queue",
        Variable.OPTIONS: encode(options).decode(),
        Variable.AFTER_SUCCESS: deletion if kind == DELETED else "",
    }
    settings = _choose_tuning(world, kind, tuning)
    gc.disable()  # a generator that is closed at a random moment would take a step
    try:
        with pytest.MonkeyPatch.context() as patch:
            _substitute(patch, world.scheduler)
            for name, value in variables.items():
                patch.setenv(name, value)
            if kind == EQUAL:
                patch.setattr("s3unzip.run_ids.DIGEST_DIGITS", 1)
            patch.setattr(environment, "OpenedStores", lambda *_, **__: SimulatedStores(world))
            patch.setattr(environment, "AwsSession", lambda _: services)
            patch.setattr(environment, "make_tuning", lambda _: settings)
            patch.setattr(telemetry.metrics, "flush_metrics", telemetry.metrics.clear_metrics)
            logging.disable()
            _forget()
            yield
    finally:
        world.scheduler.close()
        gc.enable()
        logging.disable(logging.NOTSET)
        _forget()


def _forget() -> None:
    for cached in (
        environment.load_config,
        environment.open_client,
        environment._open_session,
        extract._read_run,
    ):
        cached.cache_clear()


def _describe(seed: int, error: Exception, world: World, rule: str, recipes: list[Recipe]) -> str:
    without = ",".join(map(str, sorted(world.faults.skipped)))
    return "\n".join(
        [
            f"seed {seed}: {error}",
            f"replay: make simulate SEED={seed}" + f" WITHOUT={without}" * bool(without),
            f"on_conflict {rule}; archives: {recipes}",
            f"faults: {', '.join(world.faults.injected) or 'none'}",
            *(f"  {line}" for line in world.trace),
        ]
    )


PLAIN = 1  # the kind of schedules with nothing special
SMALL = Recipe(0, small=3)
NEWER = Recipe(1, small=3)  # the same names, other bytes
LATER = 10.0  # seconds in which everybody else has done what there is


@contextmanager
def staged(kind: int = PLAIN, *, is_checked: bool = True, **tuning: float) -> Iterator[Stage]:
    """Let a scene play; compare what is there in the end with the promises.

    Args:
        kind: what is special, as the last digit of a seed says it.
        is_checked: whether the promises hold in the end.
        tuning: settings of the functions.
    """
    stage = Stage()
    with deployed(stage.world, stage.services, OVERWRITE, kind, **tuning):
        yield stage
        if is_checked:
            stage.check()


def _do(steps: Iterable[Callable[[], object]]) -> None:
    for step in steps:
        step()


class Stage:
    """The simulated account in which a scene plays."""

    def __init__(self) -> None:
        rng = random.Random(7)
        faults = FaultPlan(rng)
        faults.left.clear()
        self.world = World(Scheduler(rng), faults, Promises(OVERWRITE, {}))
        self.services = Services(self.world)

    @property
    def runs(self) -> dict[str, RunState]:
        return self.world.promises.runs

    def run_of(self, version: int) -> RunState:
        (found,) = (
            state
            for name, state in self.runs.items()
            if "-again" not in name and [one.version for one in state.versions] == [version]
        )
        return found

    def put(
        self, recipe: Recipe, key: str = KEY, prefix: str = PREFIX, *, upload_seconds: int = 0
    ) -> None:
        put_archive(self.world, self.services, recipe, key, prefix, upload_seconds=upload_seconds)

    def replace(self, recipe: Recipe) -> None:
        """Put another archive, and let everybody else go on."""
        self.put(recipe)
        self.wait()

    def send(self, key: str = KEY) -> None:
        self.services.send(event_of(self.world, key))

    def remove(self) -> None:
        del self.world.ingest.objects[KEY]
        self.world.promises.archive_removed(KEY)

    def wait(self, seconds: float = LATER) -> None:
        self.world.scheduler.sleep(seconds)

    def kill(self) -> None:
        self.world.scheduler.kill(current().process)
        raise ProcessDiedError

    def abort(self, number: int = 0) -> None:
        self.executions[number].stop()

    def redrive(self) -> None:
        self.executions[0].start()

    def deny(self) -> None:
        raise AccessDeniedError("not allowed")

    def fail(self) -> None:
        raise ServiceFaultError("no answer")

    def at(self, function: str, number: int, call: str, *steps: Callable[[], object]) -> None:
        """Do something before such a call of one invocation of a function, from 1."""
        self.world.cues[function, number, call] = partial(_do, steps)

    def play(self, *steps: Callable[[], object]) -> None:
        """Let somebody do something, and wait until all is quiet."""
        self.world.scheduler.spawn(Process("somebody"), partial(_do, steps))
        self.world.scheduler.run()

    @property
    def executions(self) -> list[Execution]:
        return [one for one in self.services.executions.values() if "wait" not in one.given]

    def resume(self) -> None:
        last = self.executions[-1]
        self.services.start_next(run_of(last.name), {"run": run_of(last.name)})

    def check(self) -> None:
        """Compare what is there with the promises; nobody resumes anything."""
        self.world.promises.mended = False
        self.world.faults.injected.append("delay of a scene")  # what waits repeats work
        check_end(self.world, self.services)
        assert not self.world.cues, "a cue was never given"
