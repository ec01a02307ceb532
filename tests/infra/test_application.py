"""What a synthesis refuses, what linters find, and what `cdk` does in a checkout."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra import NODE, cdk_cli
from infra.bundle import ROOT, ensure_asset
from infra.cdk_cli import COMMAND
from infra.environment_file import EnvironmentFileError, load_environment
from tests.infra.templates import Synthesized
from tests.support.assemblies import VARIANTS, synthesize_once
from tests.support.bare import make_checkout, make_machine, run_program

# W3005: CDK lists dependencies that a reference implies as well; they change nothing.
IGNORED = "W3005"


@pytest.mark.parametrize("validation", ["true", "false"])
def test_no_validation_leaves_cdk_nag_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validation: str
) -> None:
    """A bucket without access logs fails a synthesis, but not with the CLI's `--no-validation`."""
    from aws_cdk import Stack, aws_s3  # noqa: PLC0415 - it takes seconds

    from infra.application import Application  # noqa: PLC0415 - likewise
    from infra.best_practices import check_best_practices  # noqa: PLC0415 - likewise

    monkeypatch.setenv("CDK_VALIDATION", validation)
    app = Application(tmp_path, linter=False)
    aws_s3.Bucket(Stack(app, "stack"), "bucket")
    check_best_practices(app)
    expected = pytest.raises(RuntimeError, match="ValidationFailed")
    with expected if validation == "true" else contextlib.nullcontext():
        app.synth()


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (
            {"options.include": [f"folder-{number:04}/*.csv" for number in range(300)]},
            "options, limits and tuning take .* of which Lambda allows 4,096 in all: shorten",
        ),
        (
            {"routes": [{"name": f"p{n}", "prefix": f"partner-{n}/"} for n in range(60)]},
            r"routes: they take [\d,]+ of the .* allows 4,096 in all: use fewer routes",
        ),
    ],
)
def test_what_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], line: str
) -> None:
    """Lambda takes 4 KB of variables: the synthesis says so, not the deployment."""
    from infra.application import Application, build  # noqa: PLC0415 - it takes seconds

    monkeypatch.setenv("S3UNZIP_ASSET", str(Path(__file__).parent))
    environment = load_environment("dev", settings=settings)
    with pytest.raises(EnvironmentFileError, match=line):
        build(Application(tmp_path, linter=False), environment)


def test_cfn_lint(prod: Synthesized) -> None:
    """cfn-lint finds nothing."""
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("cfn-lint")),
            "--ignore-checks",
            IGNORED,
            "--",
            str(prod.path),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def run_cdk(folder: Path, *words: str, **variables: str) -> str:
    """Run ``.venv/bin/cdk`` in a checkout of its own, on a machine with Python and make."""
    if not COMMAND.is_file():
        pytest.skip("no CDK CLI: make it with `make cdk`")
    checkout = make_checkout(folder / "checkout")
    cdk = checkout / ".venv" / "bin" / "cdk"
    return run_program([cdk, *words], {**make_machine(folder / "bin"), **variables}, checkout)


def _read_template(template: Path) -> dict[str, Any]:
    (staged,) = template.parent.glob("asset.*")
    text, digest = template.read_text(), staged.name.removeprefix("asset.")
    assert digest in text
    found: dict[str, Any] = json.loads(text.replace(digest, "of the asset"))
    for resource in found["Resources"].values():
        metadata = resource.pop("Metadata", {})
        resource["Rest"] = {name: one for name, one in metadata.items() if name[:4] != "aws:"}
    return found


def test_the_cli_builds_what_the_tests_build(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`cdk synth` with settings, all checks and the asset for arm64, offline, as a user types it.

    It has the template of `tests.support.assemblies`. It breaks no rule of cdk-nag and CDK's.
    """
    built = ensure_asset()
    before = built.stat().st_mtime_ns
    # With an address for alarms: their stack warns if nobody gets them.
    environment, settings = VARIANTS["told"]
    pairs = (f"env={environment}", *(f"{name}={value}" for name, value in settings.items()))
    said = run_cdk(tmp_path, "synth", "-q", *(word for pair in pairs for word in ("-c", pair)))
    assert "ERROR" not in said
    assert "WARNING" not in said
    assert built.stat().st_mtime_ns == before  # it is built once
    template = tmp_path / "checkout" / "cdk.out" / "s3unzip-prod.template.json"
    made = synthesize_once(tmp_path_factory, "told")
    assert _read_template(template) == _read_template(made.template)
    assert '"MemorySize": 1769' in template.read_text()
    (staged,) = template.parent.glob("asset.*")
    assert list(staged.glob("numpy/_core/*-aarch64-linux-gnu.so"))
    assert (staged / "s3unzip" / "aws" / "plan.py").is_file()


def test_listing_builds_no_asset(tmp_path: Path) -> None:
    """`cdk ls` needs no asset and no uv, and answers with the stack of the environment."""
    words = ("ls", "-c", "env=prod")
    said = run_cdk(tmp_path, *words, UV="/nowhere/uv", CDK_VALIDATION="false")
    assert "s3unzip-prod" in said.splitlines()
    (staged,) = (tmp_path / "checkout" / "cdk.out").glob("asset.*")
    assert not (staged / "numpy").exists()


def test_the_command_is_the_pinned_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.venv/bin/cdk` starts the version of package.json and its lock, and recommends no other.

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
    assert "export CDK_DISABLE_VERSION_CHECK=1\n" in command.read_text()
    wanted = json.loads((ROOT / "package.json").read_text())["devDependencies"]["aws-cdk"]
    lock = json.loads((ROOT / "package-lock.json").read_text())
    assert lock["packages"]["node_modules/aws-cdk"]["version"] == wanted
    done = subprocess.run([str(command), "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == wanted
