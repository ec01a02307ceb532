"""Events, queues, alarms and rights: each check in a state that trips it, and in one not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from s3unzip.operate.doctor.deployment import ALARM, QUEUE, Resource
from s3unzip.operate.doctor.diagnosis import CHECKS, run_check
from s3unzip.settings import Variable
from tests.servers import Asked, Reply
from tests.unit.operate.doctor.checking import FAILURE, OK, RESOURCES, SERVICES, WARNING, check
from tests.unit.operate.doctor.scripted import answering, deny

if TYPE_CHECKING:
    from s3unzip.operate.doctor.deployment import Deployment
    from s3unzip.operate.doctor.results import CheckStatus
    from tests.account import Account


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


def test_queue(deployment: Deployment, account: Account) -> None:
    """The depth is told; events that wait are no fault."""
    sqs, url = account.client("sqs"), account.outputs["QueueUrl"]
    for number in range(3):
        sqs.send_message(QueueUrl=url, MessageBody=str(number))
    sqs.receive_message(QueueUrl=url)
    check(deployment, "queue", OK, "2 events wait, 1 are being planned")


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
    deployment: Deployment,
    account: Account,
    arns: list[str],
    expected: CheckStatus,
    word: str,
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
    deployment.variables = {
        **deployment.variables,
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
        check(deployment, "queue", OK)
