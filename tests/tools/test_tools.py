"""The tools of the maintainers: measures, mutants, workflows, the notes of a release, the audit."""

import logging
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # cfn-lint brings it, without stubs

from bench.audit import judge
from tests.conftest import REQUIRE_TOOLS, find_left, product_logger_kept, take_state
from tests.docs.commands import ROOT
from tests.support.processes import run_process, run_program
from tests.support.servers import looks, require_embedded_aws
from tools.branches import ALL, CONTROL_PLANE, count_branches, find_low, list_missing
from tools.house import House, find_faults, lower, measure
from tools.mutants import PACKAGE, make_mutants, read_groups
from tools.release import CHANGELOG, ReleaseError, release_notes

READER = """
from s3unzip import writer

LIMIT = 1


class Archive:
    size, name = 1, "a"
    found = size if name else 0
"""

WRITER = """
from s3unzip import reader

LIMIT = 2


class Archive:
    def write(self, location):
        if location.scheme == "s3":
            reader.write(1, 2, 3, 4, 5)
        first, second = second, first
"""


@pytest.fixture(name="house")
def fixture_house(tmp_path: Path) -> House:
    package = tmp_path / "functions" / "s3unzip"
    package.mkdir(parents=True)
    (package / "reader.py").write_text(READER)
    (package / "writer.py").write_text(WRITER)
    (package / "page.css").write_text("a {}\nb {}\n")
    (tmp_path / "docs" / "howto").mkdir(parents=True)
    (tmp_path / "docs" / "howto" / "page.md").write_text("# Page\n\nText.\n")
    return measure(tmp_path)


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("package thoughts", 14),
        ("package modules", 2),
        ("package classes", 2),
        ("class names used twice", 1),
        ("constants of one name with two values", 1),
        ("longest function", 4),
        ("tuple assignments", 1),
        ("conditional expressions, per 1,000 statements", 83.3),
        ("calls with 5 or more positional arguments", 1),
        ("generic names, % of names stored", 14.3),
        ("questions by scheme outside of stores/", 1),
        ("modules in import circles", 2),
        ("lines of js, css and html in the package", 2),
        ("how-tos", 1),
    ],
)
def test_a_small_project_is_measured(house: House, figure: str, value: float) -> None:
    """Each figure is that of a package whose code was counted by hand."""
    assert house.figures[figure] == value


def test_each_counted_place_is_listed(house: House) -> None:
    """The list names the file, the line and the text of a place."""
    assert {"generic names: reader.py:9: found", "modules in import circles: s3unzip.reader"} <= {
        *house.places
    }


def test_a_figure_above_its_ceiling_is_a_fault() -> None:
    """So is a figure that has no ceiling. A figure below its ceiling is no fault."""
    assert find_faults({"a": 1, "b": 3, "c": 1}, {"a": 2, "b": 2}) == [
        "b: 3, the ceiling is 2",
        "c: 1, the ceiling is 0",
    ]


def test_ceilings_only_fall() -> None:
    """A lower figure lowers its ceiling; a new figure gets one; without a figure, it stays."""
    assert lower({"a": 1, "b": 3, "c": 5}, {"a": 2, "b": 2, "d": 4}) == {
        "a": 1,
        "b": 2,
        "c": 5,
        "d": 4,
    }


def report(files: dict[str, tuple[int, int]]) -> dict[str, Any]:
    """Return what coverage would write of files with branches taken and all."""
    return {
        "files": {
            name: {
                "summary": {"covered_branches": taken, "num_branches": every},
                "missing_branches": [[1, 2]] * (every - taken),
            }
            for name, (taken, every) in files.items()
        }
    }


