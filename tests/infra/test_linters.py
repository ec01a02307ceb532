"""cfn-lint finds nothing that has no written reason, and cdk-nag is there.

tests/infra/test_cdk_cli.py shows that cdk-nag and CDK's own linter find nothing.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from infra.application import Application, check_best_practices
from tests.infra.templates import Synthesized

# W3005: CDK lists dependencies that a reference implies as well; they change nothing.
IGNORED = "W3005"
LINTER = Path(sys.executable).with_name("cfn-lint")


@pytest.mark.parametrize("validation", ["true", "false"])
def test_no_validation_leaves_cdk_nag_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, validation: str
) -> None:
    """A bucket without access logs fails a synthesis, but not with the CLI's `--no-validation`."""
    from aws_cdk import Stack, aws_s3  # noqa: PLC0415 - after `infra`: it names the Node

    monkeypatch.setenv("CDK_VALIDATION", validation)
    app = Application(tmp_path, linter=False)
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
