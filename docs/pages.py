"""The pages of docs/reference, each made from the code that it is about."""

import re
import tomllib
from collections.abc import Iterator, Sequence
from textwrap import fill
from typing import Any

import click

from docs.declarations import Declared, first_sentence, read_comments, read_declarations
from docs.markdown import fenced, make_table, plain_words, show_amount, show_toml
from docs.meanings import EXIT_CODES, HOST_VARIABLES, MEANINGS, TEXTS
from docs.outputs import make_json_section
from docs.schemas import event_schema
from docs.sources import ROOT, check_described, finding_codes, host_variables, read_alarms
from infra.environment import Environment
from infra.sections import RouteSection
from infra.tables import MadeSection, Section, table_of
from s3unzip import errors, model, settings
from s3unzip.aws import events
from s3unzip.cli.main import COMMANDS, INTERNAL_ERROR, PROGRAM, load_command
from s3unzip.cli.terminal import OUTPUT_LOST, STOPPING
from s3unzip.explanations import NOT_FROM_CHECKS, advise, explain
from s3unzip.local.machine import SERVICE_FAULT
from s3unzip.runs.step import REASONS, STOPPED
from s3unzip.settling.loop import EXECUTION_FAILED
from s3unzip.settling.report import NOT_READABLE, TASKS_FAILED
from s3unzip.zip import CHECKS, Action, Limits, Phase

WIDTH = 100
OPTION = re.compile(
    r"^  -.*\n?(?:^ {4,}(?! *-).*\n?)*", re.MULTILINE
)  # of a help text, with its lines
PLACES = {
    "{folder}": "/data",
    "{web}": "https://example.org",
    "{s3}": "https://s3.example.org",
    "{nobody}": "http://127.0.0.1:9000",
}
PHASES = {
    Phase.INDEX: "central directory",
    Phase.LOCAL: "local header",
    Phase.DATA: "data",
    Phase.KEY: "name and key",
    Phase.SOURCE: "source",
}
ACTIONS = {
    Action.REJECT: "reject the archive",
    Action.MEMBER: "fail the member",
    Action.WARN: "warn",
}


def make_cli() -> str:
    """Return cli.md."""
    top = click.Context(
        PROGRAM, info_name="s3unzip", terminal_width=WIDTH, help_option_names=["-h", "--help"]
    )
    parts = ["# Command line\n", fenced(PROGRAM.get_help(top)), TEXTS["cli"]]
    helps = {
        name: click.Context(
            load_command(name), parent=top, info_name=name, terminal_width=WIDTH
        ).get_help()
        for name in COMMANDS
    }
    known = {_flat(option) for option in OPTION.findall(helps["run"])}
    for name, text in helps.items():
        shown = text if name == "run" else _without(text, known)
        parts += [f"## s3unzip {name}\n", fenced(shown)]
    check_described("docs/meanings.py: HOST_VARIABLES", host_variables(), HOST_VARIABLES)
    parts += [
        make_json_section(),
        "## Environment variables\n",
        TEXTS["variables"],
        make_table(
            ("variable", "what it does"),
            ((f"`{name}`", text) for name, text in sorted(HOST_VARIABLES.items())),
        ),
        "The page [errors.md](errors.md) lists the exit codes.",
    ]
    return "\n".join(parts) + "\n"


def _flat(option: str) -> str:
    return " ".join(option.split())


