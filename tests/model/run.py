"""What the documents promise of runs, as a program that watches them.

It imports nothing of the product. It is told what happens at the product's edges: archives that
are put, objects that become visible, records that are written, events that are sent. At each of
these, and when all is quiet, it compares with what docs/*.md say; each check quotes its sentence.
"""

from __future__ import annotations

from tests.model.facts import (
    CHANGED,
    COMPLETED,
    ENDED_WELL,
    EXTRACTED,
    FAILED,
    MAX_IDLE_ROUNDS,
    NEVER,
    NOTHING,
    OVERWRITE,
    REJECTED,
    RUN_FAILED,
    STOPS_RUN,
    TITLES,
    UNCHANGED,
    WITH_ERRORS,
    ArchiveFacts,
    Attempt,
    Json,
    MemberFacts,
    RunState,
    ViolationError,
    Written,
)
from tests.model.nested import right_nested


class Model:
    """Watches the runs of one destination, which holds the objects `before` any run."""

    def __init__(self, rule: str, before: dict[str, bytes]) -> None:
        self.rule = rule  # what is done where the destination has the key
        self.violations: list[ViolationError] = []
        self.runs: dict[str, RunState] = {}
        self.objects = {key: Written(body, None) for key, body in before.items()}
        self.versions: dict[str, ArchiveFacts] = {}  # by ETag
        self.current: str | None = None  # the ETag of what lies under the key now
        self.failed: set[str] = set()  # runs whose execution failed
        self.aborted: set[str] = set()  # runs whose execution was stopped before they had a plan
        self.early: set[str] = set()  # runs that had a report before a plan
        self.started: set[str] = set()  # runs with an execution, which may plan them
        self.late_uploads: set[str] = set()  # begun after their run was settled
        self.replaced = False  # the key's archive was another one before

    def archive_put(self, etag: str, facts: ArchiveFacts) -> None:
        """Somebody put an archive."""
        self.replaced = self.current is not None
        self.versions[etag] = facts
        self.current = etag

    def run_planned(self, run: str, etag: str) -> None:
        """A run was planned; its id names one version."""
        self.must(etag in self.versions, "a run reads a version that was put", etag)
        same = self.runs.setdefault(run, RunState(facts := self.versions[etag])).facts is facts
        self.must(same, "run-files.md: the same request has the same run id", run)

    def run_compares(self, run: str, *, compares: bool) -> None:
        """The plan of a run says whether it compares what exists, as a recheck does."""
        may = not compares or self.rule != OVERWRITE or self.replaced
        self.must(may, "reliability.md 4: a recheck of what replaced another archive", run)
        self.runs[run].compares = compares

    def execution_started(self, run: str) -> None:
        """An execution was started; without a plan its first state makes one."""
        self.started.add(run)

    def task_begun(self, run: str, task: str) -> Attempt:
        """An invocation began to work on a task."""
        state = self.runs[run]
        finished = frozenset(state.outcomes.get(task, ()))
        return Attempt(run, finished, state.stops, state.stops if state.stopped else None)

    def task_failed(self, attempt: Attempt, error: str) -> None:
        """An invocation that worked on a task ended with an error."""
        state = self.runs[attempt.run]
        told = state.stopped or state.stops > attempt.stops or error not in STOPS_RUN
        self.must(told, "reliability.md: at the first such fault the task writes stop.json", error)

    def object_visible(self, key: str, body: bytes, run: str, attempt: Attempt | None) -> None:
        """An object became visible at the destination, with the run that it names."""
        state = self._run(run)
        member = state.member(key)
        right = member is not None and member.right and member.body == body
        self.must(right, "reliability.md: only verified objects become visible", (run, key, body))
        new = attempt is None or key not in attempt.finished
        self.must(new, "redrive: members that are on record are not written twice", key)
        may = attempt is None or attempt.stopped != state.stops
        self.must(may, "reliability.md: stop.json, and no other task begins", key)
        free = self.rule != NEVER or key not in self.objects
        self.must(free, "conflicts-and-reruns.md: never writes only new keys", key)
        state.written[key] += 1
        self.objects[key] = Written(body, run)

    def object_removed(self, key: str) -> None:
        """Somebody deleted an object."""
        del self.objects[key]

    def retried(self, run: str) -> None:
        """The failed members of a run are tried again: the run has another end."""
        self.runs[run].retried = True

    def stop_changed(self, run: str, *, there: bool) -> None:
        """``stop.json`` was written or deleted."""
        if not self._is_unplanned(run):
            state = self._run(run)
            state.stopped, state.stops = there, state.stops + (not there)

    def execution_failed(self, execution: str) -> None:
        """The execution of a run failed."""
        self.failed.add(execution)

    def execution_stopped(self, execution: str) -> None:
        """Somebody stopped the execution of a run; its functions go on."""
        self.failed.add(execution)
        state = self.runs.get(execution)
        if state is None or not state.outcomes:
            self.aborted.add(execution)

    def killed_at_limit(self, function: str) -> None:
        """A function used up its time though no call was slow."""
        self.must(False, "reliability.md: near its limit a worker stops", function)  # noqa: FBT003

    def upload_begun(self, upload: str, run: str) -> None:
        """A multipart upload was begun; reliability.md, "Who aborts which upload"."""
        state = self.runs.get(run)
        if state is not None and state.reports:
            self.late_uploads.add(upload)

    def outcomes_recorded(self, run: str, task: str, lines: list[Json]) -> None:
        """The record of a task was written: the task's report, then an outcome a member."""
        state = self._run(run)
        if lines[0].get("parts", 1) > 1:
            return  # large-members.md: a slice has no outcome; settling gives the member one
        told = [(str(line["key"]), str(line["status"])) for line in lines[1:]]
        found = dict(told)
        self.must(len(found) == len(told), "counts come from the outcomes, a member once", told)
        if state.outcomes.get(task) == found:
            return  # the same again, in another place
        for key, status in told:
            self._check_outcome(state, run, key, status)
        state.outcomes[task] = found

    def report_written(self, run: str, report: Json) -> None:
        """``report.json`` was written."""
        verdict = report["verdict"]
        planned = report.get("pin", ...) is not None or verdict in {RUN_FAILED, CHANGED}
        self.must(planned, "without a plan nothing is extracted", report)
        if self._is_unplanned(run):
            self.early.add(run)
            return
        state = self._run(run)
        self._check_sums(state, report)
        if verdict == REJECTED:
            self.must(state.facts.broken, "REJECTED: ambiguous or broken index", run)
            self.must(not state.written, "REJECTED: nothing was written", run)
        elif verdict in ENDED_WELL:
            self._check_whole(state, run, report)
        elif verdict == CHANGED:
            self.must(self.replaced, "SOURCE_CHANGED: the archive is overwritten", run)
        self._check_progress(state, report)
        state.reports.append(report)
        state.right = self._right_verdict(state)

    def announced(self, title: str, detail: Json) -> None:
        """The event of a run that ended was sent."""
        run, verdict = detail["run"], detail["verdict"]
        self.must(TITLES[verdict] == title, "events.md: detail-type and verdict", title)
        if self._is_unplanned(run) or (run in self.early and verdict == RUN_FAILED):
            return
        state = self._run(run)
        # An event has no "continues", and the report that it tells of must have none.
        told = {n: detail.get(n, 0) for n in ("verdict", EXTRACTED, UNCHANGED, FAILED, "continues")}
        same = any(all(one.get(n, 0) == told[n] for n in told) for one in state.reports)
        self.must(same, "events.md: the event says what the report says", detail)
        early = verdict == RUN_FAILED and run not in self.failed
        self.must(not early, "events.md: an event a run that ended", run)
        state.announced.append(verdict)

    # When all is quiet

    def all_quiet(self, objects: dict[str, bytes], uploads: dict[str, str], *, calm: bool) -> None:
        """Nothing happens any more, and runs that failed were redriven: what must be true then.

        The destination holds `objects`, and incomplete `uploads`, with the run of each by its id.
        All was `calm` where nothing happened that may repeat work.
        """
        settled = {run for run, state in self.runs.items() if state.reports}
        left = sorted(one for one in uploads.keys() - self.late_uploads if uploads[one] in settled)
        self.must(not left, "reliability.md: settling a run aborts every upload on record", left)
        seen = {key: written.body for key, written in self.objects.items()}
        self.must(objects == seen, "the destination is what the runs made visible", set(objects))
        for run, state in self.runs.items():
            self._check_end(run, state, calm=calm)
        self._check_newest()
        ran = any(one.facts is self.versions[str(self.current)] for one in self.runs.values())
        self.must(ran, "reliability.md 1-3: an archive that was put has a run", self.current)

    def _check_newest(self) -> None:
        """The newest archive's members lie there, also if a run of an older one ended last.

        An older direct run looks at the archive again only if it took a second.
        """
        facts = self.versions[str(self.current)]
        for member in facts.members if self.rule == OVERWRITE and not facts.broken else ():
            body, run = self.objects.get(member.key, NOTHING)
            fits = not member.right or member.body == body or run not in {None, *self.started}
            self.must(fits, "reliability.md 4: the newest archive", member.key)

    def _check_end(self, run: str, state: RunState, *, calm: bool) -> None:
        is_current = self._is_current(state.facts)
        if not state.reports:
            self.must(not is_current, "run-files.md: report.json, written last", run)
            return  # planned as the archive was replaced: it was never begun
        verdict, told = state.reports[-1]["verdict"], state.announced
        # Replaced before its event was sent: the newer one has a run.
        silent = (verdict == REJECTED or run not in self.started) and not is_current and not told
        if silent or run in self.aborted:  # reliability.md 27: its planner may announce it, too
            return
        self.must(told[-1:] == [verdict], "events.md: one event a run", (run, told))
        right = {state.right} | (set() if is_current else {CHANGED})
        self.must(verdict in right, "a redriven run ends as its archive says", (run, verdict))
        if calm:
            # reliability.md 12: a repetition at the same time may announce a refusal again.
            self.must(state.retried or len(set(told)) == 1, "events.md: one event a run", told)
            ends = 2 if state.retried else 1
            self.must(len(told) == ends or verdict == REJECTED, "events.md: one event a run", told)
            twice = [key for key, times in state.written.items() if times > 1]
            self.must(not twice, "one completion: a member becomes visible once", twice)

    def _is_current(self, facts: ArchiveFacts) -> bool:
        """Say whether it is the archive that is there now, or one inside of it that is there."""
        current = self.versions[str(self.current)]
        return any(facts is one for one in (current, *right_nested(self)))

    def _right_verdict(self, state: RunState) -> str:
        wrong = any(self._may_fail(state, member) for member in state.facts.members)
        return REJECTED if state.facts.broken else WITH_ERRORS if wrong else COMPLETED

    # What each outcome means

    def _check_outcome(self, state: RunState, run: str, key: str, status: str) -> None:
        member = state.member(key) or MemberFacts(key, b"", right=False)
        self.must(member in state.facts.members, "an outcome is of a member", key)
        there = self.objects.get(key, NOTHING)
        if status == FAILED:
            self.must(self._may_fail(state, member), "a member fails for a reason of its own", key)
            return
        self.must(member.right, "a damaged member has one failed outcome", key)
        same = there.body == member.body or there.run not in {run, None}
        self.must(same, f"{status}: an object exists if its outcome says so", key)
        if status == UNCHANGED:
            self.must(state.compares, "overwrite writes every member", key)

    def _may_fail(self, state: RunState, member: MemberFacts) -> bool:
        """Say whether the documents let this member fail."""
        there = self.objects.get(member.key, NOTHING)
        taken = self.rule == NEVER and there is not NOTHING and there.body != member.body
        return taken or not member.right

    def _check_sums(self, state: RunState, report: Json) -> None:
        if report["verdict"] == REJECTED or report.get("pin", ...) is None:
            return  # of a run without a plan
        counts = (report.get(name, 0) for name in (EXTRACTED, UNCHANGED, FAILED, "missing"))
        self.must(sum(counts) == len(state.facts.members), "every member has one outcome", report)
        whole = WITH_ERRORS if report.get(FAILED, 0) else COMPLETED
        right = {RUN_FAILED, CHANGED} if report.get("missing", 0) else {whole}
        self.must(report["verdict"] in right, "the verdict follows from the outcomes", report)

    def _check_progress(self, state: RunState, report: Json) -> None:
        missing = report.get("missing", 0)
        before = state.reports[-1].get("missing", 0) if state.reports else 0
        state.idle_rounds = state.idle_rounds + 1 if missing and missing == before else 0
        goes_on = state.idle_rounds <= MAX_IDLE_ROUNDS
        self.must(goes_on, "reliability.md: further rounds do the tasks that are left", report)

    def _check_whole(self, state: RunState, run: str, report: Json) -> None:
        bad = [member for member in state.facts.members if self._may_fail(state, member)]
        for member in (one for one in state.facts.members if one not in bad):
            there = self.objects.get(member.key, NOTHING)
            right = there.body == member.body or there.run not in {run, None}
            self.must(right, "COMPLETED: every right member is there", member.key)
        self.must(report.get(FAILED, 0) == len(bad), "the members that fail are the bad ones", run)

    def _is_unplanned(self, run: str) -> bool:
        """Say whether the run has an execution that has not written its plan."""
        return run in self.started and run not in self.runs

    def _run(self, run: str) -> RunState:
        self.must(run in self.runs, "a record is of a run that was planned", run)
        return self.runs[run]

    def must(self, holds: bool, sentence: str, what: object) -> None:  # noqa: FBT001 - a condition
        """Note a sentence that does not hold, and raise: the product may catch what is raised."""
        if not holds:
            error = ViolationError(f"{sentence} -- {what!r}")
            self.violations.append(error)
            raise error
