"""cdk-nag, CDK's own linter and cfn-lint find nothing that has no written reason."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from infra.application import Application, check_best_practices
from infra.bundle import ROOT

if TYPE_CHECKING:
    from tests.infra.templates import Synthesized

# W3005: CDK lists dependencies that a reference implies as well; they change nothing.
IGNORED = "W3005"
LINTER = Path(sys.executable).with_name("cfn-lint")


def test_synthesis_is_clean(asset: Path, tmp_path: Path) -> None:
    """`app.py` synthesizes offline, without credentials, and no rule is broken."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "app.py")],
        cwd=ROOT,
        env={
            "CDK_OUTDIR": str(tmp_path),
            "CDK_CONTEXT_JSON": json.dumps({"env": "prod"}),
            "S3UNZIP_ASSET": str(asset),
            "PATH": os.environ["PATH"],
            "HOME": os.environ["HOME"],  # jsii unpacks CDK once into a cache there
            "AWS_EC2_METADATA_DISABLED": "true",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ERROR" not in done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr


@pytest.mark.parametrize("validation", ["true", "false"])
def test_no_validation_leaves_cdk_nag_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validation: str
) -> None:
    """A bucket without access logs fails a synthesis, but not with the CLI's `--no-validation`."""
    from aws_cdk import Stack, aws_s3  # noqa: PLC0415 - after `infra`: it names the Node

    monkeypatch.setenv("CDK_VALIDATION", validation)
    app = Application(tmp_path)
    aws_s3.Bucket(Stack(app, "stack"), "bucket")
    check_best_practices(app)
    expected = pytest.raises(RuntimeError, match="ValidationFailed")
    with expected if validation == "true" else contextlib.nullcontext():
        app.synth()


def test_cfn_lint(prod: Synthesized) -> None:
    """cfn-lint finds nothing."""
    done = subprocess.run(
        [str(LINTER), "--ignore-checks", IGNORED, "--", str(prod.path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
