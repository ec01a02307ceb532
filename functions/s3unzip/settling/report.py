"""The report of a run: sums over its tasks and members, verdict, next command and page.

Requests are counted up to the writing of the report, which is not among them.

``report.html`` is made of the report alone; it loads nothing from a network. Text from an archive
reaches the page only as JSON in a data block, and the page's script inserts it only as text nodes.
The Content-Security-Policy lists the script and the style by their hashes, so injected markup could
neither run nor load anything. The constants below bound the page for every archive.
"""

import base64
import hashlib
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any

import msgspec
from msgspec import Struct, field, structs
from msgspec.structs import replace

from s3unzip.context import Context, Reached
from s3unzip.estimate import Cost, price_run
from s3unzip.explanations import Help, advise, explain, find_help
from s3unzip.extraction.objects import with_properties
from s3unzip.model import (
    Failure,
    OnConflict,
    Options,
    Outcome,
    PlanSummary,
    Report,
    Requests,
    Run,
    SourceResult,
    SourceState,
    Status,
    Stop,
    Task,
    TaskReport,
    Verdict,
    encode,
)
from s3unzip.object_properties import ObjectProperties
from s3unzip.planning.select import MARKER
from s3unzip.runs.step import Step
from s3unzip.stores.ports import ObjectFacts
from s3unzip.version import __version__

TASKS_FAILED = "tasks-failed"  # reason of a run whose tasks did not all end
PASSWORD = "--password-file FILE"  # noqa: S105 - what to type
MAX_COMMAND = 2_000  # characters; nobody types a longer one, and a page has room for it
CODES = 50  # reasons and warnings listed
NAME_CHARS = 1_024  # of a key: S3's own limit
TEXT_CHARS = 400  # of a message or an option
FAILURE_BYTES = 1_000_000  # of all listed failures, encoded for the page
DATA = b"@@DATA@@"
SHOWN = (  # fields of the report that the page shows as they are
    *("run", "verdict", "offset", "started", "members", "directories", "excluded", "extracted"),
    *("unchanged", "failed", "missing", "tasks", "tasks_failed", "bytes_in", "bytes_out"),
    "requests",
)


class Tally(Struct):
    """Sums over tasks and outcomes; the listed failures bound the memory."""

    listed: int
    counts: Counter[Status] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    warnings: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    requests: Requests = field(default_factory=Requests)
    bytes_read: int = 0
    bytes_written: int = 0
    task_seconds: float = 0.0
    first_object: float | None = None
    fault: str | None = None  # what ended an attempt too early

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
        """Note when an object was finished, in Unix seconds."""
        self.first_object = time if self.first_object is None else min(time, self.first_object)

    def add_all(self, outcomes: Iterable[Outcome], task: str) -> None:
        """Add the members of one task."""
        for outcome in outcomes:
            self.counts[outcome.status] += 1
            if outcome.status is not Status.FAILED:
                continue
            reason = outcome.reason or "unknown"
            self.reasons[reason] += 1
            if len(self.failures) < self.listed:
                message, place = outcome.message or "", (outcome.index, outcome.offset, task)
                self.failures.append(Failure(outcome.key, reason, message, *place))

    @property
    def members(self) -> int:
        """Members with an outcome."""
        return self.counts.total()


def make_report(  # noqa: PLR0913, PLR0917 - all that a report is made of
    step: Step,
    plan: PlanSummary,
    tally: Tally,
    stop: Stop | None,
    left: Sequence[Task],
    requests: Requests,
    rounds: int = 0,
) -> Report:
    """Return the report of a run that ended.

    `requests` are those of the settling steps before this one.
    """
    run = plan.run
    missing = plan.failed + plan.selected - tally.members
    verdict, reason, message = _find_verdict(tally, stop, missing)
    if message is None and plan.excluded and not plan.selected:
        message = f"nothing is selected: the options exclude all {plan.excluded:,} members"
    report = Report.of(
        run.id,
        run,
        run.pin,
        verdict,
        reason=reason,
        message=message,
        members=plan.members,
        directories=plan.directories,
        excluded=plan.excluded,
        missing=missing,
        **{status.value: tally.counts[status] for status in Status},
        reasons=dict(tally.reasons.most_common()),
        warnings=dict(tally.warnings + Counter(plan.warnings)),
        failures=tuple(tally.failures),
        tasks=plan.tasks,
        tasks_failed=len(left),
        bytes_in=tally.bytes_read + plan.bytes_read,
        bytes_out=tally.bytes_written,
        requests=tally.requests + plan.requests + requests + step.calls.requests,
        started=plan.started,
        finished=step.context.clock.now(),
        plan_seconds=plan.plan_seconds,
        task_seconds=round(tally.task_seconds, 6),
        first_object=tally.first_object,
        rounds=rounds,
    )
    cost = price_run(report, step.context.platform)
    return report if cost is None else replace(report, cost=cost.total)