def test_branches_are_counted_by_package() -> None:
    """Folders below a package count with it; infra is one, and modules of the root another."""
    measured = report(
        {
            "functions/s3unzip/cli/main.py": (1, 2),
            "functions/s3unzip/cli/commands/run.py": (3, 4),
            "functions/s3unzip/clients.py": (5, 6),
            "infra/stack.py": (8, 8),
        }
    )
    assert count_branches(measured) == {
        "functions/s3unzip": (5, 6),
        "functions/s3unzip/cli": (4, 6),
        "infra": (8, 8),
        ALL: (17, 20),
    }
    first, *others = (line.split() for line in list_missing(measured))
    assert (first, len(others)) == (["functions/s3unzip/cli/commands/run.py", "3/4", "1->2"], 2)


def test_limits_hold_for_the_whole_and_for_the_control_plane() -> None:
    """A package below the limit is reported, and so is a package without any measurement."""
    right = dict.fromkeys(CONTROL_PLANE, (90, 100))
    assert find_low({**right, ALL: (90, 100)}) == []
    (line,) = find_low({**right, ALL: (897, 1_000)})
    assert line.startswith("all product code: 89.7%")
    first, second = CONTROL_PLANE
    percent = [line.partition("%")[0] for line in find_low({second: (8, 9), ALL: (1_000, 1_000)})]
    assert percent == [f"{first}: 0.0", f"{second}: 88.9"]


SOURCE = '''\
"""A module."""
import os
LIMIT = 5

def clamp(value: int, low: int = 0) -> int:
    """Text."""
    if value < low and os.name:
        raise ValueError(f"{value + 1} is below {low - 1}")
    while value:
        log(value)
        value -= 2
        if not value:
            continue
    return min(value, LIMIT) + 1
'''


def test_every_operator_makes_its_mutant() -> None:
    """Each has the function, the expression before and after in its name, and its line."""
    assert [(one.line, one.name) for one in make_mutants(SOURCE)] == [
        (5, "clamp: 0 -> 1"),
        (7, "clamp: value < low and os.name -> value < low or os.name"),
        (7, "clamp: value < low -> value <= low"),
        (8, 'clamp: raise ValueError(f"{value + 1} is below {low - 1}") -> pass'),
        (9, "clamp: value -> not value"),
        (10, "clamp: log(value) -> pass"),
        (11, "clamp: value -= 2 -> value += 2"),
        (11, "clamp: 2 -> 3"),
        (12, "clamp: not value -> value"),
        (13, "clamp: continue -> break"),
        (14, "clamp: min(value, LIMIT) + 1 -> min(value, LIMIT) - 1"),
        (14, "clamp: min(value, LIMIT) -> max(value, LIMIT)"),
        (14, "clamp: 1 -> 2"),
    ]


def test_every_group_has_modules_and_tests() -> None:
    """No pattern of the list is about modules that have gone."""
    package = ROOT / "functions" / PACKAGE
    for group in read_groups():
        assert (bool(group.files(package, [])), group.files(package, ["no/such"])) == (True, [])
        assert [test for test in group.tests if not (ROOT / test).exists()] == []


BLOCKED = """
import sys
DEVELOPMENT = {"cfnlint", "greenlet", "hypothesis", "importlinter", "jsonschema", "moto", "mypy"}
DEVELOPMENT |= {"pytest", "selenium"}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in DEVELOPMENT:
            raise ModuleNotFoundError(f"{name} is for development", name=name)
sys.meta_path.insert(0, Block())
import embedded.demo, infra.application, infra.environment
"""


def test_the_demo_runs_without_development_packages() -> None:
    """What the demo and the synthesis import is none of them."""
    run_program([sys.executable, "-c", BLOCKED], os.environ)


def test_a_demo_that_is_ended_leaves_no_folder(tmp_path: Path, uv: Path) -> None:
    """SIGTERM ends it as Ctrl-C does."""
    require_embedded_aws()
    demo = subprocess.Popen(
        [sys.executable, "-m", "embedded.demo"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "UV": str(uv)},
    )
    assert any(any(tmp_path.glob("s3unzip-demo-*")) for _ in looks())
    demo.terminate()
    assert (demo.wait(), [*tmp_path.glob("s3unzip-*")]) == (130, [])


