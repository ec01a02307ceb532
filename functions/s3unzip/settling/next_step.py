"""The command to run next after a run, for the command line and the report page."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from s3unzip.context import Reached
from s3unzip.explanations import Help, find_help
from s3unzip.model import OnConflict, Options, Report, Run, Verdict
from s3unzip.object_properties import ObjectProperties
from s3unzip.settling.after_success import is_left

PASSWORD = "--password-file FILE"  # noqa: S105 - what to type
MAX_COMMAND = 2_000  # characters; nobody types a longer one, and a page has room for it


def next_command(
    report: Report, environment: str | None = None, reached: Reached | None = None
) -> str | None:
    """Return the command to run after `report`, None if there is nothing left to do.

    Args:
        report: of the run.
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
        case Verdict.COMPLETED if is_left(report):
            return f"s3unzip resume {report.run}{where}"
        case Verdict.SOURCE_CHANGED if report.source.scheme != "file" and not environment:
            return _again(report, reached)
        case _:
            return None


def resume_command(run: Run) -> str:
    """Return the command that continues a run of this machine that was stopped."""
    return f"s3unzip resume {run.id}"


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
    if Help.RETRY in helps:
        return retry
    return None


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
    flags = {"--lenient": options.lenient, "--marker": options.marker}
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
