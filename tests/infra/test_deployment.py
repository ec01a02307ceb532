"""`make deploy` and its like where something is missing: plain words, and what to do."""

import contextlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest

from embedded.deploy import deploy
from embedded.ministack import EmbeddedAws, EmbeddedAwsError
from infra import NODE, RefusedError, bundle, cdk_cli, deployment
from infra.account import (
    Account,
    DeployedStack,
    check_records,
    check_resources,
    empty_bucket,
    find_stack,
    list_runs,
    stop_pipeline,
)
from infra.environment_file import FOLDER, load_environment
from s3unzip.model import Location
from tests.infra.conftest import Synthesized
from tests.support.assemblies import (
    BOUNDARY,
    KMS_KEY,
    SECRET,
    TOPIC,
    VARIANTS,
    for_embedded_aws,
    synthesize_once,
)
from tests.support.processes import make_checkout, make_machine, run_process, run_program
from tests.support.servers import HttpServer, Reply, make_embedded_aws, set_variables
from tests.support.zips import Entry, build

REGION = "eu-west-1"
OWN = "s3unzip: ZIP archives in S3 to objects in S3 (dev)"  # the description of a stack
SOME_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
needs_cdk = pytest.mark.skipif(
    not cdk_cli.COMMAND.is_file(), reason="no CDK CLI: make it with `make cdk`"
)


@needs_cdk
def test_make_passes_the_words_on(tmp_path: Path) -> None:
    """What `make put` is given reaches the command, and its line the terminal."""
    done = run_process(
        ["make", "put", "ENV=dev", "SET=ingest.suffix=.jar ingest.prefix=o'brien/", "KEY=a/"],
        make_checkout(tmp_path / "checkout"),
        make_machine(tmp_path / "bin"),
    )
    assert done.returncode == 2, done.stdout + done.stderr  # make's own, for a failed command
    assert done.stderr.startswith(
        b"which archive? make put ENV=dev SET='ingest.suffix=.jar ingest.prefix=o'\"'\"'brien/'"
    )


@pytest.mark.parametrize(("answer", "agrees"), [("1", True), ("yes", True), ("no", False)])
def test_only_a_yes_is_a_yes(answer: str, *, agrees: bool) -> None:
    """`YES=no` and `YES=0` ask, as if nothing were said: `make destroy` deletes buckets."""
    said = run_program(
        ["make", "--dry-run", "destroy", "ENV=dev", f"YES={answer}"], {"PATH": os.environ["PATH"]}
    )
    assert ("--yes" in said) is agrees


def _embedded(**quotas: str) -> Any:
    @pytest.fixture(scope="module")
    def running() -> Iterator[EmbeddedAws]:
        with make_embedded_aws(variables=quotas) as aws:
            yield aws

    return running


