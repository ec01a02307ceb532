"""The reference is what the code says, and what commands print with ``--json`` fits its schemas."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from docs.generate import FOLDER, make_pages, write_reference
from docs.outputs import OUTPUTS
from docs.sources import check_described
from s3unzip import errors, settings
from s3unzip.cli.main import COMMANDS, load_command
from s3unzip.model import Verdict
from s3unzip.zip import CHECKS
from tests.docs.commands import make_archive
from tests.support.processes import Program
from tests.support.zips import Entry, build

World = tuple[Program, dict[str, str]]  # and the ids of runs by their destinations


@cache
def make_validator(name: str) -> Draft202012Validator:
    """Return a validator of one line; it refuses fields that the schema does not have."""
    schema: dict[str, Any] = json.loads((FOLDER / f"{name}.schema.json").read_text("utf-8"))
    Draft202012Validator.check_schema(schema)
    for part in schema.get("$defs", {}).values():
        if part.get("type") == "object" and "additionalProperties" not in part:
            part["additionalProperties"] = False
    return Draft202012Validator(schema)


def check_lines(name: str, text: str) -> list[Any]:
    """Validate each line; return the values."""
    values = [json.loads(line) for line in text.splitlines()]
    assert values
    for value in values:
        make_validator(name).validate(value)
    return values


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Return the program in a folder with archives, in which it has done three runs."""
    folder = tmp_path_factory.mktemp("json")
    program = Program(folder)
    for name in ("archive.zip", "damaged.zip"):
        (folder / name).write_bytes(make_archive(name))
    (folder / "nested.zip").write_bytes(
        build(Entry("inner.zip", build(Entry("in.txt", b"in"))), Entry("../up", b"x"))
    )
    (folder / "broken.zip").write_bytes(b"no archive")
    return program, {
        stem: program.extract(f"{stem}.zip", stem, "--nested", "1", "--json").lines[0]["run"]
        for stem in ("archive", "damaged", "nested")
    }


def test_every_command_has_json() -> None:
    """Each command of the program has the option, and a schema of what it prints."""
    able = {
        name
        for name in COMMANDS
        for parameter in load_command(name).params
        if "--json" in parameter.opts
    }
    described = {one.command.split()[0] for one in OUTPUTS} & set(COMMANDS)
    assert able == described == set(COMMANDS) - {"cat"}  # its output is the members


@pytest.mark.parametrize(
    ("schema", "words", "code"),
    [
        ("ls", "ls archive.zip", 0),
        ("ls", "ls nested.zip", 1),
        ("estimate", "plan archive.zip s3://bucket/x --on aws", 0),
        ("estimate", "plan archive.zip out", 0),
        ("run", "run archive.zip archive -w 1", 0),
        ("run", "run nested.zip again --nested 1 -w 1", 1),
        ("run", "run broken.zip again -w 1", 3),
        ("dry-run", "run nested.zip again --dry-run", 1),
        ("report", "test damaged.zip -w 1", 1),
        ("verification", "verify archive.zip archive", 0),
        ("verification", "verify archive.zip damaged", 1),
        ("runs", "runs", 0),
        ("report", "show {damaged}", 1),
        ("failures", "show {damaged} --failures", 1),
        ("watch", "watch {damaged}", 1),
        ("run", "resume {archive} -w 1", 0),
        ("run", "resume {damaged} -w 1", 1),
        ("run", "resume {damaged} --failed -w 1", 1),
        ("run", "resume {nested} --failed -w 1", 1),
        ("abort", "abort {damaged}", 0),
    ],
)
def test_output_holds_to_its_schema(world: World, schema: str, words: str, code: int) -> None:
    """Every line on stdout validates, and the exit code is the one without ``--json``."""
    program, runs = world
    check_lines(schema, program.run(*words.format_map(runs).split(), "--json").ends(code).out)


@pytest.mark.parametrize(("dest", "verdict"), [("archive", "EQUAL"), ("damaged", "DIFFERENT")])
def test_text_json_and_objects_of_verify_agree(world: World, dest: str, verdict: str) -> None:
    """In the text, in the JSON and object by object."""
    program, words = world[0], ["verify", "archive.zip", dest]
    assert program.run(*words, "--objects", "objects.jsonl").out.startswith(f"{verdict}  ")
    assert json.loads(program.run(*words, "--json").out)["verdict"] == verdict
    check_lines("objects", (program.folder / "objects.jsonl").read_text("utf-8"))


def test_records_hold_to_their_schemas(world: World) -> None:
    """What a run with a failure keeps: its report, its plan and its outcomes."""
    program, runs = world
    kept = program.home / "runs" / runs["damaged"]
    for schema, name in (
        ("report", "report.json"),
        ("summary", "run.json"),
        ("plan", "rounds/00.jsonl"),
    ):
        check_lines(schema, (kept / name).read_text("utf-8"))
    (outcomes,) = (kept / "outcomes").iterdir()
    assert len(check_lines("outcomes", outcomes.read_text("utf-8"))) > 5


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return make_pages()


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("cli.md", [f"## s3unzip {name}" for name in COMMANDS]),
        ("checks.md", [f"| `{code}` |" for code in CHECKS]),
        ("errors.md", [f"`{name}`" for name in vars(errors) if name.endswith("Error")]),
        ("errors.md", [f"| `{verdict}` | {verdict.exit_code} |" for verdict in Verdict]),
        ("metrics.md", [f"`{name}`" for name in settings.METRICS]),
        ("settings.md", [f"| `{name}` |" for name in settings.Tuning.__struct_fields__]),
        ("settings.md", [f"`{variable.value}`" for variable in settings.Variable]),
    ],
)
def test_pages_are_complete(pages: dict[str, str], page: str, names: list[str]) -> None:
    """A page has everything that the code has."""
    assert names
    assert not [name for name in names if name not in pages[page]]


def test_stale_pages_are_named(pages: dict[str, str], tmp_path: Path) -> None:
    """What is missing or old is named; what was written is not."""
    assert set(write_reference(tmp_path, pages)) == {f"docs/reference/{name}" for name in pages}
    (tmp_path / "cli.md").write_text("old")
    assert write_reference(tmp_path, pages, check=True) == ["docs/reference/cli.md"]
    assert (tmp_path / "cli.md").read_text() == "old"
    assert write_reference(tmp_path, pages) == ["docs/reference/cli.md"]
    assert write_reference(tmp_path, pages, check=True) == []


def test_the_pages_are_what_the_code_says(pages: dict[str, str]) -> None:
    """None is stale, and none is there that nothing writes."""
    assert {file.name: file.read_text("utf-8") for file in FOLDER.iterdir()} == pages


def test_undescribed_names_stop_the_generator() -> None:
    """A name that the code has and the table has not is told, and the other way round."""
    with pytest.raises(LookupError, match="table and the code disagree about new, old"):
        check_described("table", ["same", "new"], ["same", "old"])