def _find_verdict(
    tally: Tally, stop: Stop | None, missing: int
) -> tuple[Verdict, str | None, str | None]:
    if missing and stop is not None:
        return stop.verdict, stop.reason, stop.message
    if missing:
        shown = "1 member has" if missing == 1 else f"{missing:,} members have"
        cause = tally.fault or "their tasks did not end"
        return Verdict.FAILED, TASKS_FAILED, f"{shown} no outcome: {cause}"
    if tally.counts[Status.FAILED]:
        return Verdict.COMPLETED_WITH_ERRORS, None, None
    return Verdict.COMPLETED, None, None


def write_marker(step: Step, report: Report) -> None:
    """Write the object that says that the run was completed."""
    key = step.run.key_prefix + MARKER
    body = encode({"run": report.run, "verdict": report.verdict, "extracted": report.extracted})
    facts, chosen = ObjectFacts("application/json", {}), step.run.options.objects
    if chosen is not None:  # a bucket's policy may refuse objects without them
        facts = with_properties(facts, chosen)
    step.calls.run("put", lambda: step.destination.put(key, body, facts, if_absent=False))


def source_result(run: Run, report: Report, earlier: Report | None) -> SourceResult | None:
    """Return what the report says of the archive; what an earlier report says is done stays so."""
    known, rule = earlier.after_success if earlier else None, run.after_success
    if known is not None and known.state is SourceState.DONE:
        return known
    if rule is None or report.verdict is not Verdict.COMPLETED:
        return None
    why = None
    if report.members > report.directories and not report.extracted + report.unchanged:
        why = "no member of it was extracted"
    if run.pin.parts:
        why = f"it is split into {len(run.pin.parts)} files: delete, move or tag them yourself"
    state = SourceState.KEPT if why else SourceState.PENDING
    return SourceResult(rule.action, state, message=why)


# The next command


def next_command(
    report: Report, environment: str | None = None, reached: Reached | None = None
) -> str | None:
    """Return the command to run after `report`, None if there is nothing left to do.

    Args:
        environment: the run's environment; None or empty for a run on this machine.
        reached: how the run's stores are reached, or the environment; None: as the options'
            defaults say. A run on this machine remembers it, so only a new run needs it.
    """
    where = in_environment(environment, reached)
    match report.verdict:
        case Verdict.COMPLETED_WITH_ERRORS:
            return _after_failures(report, environment, reached) or (
                f"s3unzip show {report.run} --failures{where}"
            )
        case Verdict.FAILED:
            return f"s3unzip resume {report.run}{where}"
        case Verdict.COMPLETED if report.archive_left:
            return f"s3unzip resume {report.run}{where}"
        case Verdict.SOURCE_CHANGED if report.source.scheme != "file" and not environment:
            return _again(report, reached)
        case _:
            return None


def in_environment(environment: str | None, reached: Reached | None = None) -> str:
    """Return the options, with a space before them, that find an environment.

    Args:
        environment: None or empty: this machine, and there are none.
        reached: how the environment is reached.
    """
    if not environment:
        return ""
    words = reached.words() if reached is not None else []
    return f" {shlex.join(['--env', environment, *words])}"


def _after_failures(report: Report, environment: str | None, reached: Reached | None) -> str | None:
    """Return the command that may extract members that failed, None if there is none."""
    helps = {find_help(code) for code in report.reasons}
    retry = f"s3unzip resume {report.run} --failed{in_environment(environment, reached)}"
    if Help.RUN_WITH_PASSWORD in helps and not report.options.password_ref and not environment:
        return _again(report, reached, PASSWORD)
    if Help.RETRY_WITH_PASSWORD in helps:
        return retry if environment else f"{retry} {PASSWORD}"  # an environment has a secret
    return retry if Help.RETRY in helps else None