def _account_of(name: str) -> Any:
    @pytest.fixture
    def account(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Account:
        set_variables(monkeypatch, request.getfixturevalue(name).environment)
        return Account("000000000000", "us-east-1", boto3.Session(region_name="us-east-1"))

    return account


# Accounts in which nothing was ever deployed; the second has the quotas of new ones.
aws, account = _embedded(), _account_of("aws")
new_account = _embedded(LAMBDA_ACCOUNT_CONCURRENCY="10", LAMBDA_MEMORY_QUOTA="3008")
small_account = _account_of("new_account")


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        (["deploy"], {}, "which environment? make deploy ENV=dev (known: dev, prod, staging)"),
        (["deploy", "--env=qa"], {}, "there is no infra/environments/qa.toml; known: dev, prod"),
        (["deploy", "--env=dev"], {}, "no AWS region is set: `export AWS_DEFAULT_REGION="),
        (
            ["deploy", "--env=dev"],
            {"AWS_DEFAULT_REGION": REGION},
            "no AWS credentials were found: `export AWS_PROFILE=NAME`",
        ),
        (
            ["diff", "--env=dev"],
            {"AWS_DEFAULT_REGION": REGION, "AWS_REGION": "us-east-1", **SOME_CREDENTIALS},
            "AWS_REGION is us-east-1, but AWS_DEFAULT_REGION or the profile says eu-west-1",
        ),
        (
            ["deploy", "--env=dev"],
            # the discard port: nothing listens
            {"AWS_REGION": REGION, **SOME_CREDENTIALS, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
            "AWS does not answer",
        ),
        (["destroy", "--env=dev"], {"AWS_PROFILE": "nope"}, "profile (nope) could not be found"),
        (
            ["synth", "--env=dev", "--set=runs.max_wrokers=5"],
            {},
            "-c runs.max_wrokers: there is no such setting; near: max_workers, workers",
        ),
        (["synth", "--env=dev", "--set=max_workers"], {}, "write section.setting=value"),
        (
            ["put", "--env=dev", '--set=options.include=["*.csv"]'],
            {},
            """which archive? make put ENV=dev SET='options.include=["*.csv"]' ARCHIVE=""",
        ),
        (
            ["package", "--env=dev", "--bucket=s3://a/"],
            {},
            "BUCKET=s3://a/ is not a bucket name",
        ),
        (["package", "--env=dev", "--bucket=ab"], {}, "BUCKET=ab is not a bucket name"),
        (["package", "--env=dev", "--bucket=10.0.0.1"], {}, "BUCKET=10.0.0.1 is not a bucket name"),
        (["put", "--env=dev", "--archive=none.zip"], {}, "none.zip: there is no such file"),
        (
            ["deploy", "--env=dev", "--set=stack.qualifier=acme"],
            None,
            "for CDK in us-east-1: run `make bootstrap ENV=dev SET=stack.qualifier=acme`",
        ),
        (
            ["put", "--env=dev", "--archive=a.zip"],
            None,
            "there is no stack s3unzip-dev in account 0000",
        ),
        (["destroy", "--env=dev"], None, "no stack s3unzip-dev in account 000000000000, region"),
        (["unprotect", "--env=prod"], None, "there is no stack s3unzip-prod"),
        (
            ["deploy", "--env=dev", "--set=stack.account=111122223333"],
            None,
            "the credentials belong to account 000000000000, but stack.account of the environment",
        ),
    ],
)
def test_what_is_missing_is_said(
    aws: EmbeddedAws,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    variables: dict[str, str] | None,
    said: str,
) -> None:
    """Nothing is begun: one line says what is missing and what to do; None is an empty account."""
    monkeypatch.chdir(tmp_path)
    Path("a.zip").write_bytes(b"")
    set_variables(monkeypatch, aws.environment if variables is None else variables)
    monkeypatch.setattr(sys, "argv", ["infra.deployment", *words])
    with pytest.raises(SystemExit) as end:
        deployment.main()
    assert [said in line for line in str(end.value.code).split("\n")] == [True]


def _interrupt(_: object) -> Reply:
    os.kill(os.getpid(), 2)  # as Ctrl-C
    return Reply(503)


@pytest.mark.parametrize(
    ("command", "answer", "end", "said"),
    [
        (
            "diff",
            lambda _: Reply(403, b"<html><p>Blocked"),
            "^an answer is not from AWS: .* HTTPS_PROXY",
            "",
        ),
        ("diff", _interrupt, "^130$", "stopped"),
        ("deploy", _interrupt, "^130$", "an update that has begun. `s3unzip doctor` shows its"),
        ("destroy", _interrupt, "^130$", "a deletion that has begun. Run `make destroy` again"),
    ],
)
def test_a_page_and_ctrl_c_are_explained(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    answer: Callable[[object], Reply],
    end: str,
    said: str,
) -> None:
    """A proxy may answer with a page, and CloudFormation goes on after Ctrl-C; no traceback."""
    monkeypatch.setattr(sys, "argv", ["infra.deployment", command, "--env=dev"])
    with HttpServer(answer) as server:
        set_variables(
            monkeypatch, {"AWS_REGION": REGION, "AWS_ENDPOINT_URL": server.url, **SOME_CREDENTIALS}
        )
        with pytest.raises(SystemExit, match=end):
            deployment.main()
    assert said in capsys.readouterr().out


def fit(account: Account, name: str, **settings: object) -> list[str]:
    """Return the words that fit an environment with these settings to the account."""
    return deployment.fit_account(account, make_arguments(name, **settings))


