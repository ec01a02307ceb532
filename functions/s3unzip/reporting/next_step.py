"""The command to run next after a run, for the command line and the report page."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from s3unzip.explanations import Help, find_help
from s3unzip.model import OnConflict, Options, Verdict
from s3unzip.reporting.after_success import is_left

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from s3unzip.model import Location, Report, Run
    from s3unzip.object_properties import ObjectProperties

PASSWORD = "--password-file FILE"  # noqa: S105 - what to type
MAX_COMMAND = 2_000  # characters; nobody types a longer one, and a page has room for it


def next_command(report: Report, environment: str | None = None) -> str | None:
    """Return the command to run after `report`, None if there is nothing left to do.

    Args:
        report: of the run.
        environment: the run's environment; None or empty for a run on this machine.
    """
    where = f" --env {environment}" if environment else ""
    match report.verdict:
        case Verdict.COMPLETED_WITH_ERRORS:
            return _after_failures(report, environment) or (
                f"s3unzip show {report.run} --failures{where}"
            )
        case Verdict.FAILED if report.source.scheme == "stdin":
            return _pipe_again(report.destination)
        case Verdict.COMPLETED | Verdict.FAILED if _has_rest(report):
            return f"s3unzip redrive {report.run}{where}"
        case Verdict.SOURCE_CHANGED if report.source.scheme != "file" and not environment:
            return shlex.join(["s3unzip", "run", str(report.source), str(report.destination)])
        case _:
            return None


def _after_failures(report: Report, environment: str | None) -> str | None:
    """Return the command that may extract members that failed, None if there is none."""
    helps = {find_help(code) for code in report.reasons}
    piped = report.source.scheme == "stdin"
    if Help.RUN_WITH_PASSWORD in helps and not report.options.password_ref and not environment:
        again = _pipe_again(report.destination) if piped else repeat_command(report)
        return f"{again} {PASSWORD}" if len(again) <= MAX_COMMAND else None
    if Help.RETRY_WITH_PASSWORD in helps:
        if piped:
            return f"{_pipe_again(report.destination)} {PASSWORD}"
        # The password of an environment is in its secret.
        return f"s3unzip retry {report.run} " + (
            f"--env {environment}" if environment else PASSWORD
        )
    if Help.RETRY in helps:
        if piped:
            return _pipe_again(report.destination)
        return f"s3unzip retry {report.run}" + (f" --env {environment}" if environment else "")
    return None


def _has_rest(report: Report) -> bool:
    return report.verdict is Verdict.FAILED or is_left(report)


def resume_command(run: Run) -> str:
    """Return the command that continues a run of this machine that was stopped."""
    if run.source.scheme == "stdin":
        return _pipe_again(run.destination)
    return f"s3unzip redrive {run.id}"


def _pipe_again(destination: Location) -> str:
    """Return how to pipe an archive in once more: members that are there already are left alone."""
    target = shlex.quote(str(destination))
    return f"COMMAND | s3unzip run - {target} --on-conflict skip-unchanged"


def repeat_command(report: Report) -> str:
    """Return the command that extracts what is not extracted.

    A password's option may follow. Options of how the stores are reached are not in a report, so
    they are not in the command.
    """
    words = ["s3unzip", "run", str(report.source), str(report.destination)]
    return shlex.join([*words, *_option_words(report.options)])


def _option_words(options: Options) -> Iterator[str]:
    """Yield the words that stand for options; members that are there already are left alone."""
    again = options.on_conflict
    if again is OnConflict.OVERWRITE:
        again = OnConflict.SKIP_UNCHANGED
    yield from ("--on-conflict", again.value)
    if options.key_template != Options().key_template:
        yield from ("--key-template", options.key_template)
    yield from _repeated("--include", options.include)
    yield from _repeated("--exclude", options.exclude)
    yield from _repeated("--member", options.names)
    values = {
        "--strip-components": options.strip_components,
        "--limit": options.limit,
        "--encoding": options.encoding,
        "--as-gzip": options.as_gzip,
        "--nested": options.nested_depth,
    }
    for name, value in values.items():
        if value:
            yield from (name, str(value))
    flags = {
        "--lenient": options.lenient,
        "--trust-crc": options.trust_crc,
        "--marker": options.marker,
    }
    yield from (name for name, is_set in flags.items() if is_set)
    if options.objects is not None:
        yield from _property_words(options.objects)


def _property_words(objects: ObjectProperties) -> Iterator[str]:
    if objects.storage_class is not None:
        yield from ("--storage-class", objects.storage_class)
    if objects.cache_control is not None:
        yield from ("--cache-control", objects.cache_control)
    yield from _repeated("--content-type", _pairs(objects.content_types))
    yield from _repeated("--metadata", _pairs(objects.metadata))
    yield from _repeated("--tag", _pairs(objects.tags))


def _pairs(values: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


def _repeated(option: str, values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from (option, value)
