"""The real CDK CLI, as `make cdk` installs it; what it builds is what the tests build."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from infra import NODE, cdk_cli
from infra.asset import ensure_asset
from infra.bundle import ROOT
from infra.cdk_cli import COMMAND
from tests.docs.bare import make_checkout, make_machine

if TYPE_CHECKING:
    from pathlib import Path

    from tests.infra.templates import Synthesized


# CDK's own linter takes longer than all the rest of a synthesis; one test of this module has it.
UNCHECKED = {"CDK_VALIDATION": "false"}


def run_cdk(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``.venv/bin/cdk`` in a checkout of its own, on a machine with Python and make."""
    if not COMMAND.is_file():
        pytest.skip("no CDK CLI: make it with `make cdk`")
    checkout = make_checkout(folder / "checkout")
    return subprocess.run(
        [str(checkout / ".venv" / "bin" / "cdk"), *words],
        cwd=checkout,
        env={**make_machine(folder / "bin"), **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def read_template(folder: Path, name: str) -> dict[str, Any]:
    """Return a template without what the CLI adds to each resource: its path in the app."""
    template: dict[str, Any] = json.loads((folder / f"{name}.template.json").read_text())
    for resource in template["Resources"].values():
        metadata = resource.pop("Metadata", {})
        rest = {key: value for key, value in metadata.items() if not key.startswith("aws:")}
        if rest:
            resource["Metadata"] = rest
    return template


def test_the_cli_builds_what_the_tests_build(asset: Path, tmp_path: Path, dev: Synthesized) -> None:
    """`cdk synth` and the fixtures of these tests write the same template."""
    done = run_cdk(tmp_path, "synth", "-q", "-c", "env=dev", S3UNZIP_ASSET=str(asset))
    assert done.returncode == 0, done.stdout + done.stderr
    theirs = read_template(tmp_path / "checkout" / "cdk.out", "s3unzip-dev")
    assert theirs == read_template(dev.path.parent, "s3unzip-dev")


def test_the_command_outlives_a_checkout_of_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.venv/bin/cdk` names the files themselves, not the links of the checkout that wrote it."""
    (tmp_path / "checkout").symlink_to(NODE.parent)
    command = tmp_path / "cdk"
    monkeypatch.setattr(cdk_cli, "COMMAND", command)
    monkeypatch.setattr(cdk_cli, "NODE", tmp_path / "checkout" / NODE.name)
    monkeypatch.setattr(cdk_cli, "NPM_OPTIONS", ("--version",))  # installs nothing
    cdk_cli.install_cdk()
    assert str(NODE.resolve()) in command.read_text()
    assert str(tmp_path) not in command.read_text()


def test_listing_builds_no_asset(tmp_path: Path) -> None:
    """`cdk ls` needs no asset and no uv, and answers with the stack of the environment."""
    done = run_cdk(tmp_path, "ls", "-c", "env=prod", UV="/nowhere/uv", **UNCHECKED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["s3unzip-prod"]
    (staged,) = (tmp_path / "checkout" / "cdk.out").glob("asset.*")
    assert not (staged / "numpy").exists()


def test_a_setting_of_the_command_line(asset: Path, tmp_path: Path) -> None:
    """`-c section.setting=value` reaches the template, as the page says."""
    words = ("synth", "-q", "-c", "env=dev", "-c", "functions.extract.memory=1769")
    done = run_cdk(tmp_path, *words, S3UNZIP_ASSET=str(asset), **UNCHECKED)
    assert done.returncode == 0, done.stdout + done.stderr
    template = read_template(tmp_path / "checkout" / "cdk.out", "s3unzip-dev")
    sizes = {
        name[:16]: one["Properties"]["MemorySize"]
        for name, one in template["Resources"].items()
        if one["Type"] == "AWS::Lambda::Function"
    }
    assert sizes["FunctionsExtract"] == 1769


def test_synthesis_stages_the_asset_for_lambda(tmp_path: Path) -> None:
    """Without a ready asset the CLI's is the built one, for arm64; it is built once."""
    built = ensure_asset()
    before = built.stat().st_mtime_ns
    done = run_cdk(tmp_path, "synth", "-q", "-c", "env=staging", **UNCHECKED)
    assert done.returncode == 0, done.stdout + done.stderr
    (staged,) = (tmp_path / "checkout" / "cdk.out").glob("asset.*")
    assert list(staged.glob("numpy/_core/*-aarch64-linux-gnu.so"))
    assert (staged / "s3unzip" / "handlers" / "plan.py").is_file()
    assert built.stat().st_mtime_ns == before


def test_an_unknown_environment(tmp_path: Path) -> None:
    """The line that names the known ones is not lost in the CLI's own."""
    done = run_cdk(tmp_path, "synth", "-q", "-c", "env=qa")
    assert done.returncode != 0
    assert "environment 'qa': there is no infra/environments/qa.toml; known: " in done.stderr


def test_the_version_is_pinned() -> None:
    """package.json and its lock name one exact version, the one that is installed."""
    wanted = json.loads((ROOT / "package.json").read_text())["devDependencies"]["aws-cdk"]
    lock = json.loads((ROOT / "package-lock.json").read_text())
    assert lock["packages"]["node_modules/aws-cdk"]["version"] == wanted
    assert wanted.startswith("2.")
    done = subprocess.run(
        [str(COMMAND), "--version"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[0] == wanted
