"""docs/deploy.md on a machine with Python and make: each command, in order, on the embedded AWS.

The commands are read from the page and typed into one terminal, the real CDK CLI
among them. Not as on a user's machine: `S3UNZIP_ASSET` gives the CLI the package
for its asset, because the functions run on this machine, whatever its processor,
and their dependencies are on its `PYTHONPATH`. CDK's own linter and cdk-nag are off,
which take longer than all the rest of a synthesis. And app.py runs once for each
environment and settings, not once for each command: see tests/docs/synthesis.py.
tests/infra/test_application.py has the asset for Lambda, the linters and app.py itself.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from embedded.deploy import make_client
from embedded.serve import serve
from tests.docs.archives import make_archive
from tests.docs.commands import ROOT, read_commands
from tests.docs.synthesis import use_kept_syntheses
from tests.docs.terminal import Terminal
from tests.support.bare import make_checkout, make_machine
from tests.support.servers import require_embedded_aws

PAGE = ROOT / "docs" / "deploy.md"
SECONDS = 900.0  # of one command, on a machine ever so busy

# What each command must have said, by how it begins; the first that fits counts.
SAYS = {
    "make bootstrap": "bootstrapped",
    "make put": r"run \S+-archive-\w+ began",
    "s3unzip watch": "COMPLETED",
    "s3unzip show": r"\d+ members: \d+ extracted",
    "s3unzip doctor": r"canary +5 of 5 members [^✅]*, 0 failures",
    "make diff": "Number of stacks with differences: 0",
    "make deploy ENV=prod": "s3unzip-prod.IngestBucket = ",
    "make deploy": "s3unzip-dev.IngestBucket = ",
    "make destroy ENV=dev": r": [1-9]\d* objects deleted[^✅]*✅ +s3unzip-dev: destroyed",
    "make destroy ENV=prod": "make unprotect ENV=prod|s3unzip-prod: destroyed",
    "make unprotect": "can now be destroyed",
    "cdk ls": "s3unzip-dev",
    "cdk bootstrap": "bootstrapped",
    "cdk diff": "AWS::StepFunctions::StateMachine",
    "cdk deploy": "s3unzip-dev.IngestBucket = ",
    "cdk destroy": "s3unzip-dev: destroyed",
}


@pytest.fixture
def variables(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The shell of such a machine, which deploys to an embedded AWS; the page sets the region."""
    require_embedded_aws()
    with serve(wait_scale=0.02) as served:
        region = {"AWS_REGION", "AWS_DEFAULT_REGION"}
        kept = {name: value for name, value in served.items() if name not in region}
        yield {**make_machine(tmp_path / "bin"), **kept, "CDK_VALIDATION": "false"}


@pytest.mark.timeout(5_400)
def test_every_command_of_the_page(tmp_path: Path, variables: dict[str, str]) -> None:
    """The page is followed literally to its end; what it deployed is gone then."""
    checkout = make_checkout(tmp_path / "checkout")
    use_kept_syntheses(checkout, tmp_path / "syntheses")
    (checkout / "archive.zip").write_bytes(make_archive("archive.zip"))
    with Terminal(checkout, variables) as terminal:
        for command in read_commands(PAGE):
            answer = terminal.run(command.text, SECONDS)
            assert answer.exit_code == command.exit_code, f"{command}\n{answer.text[-3_000:]}"
            wanted = next((SAYS[one] for one in SAYS if command.text.startswith(one)), "")
            assert re.search(wanted, answer.text, re.DOTALL), f"{command}\n{answer.text[-3_000:]}"
            if command.text.startswith("make bootstrap"):
                assert not (checkout / "cdk.out").exists()  # it synthesizes nothing
    cloudformation = make_client("cloudformation", variables | {"AWS_REGION": "eu-west-1"})
    names = {one["StackName"] for one in cloudformation.describe_stacks()["Stacks"]}
    assert names == {"CDKToolkit"}


def test_each_expectation_is_of_a_command() -> None:
    """No expectation is left of a command that the page no longer has."""
    commands = [command.text for command in read_commands(PAGE)]
    assert not [begins for begins in SAYS if not any(one.startswith(begins) for one in commands)]