def test_make_demo_installs_no_development_packages() -> None:
    """Its environment has the group of the infrastructure only, and keeps what is there already."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert "\ndemo: .venv/demo embedded/.venv/ready  ##" in makefile
    rule = makefile.partition("\n.venv/demo:")[2].partition("\n\n")[0]
    assert "--inexact --no-default-groups --group infra" in rule


def test_every_picture_is_there_and_used() -> None:
    """Each picture of `make pictures` is in docs/images, and a page shows it."""
    text = "".join(
        page.read_text("utf-8") for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    )
    names = {one.name for one in (ROOT / "docs" / "images").iterdir()}
    assert (names, [name for name in names if f"images/{name}" not in text]) == (
        {"terminal.svg", "report-page.png", "report-page-dark.png"},
        [],
    )


def test_the_terminal_loads_nothing() -> None:
    """It shows commands, and asks no other server for a font."""
    picture = (ROOT / "docs" / "images" / "terminal.svg").read_text("utf-8")
    parts = ("s3unzip&#160;run", "font-face", "url(http")
    assert [part in picture for part in parts] == [True, False, False]


def test_changes_that_a_test_leaves_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Variables, working folder, path of imports, clocks and the handlers of signals."""
    before = take_state()
    monkeypatch.setenv("S3UNZIP_LEFT", "x")
    monkeypatch.delenv("PATH")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(time, "sleep", os.nice)
    handler = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    found = find_left(before)
    signal.signal(signal.SIGUSR1, handler)
    monkeypatch.undo()
    assert found == [
        f"handler of signal {signal.SIGUSR1:d}",
        "sys.path",
        "time.sleep",
        "variable PATH",
        "variable S3UNZIP_LEFT",
        "working folder",
    ]
    assert find_left(before) == []


def test_the_products_logger_is_set_back() -> None:
    """Its level and its handlers are those of before."""
    logger = logging.getLogger("s3unzip")
    before = logger.level, [*logger.handlers]
    with product_logger_kept():
        logger.setLevel(logging.CRITICAL)
        logger.addHandler(logging.NullHandler())
    assert (logger.level, logger.handlers) == before


SUITE = """
import pytest

def test_server():
    pytest.skip("VersityGW is not installed: go install ...")

def test_other():
    pytest.skip("a folder does not copy")
"""


def test_a_missing_tool_fails_where_tools_are_required(tmp_path: Path) -> None:
    """Only the skip because of a missing tool becomes a failure."""
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_suite.py").write_text(SUITE)
    done = run_process(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        tmp_path,
        {**os.environ, "PYTHONPATH": str(ROOT), REQUIRE_TOOLS: "1"},
    )
    assert done.returncode == 1, done.stdout
    assert b"1 failed, 1 skipped" in done.stdout


FOLDER = ROOT / ".github" / "workflows"
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*$")


def _read(name: str) -> Any:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_has_no_more_rights_than_it_says(path: Path) -> None:
    """Nothing by default; each job lists its rights and has a time limit; checkouts keep nothing.

    Later steps run code of dependencies. A tag of an action can be moved, a commit cannot.
    """
    workflow = _read(path.name)
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert set() < {*job["permissions"]} <= {"contents", "id-token", "attestations", "pages"}
        assert job["timeout-minutes"] <= 60
        checkouts = [one for one in job["steps"] if "actions/checkout@" in one.get("uses", "")]
        assert {one["with"]["persist-credentials"] for one in checkouts} <= {False}
    used = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert {bool(PINNED.search(line)) for line in used} == {True}


