"""The command that the user should type next, after a report."""

import shlex
from collections.abc import Iterator

from msgspec.structs import replace

from s3unzip.model import OnConflict, Options, Report, Verdict
from s3unzip.options import option_words
from s3unzip.runs.records import RUN
from s3unzip.stores.config import StoreConfig

# Reason codes of members that a retry may extract. Members with any other code would fail again
# until the archive is replaced.
MAY_HAVE_WRONG_PASSWORD = frozenset({"wrong-password", "aes-mac-mismatch"})
RETRYABLE = MAY_HAVE_WRONG_PASSWORD | {"store-refused"}
PASSWORD = "--password-file FILE"  # noqa: S105 - a placeholder
FAILURES_SHOWN = 5  # maximum number of members that a report names for each reason
MAX_COMMAND = 2_000  # maximum length in characters; a longer command is not suggested


def next_command(
    report: Report, environment: str | None = None, connections: StoreConfig | None = None
) -> str | None:
    """Return the command to type after `report`; None if no command is needed.

    Args:
        report: the report of the run.
        environment: the run's environment; None or empty for a run on this machine.
        connections: how the environment is reached or, for a run on this machine, how its stores
            are reached; None means the defaults. A `resume` command on this machine does not repeat
            these options, because the records of the run contain them.
    """
    continuation: str | None = (
        f"s3unzip resume {report.run}{environment_options(environment, connections)}"
    )
    # `resume` on this machine needs the record `RUN`. If that record is damaged or lost, the report
    # contains a message from `RunRecords` with the words below.
    if f"its record {RUN} is" in (report.message or "") and not environment:
        continuation = repeat_command(report, connections)
    match report.verdict:
        case Verdict.COMPLETED_WITH_ERRORS:
            return _command_after_failures(report, environment, connections)
        case Verdict.FAILED if report.reason == "link-refused":  # `resume` would use the old link
            return repeat_command(report, connections, source="NEW-URL")
        # If the reason is "not-implemented", `resume` would send the same requests.
        case Verdict.FAILED if report.reason != "not-implemented":
            return continuation
        case Verdict.COMPLETED if report.archive_left:
            return continuation
        # In an environment, the new archive starts a run of its own: no command is needed.
        case Verdict.SOURCE_CHANGED if not report.source.store.is_local and not environment:
            return repeat_command(report, connections)
    return None


def environment_options(environment: str | None, connections: StoreConfig | None = None) -> str:
    """Return the options that select an environment, with a leading space.

    Args:
        environment: None or empty for this machine; the result is then empty, because no options
            are needed.
        connections: how the environment is reached; None means the defaults.
    """
    if not environment:
        return ""
    options = ["--env", environment]
    if connections is not None:
        options += connections.command_options()
    return f" {shlex.join(options)}"


def _command_after_failures(
    report: Report, environment: str | None, connections: StoreConfig | None
) -> str | None:
    """Return a command that may extract the failed members, or else a command that lists them.

    Returns None if no command can extract the failed members and the report names all of them.
    """
    codes = report.reasons.keys()
    options = environment_options(environment, connections)
    retry_command: str | None = f"s3unzip resume {report.run} --failed{options}"
    # In an environment, the password is read from a secret. An option can set the password only on
    # this machine.
    if "encrypted" in codes and not (report.options.password_ref or environment):
        # The plan refused encrypted members, because it had no password. `resume` does not plan.
        retry_command = repeat_command(report, connections, PASSWORD)
    elif codes & MAY_HAVE_WRONG_PASSWORD and not environment:
        retry_command = f"{retry_command} {PASSWORD}"
    elif not codes & RETRYABLE:
        retry_command = None
    # At most `FAILURES_SHOWN` members are shown for each reason.
    if retry_command is None and max(report.reasons.values(), default=0) > FAILURES_SHOWN:
        return f"s3unzip show {report.run} --failures{options}"
    return retry_command


def repeat_command(
    report: Report,
    connections: StoreConfig | None = None,
    more_options: str = "",
    source: str | None = None,
) -> str | None:
    """Return the command that extracts an archive again; None if it is too long or unprintable.

    The command repeats the options of the run. If the run overwrites objects, which is the default,
    the command overwrites only those that differ (`_list_options`).

    Args:
        report: the report of the run.
        connections: how the stores of the run are reached; None for the defaults.
        more_options: options that the run did not have.
        source: the word that stands for the archive in the command; None for its location.
    """
    arguments = ["s3unzip", "run", source or str(report.source), str(report.destination)]
    arguments += _list_options(report.options)
    if connections is not None:
        arguments += connections.command_options()
    command = f"{shlex.join(arguments)} {more_options}".rstrip()
    if len(command) > MAX_COMMAND or not command.isprintable():
        return None
    return command


def _list_options(options: Options) -> Iterator[str]:
    """Yield the arguments for a run's options; `SKIP_UNCHANGED` replaces `OVERWRITE`.

    The repeated run then does not write unchanged objects again.
    """
    on_conflict = options.on_conflict
    if on_conflict is OnConflict.OVERWRITE:
        on_conflict = OnConflict.SKIP_UNCHANGED
    yield from ("--on-conflict", on_conflict.value)
    # `option_words` leaves out OVERWRITE, the default, so it does not yield --on-conflict again.
    yield from option_words(replace(options, on_conflict=OnConflict.OVERWRITE))
    if options.objects is not None:
        yield from option_words(options.objects)
