"""What a synthesis refuses, and that linters find nothing that has no written reason.

tests/infra/test_cdk_cli.py shows that cdk-nag and CDK's own linter find nothing.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from infra.environment_file import EnvironmentFileError, load_environment
from tests.infra.templates import Synthesized

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