def test_every_python_that_is_declared_is_tested() -> None:
    """The classifiers of the package are the versions of the matrix, and no tool may be missing."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    job = _read("ci.yml")["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == [
        one.rpartition(" ")[2] for one in declared if re.search(r":: 3\.\d+$", one)
    ]
    assert any(step.get("env", {}).get("S3UNZIP_REQUIRE_TOOLS") == "1" for step in job["steps"])


def test_each_part_of_ci_is_a_job_with_a_cache() -> None:
    """A typo costs the job of two minutes; macOS, which the README promises, has a job too."""
    jobs = _read("ci.yml")["jobs"]
    assert jobs.keys() == {"check", "test", "oldest", "macos", "site"}
    used = {
        name: {step.get("uses", "").partition("@")[0] for step in job["steps"]}
        for name, job in jobs.items()
    }
    assert [name for name in jobs if "actions/cache" not in used[name]] == []
    assert jobs["macos"]["runs-on"].startswith("macos-")


def test_bare_make_lists_the_targets() -> None:
    """Each target with a text is in the list, and nothing else happens."""
    listed = {line.split()[1] for line in run_program(["make"], os.environ).splitlines()}
    assert listed == set(
        re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    )
    assert {"demo", "test", "check", "deploy"} <= listed


def test_a_release_is_attested_and_published_without_a_token() -> None:
    """Only the job that publishes may ask for an identity of the index, and no secret is used."""
    jobs = _read("release.yml")["jobs"]
    assert jobs["build"]["permissions"]["attestations"] == "write"
    publish = jobs["publish"]
    assert (publish["permissions"], publish["environment"]["name"]) == (
        {"id-token": "write"},
        "pypi",
    )
    assert "secrets." not in (FOLDER / "release.yml").read_text()


TEXT = """# Changelog

## [Unreleased]

## [1.2.0] - 2026-11-22

### Added

- A thing.

## [1.1.0] - 2026-01-01

## [1.0.0]

- Undated.
"""


def test_notes_are_the_section_of_the_version() -> None:
    """The notes hold that version's changes and no other's; there is a place for the next ones."""
    assert release_notes("v1.2.0", "1.2.0", TEXT) == "### Added\n\n- A thing.\n"
    assert "## [Unreleased]" in CHANGELOG.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("tag", "version", "why"),
    [
        ("v1.2.1", "1.2.0", "the tag is v1.2.1, but the version is 1.2.0"),
        ("1.2.0", "1.2.0", "tag v1.2.0"),
        ("v1.1.0", "1.1.0", "is empty"),
        ("v1.0.0", "1.0.0", "no section"),
        ("v9.9.9", "9.9.9", "no section"),
    ],
)
def test_a_release_that_does_not_agree_is_refused(tag: str, version: str, why: str) -> None:
    """Each disagreement is refused with what to do."""
    with pytest.raises(ReleaseError, match=why):
        release_notes(tag, version, TEXT)


SOUND: dict[str, Any] = {"name": "sound", "version": "1.0", "vulns": []}
HOLED: dict[str, Any] = {
    "name": "holed",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["2.1"]}],
}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found on PyPI"}
OURS = {"name": "s3unzip", "skip_reason": "distribution marked as editable"}


@pytest.mark.parametrize(
    ("dependencies", "code", "code_in_ci", "line"),
    [
        ([SOUND, OURS], 0, 0, "1 of 1 distributions were checked; 0 with a known"),
        ([SOUND, HOLED], 1, 1, "holed 2.0: PYSEC-2026-1, mended in 2.1"),
        ([SOUND, UNKNOWN], 0, 1, "1 of 2 distributions were checked; 0 with a known"),
        ([UNKNOWN, OURS], 0, 1, "0 of 1 distributions were checked; nothing is known of them"),
    ],
)
def test_an_audit_says_what_it_checked(
    dependencies: list[dict[str, Any]], code: int, code_in_ci: int, line: str
) -> None:
    """A hole always fails; a distribution that was not checked is named, and fails in CI."""
    judged = [
        judge({"dependencies": dependencies}, required=required) for required in (False, True)
    ]
    assert [one[0] for one in judged] == [code, code_in_ci]
    assert line in judged[1][1]