def _again(report: Report, reached: Reached | None, more: str = "") -> str | None:
    """Return the command that starts the run again; None: it is too long for a person."""
    command = f"{repeat_command(report, reached)} {more}".rstrip()
    return command if len(command) <= MAX_COMMAND else None


def repeat_command(run: Report | Run, reached: Reached | None = None) -> str:
    """Return the command that extracts what is not extracted; a password's option may follow.

    Args:
        run: the run, or its report.
        reached: how its stores are reached; None: as the options' defaults say.
    """
    words = ["s3unzip", "run", str(run.source), str(run.destination)]
    words += [*_option_words(run.options), *(reached.words() if reached is not None else [])]
    return shlex.join(words)


def _option_words(options: Options) -> Iterator[str]:
    """Yield the words that stand for options; members that are there already are left alone."""
    again, objects = options.on_conflict, options.objects or ObjectProperties()
    values: dict[str, object] = {
        "--on-conflict": OnConflict.SKIP_UNCHANGED if again is OnConflict.OVERWRITE else again,
        "--key-template": options.key_template,
        "--include": options.include,
        "--exclude": options.exclude,
        "--member": options.names,
        "--strip-components": options.strip_components,
        "--limit": options.limit,
        "--encoding": options.encoding,
        "--as-gzip": options.as_gzip,
        "--nested": options.nested_depth,
        "--lenient": options.lenient,
        "--marker": options.marker,
        "--storage-class": objects.storage_class,
        "--cache-control": objects.cache_control,
        "--content-type": objects.content_types,
        "--metadata": objects.metadata,
        "--tag": objects.tags,
    }
    for name, value in values.items():
        if value is True:
            yield name
        elif value and value != Options().key_template:
            several = value if isinstance(value, tuple) else (value,)
            if isinstance(value, dict):
                several = tuple(f"{key}={one}" for key, one in value.items())
            for one in several:
                yield from (name, str(one))


# The page


def render_page(report: Report, context: Context) -> bytes:
    """Return the page of a report."""
    cost = price_run(report, context.platform)
    following = next_command(report, context.environment, context.reached)
    return make_page(page_data(report, cost, following, in_environment(context.environment)))


def make_page(data: dict[str, Any]) -> bytes:
    """Return ``report.html``: UTF-8, self-contained, the same bytes for the same data."""
    before, after = _frame()
    return before + encode_safely(data) + after


def page_data(
    report: Report, cost: Cost | None, following: str | None, where: str
) -> dict[str, Any]:
    """Return what the page's script shows; times are seconds, sizes bytes, money US dollars.

    Args:
        cost: what the run cost; None: nothing, or it is not known.
        following: the command that goes on from here; None: there is none.
        where: the options, with a space before them, that find the run's environment.
    """
    since = report.event_time or report.started
    first = report.first_object
    counts = {} if report.verdict is Verdict.REJECTED else report.reasons
    return {name: getattr(report, name) for name in SHOWN} | {
        "archive": clip(report.source.key.split("?", 1)[0].rsplit("/", 1)[-1], NAME_CHARS),
        "reason": report.reason and clip(report.reason, TEXT_CHARS),
        "message": report.message and clip(report.message, TEXT_CHARS),
        "advice": advise(report.reason, report.run, where) if report.reason else None,
        "verified": not report.options.trust_crc,
        "source": clip(str(report.source).split("?", 1)[0], 2 * NAME_CHARS),
        "destination": clip(str(report.destination), 2 * NAME_CHARS),
        "seconds": round(max(0.0, report.finished - report.started), 3),
        "plan_seconds": round(report.plan_seconds, 3),
        "task_seconds": round(report.task_seconds, 3),
        "first_object": None if first is None else round(first - since, 3),
        "first_object_since": "the upload" if report.event_time else "the start",
        "cost": cost.total if cost else None,
        "bill": _bill(cost) if cost else (),
        "reasons": _ranked(counts, report.run, where),
        "warnings": _ranked(report.warnings, report.run, where),
        "failures": _failures(report),
        "details": _details(report),
        "next": following,
        "version": __version__,
    }


