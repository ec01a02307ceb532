"""The generated reference: what it must hold, and that its schemas describe real runs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from docs.declarations import read_comments, read_declarations
from docs.generate import FOLDER, make_pages, write_reference
from docs.markdown import make_table, show_amount
from docs.sources import check_described
from s3unzip import errors, metric_names
from s3unzip.cli.main import COMMANDS
from s3unzip.model import Verdict
from s3unzip.settings import Tuning, Variable
from s3unzip.zip import CHECKS
from tests.docs.archives import make_archive
from tests.runs import World

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """The reference as the code makes it."""
    return make_pages()


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("cli.md", [f"## s3unzip {name}" for name in COMMANDS]),
        ("checks.md", [f"| `{code}` |" for code in CHECKS]),
        ("errors.md", [f"`{name}`" for name in vars(errors) if name.endswith("Error")]),
        ("errors.md", [f"| `{verdict}` | {verdict.exit_code} |" for verdict in Verdict]),
        ("metrics.md", [f"`{name}`" for name in metric_names.METRICS]),
        ("settings.md", [f"| `{name}` |" for name in Tuning.__struct_fields__]),
        ("settings.md", [f"`{variable.value}`" for variable in Variable]),
    ],
)
def test_pages_are_complete(pages: dict[str, str], page: str, names: list[str]) -> None:
    """A page has everything that the code has."""
    assert names
    assert not [name for name in names if name not in pages[page]]


def test_pages_are_the_same_each_time(pages: dict[str, str]) -> None:
    """Nothing of the machine, the terminal or the order of sets is in the pages."""
    assert make_pages() == pages
    assert not [
        name for name, text in pages.items() if re.search(r"/home/|/root|object at 0x", text)
    ]


def test_stale_pages_are_named(pages: dict[str, str], tmp_path: Path) -> None:
    """What is missing or old is named; what was written is not."""
    every = write_reference(tmp_path, pages)
    assert set(every) == {f"docs/reference/{name}" for name in pages}
    (tmp_path / "cli.md").write_text("old")
    assert write_reference(tmp_path, pages, check=True) == ["docs/reference/cli.md"]
    assert (tmp_path / "cli.md").read_text() == "old"
    assert write_reference(tmp_path, pages) == ["docs/reference/cli.md"]
    assert write_reference(tmp_path, pages, check=True) == []


def test_nothing_is_left_over() -> None:
    """docs/reference has no page that nothing writes."""
    assert {file.name for file in FOLDER.iterdir()} == set(make_pages())


def test_comments_become_descriptions() -> None:
    """A comment behind a field is its description, one above it the group's."""
    declared = read_declarations(Tuning)
    assert declared["split_from"].default == "256 * MIB"
    assert declared["split_from"].comment == "compressed; deflated members from here are split"
    assert declared["split_from"].group == "plan"
    assert declared["failures_listed"].group == "report"
    assert "noqa" not in read_declarations(Variable)["PASSWORD_SECRET"].comment
    assert read_comments(metric_names, "METRICS")["PutLatency"] == "mean of one task"


@pytest.mark.parametrize(
    ("default", "shown"),
    [
        ("8 * MIB", "8 MiB"),
        ("10000000", "10,000,000"),
        ("0.03", "0.03"),
        ("20.0", "20"),
        ("()", "none"),
        (None, "none"),
        ("False", "false"),
        ("OnConflict.SKIP", "skip"),
        ("'{member}'", "'{member}'"),
    ],
)
def test_defaults_are_shown_as_people_write_them(default: str | None, shown: str) -> None:
    """A default of the source becomes an amount with its unit."""
    assert show_amount(default) == shown


def test_tables_keep_their_columns() -> None:
    """A bar within a cell does not end it."""
    assert make_table(("a", "b"), [("x|y", "z")]).splitlines()[2] == "| x\\|y | z |"


def test_undescribed_names_stop_the_generator() -> None:
    """A name that the code has and the table has not is told, and the other way round."""
    with pytest.raises(LookupError, match="table and the code disagree about new, old"):
        check_described("table", ["same", "new"], ["same", "old"])


def test_schemas_describe_a_run(pages: dict[str, str]) -> None:
    """The records of a run with a failure hold to their schemas."""
    world = World()
    report = world.run(make_archive("damaged.zip"))
    assert report.verdict is Verdict.COMPLETED_WITH_ERRORS
    work = world.records(report.run).store
    _hold(pages, "report", work.read("report.json"))
    _hold(pages, "summary", work.read("run.json"))
    for line in work.read("rounds/00.jsonl").splitlines():
        _hold(pages, "plan", line)
    lines = [
        line for name in work.names("outcomes/") for line in work.read(name).splitlines() if line
    ]
    assert len(lines) > 5
    for line in lines:
        _hold(pages, "outcomes", line)


def test_schemas_refuse_what_is_no_report(pages: dict[str, str]) -> None:
    """The check above can fail."""
    schema = json.loads(pages["report.schema.json"])
    assert _faults({"run": 1}, schema, schema)


def _hold(pages: dict[str, str], name: str, line: bytes) -> None:
    schema = json.loads(pages[f"{name}.schema.json"])
    assert not _faults(json.loads(line), schema, schema)


def _faults(value: Any, schema: dict[str, Any], root: dict[str, Any]) -> list[str]:
    """Return what is wrong with a value, by the words of JSON Schema that our schemas use."""
    if "$ref" in schema:
        return _faults(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    if "anyOf" in schema:
        each = [_faults(value, one, root) for one in schema["anyOf"]]
        return [] if [] in each else [fault for faults in each for fault in faults]
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(isinstance(value, TYPES[kind]) for kind in kinds):
        return [f"{value!r} is not {kinds}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{value!r} is none of {schema['enum']}"]
    found: list[str] = []
    if isinstance(value, dict):
        found += [f"no {name}" for name in schema.get("required", []) if name not in value]
        for name, one in value.items():
            part = schema.get("properties", {}).get(name, schema.get("additionalProperties"))
            found += [f"{name} is unknown"] if part is None else _faults(one, part, root)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        found += [fault for one in value for fault in _faults(one, schema["items"], root)]
    return found
