"""Each check of the doctor in a state that trips it, and in one not."""

import json
from typing import Any
from urllib.parse import unquote

import pytest

from s3unzip.fingerprint import source_fingerprint
from s3unzip.operate.doctor import (
    ALARM,
    CHECKS,
    FUNCTION,
    QUEUE,
    CheckStatus,
    Deployment,
    Resource,
    run_check,
)
from s3unzip.settings import Variable
from s3unzip.version import __version__
from tests.account import Account
from tests.servers import Asked, Reply
from tests.unit.operate.scripted import (
    FAILURE,
    OK,
    RESOURCES,
    SERVICES,
    WARNING,
    answering,
    check,
    deny,
    refuse,
)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("UPDATE_COMPLETE", OK),
        ("UPDATE_IN_PROGRESS", WARNING),
        ("UPDATE_ROLLBACK_COMPLETE", WARNING),
        ("ROLLBACK_COMPLETE", FAILURE),
        ("UPDATE_ROLLBACK_FAILED", FAILURE),
    ],
)
def test_stack(deployment: Deployment, status: str, expected: CheckStatus) -> None:
    """A stack that is not whole is told by its status."""
    deployment.runs.stack = deployment.runs.stack._replace(status=status)
    check(deployment, "stack", expected, status, "123456789012")


@pytest.mark.parametrize(
    ("outputs", "expected", "word"),
    [
        ({}, WARNING, "has no version output"),
        ({"Version": "0.0.0"}, WARNING, "version 0.0.0 is deployed"),
        ({"Version": __version__, "Fingerprint": "0"}, WARNING, "source files that differ"),
        (
            {"Version": __version__, "Fingerprint": source_fingerprint()},
            OK,
            "the same source files",
        ),
    ],
)
def test_version(
    deployment: Deployment, outputs: dict[str, str], expected: CheckStatus, word: str
) -> None:
    """Another version, or the same with other files, is told."""
    deployment.runs.outputs.update(outputs)
    check(deployment, "version", expected, word)


@pytest.mark.parametrize(
    ("limits", "workers", "expected", "word"),
    [
        ((1_000, 1_000, None), 800, OK, "800"),
        ((1_000, 1_000, None), 950, WARNING, "leave too few"),
        ((10, 10, None), 100, FAILURE, "lower runs.max_workers to 10"),
        ((1_000, 600, 400), 400, OK, "400 are reserved for extract"),
        ((1_000, 600, 300), 400, FAILURE, "raise functions.extract.reserved_concurrency"),
    ],
)
def test_concurrency(
    deployment: Deployment,
    limits: tuple[int, int, int | None],
    workers: int,
    expected: CheckStatus,
    word: str,
) -> None:
    """What the account gives is compared with the workers that all runs share."""
    account, unreserved, reserved = limits
    deployment.resources = RESOURCES
    deployment.runs.variables = {
        **deployment.runs.variables,
        Variable.TUNING: json.dumps({"max_workers": workers}),
    }

    def answer(asked: Asked) -> Reply:
        told: dict[str, Any] = {}
        if "account-settings" in asked.path:
            names = ("ConcurrentExecutions", "UnreservedConcurrentExecutions")
            told = {"AccountLimit": dict(zip(names, (account, unreserved), strict=True))}
        elif reserved is not None:
            assert "/functions/extract/" in asked.path
            told = {"ReservedConcurrentExecutions": reserved}
        return Reply(200, json.dumps(told).encode())

    with answering(deployment, answer, "lambda"):
        check(deployment, "concurrency", expected, word)


def test_a_service_that_an_emulator_lacks(deployment: Deployment) -> None:
    """Moto has no GetAccountSettings: that is a warning, not a failure."""
    check(deployment, "concurrency", WARNING, "does not have lambda:GetAccountSettings")


@pytest.mark.parametrize("role", ["ingest", "destination", "work"])
def test_buckets(deployment: Deployment, account: Account, role: str) -> None:
    """A bucket that is there is ok, and one that is gone a failure."""
    name = f"{role} bucket"
    check(deployment, name, OK, "in us-east-1, owned by account 123456789012")
    account.client("s3").delete_bucket(Bucket=deployment.runs.outputs[f"{role.title()}Bucket"])
    check(deployment, name, FAILURE, "does not exist")


@pytest.mark.parametrize("status", [200, 301, 403])
def test_a_bucket_elsewhere(deployment: Deployment, status: int) -> None:
    """S3 tells the region with every status, and the stack must be there too."""

    def answer(_: Asked) -> Reply:
        return Reply(status, b"", {"x-amz-bucket-region": "eu-west-1"})

    with answering(deployment, answer, "s3"):
        check(deployment, "ingest bucket", FAILURE, "arrivals is in eu-west-1")