def make_arguments(name: str = "dev", **settings: object) -> deployment.Arguments:
    """Return the arguments of a command for an environment with these settings."""
    return deployment.Arguments(
        load_environment(name, settings=settings),
        tuple(f"{setting}={value}" for setting, value in settings.items()),
        yes=True,
        archive=None,
    )


@pytest.mark.parametrize(("workers", "left_out"), [(50, 0), (950, 4)])
def test_reservations_that_the_account_cannot_hold(
    account: Account, capfd: pytest.CaptureFixture[str], workers: int, left_out: int
) -> None:
    """They are left out of the deployment, and a warning says so."""
    settings = {"functions.extract.reserved_concurrency": workers, "runs.max_workers": 10}
    assert len(fit(account, "dev", **settings)) == 2 * left_out
    assert ("too few for the reservations of dev" in capfd.readouterr().out) == bool(left_out)


@pytest.mark.parametrize(
    ("name", "settings", "left_out"),
    [
        ("staging", "functions.plan.memory=3008", 0),
        ("prod", "functions.plan.memory=3008 functions.settle.memory=3008", 4),
    ],
)
def test_a_new_account_is_told_which_memory_would_work(
    small_account: Account, name: str, settings: str, left_out: int
) -> None:
    """The deployment ends before it begins, and the settings that it names fit the account.

    They stand beside those that were typed.
    """
    with pytest.raises(RefusedError, match="at most 3,008 MB in this account") as refused:
        fit(small_account, name, **{"ingest.prefix": "in/"})
    assert f"make deploy ENV={name} SET='ingest.prefix=in/ {settings}'" in str(refused.value)
    words = fit(small_account, name, **dict(setting.split("=") for setting in settings.split()))
    assert (words[-1], words.count("-c")) == ("intake.concurrency=5", 1 + left_out)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"ingest.existing": "no-such-bucket-of-mine"}, "ingest.existing: there is no no-such-b"),
        ({"kms_key": KMS_KEY.replace(REGION, "us-east-1")}, "kms_key: there is no arn:aws:kms"),
        ({"kms_key": KMS_KEY}, f"kms_key: {KMS_KEY} is in eu-west-1, but it must be in us-east-1"),
        (
            {
                "network.subnets": ["subnet-00000000000000000"],
                "network.security_groups": ["sg-00000000000000000"],
            },
            "network.subnets: there is no subnet-00000000000000000 in account",
        ),
        ({"stack.permissions_boundary": BOUNDARY}, "stack.permissions_boundary: there is no arn"),
        ({"password_secret": SECRET}, "password_secret: there is no arn:aws:secretsmanager"),
        (
            {"password_secret": SECRET.replace("us-east-1", REGION)},
            "is in eu-west-1, but it must be in us-east-1, the region of the stack",
        ),
        (
            {"alarms.topic": TOPIC.replace(REGION, "us-east-1")},
            "alarms.topic: there is no arn:aws:sns",
        ),
        (
            {"alarms.topic": TOPIC},
            f"alarms.topic: {TOPIC} is in eu-west-1, but it must be in us-",
        ),
        ({"ingest.topic": TOPIC}, "ingest.topic: there is no arn:aws:sns"),
        ({"event_bus": "runs"}, "environment dev: event_bus: there is no runs in account"),
    ],
)
def test_what_a_setting_names_must_exist(
    account: Account, settings: dict[str, object], said: str
) -> None:
    """The deployment ends before it begins, and names the setting."""
    with pytest.raises(RefusedError, match=re.escape(said)):
        check_resources(account, load_environment("dev", settings=settings))
    check_resources(account, load_environment("dev"))


