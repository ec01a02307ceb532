"""The report of a run: sums over its tasks and members, and the verdict.

Requests are counted up to the writing of the report, which is not among them.
"""

from collections import Counter
from collections.abc import Iterable

from msgspec import Struct, field
from msgspec.structs import replace

from s3unzip.extraction.member_object import with_properties
from s3unzip.figures import choose_form, show_count
from s3unzip.model import (
    Failure,
    Outcome,
    PlanSummary,
    Report,
    Requests,
    Status,
    Stop,
    TaskReport,
    Verdict,
    encode,
)
from s3unzip.planning.select import MARKER
from s3unzip.pricing import price_run
from s3unzip.runs.step import Step
from s3unzip.stores.ports import ObjectFacts

NO_REQUESTS = Requests()
TASKS_FAILED = "tasks-failed"  # the reason of a run in which some tasks did not end


class Tally(Struct):
    """Sums over tasks and outcomes."""

    listed: int  # the maximum number of `failures`, because each takes memory
    counts: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    requests: Requests = field(default_factory=Requests)
    bytes_read: int = 0
    bytes_written: int = 0
    task_seconds: float = 0.0
    first_object: float | None = None  # Unix seconds; when the earliest object was finished
    fault: str | None = None  # the last fault that ended an attempt too early

    def add_task(self, report: TaskReport) -> None:
        """Add the cost of one task."""
        self.requests = self.requests + report.requests
        self.bytes_read += report.bytes_read
        self.bytes_written += report.bytes_written
        self.task_seconds += report.seconds
        self.warnings.update(report.warnings)
        self.fault = report.fault or self.fault
        if report.first_object is not None:
            self.note_first(report.first_object)

    def note_first(self, time: float) -> None:
        """Record when an object was finished, in Unix seconds; only the earliest time is kept."""
        if self.first_object is None or time < self.first_object:
            self.first_object = time

    def add_all(self, outcomes: Iterable[Outcome], task: str) -> None:
        """Add the outcomes of the members of one task."""
        for outcome in outcomes:
            self.counts[outcome.status] += 1
            if outcome.status is not Status.FAILED:
                continue
            reason = outcome.reason or "unknown"
            self.reasons[reason] += 1
            if len(self.failures) < self.listed:
                self.failures.append(
                    Failure(
                        outcome.key,
                        reason,
                        outcome.message or "",
                        index=outcome.index,
                        offset=outcome.offset,
                        task=task,
                    )
                )

    @property
    def members(self) -> int:
        """How many members have an outcome."""
        return self.counts.total()


def make_report(  # noqa: PLR0913 - all that a report is made of
    step: Step,
    plan: PlanSummary,
    tally: Tally,
    stop: Stop | None,
    *,
    unfinished: int,
    requests: Requests = NO_REQUESTS,
    rounds: int = 0,
) -> Report:
    """Return the report of a run that ended.

    Args:
        step: the step that settles the run.
        plan: the plan of the run.
        tally: the sums over its tasks and members.
        stop: why it ends early; None: nothing stopped it.
        unfinished: the number of tasks that did not end.
        requests: of the earlier settling steps.
        rounds: the number of rounds of the run.
    """
    missing = plan.failed + plan.selected - tally.members  # members without an outcome
    fault = _find_fault(tally, stop, missing)
    verdict = Verdict.COMPLETED
    if fault is not None:
        verdict = fault.verdict
    elif tally.counts[Status.FAILED]:
        verdict = Verdict.COMPLETED_WITH_ERRORS
    message = fault and fault.message
    if message is None and plan.excluded and not plan.selected:
        message = f"nothing is selected: the options exclude all {plan.excluded:,} members"
    report = replace(
        _sum_up(plan, tally, verdict),
        reason=fault and fault.reason,
        message=message,
        missing=missing,
        tasks_failed=unfinished,
        requests=tally.requests + plan.requests + requests + step.calls.requests,
        finished=step.context.clock.now(),
        rounds=rounds,
    )
    cost = price_run(report, step.context.platform)
    if cost is None:
        return report
    return replace(report, cost=cost.total)


def _sum_up(plan: PlanSummary, tally: Tally, verdict: Verdict) -> Report:
    """Return a report with the sums of the plan and of the tasks."""
    return Report.of(
        plan.run.id,
        plan.run,
        plan.run.pin,
        verdict,
        members=plan.members,
        directories=plan.directories,
        excluded=plan.excluded,
        **{status.value: tally.counts[status] for status in Status},
        reasons=dict(tally.reasons.most_common()),
        warnings=dict(tally.warnings + Counter(plan.warnings)),
        failures=tuple(tally.failures),
        tasks=plan.tasks,
        workers=plan.workers,
        bytes_in=tally.bytes_read + plan.bytes_read,
        bytes_out=tally.bytes_written,
        started=plan.started,
        plan_seconds=plan.plan_seconds,
        task_seconds=round(tally.task_seconds, 6),
        first_object=tally.first_object,
    )


def _find_fault(tally: Tally, stop: Stop | None, missing: int) -> Stop | None:
    """Return why some members have no outcome; None: all have one, so a stop does not matter."""
    if not missing:
        return None
    if stop is not None:
        return stop
    members = f"{show_count(missing, 'member')} {choose_form(missing, 'has', 'have')}"
    cause = tally.fault or "their tasks did not end"
    return Stop(Verdict.FAILED, TASKS_FAILED, f"{members} no outcome: {cause}")


def write_marker(step: Step, report: Report) -> None:
    """Write the marker object, which says that the run is complete."""
    key = step.run.key_prefix + MARKER
    body = encode({"run": report.run, "verdict": report.verdict, "extracted": report.extracted})
    facts = ObjectFacts("application/json", {})
    properties = step.run.options.objects
    if properties is not None:  # a bucket's policy may refuse objects without them
        facts = with_properties(facts, properties)
    step.calls.run("put", lambda: step.destination.put(key, body, facts, if_absent=False))
