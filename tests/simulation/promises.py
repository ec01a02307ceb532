"""What the documents promise of runs, as a program that watches them.

It imports nothing of the product. It is told what happens at the product's edges: archives that
are put, objects that become visible, records that are written, events that are sent. At each of
these, and when all is quiet, it compares with what docs/*.md say; each check has its sentence.
"""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.archives import ArchiveFacts, MemberFacts

Json = dict[str, Any]
OVERWRITE, SKIP_UNCHANGED, NEVER = "overwrite", "skip-unchanged", "never"
EXTRACTED, UNCHANGED, FAILED = "extracted", "unchanged", "failed"
COMPLETED, WITH_ERRORS = "COMPLETED", "COMPLETED_WITH_ERRORS"
REJECTED, CHANGED, RUN_FAILED = "REJECTED", "SOURCE_CHANGED", "FAILED"
ENDED_WELL = frozenset({COMPLETED, WITH_ERRORS})
STOPS_RUN = frozenset({"AccessDeniedError", "NotFoundError", "StoreFullError", "StoreRefusesError"})
EVENT_TITLES = {
    COMPLETED: "Archive Extracted",
    WITH_ERRORS: "Archive Extracted",
    REJECTED: "Archive Rejected",
    CHANGED: "Archive Failed",
    RUN_FAILED: "Archive Failed",
}
MAX_IDLE_ROUNDS = 3
AGAIN = "-again"


class ViolationError(AssertionError):
    """What happened is not what the documents say."""


class Written(NamedTuple):
    """An object as it is visible at the destination."""

    body: bytes
    run: str | None  # that wrote it; None: it was there before


NOTHING = Written(b"no object", None)  # no member has these bytes


class Attempt(NamedTuple):
    """One invocation that works on a task, and what was on record when it began."""

    run: str
    task: str
    finished: frozenset[str]  # keys that were right then
    stops: int  # stops that were deleted before
    stopped: bool


@dataclass(slots=True)
class RunState:
    """What is known of one run."""

    versions: list[ArchiveFacts] = field(default_factory=list)  # of which it may be one
    known: bool = False  # it is of one version, or of one of a few with equal members
    outcomes: dict[str, Json] = field(default_factory=dict)  # by task: status by key
    ended: set[str] = field(default_factory=set)  # tasks that left nothing to do
    written: Counter[str] = field(default_factory=Counter)  # how often each key became visible
    reports: list[Json] = field(default_factory=list)
    lost: list[Json] = field(default_factory=list)  # reports that were damaged
    right: str = ""  # the verdict that its archive deserved when its last report was written
    told: list[str] = field(default_factory=list)  # verdicts of events
    stops: int = 0  # how often stop.json was deleted
    stopped: bool = False  # it is there
    rounds: dict[int, int] = field(default_factory=dict)  # what was done when each was written
    damaged: bool = False  # a record of it was
    brief: bool = False  # its last report says that it took less than a second

    @property
    def facts(self) -> ArchiveFacts:
        return self.versions[0]

    @property
    def done(self) -> int:
        """Tasks that ended, and members that have an outcome."""
        return len(self.ended) + sum(map(len, self.outcomes.values()))

    @property
    def verdict(self) -> str | None:
        return self.reports[-1]["verdict"] if self.reports else None