@pytest.mark.parametrize(
    ("metadata", "refusal"),
    [
        ({"KeySpec": "HMAC_256"}, "HMAC_256: set a symmetric key for encryption"),
        ({"KeyState": "Disabled"}, "kms_key: arn:.* is Disabled: enable the key, cancel"),
        ({"KeyState": "Updating"}, None),  # for some seconds: its primary Region changes
        ({"KeySpec": "SYMMETRIC_DEFAULT", "KeyState": "Enabled"}, None),
    ],
)
def test_a_key_that_cannot_encrypt_is_refused(
    monkeypatch: pytest.MonkeyPatch, metadata: dict[str, str], refusal: str | None
) -> None:
    """With such a key each PUT of the new stack would fail, and of an old one from then on."""
    with HttpServer(
        lambda _: Reply(200, json.dumps({"KeyMetadata": {"KeyId": "1", **metadata}}).encode())
    ) as server:
        set_variables(monkeypatch, {"AWS_ENDPOINT_URL": server.url, **SOME_CREDENTIALS})
        with pytest.raises(RefusedError, match=refusal) if refusal else contextlib.nullcontext():
            check_resources(
                Account("0" * 12, REGION, boto3.Session(region_name=REGION)),
                load_environment(
                    "dev", settings={"kms_key": f"arn:aws:kms:{REGION}:{'0' * 12}:key/1"}
                ),
            )


@pytest.mark.parametrize("bucket", ["ingest", "work"])
def test_a_key_may_be_in_the_region_of_its_bucket(account: Account, bucket: str) -> None:
    """A destination may be in another region than the stack; other buckets must be in this one."""
    key = account.client("kms", REGION).create_key()["KeyMetadata"]["Arn"]
    account.client("s3").create_bucket(
        Bucket=f"far-{bucket}", CreateBucketConfiguration={"LocationConstraint": REGION}
    )
    check_resources(
        account,
        load_environment(
            "dev", settings={"destination.existing": f"far-{bucket}", "destination.kms_key": key}
        ),
    )
    with pytest.raises(RefusedError, match=f"{bucket}.existing: far-{bucket} is in eu-west-1"):
        check_resources(
            account, load_environment("dev", settings={f"{bucket}.existing": f"far-{bucket}"})
        )


@pytest.mark.parametrize(
    ("stack", "description", "outputs", "said"),
    [
        # A stack without outputs was not created to its end, so nobody knows its bucket.
        ("unfinished", OWN, {}, "never created completely: docs/howto/first-deploy"),
        # It would be changed, or destroyed with its buckets.
        ("data-lake", "a lake", {}, "stack data-lake in account 000000000000, region us-east-1 is"),
        (
            "current",
            OWN,
            {"IngestBucket": "arrivals", "IngestKeys": '[["acme/", ".jar"], ["in/", ".zip"]]'},
            "in/a.txt: only keys of acme/*.jar and in/*.zip start runs",
        ),
    ],
)
def test_an_archive_goes_where_the_deployed_stack_takes_it(
    account: Account,
    tmp_path: Path,
    stack: str,
    description: str,
    outputs: dict[str, str],
    said: str,
) -> None:
    """The file may have another prefix than the one that was deployed with `SET`."""
    account.client("cloudformation").create_stack(
        StackName=stack,
        TemplateBody=json.dumps(
            {
                "Description": description,
                "Resources": {"Q": {"Type": "AWS::SQS::Queue"}},
                "Outputs": {output: {"Value": value} for output, value in outputs.items()},
            }
        ),
    )
    (tmp_path / "a.txt").write_bytes(b"")
    with pytest.raises(RefusedError, match=re.escape(said)):
        deployment.put(
            deployment.Arguments(
                load_environment("dev", settings={"stack.name": stack}),
                (),
                yes=True,
                archive=tmp_path / "a.txt",
            )
        )


def test_a_copy_does_not_take_over_the_stack_of_its_original(
    account: Account, tmp_path: Path
) -> None:
    """Whoever copies a file and forgets the stack's name would change the other environment.

    With its records in the same place, each of the two would list the runs of the other.
    """
    account.client("cloudformation").create_stack(
        StackName="s3unzip-dev",
        TemplateBody=json.dumps(
            {
                "Description": OWN,
                "Resources": {"Q": {"Type": "AWS::SQS::Queue"}},
                "Outputs": {"Environment": {"Value": "dev"}, "WorkBucket": {"Value": "shared"}},
            }
        ),
    )
    account.client("cloudformation").get_waiter("stack_create_complete").wait(
        StackName="s3unzip-dev"
    )
    assert fit(account, "dev") == []
    (tmp_path / "qa.toml").write_text((FOLDER / "dev.toml").read_text())
    qa = deployment.Arguments(
        load_environment("qa", tmp_path), ('options.include=["*.csv"]',), yes=True, archive=None
    )
    with pytest.raises(
        RefusedError, match=r"belongs to the environment dev: give .*qa\.toml a stack"
    ) as refused:
        deployment.fit_account(account, qa)
    _, _, command = str(refused.value).partition("run once: ")
    assert shlex.split(command) == [".venv/bin/cdk", "deploy", *qa.context]
    shared = {"work.existing": "shared"}
    check_records(account, load_environment("prod", settings={**shared, "work.prefix": "prod/"}))
    with pytest.raises(
        RefusedError, match=r"those of the stack s3unzip-dev, .* another work\.prefix"
    ):
        check_records(account, load_environment("prod", settings=shared))
    account.client("cloudformation").delete_stack(StackName="s3unzip-dev")


