"""Make click commands from functions that take `Arguments`.

`command` decorates a function and lists the parameters of the command::

    @command(f"src names {MEMBER_OPTIONS} {ARCHIVE_OPTIONS} {SOURCE_OPTIONS} json")
    def ls(arguments: Arguments) -> int: ...
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

import click
from click.core import augment_usage_errors

from s3unzip.cli.arguments import Arguments
from s3unzip.errors import UsageError
from s3unzip.local import process_setup
from s3unzip.model import Options
from s3unzip.object_properties import ObjectProperties
from s3unzip.options import HelpSection, RunOption, read_options
from s3unzip.stores.config import StoreConfig, runs_home

LEVELS = ("error", "warning", "info", "debug")


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Offer ``latest`` and the runs on this machine; the runs of environments are not listed."""
    from s3unzip.local.runs import known_runs

    names = ["latest"]
    if not context.params.get("env"):
        names += known_runs(runs_home())
    return complete_from(names)(context, parameter, incomplete)


def complete_from(
    values: Iterable[str],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Return a click `shell_complete` function that offers values starting with the typed text."""
    return lambda context, parameter, incomplete: [  # noqa: ARG005 - required by click
        value for value in values if value.startswith(incomplete)
    ]


def _check_maximum(context: click.Context, parameter: click.Parameter, number: Any) -> Any:
    """Return the number; refuse numbers above `MAX_NUMBER`, and ``nan``."""
    if number is not None and not number <= MAX_NUMBER:
        raise click.BadParameter(f"must be at most {MAX_NUMBER:,}", context, parameter)
    return number


MAX_NUMBER = 1_000_000_000  # larger than any sensible count, time or price
RANGES = {int: click.IntRange, float: click.FloatRange}
# Shells complete the value as a path; any text is accepted.
PATH = {"type": click.Path(readable=False)}
# Click settings for individual parameters, in addition to those from their declarations.
SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("src", "sources", "dest", "password_file", "objects"), PATH),
    "run": {"shell_complete": complete_run},
    "verbose": {"count": True},
    "at_once": {"type": click.IntRange(1, 512)},
}
# The declaration of each command parameter, keyed by its name.
DECLARED = {option.field: option for option in read_options(Arguments)} | {
    option.parameter: option
    for kind in (Options, ObjectProperties, StoreConfig)
    for option in read_options(kind)
    if option.word
}


def _names_in(section: HelpSection) -> str:
    return " ".join(name for name, option in DECLARED.items() if option.section is section)


# Names of parameters shared by several commands, separated by spaces.
MEMBER_OPTIONS = _names_in(HelpSection.MEMBERS)
KEY_OPTIONS = _names_in(HelpSection.KEYS)
OBJECT_OPTIONS = _names_in(HelpSection.OBJECTS)
ARCHIVE_OPTIONS = _names_in(HelpSection.ODD)
AFTER_RUN_OPTIONS = _names_in(HelpSection.AFTERWARDS)
SERVER_OPTIONS = "endpoint_url region profile"
SOURCE_OPTIONS = f"{SERVER_OPTIONS} addressing_style allow no_sign_request request_payer"
STORE_OPTIONS = f"{SOURCE_OPTIONS} dest_endpoint_url dest_profile"


class _GroupedCommand(click.Command):
    """A command whose help shows its options in sections."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse arguments; add the context to errors, so that their messages name the command."""
        with augment_usage_errors(ctx):
            return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        sections = {name: option.section for name, option in DECLARED.items()}
        for section in (*HelpSection, None):  # None stands for options without a section
            records = [
                option.get_help_record(ctx)
                for option in options
                if sections.get(option.name or "") is section
            ]
            if records:
                with formatter.section(section or "Options"):
                    formatter.write_dl(list(filter(None, records)))  # a hidden option has no record


def command(
    parameters: str, /, **changes: dict[str, Any]
) -> Callable[[Callable[[Arguments], int]], click.Command]:
    """Return a decorator that makes a function a command, with its docstring as the help text.

    Args:
        parameters: the names of the command's parameters, separated by spaces.
        changes: click settings for individual parameters, which replace the declared settings.
    """

    def decorate(function: Callable[[Arguments], int]) -> click.Command:
        def run_command(**values: Any) -> int:
            # The options of a run are not fields of `Arguments`; they are read from `values`.
            own_names = values.keys() & set(Arguments.__struct_fields__)
            arguments = Arguments(values, **{name: values[name] for name in own_names})
            _start_logging(arguments.verbose)
            return function(arguments)

        return _GroupedCommand(
            function.__name__,
            params=[
                _make_parameter(name, changes.get(name, {}))
                for name in f"{parameters} verbose".split()
            ],
            callback=run_command,
            help=function.__doc__,
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    return decorate


def _make_parameter(name: str, changes: dict[str, Any]) -> click.Parameter:
    """Return a click option or argument; `changes` override the settings from its declaration."""
    declared = DECLARED[name]
    words = declared.form.split()  # the names of an option, then the placeholder, if any
    names = [word for word in words if word.startswith("-")]
    metavar = "".join(words[len(names) :])
    if declared.choices:
        metavar = f"<{'|'.join(declared.choices)}>"
    settings = {
        "help": declared.help,
        "metavar": metavar or None,
        **_describe_values(declared, metavar),
        **SETTINGS.get(name, {}),
    }
    is_repeatable = declared.default == () or declared.is_mapping
    if not names:
        if is_repeatable:
            settings["nargs"] = -1  # accepts any number of values
        return click.Argument([name], **settings | changes)
    settings |= {
        "multiple": is_repeatable,
        "is_flag": declared.kind is bool,
        "envvar": declared.variable,
        "show_envvar": True,
    }
    # If a text option is not given, the value is None. The class of the option then applies the
    # default.
    if not is_repeatable and declared.kind is not str:
        default = getattr(declared.default, "value", declared.default)  # an enum member's value
        settings |= {"default": default, "show_default": bool(default)}
    return click.Option([name, *names], **settings | changes)


def _describe_values(declared: RunOption, metavar: str) -> dict[str, Any]:
    """Return the settings that check and complete the values of a parameter."""
    if metavar.startswith("<"):  # the metavar lists the accepted values
        return {"type": click.Choice(metavar.strip("<>").split("|"))}
    if declared.kind in RANGES:
        return {"type": RANGES[declared.kind](min=declared.minimum), "callback": _check_maximum}
    if declared.known_values:
        return {"shell_complete": complete_from(declared.known_values)}
    return {}


def _start_logging(verbose: int) -> None:
    """Log at the level set by -v or `LOG_LEVEL`, which worker processes inherit."""
    if verbose:
        os.environ[process_setup.LOG_LEVEL] = "info" if verbose == 1 else "debug"
    level = os.environ.get(process_setup.LOG_LEVEL)
    if level and level.lower() not in LEVELS:
        raise UsageError(f"{process_setup.LOG_LEVEL}={level}: must be one of {', '.join(LEVELS)}")
    process_setup.start_logging()