@pytest.mark.parametrize(
    ("role", "owner", "word"),
    [
        ("ingest", "123456789012", "of the stack's account"),
        ("destination", "123456789012", "set destination.owner"),
        ("destination", "999999999999", "not owned by account 999999999999"),
    ],
)
def test_a_bucket_of_somebody_else(
    deployment: Deployment, role: str, owner: str, word: str
) -> None:
    """The owner is the stack's account; of the destination it may be set."""
    if owner != deployment.account:
        variables = {**deployment.runs.variables, Variable.DESTINATION_OWNER: owner}
        deployment.runs.variables = variables

    def answer(asked: Asked) -> Reply:
        expected = asked.headers.get("x-amz-expected-bucket-owner")
        return Reply(403 if expected == owner else 200)

    with answering(deployment, answer, "s3"):
        check(deployment, f"{role} bucket", FAILURE, word)


@pytest.mark.parametrize("word", ["InternalError", "SlowDown"])
def test_a_bucket_when_s3_fails(deployment: Deployment, word: str) -> None:
    """A fault of S3 says nothing of the bucket: not checked."""
    with answering(deployment, lambda asked: refuse(asked, word, 500), "s3"):
        check(deployment, "work bucket", WARNING, "not checked", "run the command again")


def test_an_owner_that_cannot_be_asked(deployment: Deployment) -> None:
    """A fault at the second question is not taken for another owner."""

    def answer(asked: Asked) -> Reply:
        return Reply(500 if "x-amz-expected-bucket-owner" in asked.headers else 200)

    with answering(deployment, answer, "s3"):
        check(deployment, "work bucket", WARNING, "not checked")


def test_no_key(deployment: Deployment) -> None:
    """Without a key of its own nothing is asked."""
    check(deployment, "kms key", OK, "not set")


@pytest.mark.parametrize(
    ("state", "expected", "word"),
    [
        ("enabled", OK, "is enabled"),
        ("disabled", FAILURE, "is Disabled"),
        ("signing", FAILURE, "is a key for SIGN_VERIFY"),
        ("missing", FAILURE, "does not exist"),
    ],
)
def test_key(
    deployment: Deployment, account: Account, state: str, expected: CheckStatus, word: str
) -> None:
    """A key that cannot encrypt fails every PUT."""
    kms = account.client("kms")
    if state == "signing":
        made = kms.create_key(KeyUsage="SIGN_VERIFY", KeySpec="ECC_NIST_P256")
    else:
        made = kms.create_key()
    arn = made["KeyMetadata"]["Arn"]
    if state == "disabled":
        kms.disable_key(KeyId=made["KeyMetadata"]["KeyId"])
    if state == "missing":
        arn = "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000"
    deployment.runs.variables = {**deployment.runs.variables, Variable.DESTINATION_KMS_KEY: arn}
    check(deployment, "kms key", expected, word)


@pytest.mark.parametrize(
    ("value", "field", "expected", "word"),
    [
        (None, "", OK, "not set"),
        ("word", "", OK, "holds a password"),
        ("word", "#zip", FAILURE, "field 'zip'"),
        ("deleted", "", FAILURE, "put the password into"),
    ],
)
def test_secret(
    deployment: Deployment,
    account: Account,
    value: str | None,
    field: str,
    expected: CheckStatus,
    word: str,
) -> None:
    """A secret that is set must hold a password."""
    if value is not None:
        client = account.client("secretsmanager")
        arn = client.create_secret(Name="zip", SecretString=value)["ARN"]
        if value == "deleted":
            client.delete_secret(SecretId=arn, ForceDeleteWithoutRecovery=True)
        deployment.runs.variables = {
            **deployment.runs.variables,
            Variable.PASSWORD_SECRET: arn + field,
        }
    check(deployment, "password secret", expected, word)


ROLE = "arn:aws:iam::123456789012:role/one"
OTHERS = {Variable.DESTINATION_OWNER.value: "999999999999"}
TAGS = {Variable.OPTIONS.value: '{"objects":{"tags":{"team":"data"}}}'}


def decide(decision: str, policy: str | None, calls: list[str], asked: Asked) -> Reply:
    """Answer for Lambda, IAM and the owner of the bucket."""
    if b"Action=" in asked.body:
        calls.append(unquote(asked.body.decode()))
        result = f"<member><EvalActionName>x</EvalActionName><EvalDecision>{decision}"
        return Reply(
            200,
            b"<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults>"
            + f"{result}</EvalDecision></member></EvaluationResults>".encode()
            + b"</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>",
        )
    if "policy" in asked.path:
        return deny(asked) if policy is None else Reply(200, policy.encode())
    return Reply(200, json.dumps({"Role": ROLE}).encode())


