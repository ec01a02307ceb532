"""The hosted workflows, the notes of a release, and the audit of dependencies."""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # cfn-lint brings it, without stubs

from bench.audit import judge
from tests.docs.commands import ROOT
from tests.support.processes import run_program
from tools.release import CHANGELOG, ReleaseError, release_notes

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
    versions = [one.rpartition(" ")[2] for one in declared if re.search(r":: 3\.\d+$", one)]
    job = _read("ci.yml")["jobs"]["test"]
    assert job["strategy"]["matrix"]["python"] == versions
    assert any(step.get("env", {}).get("S3UNZIP_REQUIRE_TOOLS") == "1" for step in job["steps"])


def test_each_part_of_ci_is_a_job_with_a_cache() -> None:
    """A typo costs the job of two minutes; macOS, which the README promises, has a job too."""
    jobs = _read("ci.yml")["jobs"]
    assert jobs.keys() == {"check", "test", "macos", "site"}
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
    rights = (publish["permissions"], publish["environment"]["name"])
    assert rights == ({"id-token": "write"}, "pypi")
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
    audit = {"dependencies": dependencies}
    judged = [judge(audit, required=required) for required in (False, True)]
    assert [one[0] for one in judged] == [code, code_in_ci]
    assert line in judged[1][1]
