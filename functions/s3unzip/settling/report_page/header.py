"""The header of the page: the verdict in a sentence, the cause, where from and where to."""

from datetime import UTC, datetime

from s3unzip.explanations import advise
from s3unzip.figures import choose_form, show_count
from s3unzip.model import Report, Verdict
from s3unzip.settling.report_page.contents import MAX_NAME, MAX_TEXT, Shown
from s3unzip.settling.report_page.markup import NOTHING, Markup, aside, clip, element, plain, text

VERDICTS = {  # CSS class and words
    Verdict.COMPLETED: ("good", "✓ Completed."),
    Verdict.COMPLETED_WITH_ERRORS: ("warn", "▲ Completed with errors."),
    Verdict.REJECTED: ("bad", "✕ Rejected."),
    Verdict.SOURCE_CHANGED: ("bad", "✕ Source changed."),
    Verdict.FAILED: ("bad", "✕ Failed."),
}
STOPPED_BANNER = ("warn", "■ Stopped.")


def show_verdict(report: Report) -> tuple[str, str]:
    """Return the CSS class and the words of a verdict; a run that a person stopped did not fail."""
    if _was_stopped(report):
        return STOPPED_BANNER
    return VERDICTS[report.verdict]


def _was_stopped(report: Report) -> bool:
    return report.verdict is Verdict.FAILED and report.reason == "stopped"


def verdict(shown: Shown) -> Markup:
    """Return the verdict, and a sentence that explains it."""
    style, title = show_verdict(shown.report)
    sentence = _describe_verdict(shown.report, shown.next_command)
    return Markup(element("b", {"class": style}, plain(title)) + plain(sentence))


def _describe_verdict(report: Report, next_command: str | None) -> str:
    """Return one or more sentences: what is in place, and how that was checked."""
    present = report.extracted + report.unchanged
    proof = "checked against the archive\N{RIGHT SINGLE QUOTATION MARK}s sizes and CRC-32s"
    if report.options.trust_crc:
        proof = "CRC-32s trusted, not checked"
    verb = choose_form(present, "is", "are")
    in_place = f"{show_count(present, 'member')} {verb} in place, {proof}"
    match report.verdict:
        case Verdict.COMPLETED:
            if not present:
                return "There was nothing to extract."
            return f"{in_place}."
        case Verdict.COMPLETED_WITH_ERRORS:
            files = max(report.members - report.directories, report.failed)
            return f"{show_count(report.failed, 'member')} of {files:,} failed; {in_place}."
        case Verdict.REJECTED:
            return "Nothing was written."
        case Verdict.SOURCE_CHANGED:
            return (
                "The archive was replaced while it was read, so the run stopped. "
                "Start again to extract the new one."
            )
        case Verdict.FAILED:
            state = in_place if present else "nothing is known to be in place"
            return f"{_describe_missing(report)}{state}.{_describe_next(next_command)}"


def _describe_missing(report: Report) -> str:
    if not report.missing:
        return ""
    verb = choose_form(report.missing, "has", "have")
    return f"{show_count(report.missing, 'member')} {verb} no outcome; "


def _describe_next(next_command: str | None) -> str:
    if next_command is None:
        return ""
    return " The next command continues from here."


def cause(shown: Shown) -> Markup:
    """Return why the run ended as it did; nothing if there is nothing to explain."""
    report = shown.report
    if not (report.reason or report.message):
        return NOTHING
    content = [text(clip(report.message or "", MAX_TEXT)), Markup(" ")]
    if report.reason:
        offset = ""
        if report.offset is not None:
            offset = f" at byte {report.offset:,}"
        reason = text(clip(report.reason, MAX_TEXT))
        advice = advise(report.reason, report.run, shown.environment_options)
        content.append(element("code", {}, reason, plain(offset)))
        content.append(aside(advice))
    return element("p", {"id": "cause"}, *content)


def route(shown: Shown) -> Markup:
    """Return where the run read and wrote, when, and the next command."""
    report = shown.report
    source = clip(str(report.source).split("?", 1)[0], 2 * MAX_NAME)
    pairs = [
        ("Source", text(source)),
        ("Destination", text(clip(str(report.destination), 2 * MAX_NAME))),
        ("Started", plain(_show_moment(report.started))),
        ("Ended", plain(_show_moment(report.finished))),
        ("Run", text(report.run)),
    ]
    if shown.next_command:
        pairs.append(("Next", _command(shown.next_command)))
    return Markup("".join(_pair(name, value) for name, value in pairs if value))


def _pair(name: str, value: Markup) -> Markup:
    return Markup(element("dt", {}, plain(name)) + element("dd", {}, value))


def _show_moment(seconds: float) -> str:
    if not seconds:
        return ""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _command(command: str) -> Markup:
    """Return a command and a button that copies it.

    The button is hidden until the page's script runs: it does nothing without the script.
    """
    attributes = {
        "id": "copy",
        "type": "button",
        "hidden": "hidden",
        "value": command,
        "aria-label": "Copy the next command",
    }
    return Markup(text(command) + " " + element("button", attributes, plain("Copy")))