def _without(text: str, known: set[str]) -> str:
    """Return the help of a command; of options that `run` has too only the names."""
    shared = [option for option in OPTION.findall(text) if _flat(option) in known]
    for option in shared:
        text = text.replace(option, "", 1)
    names = ", ".join(re.findall(r"--[a-z-]+", option)[0] for option in shared)
    text = re.sub(r"^[A-Z][^\n]*:\n(?=\n|\Z)", "", text, flags=re.MULTILINE)  # a group without any
    also = fill(f"As for run: {names}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return re.sub(r"\n{3,}", "\n\n", text).rstrip() + (f"\n\n{also}" if names else "")


def make_settings() -> str:
    """Return settings.md."""
    parts = [
        "# Settings\n",
        TEXTS["settings"],
        "## The environment's file\n",
        *_environment(Environment, ""),
        "## Tuning\n",
        f"{first_sentence(settings.Tuning)}\n",
        TEXTS["tuning"],
        _fields(settings.Tuning),
        "## Limits\n",
        f"{first_sentence(Limits)}\n",
        *(" ".join(text.split()) + "\n" for text in (Limits.__doc__ or "").split("\n\n")[1:]),
        TEXTS["limits"],
        _fields(Limits),
        "## Options of a run\n",
        f"{first_sentence(model.Options)}\n",
        TEXTS["options"],
        _fields(model.Options),
        "## Environment variables of the functions\n",
        f"{first_sentence(settings.Variable)} The stack makes them from the file.\n",
        make_table(
            ("variable", "value"),
            (
                (f"`{settings.Variable[name].value}`", declared.comment or plain_words(name))
                for name, declared in read_declarations(settings.Variable).items()
            ),
        ),
    ]
    return "\n".join(parts)


def _environment(section: type[Section], path: str, *, many: bool = False) -> Iterator[str]:
    """Yield one table for `section` and one for each table in it; of an array there are `many`."""
    schema = section.model_json_schema()
    made_of = section.made_of if issubclass(section, MadeSection) else section
    declared = read_declarations(made_of)
    rows: list[Sequence[str]] = []
    below: list[tuple[str, type[Section], bool]] = []
    for name, field in section.model_fields.items():
        kind = table_of(field)
        is_array = kind == list[RouteSection]
        if is_array:
            kind = RouteSection
        is_shown_above = section is RouteSection and name == "options"
        if isinstance(kind, type) and issubclass(kind, Section) and not is_shown_above:
            below.append((f"{path}.{name}".strip("."), kind, is_array))
        elif path or name != "name":
            default = "required" if field.is_required() else show_toml(field.default)
            default = default if field.default_factory is None else "`{}`"
            allowed = _allowed(schema["properties"][name])
            rows.append(
                (f"`{name}`", allowed, default, _meaning(declared[name], *_owners(section)))
            )
    title = "Before the first table"
    if path:
        title = f"`[[{path}]]`" if many else f"`[{path}]`"
    yield f"### {title}\n"
    if path:
        yield first_sentence(section) + "\n"
    if rows:
        yield make_table(("setting", "value", "default", "meaning"), rows)
    for name, kind, is_array in below:
        yield from _environment(kind, name, many=is_array)


# How a bound of a JSON schema is shown.
BOUNDS = {
    "minimum": " from {:,}",
    "exclusiveMinimum": " above {:,}",
    "maximum": " to {:,}",
    "pattern": " `{}`",
}


def _allowed(schema: dict[str, Any]) -> str:
    options = [one for one in schema.get("anyOf", [schema]) if one.get("type") != "null"]
    texts = []
    for one in options:
        literals = one.get("enum", [one["const"]] if "const" in one else [])
        if literals:
            texts.append(", ".join(f"`{value}`" for value in literals))
            continue
        bounds = [form.format(one[name]) for name, form in BOUNDS.items() if name in one]
        texts.append(one.get("type", "table") + "".join(bounds))
    return " or ".join(texts)


def make_errors() -> str:
    """Return errors.md."""
    tree = (errors.__doc__ or "").split("::\n\n", 1)[1].split("\n\n", 1)[0]
    classes = [
        found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, errors.S3UnzipError)
    ]
    used = {found.exit_code for found in classes} | {verdict.exit_code for verdict in model.Verdict}
    used |= {0, INTERNAL_ERROR, OUTPUT_LOST, *(128 + number for number in STOPPING)}
    check_described("docs/meanings.py: EXIT_CODES", map(str, used), map(str, EXIT_CODES))
    verdicts = read_declarations(model.Verdict)
    parts = [
        "# Errors, verdicts and exit codes\n",
        TEXTS["errors"],
        "## Exit codes\n",
        make_table(("code", "meaning"), ((str(code), text) for code, text in EXIT_CODES.items())),
        "## Verdicts\n",
        make_table(
            ("verdict", "exit code", "meaning"),
            (
                (f"`{one}`", str(one.exit_code), verdicts[one.name].comment or EXIT_CODES[code])
                for one in model.Verdict
                for code in (one.exit_code,)
            ),
        ),
        "## Errors\n",
        fenced(tree.replace("\n    ", "\n").strip()),
        TEXTS["names"],
        make_table(
            ("error", "exit code", "retried", "meaning"),
            (
                (
                    f"`{found.__name__}`",
                    str(found.exit_code),
                    "yes" if found.retryable else "no",
                    first_sentence(found),
                )
                for found in classes
            ),
        ),
    ]
    parts += [
        "## Mistakes\n",
        TEXTS["mistakes"],
        make_table(
            ("command", "exit code", "what it says"),
            (
                (f"`s3unzip {_shown(one['command'])}`", str(one["exit"]), _shown(one["says"]))
                for one in tomllib.loads(
                    (ROOT / "docs" / "mistakes.toml").read_text(encoding="utf-8")
                )["mistake"]
            ),
        ),
    ]
    return "\n".join(parts)