class Promises:
    """Watches the runs of one destination, which holds the objects `before` any run."""

    def __init__(self, rule: str, before: dict[str, bytes]) -> None:
        self.rule = rule  # what is done where the destination has the key
        self.violations: list[ViolationError] = []
        self.runs: dict[str, RunState] = {}
        self.objects = {key: Written(body, None) for key, body in before.items()}
        self.versions: dict[str, ArchiveFacts] = {}  # by ETag
        self.puts: list[ArchiveFacts] = []
        self.deleted: list[ArchiveFacts] = []
        self.current: dict[str, str] = {}  # ETags of the archives that are there, by key
        self.replaced = False  # an archive was replaced
        self.removed = False  # an archive was deleted, and not after its run
        self.mended = True  # whatever failed is resumed
        self.equal_ids = False  # runs of several archives may have one id
        self.executed: set[str] = set()  # runs with an execution
        self.blind = False  # a run could not tell whether its archive was replaced
        self.outlived = False  # functions worked on after nobody waited for them
        self.uploads: dict[str, int] = {}  # the steps at which they began
        self.reopened: set[str] = set()  # runs that were resumed with the members that failed
        self.settled: dict[str, int] = {}  # by run: when that began which ended it

    def archive_put(self, key: str, etag: str, facts: ArchiveFacts) -> None:
        self.replaced |= key in self.current or self.removed
        self.versions[etag] = facts
        self.puts.append(facts)
        self.current[key] = etag

    def archive_removed(self, key: str) -> None:
        self.removed = True
        self.current.pop(key, None)

    def archive_deleted(self, etag: str) -> None:
        facts = self.versions[etag]
        self.deleted.append(facts)
        self.must(
            COMPLETED in self._verdicts(facts),
            "after-success: only the archive of a COMPLETED run is deleted",
            etag,
        )
        for member in facts.members:
            there = self.objects.get(member.key, NOTHING)
            self.must(
                there.body == member.body or there.run is not None,
                "after-success: every member is in the destination",
                member.key,
            )

    # What functions do

    def task_begun(self, run: str, task: str) -> Attempt:
        state = self._run(run)
        known = state.outcomes.get(task, {}).items()
        finished = frozenset(key for key, status in known if status != FAILED)
        return Attempt(run, task, finished, state.stops, state.stopped)

    def task_failed(self, attempt: Attempt, error: str) -> None:
        state = self._run(attempt.run)
        self.must(
            state.stopped or state.stops > attempt.stops or error not in STOPS_RUN,
            "at the first such fault the task writes stop.json",
            error,
        )

    def object_visible(self, key: str, body: bytes, etag: str, run: str, attempt: object) -> None:
        state = self._run(run)
        fits = [one for one in state.versions if MemberFacts(key, body) in one.members]
        self.must(bool(fits), "only verified members of the run's version are visible", (run, key))
        if not self.equal_ids:
            state.versions, state.known = fits, True
        if isinstance(attempt, Attempt):
            # A record may be damaged between the beginning of the attempt and its reading.
            on_record = attempt.finished & state.outcomes.get(attempt.task, {}).keys()
            self.must(key not in on_record, "members on record are not written again", key)
            self.must(
                not attempt.stopped or attempt.stops != state.stops,
                "while stop.json is there, no task begins",
                key,
            )
        self.must(self.rule != NEVER or key not in self.objects, "never writes only new keys", key)
        state.written[key] += 1
        self.objects[key] = Written(body, run)
        for inner, facts in (pair for one in fits for pair in one.nested):
            if inner == key:
                self.versions[etag] = facts

    # Records

    def recorded(self, run: str, name: str, data: bytes, began: int) -> None:
        """A record of a run was written; its writer's process `began` at this step."""
        state = self._run(run)
        folder, _, rest = name.partition("/")
        match folder:
            case "run.json":
                self._reads(state, json.loads(data)["run"]["pin"], run)
            case "stop.json":
                state.stopped = True
            case "rounds":
                self._check_round(state, int(rest.partition(".")[0]), run)
            case "outcomes":
                self._check_outcomes(state, run, rest.removesuffix(".jsonl"), data)
            case "report.json":
                self._check_report(state, run, json.loads(data))
                again = state.reports[-1].get("rounds", 0) > 1 and not state.stopped
                again &= state.verdict != RUN_FAILED  # what slices still need waits for a resume
                self.settled[run] = began * again

    def record_damaged(self, run: str, name: str) -> None:
        state = self._run(run)
        state.damaged = True
        state.rounds.clear()
        if name == "report.json":
            state.lost += state.reports
            state.reports.clear()
        self.record_deleted(run, name)

    def record_deleted(self, run: str, name: str) -> None:
        state = self._run(run)
        folder, _, task = name.removesuffix(".jsonl").partition("/")
        if name == "stop.json":
            state.stopped = False
            state.stops += 1
            state.rounds.clear()  # a person resumes it
        if folder == "outcomes":
            state.outcomes.pop(task, None)
            state.ended.discard(task)

    def _reads(self, state: RunState, pin: Json | None, run: str) -> None:
        if pin is None or self.equal_ids:
            return
        known = self.versions.get(pin["etag"])
        self.must(known in state.versions, "run-files.md: a run's id names one version", run)
        state.versions, state.known = [one for one in state.versions if one is known], True
        # Archives inside of one that is done again are done with its options.
        same = [name for name, one in self.runs.items() if one.versions == state.versions]
        names = {name for name in same if known in self.puts and AGAIN not in name}
        self.must(len(names) < 2, "run-files.md: the same version has the same run's id", names)

    def _check_round(self, state: RunState, number: int, run: str) -> None:
        state.rounds.setdefault(number, state.done)
        last = [state.rounds.get(number - back) for back in range(MAX_IDLE_ROUNDS + 1)]
        self.must(set(last) != {state.done}, "a run ends after three rounds without progress", run)

    def _check_outcomes(self, state: RunState, run: str, task: str, data: bytes) -> None:
        head, *lines = (json.loads(line) for line in data.splitlines())
        found = {line["key"]: line["status"] for line in lines}
        self.must(len(found) == len(lines), "a member has one outcome of a task", task)
        if task.count("-") > 1:  # of one part of a member: settling gives the member its outcome
            found = {}
        (state.ended.discard if head.get("unfinished") else state.ended.add)(task)
        for key, status in found.items():
            if state.outcomes.get(task, {}).get(key) != status:
                self._check_outcome(state, run, key, status)
        state.outcomes[task] = found

    def _check_outcome(self, state: RunState, run: str, key: str, status: str) -> None:
        fits = [one for one in state.versions if any(key == each.key for each in one.members)]
        self.must(bool(fits), "an outcome is of a member", key)
        member = next(each for each in fits[0].members if each.key == key)
        if status == FAILED:
            self.must(
                len(state.versions) > 1 or self._may_fail(member),
                "a member fails for a reason of its own",
                key,
            )
            return
        there = self.objects.get(key, NOTHING)
        same = there.run not in {run, None} or any(
            there.body == each.body for one in fits for each in one.members if each.key == key
        )
        self.must(same, "the object of an outcome is there, and right", (key, status))
        self.must(  # what follows a newer archive compares, too
            self.rule != OVERWRITE or self.replaced or status != UNCHANGED,
            "overwrite writes every member",
            key,
        )

    def _may_fail(self, member: MemberFacts) -> bool:
        """Say whether the documents let this member fail."""
        there = self.objects.get(member.key, NOTHING)
        taken = self.rule == NEVER and there is not NOTHING and there.body != member.body
        return taken or not member.right

    def _check_report(self, state: RunState, run: str, report: Json) -> None:
        verdict, before = report["verdict"], state.verdict
        self._reads(state, report.get("pin"), run)
        older = before in {*ENDED_WELL, REJECTED} and verdict in {RUN_FAILED, CHANGED}
        self.must(
            not older or run in self.reopened, "a verdict is never replaced by an older one", run
        )
        self.must(
            not state.reports or state.reports[-1]["source"] == report["source"],
            "a verdict is never replaced by another archive's",
            run,
        )
        state.reports.append(report)
        seconds = report.get("finished", 0.0) - report.get("started", 0.0)
        state.brief = seconds < 1.0 and not report.get("requests", {}).get("retries")
        if self.equal_ids:
            return
        if len(state.versions) > 1:
            self.must(verdict == RUN_FAILED, "a report names its version", run)
            return
        facts = state.facts
        bad = any(map(self._may_fail, facts.members))
        state.right = REJECTED if facts.broken else WITH_ERRORS if bad else COMPLETED
        if verdict == REJECTED:
            self.must(facts.broken and not state.written, "REJECTED: broken, nothing written", run)
            return
        if verdict == CHANGED:
            self.must(
                self.replaced or self.removed,
                "SOURCE_CHANGED: the archive is overwritten or deleted",
                run,
            )
        counts = (report.get(name, 0) for name in (EXTRACTED, UNCHANGED, FAILED, "missing"))
        planned = report.get("members", 0) > 0 or not facts.members
        if planned:
            self.must(sum(counts) == len(facts.members), "every member is counted once", report)
        if verdict in ENDED_WELL:
            self.must(planned and not report.get("missing"), "no member is missing", report)
            self._check_whole(facts, run, report)

    def _check_whole(self, facts: ArchiveFacts, run: str, report: Json) -> None:
        """Every member of a run that ended is right in the destination, or is a known failure."""
        failed = report.get(FAILED, 0)
        self.must((failed > 0) == (report["verdict"] == WITH_ERRORS), "the verdict counts", report)
        wrong = sum(not one.right for one in facts.members)
        for member in facts.members:
            there = self.objects.get(member.key, NOTHING)
            right = there.body == member.body or there.run not in {run, None}
            wrong += member.right and not right and self._may_fail(member)
            self.must(
                right or self._may_fail(member),
                "COMPLETED: every member is right in the destination",
                member.key,
            )
        self.must(failed >= wrong, "the members that fail are the bad ones", (run, failed, wrong))

    def announced(self, title: str, detail: Json) -> None:
        state, verdict = self._run(detail["run"]), detail["verdict"]
        self.must(EVENT_TITLES[verdict] == title, "events.md: detail-type and verdict", title)
        names = ("verdict", EXTRACTED, UNCHANGED, FAILED)
        said = [[one.get(name, 0) for name in names] for one in state.reports + state.lost]
        self.must(
            [detail[name] for name in names] in said,
            "events.md: the event says what the report says",
            detail,
        )
        state.told.append(verdict)

    # When all is quiet

    def check_visible(self, *, visible: bool) -> None:
        """Nothing happens any more: each archive has a report, or what failed is `visible`."""
        for facts in () if visible else self._wanted():
            self.must(
                any(run.reports for run in self.runs.values() if facts in run.versions),
                "an archive has a report, or an operator can see it",
                self.current,
            )

    def check_ids(self, letters: set[str]) -> None:
        """Nothing happens any more: each archive has a report of its own, or is among `letters`."""
        reported = {run.reports[-1]["source"]["key"] for run in self.runs.values() if run.reports}
        for key in self.current:
            self.must(key in reported | letters, "run-files.md: an equal id is an error", key)

    def check_end(
        self,
        objects: dict[str, bytes],
        uploads: dict[str, str],
        *,
        calm: bool,
        unfollowed: bool,
    ) -> None:
        """Nothing happens any more, and what failed was resumed: what must be true then.

        The destination holds `objects`, and incomplete `uploads`, with the run of each by its id.
        All was `calm` where nothing happened that may repeat work. Something may tell that an older
        archive is `unfollowed`, if nobody mends what failed.
        """
        self.must(not (calm and uploads), "a run leaves no upload", uploads)
        late = [one for one, run in uploads.items() if self.uploads[one] < self.settled.get(run, 0)]
        self.must(not late, "a run of several rounds drops what was left before its end", late)
        self.must(
            objects == {key: written.body for key, written in self.objects.items()},
            "the destination is what the runs made visible",
            set(objects),
        )
        if self.equal_ids:  # `check_ids` has compared the runs
            return
        self.check_visible(visible=not self.mended)
        for run, state in self.runs.items():
            self._check_run(run, state, calm=calm)
        for etag in () if unfollowed and not self.mended else self.current.values():
            self._check_newest(self.versions[etag])

    def _check_newest(self, newest: ArchiveFacts) -> None:
        if self.rule != OVERWRITE or newest.broken or self.blind:
            return
        for member in newest.members if self._verdicts(newest) & ENDED_WELL else ():
            there = self.objects.get(member.key, NOTHING)
            # An older run of less than a second in the intake function does not look again.
            is_brief = there.run not in {None, *self.executed} and self._run(str(there.run)).brief
            self.must(
                there.body == member.body or is_brief or not member.right,
                "the newest archive's members lie there",
                member.key,
            )

    def _check_run(self, run: str, state: RunState, *, calm: bool) -> None:
        current = any(one in self._wanted() for one in state.versions)
        current = current and self.mended and not state.damaged
        if not state.reports:
            # Else its function was killed before the report, or another run did the archive.
            current = current and state.known and state.facts not in self.deleted
            self.must(not current, "run-files.md: report.json, written last", run)
            return
        rights = {state.right} | (set() if current else {CHANGED, RUN_FAILED})
        rights |= {CHANGED for one in state.versions if one in self.deleted}  # another run did it
        self.must(state.verdict in rights, "a run ends as its archive says", (run, state.verdict))
        is_due = self.mended and (current or state.verdict == COMPLETED)
        self.must(
            not is_due or state.verdict in state.told,
            "events.md: a run that ended has an event",
            (run, state.told),
        )
        if state.verdict in ENDED_WELL and not self.outlived and not state.damaged:
            outcomes = sum(map(len, state.outcomes.values()))
            count = sum(state.reports[-1].get(name, 0) for name in (EXTRACTED, UNCHANGED, FAILED))
            self.must(
                outcomes == count, "run-files.md: the report is of the outcomes", (run, outcomes)
            )
        if calm:
            self.must(
                len(state.told) <= 1 + (run in self.reopened),
                "events.md: one event a run",
                state.told,
            )
            twice = [key for key, times in state.written.items() if times > 1]
            self.must(not twice, "a member becomes visible once", twice)

    def _wanted(self) -> list[ArchiveFacts]:
        """Return the archives that were put last, and those inside of them that are there."""
        newest = [self.versions[etag] for etag in self.current.values()]
        return newest + [inner for facts in newest for inner in self._inside(facts)]

    def _inside(self, facts: ArchiveFacts) -> Iterator[ArchiveFacts]:
        bodies = {member.key: member.body for member in facts.members}
        for key, inner in facts.nested if self._verdicts(facts) & ENDED_WELL else ():
            if self.objects.get(key, NOTHING).body == bodies[key]:
                yield inner
                yield from self._inside(inner)

    def _verdicts(self, facts: ArchiveFacts) -> set[str | None]:
        """Return the verdicts of the runs that are surely of an archive."""
        return {one.verdict for one in self.runs.values() if one.versions == [facts]}

    def _run(self, run: str) -> RunState:
        state = self.runs.setdefault(run, RunState())
        if not state.known:
            state.versions = list(self.versions.values())
        return state

    def must(self, holds: bool, sentence: str, what: object) -> None:  # noqa: FBT001 - a condition
        """Note a sentence that does not hold, and raise: the product may catch what is raised."""
        if not holds:
            error = ViolationError(f"{sentence} -- {what!r}")
            self.violations.append(error)
            raise error