@pytest.mark.parametrize("variables", [{}, TAGS])
@pytest.mark.parametrize("decision", ["allowed", "implicitDeny", "explicitDeny"])
def test_the_right_to_write(
    deployment: Deployment, variables: dict[str, str], decision: str
) -> None:
    """The role of each function that writes members is simulated, tags included."""
    calls: list[str] = []
    deployment.resources = (*RESOURCES, Resource("FunctionsSettle1", FUNCTION, "settle"))
    deployment.runs.variables = {**deployment.runs.variables, **variables}
    expected = OK if decision == "allowed" else FAILURE
    with answering(deployment, lambda one: decide(decision, None, calls, one), "iam", "lambda"):
        check(deployment, "rights", expected, "s3:PutObject")
    assert all("arn:aws:s3:::members/" in call and ROLE in call for call in calls)
    assert all(("s3:PutObjectTagging" in call) is bool(variables) for call in calls)
    assert len(calls) == (1 if expected is FAILURE else 3)


@pytest.mark.parametrize(
    ("principal", "expected", "word"),
    [
        (ROLE, OK, "names 2 roles"),
        ("arn:aws:iam::123456789012:root", OK, "names 2 roles"),
        ("arn:aws:iam::123456789012:role/two", FAILURE, "does not name " + ROLE),
        (None, WARNING, "only that account can read its policy"),
    ],
)
def test_a_destination_of_another_account(
    deployment: Deployment, principal: str | None, expected: CheckStatus, word: str
) -> None:
    """Its own policy must allow each role, too; who may not read it is told what to compare."""
    statement = {"Effect": "Allow", "Principal": {"AWS": [principal]}, "Action": "s3:PutObject"}
    policy = None if principal is None else json.dumps({"Statement": [statement]})
    deployment.resources = RESOURCES
    deployment.runs.variables = {**deployment.runs.variables, **OTHERS}

    def answer(asked: Asked) -> Reply:
        return decide("allowed", policy, [], asked)

    with answering(deployment, answer, "iam", "lambda", "s3"):
        check(deployment, "rights", expected, word)


@pytest.mark.parametrize(
    ("inside", "expected", "word"),
    [
        ("<EventBridgeConfiguration/>", OK, "arrivals sends"),
        ("", FAILURE, "no archive will start a run"),
    ],
)
def test_events(deployment: Deployment, inside: str, expected: CheckStatus, word: str) -> None:
    """Without EventBridge no archive starts a run; moto does not keep this setting."""
    body = f"<NotificationConfiguration>{inside}</NotificationConfiguration>"
    with answering(deployment, lambda _: Reply(200, body.encode()), "s3"):
        check(deployment, "events", expected, word)


def test_rules(deployment: Deployment, account: Account) -> None:
    """A rule that somebody disabled is named, with the command that enables it."""
    deployment.resources = ()
    check(deployment, "rules", FAILURE, "no EventBridge rule")
    deployment.resources = RESOURCES
    events = account.client("events")
    events.put_rule(Name="ArchivePut", EventPattern='{"source": ["aws.s3"]}', State="ENABLED")
    check(deployment, "rules", OK, "1 EventBridge rules are enabled")
    events.disable_rule(Name="ArchivePut")
    check(deployment, "rules", FAILURE, "aws events enable-rule --name ArchivePut")


def test_trigger(deployment: Deployment, account: Account) -> None:
    """The queue's trigger may be missing or disabled."""
    check(deployment, "trigger", FAILURE, "no queue invokes plan")
    client = account.client("lambda")
    made = client.create_event_source_mapping(
        EventSourceArn=account.queue_arn(account.outputs["QueueUrl"]), FunctionName="plan"
    )
    check(deployment, "trigger", OK, "invokes plan")
    client.update_event_source_mapping(UUID=made["UUID"], Enabled=False)
    check(deployment, "trigger", FAILURE, "Disabled")


def test_dead_letters(deployment: Deployment, account: Account) -> None:
    """Messages in any queue but the intake want a person."""
    deployment.resources = (Resource("IntakeQueue1", QUEUE, account.outputs["QueueUrl"]),)
    check(deployment, "dead letters", FAILURE, "no dead-letter queue")
    dead = account.outputs["DeadLettersUrl"]
    deployment.resources += (Resource("IntakeDeadLetters1", QUEUE, dead),)
    check(deployment, "dead letters", OK, "none in dead")
    account.client("sqs").send_message(QueueUrl=dead, MessageBody="lost")
    check(deployment, "dead letters", WARNING, "1 messages are in dead")