def _bill(cost: Cost) -> list[tuple[str, str, str, float]]:
    """Return service, item, "1,000 requests" and dollars of each line."""
    found = []
    for line in cost.lines:
        plural = "" if line.unit.endswith("s") or round(line.quantity) == 1 else "s"
        basis = f"{line.quantity:,.0f} {line.unit}{plural}"
        found.append((line.service, line.item, basis, line.dollars))
    return found


def _ranked(counts: Mapping[str, int], run: str, where: str) -> list[tuple[str, int, str, str]]:
    """Return the most frequent codes with members, sentence and advice; the rest as one."""
    order = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    shown = []
    for code, count in order[:CODES]:
        words = (explain(code).sentence, advise(code, run, where))
        sentence, advice = (clip(text, TEXT_CHARS) for text in words)
        shown.append((clip(code, TEXT_CHARS), count, sentence, advice))
    if rest := sum(count for _, count in order[CODES:]):
        shown.append((f"{len(order) - CODES} other codes", rest, "", ""))
    return shown


def _failures(report: Report) -> list[tuple[str, str, str, int | None, str | None]]:
    """Return key, reason, message, offset and task of the failures that fit the page's budget."""
    listed = []
    left = FAILURE_BYTES
    for failure in report.failures:
        line = (
            clip(failure.key.removeprefix(report.destination.key), NAME_CHARS),
            clip(failure.reason, TEXT_CHARS),
            clip(failure.message, TEXT_CHARS),
            failure.offset,
            failure.task and clip(failure.task, TEXT_CHARS),
        )
        left -= len(encode_safely(line))
        if left < 0:
            break
        listed.append(line)
    return listed


def _details(report: Report) -> list[tuple[str, str]]:
    """Return the run's identifying fields and the options that differ from the defaults."""
    found = [("Run", report.run)]
    if report.pin is not None:
        found.append(("Archive size", f"{report.pin.size:,} bytes"))
        found += [("Version id", report.pin.version_id)] if report.pin.version_id else []
        found += [("ETag", report.pin.etag)] if report.pin.etag else []
    defaults = type(report.options)()
    for name, value in structs.asdict(report.options).items():
        if value != getattr(defaults, name):
            listed = isinstance(value, tuple)
            text = ", ".join(str(item) for item in value[:CODES]) if listed else str(value)
            found.append((f"Option {name.replace('_', '-')}", text))
    return [(name, clip(text, NAME_CHARS)) for name, text in found]


@cache
def _frame() -> tuple[bytes, bytes]:
    """Return the page before and after its data."""
    script, style = _asset("page.js"), _asset("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    # Split at the data's place first, so that the data is never searched for a placeholder.
    before, after = _asset("page.html").split(DATA.decode())
    before = before.replace("@@POLICY@@", policy).replace("@@STYLE@@", style)
    return before.encode(), after.replace("@@SCRIPT@@", script).encode()


def _asset(name: str) -> str:
    # Browsers hash the text after turning CR LF into LF.
    path = resources.files("s3unzip.settling").joinpath("assets", name)
    return path.read_text(encoding="utf-8").replace("\r\n", "\n")


def _hash(text: str) -> str:
    """Return the CSP source that allows exactly `text` inline."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# An HTML parser leaves a script element at "</script" and changes its state at "<!--"
# (HTML Standard, 13.1.2.1 and 13.2.5.4): without "<" neither can occur. "&" and ">" matter only if
# somebody pastes the page into XML, U+2028 and U+2029 only if somebody pastes it into a script.
_ESCAPES = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}


def encode_safely(value: object) -> bytes:
    """Return `value` as JSON without characters that mean something in HTML."""
    text = msgspec.json.encode(value)
    for raw, escaped in _ESCAPES.items():
        text = text.replace(raw, escaped)
    return text


def clip(text: str, limit: int) -> str:
    """Return `text` as valid UTF-8 of at most `limit` characters, cut in the middle."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= limit:
        return text
    head = limit // 2
    return f"{text[:head]}…{text[head + 1 - limit :]}"