def _shown(text: str) -> str:
    """Return a line of a mistake with names in place of the test's placeholders."""
    for mark, name in PLACES.items():
        text = text.replace(mark, name)
    return text.replace("|", "\\|").replace("<", "&lt;")


def make_checks() -> str:
    """Return checks.md."""
    codes = (
        finding_codes()
        | set(REASONS.values())
        | {EXECUTION_FAILED, SERVICE_FAULT, NOT_READABLE, TASKS_FAILED, STOPPED}
    ) - CHECKS.keys()
    check_described("functions/s3unzip/explanations.py", codes, NOT_FROM_CHECKS.keys())
    rows = (
        (
            f"`{check.code}`",
            str(check.number),
            PHASES[check.phase],
            ACTIONS[check.default],
            ACTIONS[check.lenient] if check.is_policy else "",
            check.sentence,
            advise(check.code),
        )
        for check in CHECKS.values()
    )
    parts = [
        "# Checks\n",
        TEXTS["checks"],
        make_table(
            ("code", "check", "found in", "effect", "with `--lenient`", "meaning", "what to do"),
            rows,
        ),
        "## Codes that are not about the archive\n",
        make_table(
            ("code", "meaning", "what to do"),
            ((f"`{code}`", explain(code), advise(code)) for code in sorted(NOT_FROM_CHECKS)),
        ),
    ]
    return "\n".join(parts)


def make_metrics() -> str:
    """Return metrics.md."""
    comments = read_comments(settings, "METRICS")
    parts = [
        "# Metrics and alarms\n",
        TEXTS["metrics"],
        make_table(
            ("metric", "unit", "measures"),
            (
                (
                    f"`{name}`",
                    unit,
                    comments[name],
                )
                for name, unit in settings.METRICS.items()
            ),
        ),
        "## Alarms\n",
        "Each alarm's description says what to do:\n",
        make_table(("alarm", "rings above", "what to do"), read_alarms()),
    ]
    return "\n".join(parts)


def make_events() -> str:
    """Return events.md."""
    schema = event_schema()
    fields = (
        (
            f"`{name}`",
            one["type"] if isinstance(one["type"], str) else " or ".join(one["type"]),
            one["description"],
        )
        for name, one in schema["properties"].items()
    )
    parts = [
        "# Events\n",
        "## In\n",
        TEXTS["events"],
        "## Out\n",
        f"Each run sends an event with the source `{events.SOURCE}` to the bus `event_bus`:\n",
        make_table(
            ("`detail-type`", "verdict"),
            ((f"`{title}`", f"`{verdict}`") for verdict, title in events.EVENT_TITLES.items()),
        ),
        "The `detail` of the event ([schema](event.schema.json)):\n",
        make_table(("field", "type", "meaning"), fields),
        "A resumed run sends another event when it ends. A rule for runs that did not end well:\n",
        "```json",
        '{"source": ["s3unzip"], "detail-type": ["Archive Rejected", "Archive Failed"]}',
        "```",
    ]
    return "\n".join(parts) + "\n"


def _fields(kind: type) -> str:
    """Return a table for each group of what `kind` declares."""
    tables: list[str] = []
    declared = read_declarations(kind)
    for group in dict.fromkeys(one.group for one in declared.values()):
        if group:
            tables.append(f"{group[0].upper()}{group[1:]}:\n")
        rows = (
            (f"`{one.name}`", f"`{show_amount(one.default)}`", _meaning(one, kind.__name__))
            for one in declared.values()
            if one.group == group
        )
        tables.append(make_table(("name", "default", "meaning"), rows))
    return "\n".join(tables)


def _owners(section: type) -> list[str]:
    """Return the names that `docs.meanings` may know the fields of a section under."""
    names = [base.__name__ for base in section.__mro__]
    return names + [name.removesuffix("Section") for name in names]


def _meaning(declared: Declared, *owners: str) -> str:
    """Return the text of `docs.meanings` or the comment, the first owner's first; or the name."""
    known = (MEANINGS.get(f"{owner}.{declared.name}") for owner in owners)
    text = MEANINGS.get(f"{owners[0]}.{declared.name}") or declared.comment
    text = text or next(filter(None, known), plain_words(declared.name))
    return text.replace("None:", "unset:").replace("None keeps", "unset keeps")
