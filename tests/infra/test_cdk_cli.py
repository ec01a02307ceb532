"""The real CDK CLI, as `make cdk` installs it; what it builds is what the tests build."""

import json
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from infra import NODE, cdk_cli
from infra.bundle import ROOT, ensure_asset
from infra.cdk_cli import COMMAND
from tests.assemblies import VARIANTS, synthesize_once
from tests.docs.bare import make_checkout, make_machine

# The linters take longer than all the rest of a synthesis; one command of this module has them.
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


class Written(NamedTuple):
    """What one command printed, and wrote into cdk.out: the template, and the staged asset."""

    said: str
    template: dict[str, Any]
    staged: Path


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """`cdk synth` with settings, as a user types it: app.py, the asset for Lambda, all checks."""
    built = ensure_asset()
    before = built.stat().st_mtime_ns
    folder = tmp_path_factory.mktemp("synth")
    # With an address for alarms: their stack warns if nobody gets them.
    environment, settings = VARIANTS["told"]
    pairs = (f"env={environment}", *(f"{name}={value}" for name, value in settings.items()))
    done = run_cdk(folder, "synth", "-q", *(word for pair in pairs for word in ("-c", pair)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert built.stat().st_mtime_ns == before  # it is built once
    (staged,) = (folder / "checkout" / "cdk.out").glob("asset.*")
    said = done.stdout + done.stderr
    return Written(said, read_template(staged.parent, "s3unzip-prod"), staged)


def read_template(folder: Path, name: str) -> dict[str, Any]:
    """Return a template without the asset's hash, and without what the CLI adds to each resource.

    That is the resource's path in the app.
    """
    text = (folder / f"{name}.template.json").read_text()
    (staged,) = folder.glob("asset.*")
    digest = staged.name.removeprefix("asset.")
    assert digest in text
    template: dict[str, Any] = json.loads(text.replace(digest, "of the asset"))
    for resource in template["Resources"].values():
        metadata = resource.pop("Metadata", {})
        rest = {key: value for key, value in metadata.items() if not key.startswith("aws:")}
        if rest:
            resource["Metadata"] = rest
    return template


def test_the_cli_builds_what_the_tests_build(
    written: Written, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`cdk synth` and `tests.assemblies` write the same template; settings of `-c` are in it."""
    made = synthesize_once(tmp_path_factory, "told")
    assert written.template == read_template(made.folder, made.stack)
    assert '"MemorySize": 1769' in json.dumps(written.template)


def test_synthesis_is_clean(written: Written) -> None:
    """Offline and without credentials, no rule of cdk-nag and of CDK's own linter is broken."""
    assert "ERROR" not in written.said
    assert "WARNING" not in written.said


def test_synthesis_stages_the_asset_for_lambda(written: Written) -> None:
    """Without a ready asset the CLI's is the built one, for arm64."""
    assert list(written.staged.glob("numpy/_core/*-aarch64-linux-gnu.so"))
    assert (written.staged / "s3unzip" / "aws" / "plan.py").is_file()


def test_the_command_is_the_pinned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.venv/bin/cdk` starts the version of package.json and its lock.

    It names the files themselves, not the links of the checkout that wrote it.
    """
    (tmp_path / "checkout").symlink_to(NODE.parent)
    command = tmp_path / "cdk"
    monkeypatch.setattr(cdk_cli, "COMMAND", command)
    monkeypatch.setattr(cdk_cli, "NODE", tmp_path / "checkout" / NODE.name)
    monkeypatch.setattr(cdk_cli, "NPM_OPTIONS", ("--version",))  # installs nothing
    cdk_cli.install_cdk()
    assert str(NODE.resolve()) in command.read_text()
    assert str(tmp_path / "checkout") not in command.read_text()
    wanted = json.loads((ROOT / "package.json").read_text())["devDependencies"]["aws-cdk"]
    lock = json.loads((ROOT / "package-lock.json").read_text())
    assert lock["packages"]["node_modules/aws-cdk"]["version"] == wanted
    assert wanted.startswith("2.")
    done = subprocess.run([str(command), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == wanted


def test_listing_builds_no_asset(tmp_path: Path) -> None:
    """`cdk ls` needs no asset and no uv, and answers with the stack of the environment."""
    done = run_cdk(tmp_path, "ls", "-c", "env=prod", UV="/nowhere/uv", **UNCHECKED)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["s3unzip-prod"]
    (staged,) = (tmp_path / "checkout" / "cdk.out").glob("asset.*")
    assert not (staged / "numpy").exists()
