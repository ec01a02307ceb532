"""The hosted workflows: few rights, pinned actions, the versions that the package supports."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # cfn-lint brings it, without stubs

from tests.docs.commands import ROOT

FOLDER = ROOT / ".github" / "workflows"
PINNED = re.compile(r"uses: [\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*$")


def _read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return found


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_has_no_more_rights_than_it_says(path: Path) -> None:
    """Nothing by default; each job lists its rights and has a time limit; checkouts keep nothing.

    Later steps run code of dependencies. A tag of an action can be moved, a commit cannot.
    """
    workflow = _read(path.name)
    assert workflow["permissions"] == {}
    for job in workflow["jobs"].values():
        assert job["permissions"]
        assert job["permissions"].keys() <= {"contents", "id-token", "attestations", "pages"}
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False
    used = [line for line in path.read_text().splitlines() if "uses:" in line]
    assert used
    assert [line for line in used if not PINNED.search(line)] == []


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
    for job in jobs.values():
        assert any(step.get("uses", "").startswith("actions/cache@") for step in job["steps"])
    assert jobs["macos"]["runs-on"].startswith("macos-")


def test_bare_make_lists_the_targets() -> None:
    """Each target with a text is in the list, and nothing else happens."""
    done = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    listed = {line.split()[1] for line in done.stdout.splitlines()}
    described = re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert listed == set(described)
    assert {"demo", "test", "check", "deploy"} <= listed


def test_a_release_is_attested_and_published_without_a_token() -> None:
    """Only the job that publishes may ask for an identity of the index, and no secret is used."""
    jobs = _read("release.yml")["jobs"]
    assert jobs["build"]["permissions"]["attestations"] == "write"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["environment"]["name"] == "pypi"
    assert "secrets." not in (FOLDER / "release.yml").read_text()