STACK = """<R><DescribeStacksResult><Stacks><member><StackName>busy</StackName>
<CreationTime>2026-01-01T00:00:00Z</CreationTime><StackStatus>{}</StackStatus></member></Stacks>
</DescribeStacksResult><GetCallerIdentityResult><Account>000000000000</Account>
</GetCallerIdentityResult><GetTemplateResult/><ListStackResourcesResult><StackResourceSummaries/>
</ListStackResourcesResult></R>"""


@pytest.mark.parametrize(
    ("status", "said", "is_destroyed"),
    [
        ("UPDATE_IN_PROGRESS", "cancel-update-stack --stack-name busy", False),
        ("UPDATE_ROLLBACK_IN_PROGRESS", "Nothing was changed: wait until `s3unzip doctor`", False),
        ("CREATE_IN_PROGRESS", "if the creation hangs, delete the stack with `make destroy`", True),
        ("DELETE_IN_PROGRESS", "stack busy (DELETE_IN_PROGRESS), perhaps for another", True),
        ("DELETE_FAILED", "`make destroy ENV=dev SET=stack.name=busy`, then this", True),
        ("ROLLBACK_COMPLETE", "so it has no resources, although its template may show no", True),
    ],
)
def test_a_stack_that_cloudformation_cannot_update(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    status: str,
    said: str,
    *,
    is_destroyed: bool,
) -> None:
    """The buckets of a stack that stays are not emptied, and what lacks resources is told."""
    monkeypatch.setattr(deployment, "run_cdk", lambda *_: 7)
    ends = []
    with HttpServer(
        lambda asked: (
            Reply(200, STACK.format(status).encode())
            if b"Action=" in asked.body
            else Reply(403, b'{"__type": "AccessDeniedException"}')
        )
    ) as server:
        set_variables(
            monkeypatch, {"AWS_REGION": REGION, "AWS_ENDPOINT_URL": server.url, **SOME_CREDENTIALS}
        )
        for command in ("diff", "destroy"):
            words = (command, "--env=dev", "--set=stack.name=busy", "--yes")
            monkeypatch.setattr(sys, "argv", ["infra.deployment", *words])
            with pytest.raises(SystemExit) as end:
                deployment.main()
            ends.append(str(end.value.code))
    assert said in capsys.readouterr().out + ends[0]
    assert (ends[1] == "7") is is_destroyed


def test_dev_fits_into_a_new_account(small_account: Account) -> None:
    """Only the limit of intake is lower, so that the queue does not throttle it."""
    assert fit(small_account, "dev") == ["-c", "intake.concurrency=5"]
    # A reservation is left out.
    assert (
        fit(small_account, "dev", **{"functions.intake.reserved_concurrency": 8})[-1]
        == "intake.concurrency=5"
    )


