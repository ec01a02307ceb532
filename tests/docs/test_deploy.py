"""docs/deploy.md and other pages of deployments: each command, typed on the embedded AWS."""

import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import pytest

from embedded.deploy import make_client
from embedded.ministack import EmbeddedAws
from embedded.serve import serve
from infra.reasons import listed
from tests.docs.commands import ROOT, Command, make_archive, read_commands
from tests.docs.synthesis import use_kept_syntheses
from tests.support.processes import Program, make_checkout, make_machine
from tests.support.servers import looks, make_embedded_aws, require_embedded_aws
from tests.support.zips import DEFLATE, Entry, build

# The shell takes commands from a pipe, so that the terminal is the commands' own.
LOOP = 'while IFS= read -r -u "$1" line; do eval "$line"; printf "\\n%s%d\\n" "$2" "$?"; done'
DONE = "::the command ended with "
SIZE = (24, 80)  # rows and columns, of a terminal that nobody enlarged
ENDED = re.compile(re.escape(DONE) + r"(\d+)\r?\n")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What the documented commands ask, and what a reader who goes on types.
QUESTIONS = (
    (re.compile(r"\(y/n\)[^\n]*$"), "y"),
    (re.compile(r"Type (\S+) to continue: $"), r"\1"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended, and all that it printed, without colours."""

    exit_code: int
    text: str


class Terminal:
    """One shell in `folder` with exactly these `variables`; a context manager."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        # Without a size the CDK CLI wraps its tables after a few letters, and writes megabytes.
        termios.tcsetwinsize(slave, SIZE)
        commands, self._commands = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", LOOP, "bash", str(commands), DONE],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=dict(variables),
            pass_fds=(commands,),
            start_new_session=True,
        )
        os.close(slave)
        os.close(commands)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        os.close(self._commands)
        os.close(self._master)

    def run(self, command: str, seconds: float) -> Answer:
        os.write(self._commands, f"{command}\n".encode())
        deadline = time.monotonic() + seconds
        text, answered, line = "", 0, 0
        while not (ended := ENDED.search(text, line)):
            if not select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"{command}: not ended in {seconds:.0f} s\n{text[-2_000:]}")
            line = text.rfind("\n") + 1  # the one that goes on: those before it have been searched
            text += COLOURS.sub("", os.read(self._master, 65_536).decode(errors="replace"))
            for question, reply in QUESTIONS:
                found = question.search(text, max(answered, line))
                if found:
                    os.write(self._master, f"{found.expand(reply)}\n".encode())
                    answered = len(text)
        return Answer(int(ended[1]), text[: ended.start()])


PAGE = ROOT / "docs" / "deploy.md"
SECONDS = 900.0  # of one command, on a machine ever so busy

# What each command must have said, by how it begins; the first that fits counts.
SAYS = {
    "make bootstrap": "bootstrapped",
    "make put": r"run \S+-archive-\w+ began: .*watch --env dev --region eu-west-1",
    "s3unzip watch": "COMPLETED",
    "s3unzip show": r"\d+ members: \d+ extracted",
    "s3unzip doctor": r"canary +5 of 5 members [^✅]*, 0 failures",
    "make diff": "Number of stacks with differences: 0",
    "make deploy ENV=prod": "s3unzip-prod.IngestBucket = ",
    "make deploy": "s3unzip-dev.IngestBucket = ",
    "make destroy ENV=dev": r"emptying (\S+)\s+\1: [1-9]\d* [^✅]*✅ +s3unzip-dev: destroyed",
    "make destroy ENV=prod": "make unprotect ENV=prod|s3unzip-prod: destroyed",
    "make unprotect": "can now be destroyed",
    "cdk ls": "s3unzip-dev",
    "cdk bootstrap": "bootstrapped",
    "cdk diff": "AWS::StepFunctions::StateMachine",
    "cdk deploy": "s3unzip-dev.IngestBucket = ",
    "cdk destroy": "s3unzip-dev: destroyed",
}