def put_alarm(account: Account, *actions: str, **more: Any) -> None:
    """Create the alarm of the stack."""
    account.client("cloudwatch").put_metric_alarm(
        AlarmName="DeadLetters",
        MetricName="m",
        Namespace="n",
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1.0,
        ComparisonOperator="GreaterThanThreshold",
        AlarmActions=list(actions),
        **more,
    )


def test_alarms(deployment: Deployment, account: Account) -> None:
    """An alarm without action tells nobody; one that is on is named."""
    deployment.resources = ()
    check(deployment, "alarms", WARNING, "no alarms")
    check(deployment, "subscriptions", WARNING, "publish to no topic")
    deployment.resources = RESOURCES
    put_alarm(account)
    check(deployment, "alarms", WARNING, "1 of 1 have no action", "alarms.email")
    topic = account.client("sns").create_topic(Name="wake")["TopicArn"]
    put_alarm(account, topic)
    check(deployment, "alarms", OK, "1 alarms")
    account.client("cloudwatch").set_alarm_state(
        AlarmName="DeadLetters", StateValue="ALARM", StateReason="because"
    )
    check(deployment, "alarms", WARNING, "in ALARM: DeadLetters")
    put_alarm(account, topic, ActionsEnabled=False)
    check(deployment, "alarms", WARNING, "no action")


def test_some_alarms_without_action(deployment: Deployment, account: Account) -> None:
    """Those that tell nobody are named."""
    deployment.resources = (*RESOURCES, Resource("AlarmsOther1", ALARM, "Other"))
    put_alarm(account, "arn:aws:sns:us-east-1:123456789012:wake")
    account.client("cloudwatch").put_metric_alarm(
        AlarmName="Other",
        MetricName="m",
        Namespace="n",
        Period=60,
        Statistic="Sum",
        EvaluationPeriods=1,
        Threshold=1.0,
        ComparisonOperator="GreaterThanThreshold",
    )
    check(deployment, "alarms", WARNING, "Other", "1 of 2")


@pytest.mark.parametrize(
    ("arns", "expected", "word"),
    [
        (["arn:aws:sns:us-east-1:123456789012:wake:1"], OK, "confirmed for"),
        (["PendingConfirmation"], WARNING, "not confirmed"),
        ([], WARNING, "has no subscription"),
    ],
)
def test_subscriptions(
    deployment: Deployment, account: Account, arns: list[str], expected: CheckStatus, word: str
) -> None:
    """Moto confirms e-mail at once, AWS when somebody follows the link."""
    deployment.resources = RESOURCES
    put_alarm(account, "arn:aws:sns:us-east-1:123456789012:wake")
    members = "".join(f"<member><SubscriptionArn>{arn}</SubscriptionArn></member>" for arn in arns)
    body = (
        "<ListSubscriptionsByTopicResponse><ListSubscriptionsByTopicResult>"
        f"<Subscriptions>{members}</Subscriptions>"
        "</ListSubscriptionsByTopicResult></ListSubscriptionsByTopicResponse>"
    )

    def answer(_: Asked) -> Reply:
        return Reply(200, body.encode(), {"Content-Type": "text/xml"})

    with answering(deployment, answer, "sns"):
        check(deployment, "subscriptions", expected, word)


def test_resources_are_those_of_the_stack(deployment: Deployment) -> None:
    """CloudFormation lists them."""
    assert [one.kind for one in deployment.resources] == ["AWS::SNS::Topic"]


@pytest.mark.parametrize("name", [name for name in CHECKS if name not in {"stack", "version"}])
def test_a_right_that_is_missing(deployment: Deployment, account: Account, name: str) -> None:
    """A check that is denied is a warning that names the action, never a traceback."""
    alarm_only = name == "subscriptions"
    if alarm_only:
        put_alarm(account, "arn:aws:sns:us-east-1:123456789012:wake")
    deployment.resources = (*RESOURCES, Resource("Dead", QUEUE, "https://sqs/1/dead"))
    deployment.runs.variables = {
        **deployment.runs.variables,
        Variable.OPTIONS: '{"objects":{"tags":{"team":"data"}}}',
        Variable.DESTINATION_KMS_KEY: "arn:aws:kms:us-east-1:123456789012:key/k",
        Variable.PASSWORD_SECRET: "arn:aws:secretsmanager:us-east-1:123456789012:secret:z-AAAAAA",
    }
    services = ("sns",) if alarm_only else SERVICES
    with answering(deployment, deny, *services):
        found = run_check(name, deployment)
    assert found.status is WARNING, found
    assert "not checked" in found.message
    assert found.advice.startswith("allow the action")


def test_credentials_that_are_missing(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stack whose resources may not be listed leaves the other checks as they are."""
    with answering(deployment, deny, "cloudformation"):
        check(deployment, "rules", WARNING, "cloudformation:ListStackResources")
        check(deployment, "trigger", FAILURE)