def test_dev_deploys_into_a_new_account(
    new_account: EmbeddedAws, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Ten invocations at once and 3,008 MB are enough for the stack; those of prod are not."""
    assert deploy(for_embedded_aws(tmp_path_factory, "dev"), new_account.environment)["QueueUrl"]
    with pytest.raises(EmbeddedAwsError, match=r"minimum value of|less than or equal to 3008"):
        deploy(for_embedded_aws(tmp_path_factory, "prod"), new_account.environment)


def test_a_creation_that_nobody_confirmed_is_a_stack(account: Account) -> None:
    """Its template is empty, and `make destroy` and `unprotect` find it all the same."""
    account.client("cloudformation").create_change_set(
        StackName="unconfirmed",
        ChangeSetName="first",
        ChangeSetType="CREATE",
        TemplateBody=json.dumps({"Resources": {"Q": {"Type": "AWS::SQS::Queue"}}}),
    )
    stack = DeployedStack(
        "unconfirmed", {}, protected=False, buckets=(), status="REVIEW_IN_PROGRESS"
    )
    assert (find_stack(account, "unconfirmed"), stop_pipeline(account, stack)) == (stack, 0)


def test_functions_and_runs_are_stopped_before_they_go(account: Account) -> None:
    """CloudFormation would wait for the runs; an execution that only waits is no run."""
    states = account.client("stepfunctions")
    functions = account.client("lambda")
    functions.create_function(
        FunctionName="intake",
        Runtime="python3.13",
        Role="arn:aws:iam::000000000000:role/any",
        Handler="intake.handler",
        Code={"ZipFile": build(Entry("intake.py", b""))},
    )
    stack = DeployedStack(
        "waits",
        {"StateMachineArn": make_machine_of(states, {"Type": "Wait", "Seconds": 600, "End": True})},
        protected=False,
        buckets=(),
        functions={"deleted-by-hand": None, "intake": None},
    )
    execution = states.start_execution(stateMachineArn=stack.outputs["StateMachineArn"])
    states.start_execution(stateMachineArn=stack.outputs["StateMachineArn"], name="run-w1")
    assert stop_pipeline(account, stack) == 1
    assert states.describe_execution(executionArn=execution["executionArn"])["status"] == "ABORTED"
    assert stop_pipeline(account, stack) == 0
    assert 0 in functions.get_function_concurrency(FunctionName="intake").values()


def test_a_deployment_starts_functions_that_were_stopped(
    account: Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An update of a stack leaves them stopped, as a `make destroy` that was stopped left them."""
    function = {
        "Runtime": "python3.13",
        "Role": "arn:aws:iam::000000000000:role/any",
        "Handler": "index.handler",
        "Code": {"ZipFile": "pass"},
    }
    resources: dict[str, dict[str, Any]] = {
        name: {
            "Type": "AWS::Lambda::Function",
            "Properties": {**function, "FunctionName": name, **reserved},
        }
        for name, reserved in {"free": {}, "kept": {"ReservedConcurrentExecutions": 5}}.items()
    }
    outputs = {"WorkBucket": {"Value": "halted-work"}}
    template = {"Description": OWN, "Resources": resources, "Outputs": outputs}
    cloudformation = account.client("cloudformation")

    def run_cdk(*_: object) -> int:
        for resource in resources.values():
            resource["Properties"]["Timeout"] = 9
        cloudformation.update_stack(StackName="halted", TemplateBody=json.dumps(template))
        cloudformation.get_waiter("stack_update_complete").wait(StackName="halted")
        return 0

    cloudformation.create_stack(StackName="halted", TemplateBody=json.dumps(template))
    cloudformation.get_waiter("stack_create_complete").wait(StackName="halted")
    client = account.client("lambda")
    for name in resources:
        client.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    account.client("ssm").put_parameter(
        Name="/cdk-bootstrap/hnb659fds/version", Value="30", Type="String"
    )
    monkeypatch.setattr(deployment, "run_cdk", run_cdk)
    deployment.deploy(make_arguments(**{"stack.name": "halted"}))
    said = capsys.readouterr().out
    assert [f"{name} was stopped" in said for name in resources] == [True, True]
    assert [
        client.get_function_concurrency(FunctionName=name).get("ReservedConcurrentExecutions")
        for name in resources
    ] == [None, 5]
    # The records of another environment may not be in the same place.
    account.client("s3").create_bucket(Bucket="halted-work")
    with pytest.raises(RefusedError, match="those of the stack halted"):
        deployment.deploy(make_arguments(**{"work.existing": "halted-work"}))


def make_machine_of(states: Any, state: dict[str, Any]) -> str:
    """Make a state machine of one state; return its ARN."""
    return str(
        states.create_state_machine(
            name=f"with-{state['Type']}",
            definition=json.dumps({"StartAt": "Only", "States": {"Only": state}}),
            roleArn="arn:aws:iam::000000000000:role/any",
        )["stateMachineArn"]
    )


def test_a_bucket_is_emptied_of_versions(account: Account) -> None:
    """Old versions and delete markers go too, more than one request takes."""
    s3 = account.client("s3")
    s3.create_bucket(Bucket="full")
    s3.put_bucket_versioning(Bucket="full", VersioningConfiguration={"Status": "Enabled"})
    # One request makes a thousand delete markers: S3 adds one for a key without object, too.
    s3.delete_objects(
        Bucket="full",
        Delete={"Objects": [{"Key": f"objects/{number:04}"} for number in range(1_000)]},
    )
    for key in ("objects/0000", "objects/0000", "objects/0001", "objects/1000", "objects/1001"):
        s3.put_object(Bucket="full", Key=key, Body=b"x")
    s3.delete_object(Bucket="full", Key="objects/0001")
    s3.delete_object(Bucket="full", Key="objects/1001")
    assert empty_bucket(account, "full") == 1_007
    assert not {"Versions", "DeleteMarkers"} & s3.list_object_versions(Bucket="full").keys()
    assert empty_bucket(account, "full") == 0
    s3.delete_bucket(Bucket="full")
    assert empty_bucket(account, "full") == 0


def test_only_buckets_that_go_with_the_stack(account: Account) -> None:
    """A retained bucket of a stack is not among those that may be emptied."""
    assert find_stack(account, "mixed") is None
    cloudformation = account.client("cloudformation")
    cloudformation.create_stack(
        StackName="mixed",
        TemplateBody="""{"Resources": {
        "Gone": {"Type": "AWS::S3::Bucket", "DeletionPolicy": "Delete"},
        "Kept": {"Type": "AWS::S3::Bucket", "DeletionPolicy": "Retain"},
        "Unsaid": {"Type": "AWS::S3::Bucket"}
    }, "Outputs": {"Name": {"Value": {"Ref": "Gone"}}}}""",
        EnableTerminationProtection=True,
    )
    cloudformation.get_waiter("stack_create_complete").wait(StackName="mixed")
    stack = find_stack(account, "mixed")
    assert stack is not None
    assert (stack.buckets, stack.protected) == ((stack.outputs["Name"],), True)


def test_runs_of_every_way_are_listed(account: Account) -> None:
    """`make put` sees an execution and a run without one, by when their archive was put.

    Another archive of that second is another one's.
    """
    s3, states = account.client("s3"), account.client("stepfunctions")
    s3.create_bucket(Bucket="records")
    for run in ("2026-11-23/201532-a-1", "2026-11-23/201532-other-1", "2026-11-23/201533-a-1"):
        for name in ("outcomes/batch.jsonl", "report.json"):
            s3.put_object(Bucket="records", Key=f"below/runs/{run}/{name}", Body=b"{}")
    machine = make_machine_of(states, {"Type": "Succeed"})
    for name in ("2026-11-23-201532-a-2", "2026-11-23-201532-b-1", "2026-11-22-201532-a-1"):
        states.start_execution(stateMachineArn=machine, name=name)
    assert list_runs(
        account,
        DeployedStack(
            "listed",
            {"StateMachineArn": machine, "WorkBucket": "records", "WorkPrefix": "below/"},
            protected=False,
            buckets=(),
        ),
        Location("s3", "in", "in/a.zip"),
        put_at=datetime(2026, 11, 23, 20, 15, 32, tzinfo=UTC),
    ) == {"2026-11-23/201532-a-1", "2026-11-23/201532-a-2"}


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
            "options, limits and tuning take .* Lambda allows 4,096 in total: shorten",
        ),
        (
            {"routes": [{"name": f"p{n}", "prefix": f"partner-{n}/"} for n in range(42)]},
            r"routes: they take [\d,]+ of the 4,5.* allows 4,096 in total: use fewer routes",
        ),
    ],
)
def test_what_is_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], line: str
) -> None:
    """Lambda takes 4 KB of variables as JSON: the synthesis says so, not the deployment."""
    from infra.application import Application, build  # noqa: PLC0415 - it takes seconds

    monkeypatch.setenv("S3UNZIP_ASSET", str(Path(__file__).parent))
    with pytest.raises(RefusedError, match=line):
        build(Application(tmp_path, linter=False), load_environment("dev", settings=settings))