@pytest.fixture
def bare(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The shell of a machine with Python and make, which deploys to an embedded AWS."""
    require_embedded_aws()
    with serve(wait_scale=0.02) as served:
        yield {**make_machine(tmp_path / "bin"), **served, "CDK_VALIDATION": "false"}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = make_checkout(tmp_path / "checkout")
    (folder / "archive.zip").write_bytes(make_archive("archive.zip"))
    return folder


def follow(terminal: Terminal, command: Command) -> str:
    """Type a command of a page; it ends as the page says. Return what it printed."""
    answer = terminal.run(command.text, SECONDS)
    assert answer.exit_code == command.exit_code, f"{command}\n{answer.text[-3_000:]}"
    return answer.text


@pytest.mark.timeout(5_400)
def test_every_command_of_the_page(tmp_path: Path, bare: dict[str, str], checkout: Path) -> None:
    """The page is followed literally to its end; what it deployed is gone then."""
    use_kept_syntheses(checkout, tmp_path / "syntheses")
    region = {"AWS_REGION", "AWS_DEFAULT_REGION"}  # the page sets it
    variables = {name: value for name, value in bare.items() if name not in region}
    with Terminal(checkout, variables) as terminal:
        for command in read_commands(PAGE):
            text = follow(terminal, command)
            wanted = next((SAYS[one] for one in SAYS if command.text.startswith(one)), "")
            assert re.search(wanted, text, re.DOTALL), f"{command}\n{text[-3_000:]}"
            if command.text.startswith("make bootstrap"):
                assert not (checkout / "cdk.out").exists()  # it synthesizes nothing
    cloudformation = make_client("cloudformation", variables | {"AWS_REGION": "eu-west-1"})
    assert {one["StackName"] for one in cloudformation.describe_stacks()["Stacks"]} == {
        "CDKToolkit"
    }


def test_each_expectation_is_of_a_command() -> None:
    """No expectation is left of a command that the page no longer has."""
    commands = [command.text for command in read_commands(PAGE)]
    assert not [begins for begins in SAYS if not any(one.startswith(begins) for one in commands)]


PAGES = ROOT / "docs" / "howto"


@pytest.fixture
def shell(tmp_path: Path, bare: dict[str, str]) -> dict[str, str]:
    """The shell of such a machine that has the AWS CLI, too."""
    aws = shutil.which("aws")
    if aws is None:
        pytest.skip("the AWS CLI is not installed: pip install awscli")
    command = tmp_path / "bin" / "aws"
    command.write_text(f'#!/bin/sh\nPATH="{os.environ["PATH"]}" PYTHONPATH= exec "{aws}" "$@"\n')
    command.chmod(0o755)
    return bare


@pytest.mark.timeout(3_600)
def test_a_package_is_deployed_by_cloudformation_alone(
    checkout: Path, shell: dict[str, str]
) -> None:
    """Every command of the page works without a bootstrap, and the stack is whole."""
    s3 = make_client("s3", shell)
    s3.create_bucket(Bucket="artifacts")
    commands = read_commands(PAGES / "package.md")
    assert any("delete-stack" in command.text for command in commands)
    with Terminal(checkout, shell) as terminal:
        for command in commands:
            if "delete-stack" in command.text:
                machines = make_client("stepfunctions", shell).list_state_machines()
                assert [one["name"] for one in machines["stateMachines"]] == ["s3unzip-dev"]
            follow(terminal, command)
    names = [one["Key"] for one in s3.list_objects_v2(Bucket="artifacts")["Contents"]]
    assert sum(name.endswith(".zip") for name in names) == 1


@pytest.mark.timeout(3_600)
def test_a_creation_that_nobody_confirmed_is_removed(
    tmp_path: Path, checkout: Path, shell: dict[str, str]
) -> None:
    """The page's commands remove the stack, and the next deployment works."""
    use_kept_syntheses(checkout, tmp_path / "syntheses")
    with Terminal(checkout, shell) as terminal:
        assert terminal.run("make bootstrap ENV=prod", SECONDS).exit_code == 0
        unconfirmed = terminal.run("make deploy ENV=prod < /dev/null 2>&1 | cat", SECONDS)
        assert "TerminationProtection is enabled" in unconfirmed.text, unconfirmed.text[-3_000:]
        for command in read_commands(PAGES / "first-deployment.md"):
            text = follow(terminal, command)
    assert re.search(r"s3unzip-prod\.IngestBucket = ", text)


@pytest.mark.timeout(3_600)
def test_an_environment_with_routes(checkout: Path, shell: dict[str, str]) -> None:
    """With the page's routes in its file, each command works, and each archive takes its route."""
    for name in ("infra", "app.py"):  # its own: a link would be followed to the repository
        (checkout / name).unlink()
    shutil.copytree(ROOT / "infra", checkout / "infra")
    shutil.copy(ROOT / "app.py", checkout / "app.py")
    page, bucket = PAGES / "routes.md", "my-uploads"
    (routes,) = re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
    with (checkout / "infra" / "environments" / "dev.toml").open("a") as file:
        file.write(f"\n{routes}")
    with Terminal(
        checkout, {**shell, "PATH": f"{shell['PATH']}{os.pathsep}{checkout / '.venv' / 'bin'}"}
    ) as terminal:
        for command in read_commands(page):
            if command.text.startswith("s3unzip runs"):
                _await_runs(shell, 2)
            text = follow(
                terminal, replace(command, text=command.text.replace("my-uploads", bucket))
            )
            if "describe-stacks" in command.text:
                (bucket,) = re.findall(r"^\S*storageingest\S*", text, re.MULTILINE)
            if command.text.startswith("s3unzip runs"):
                assert re.search(r"archive\.zip -> s3://acme-members/in/ +route acme", text)
                assert "route globex-daily" in text
    assert re.search(r"ok +route acme +s3://", text), text


def _await_runs(shell: dict[str, str], count: int) -> None:
    s3 = make_client("s3", shell)
    (work,) = (
        bucket["Name"] for bucket in s3.list_buckets()["Buckets"] if "work" in bucket["Name"]
    )
    for _ in looks():
        listed = s3.list_objects_v2(Bucket=work, Prefix="runs/").get("Contents", [])
        if sum(item["Key"].endswith("/report.json") for item in listed) == count:
            return
    raise AssertionError(listed)


POLICY: dict[str, Any] = json.loads(
    re.findall(
        r"```json\n(.*?)```", (PAGES / "connections.md").read_text(encoding="utf-8"), re.DOTALL
    )[0]
)
RUN = ("run", "s3://incoming/a.zip", "s3://extracted/here", "-w", "1")
# Needed only after a fault: to drop the upload of a member, and to find those of a killed worker.
AFTER_FAULTS = {"s3:AbortMultipartUpload", "s3:ListBucketMultipartUploads"}


class User(NamedTuple):
    """A user of the embedded AWS, and the command line with the user's key."""

    iam: Any
    program: Program

    def may(self, *statements: dict[str, Any]) -> None:
        allowed = [{"Effect": "Allow", **statement} for statement in statements]
        document = json.dumps({"Version": "2012-10-17", "Statement": allowed})
        self.iam.put_user_policy(UserName="zip", PolicyName="all", PolicyDocument=document)


@pytest.fixture(scope="module")
def aws() -> Iterator[EmbeddedAws]:
    """An AWS that checks rights, with an archive and a bucket for its members."""
    with make_embedded_aws(auth=True) as running:
        s3 = make_client("s3", running.environment)
        for bucket in ("incoming", "extracted"):
            s3.create_bucket(Bucket=bucket)
        s3.put_object(
            Bucket="incoming",
            Key="a.zip",
            Body=build(
                *(Entry(f"f{number}.txt", b"text" * 99, DEFLATE) for number in range(9)),
                Entry("large.bin", bytes(6 * 1_048_576), DEFLATE),
            ),
        )
        make_client("iam", running.environment).create_user(UserName="zip")
        yield running


@pytest.fixture
def user(aws: EmbeddedAws, tmp_path: Path) -> User:
    iam = make_client("iam", aws.environment)
    for old in iam.list_access_keys(UserName="zip")["AccessKeyMetadata"]:
        iam.delete_access_key(UserName="zip", AccessKeyId=old["AccessKeyId"])
    key = iam.create_access_key(UserName="zip")["AccessKey"]
    program = Program(tmp_path)
    program.variables |= aws.environment | {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        # Five parts of 5 MiB each: one member is an upload.
        "S3UNZIP_TUNING": json.dumps({"small_member": 1_048_576, "part_bytes": 5_242_880}),
    }
    return User(iam, program)


def test_the_policy_is_enough(user: User) -> None:
    """Small and large members are written; to verify them needs what the table says."""
    user.may(*POLICY["Statement"])
    user.program.start(*RUN).ends(0)
    verify = ("verify", "s3://incoming/a.zip", "s3://extracted/here", "--deep")
    assert user.program.start(*verify).code == 6
    user.may(
        *POLICY["Statement"], {"Action": "s3:GetObject", "Resource": "arn:aws:s3:::extracted/*"}
    )
    user.program.start(*verify).ends(0)


NEEDED = [
    (number, action)
    for number, statement in enumerate(POLICY["Statement"])
    for action in listed(statement["Action"])
    if action not in AFTER_FAULTS | {"s3:ListBucket"}
]


@pytest.mark.parametrize(("number", "action"), NEEDED)
def test_nothing_less_is_enough(user: User, number: int, action: str) -> None:
    """Without the right the command ends with 6 or 5, and names the action."""
    statements = list(POLICY["Statement"])
    left = [one for one in listed(statements[number]["Action"]) if one != action]
    statements[number] = {**statements[number], "Action": left}
    user.may(*(one for one in statements if one["Action"]))
    ended = user.program.start(*RUN)
    assert ended.code in {5, 6}
    assert action in ended.err + ended.out