def test_cfn_lint(prod: Synthesized) -> None:
    """cfn-lint finds nothing."""
    # W3005: CDK lists dependencies that a reference implies as well; they change nothing.
    run_program(
        [Path(sys.executable).with_name("cfn-lint"), "--ignore-checks", "W3005", "--", prod.path],
        os.environ,
    )


def run_cdk(folder: Path, *words: str, **variables: str) -> str:
    """Run ``.venv/bin/cdk`` in a checkout of its own, on a machine with Python and make."""
    checkout = make_checkout(folder / "checkout")
    return run_program(
        [checkout / ".venv" / "bin" / "cdk", *words],
        {**make_machine(folder / "bin"), **variables},
        checkout,
    )


def _read_template(template: Path) -> dict[str, Any]:
    (staged,) = template.parent.glob("asset.*")
    text, digest = template.read_text(), staged.name.removeprefix("asset.")
    assert digest in text
    found: dict[str, Any] = json.loads(text.replace(digest, "of the asset"))
    for resource in found["Resources"].values():
        resource["Metadata"] = {
            name: value
            for name, value in resource.get("Metadata", {}).items()
            if name[:4] != "aws:"
        }
    return found


@needs_cdk
def test_the_cli_builds_what_the_tests_build(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`cdk synth` with settings, all checks and the asset for arm64, offline, as a user types it.

    It has the template of `tests.support.assemblies`. It breaks no rule of cdk-nag and CDK's.
    """
    built = bundle.ensure_asset()
    before = built.stat().st_mtime_ns
    # With an address for alarms: their stack warns if nobody gets them.
    environment, settings = VARIANTS["told"]
    said = run_cdk(
        tmp_path,
        *("synth", "-q", "-c", f"env={environment}"),
        *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")),
    )
    assert re.search("ERROR|WARNING", said) is None
    assert built.stat().st_mtime_ns == before  # it is built once
    template = tmp_path / "checkout" / "cdk.out" / "s3unzip-prod.template.json"
    assert _read_template(template) == _read_template(
        synthesize_once(tmp_path_factory, "told").template
    )
    assert '"MemorySize": 1769' in template.read_text()
    (staged,) = template.parent.glob("asset.*")
    assert list(staged.glob("numpy/_core/*-aarch64-linux-gnu.so"))
    assert (staged / "s3unzip" / "aws" / "plan.py").is_file()


def test_ctrl_c_during_synthesis_prints_no_traceback(tmp_path: Path) -> None:
    """The CDK CLI, which starts the app, gets the same signal and ends."""
    (tmp_path / "jsii.py").write_text("import os\nos.kill(os.getpid(), 2)\n")
    ended = run_process(
        [sys.executable, "app.py"], bundle.ROOT, {**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    assert (ended.returncode, ended.stderr) == (-2, b"")


@needs_cdk
def test_listing_builds_no_asset(tmp_path: Path) -> None:
    """`cdk ls` needs no asset and no uv, and answers with the stack of the environment."""
    said = run_cdk(tmp_path, *("ls", "-c", "env=prod"), UV="/nowhere/uv", CDK_VALIDATION="false")
    assert "s3unzip-prod" in said.splitlines()
    (staged,) = (tmp_path / "checkout" / "cdk.out").glob("asset.*")
    assert not (staged / "numpy").exists()


@needs_cdk
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
    parts = (str(NODE.resolve()), "export CDK_DISABLE_VERSION_CHECK=1\n", f"{tmp_path}/checkout")
    assert [part in command.read_text() for part in parts] == [True, True, False]
    wanted = json.loads((bundle.ROOT / "package.json").read_text())["devDependencies"]["aws-cdk"]
    assert (
        json.loads((bundle.ROOT / "package-lock.json").read_text())["packages"][
            "node_modules/aws-cdk"
        ]["version"]
        == wanted
    )
    assert run_program([command, "--version"], os.environ).split()[0] == wanted
