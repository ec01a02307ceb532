"""Each check of the doctor in a state that trips it, and in one not; and the canary."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest

from s3unzip.errors import AccessDeniedError, ExpiredKeysError
from s3unzip.operate.canary import Canary, remove_versions, try_canary
from s3unzip.operate.checks import (
    FAILURE,
    FUNCTION,
    OK,
    RESTORE,
    WARNING,
    Answer,
    CheckStatus,
    run_check,
)
from s3unzip.operate.doctor import ACCOUNT_CHECKS
from s3unzip.operate.runs import DeployedRuns
from s3unzip.settings import Variable
from s3unzip.version import __version__, source_fingerprint
from tests.support.account import Account
from tests.support.servers import Asked, Reply
from tests.unit.operate.conftest import (
    RESOURCES,
    SERVICES,
    Site,
    answering,
    check,
    deny,
    expect,
    refuse,
    resource,
)


def test_a_result_begins_with_its_name() -> None:
    """``--json`` prints the name of the check first."""
    result = run_check("stack", lambda: Answer(OK, "it is whole"))
    assert list(msgspec.to_builtins(result)) == ["name", "status", "message", "advice"]


@pytest.mark.parametrize(
    ("status", "expected", "advice"),
    [
        ("UPDATE_COMPLETE", OK, ""),
        ("DELETE_IN_PROGRESS", WARNING, "wait until CloudFormation ends"),
        ("UPDATE_ROLLBACK_COMPLETE", WARNING, "deploy again if make diff shows changes"),
        ("ROLLBACK_COMPLETE", FAILURE, "fix the cause, and deploy again"),
        (
            "UPDATE_ROLLBACK_FAILED",
            FAILURE,
            "aws cloudformation continue-update-rollback --stack-name s3unzip-dev, then",
        ),
        ("DELETE_FAILED", FAILURE, "make destroy ENV=dev, then deploy again"),
    ],
)
def test_the_status_of_the_stack_is_checked(
    runs: DeployedRuns, status: str, expected: CheckStatus, advice: str
) -> None:
    """A stack that is not whole is told by its status, with what to do first."""
    runs.stack["StackStatus"] = status
    check(runs, "stack", expected, status, "123456789012", advice)


@pytest.mark.parametrize(
    ("outputs", "expected", "word"),
    [
        ({"Version": "0.0.0"}, WARNING, "version 0.0.0 is deployed"),
        ({"Version": __version__, "Fingerprint": "0"}, WARNING, "source files that differ"),
        ({"Version": __version__, "Fingerprint": source_fingerprint()}, OK, "the same source"),
    ],
)
def test_the_deployed_version_is_checked(
    runs: DeployedRuns, outputs: dict[str, str], expected: CheckStatus, word: str
) -> None:
    """Another version, or the same with other files, is told."""
    runs.outputs.update(outputs)
    check(runs, "version", expected, word)


@pytest.mark.parametrize(
    ("limits", "workers", "expected", "word"),
    [
        ((1_000, 1_000, {}), 800, OK, "800"),
        ((1_000, 1_000, {}), 950, WARNING, "leave too few executions"),
        ((10, 10, {}), 100, FAILURE, "lower runs.max_workers to 9,"),
        ((1_000, 600, {"extract": 400}), 400, OK, "can use 400 reserved executions"),
        (
            (1_000, 600, {"extract": 300}),
            400,
            FAILURE,
            "raise functions.extract.reserved_concurrency",
        ),
        # Somebody has pressed "Throttle" in the console; a deployment does not undo it.
        (
            (1_000, 600, {"extract": 0, "plan": 0}),
            400,
            FAILURE,
            "for NAME in extract plan; do aws lambda delete-function-concurrency",
        ),
        ((1_000, 600, {"plan": 0}), 400, FAILURE, "concurrency of plan is 0, so Lambda"),
    ],
)
@pytest.mark.usefixtures("resources")
def test_the_concurrency_of_the_account_is_checked(
    runs: DeployedRuns,
    limits: tuple[int, int, dict[str, int]],
    workers: int,
    expected: CheckStatus,
    word: str,
) -> None:
    """What the account gives is compared with the workers that all runs share."""
    runs.variables |= {Variable.TUNING: json.dumps({"max_workers": workers})}
    account_limit = {
        "ConcurrentExecutions": limits[0],
        "UnreservedConcurrentExecutions": limits[1],
    }

    def answer(asked: Asked) -> Reply:
        if "account-settings" in asked.path:
            return Reply(200, json.dumps({"AccountLimit": account_limit}).encode())
        reserved = limits[2].get(asked.path.split("/")[3])  # /2019-09-30/functions/NAME/...
        return Reply(200, json.dumps({"ReservedConcurrentExecutions": reserved}).encode())

    with answering(runs, answer, "lambda"):
        check(runs, "concurrency", expected, word)
    check(
        runs, "concurrency", WARNING, "does not support lambda:GetAccountSettings"
    )  # moto has not


@pytest.mark.parametrize(
    ("name", "request_to_delete", "output"),
    [
        ("ingest bucket", "s3.delete_bucket.Bucket", "IngestBucket"),
        ("destination bucket", "s3.delete_bucket.Bucket", "DestinationBucket"),
        ("work bucket", "s3.delete_bucket.Bucket", "WorkBucket"),
        (
            "state machine",
            "stepfunctions.delete_state_machine.stateMachineArn",
            "StateMachineArn",
        ),
    ],
)
def test_what_is_gone_is_named(
    runs: DeployedRuns,
    account: Account,
    name: str,
    request_to_delete: str,
    output: str,
) -> None:
    """A resource that is there is ok, and one that is gone is a failure."""
    service, operation, parameter = request_to_delete.split(".")
    check(runs, name, OK)
    getattr(account.client(service), operation)(**{parameter: runs.outputs[output]})
    check(runs, name, FAILURE)


def test_a_log_group_that_is_gone_is_named(runs: DeployedRuns, account: Account) -> None:
    """The functions may not create it again, and their metrics are lines of it.

    The group of another environment, whose name begins with the same words, is not meant.
    """
    runs.resources = (resource("FunctionsPlanLogs1", "AWS::Logs::LogGroup", "plan-logs"),)
    account.client("logs").create_log_group(logGroupName="plan-logs-2")
    check(runs, "logs", WARNING, "deleted plan-logs", "create-log-group --log-group-name plan-logs")
    account.client("logs").create_log_group(logGroupName="plan-logs")
    check(runs, "logs", OK)


OWNER = "x-amz-expected-bucket-owner"


def _elsewhere(status: int, region: str = "eu-west-1") -> Callable[[Asked], Reply]:
    return lambda _: Reply(status, b"", {"x-amz-bucket-region": region})


def _denied_to(owner: str) -> Callable[[Asked], Reply]:
    return lambda asked: Reply(403 if asked.headers.get(OWNER) == owner else 200)


def _sends(events: str) -> Callable[[Asked], Reply]:
    return lambda _: Reply(
        200, f"<NotificationConfiguration>{events}</NotificationConfiguration>".encode()
    )


# By what AWS answers: the check, its variables, the answer, and what the check says.
BY_ANSWER: dict[
    str, tuple[str, dict[str, str], Callable[[Asked], Reply], CheckStatus, tuple[str, ...]]
] = {
    # S3 tells the region with every status; only a destination in another region is possible.
    **{
        f"archives in another region, by {status}": (
            "ingest bucket",
            {},
            _elsewhere(status),
            FAILURE,
            ("arrivals is in eu-west-1",),
        )
        for status in (200, 301, 403)
    },
    "members in another region": (
        "destination bucket",
        {},
        _elsewhere(200),
        WARNING,
        ("is in eu-west-1, but the stack is in us-east-1",),
    ),
    # The owner is the stack's account; of the destination it may be set.
    "archives of another account": (
        "ingest bucket",
        {},
        _denied_to("123456789012"),
        FAILURE,
        ("of the stack's account",),
    ),
    "members of another account": (
        "destination bucket",
        {},
        _denied_to("123456789012"),
        FAILURE,
        ("set destination.owner",),
    ),
    "members of a third account": (
        "destination bucket",
        {Variable.DESTINATION_OWNER.value: "999999999999"},
        _denied_to("999999999999"),
        FAILURE,
        ("not owned by account 999999999999",),
    ),
    # A fault of S3 says nothing of the bucket nor of its owner.
    "a fault": (
        "work bucket",
        {},
        lambda asked: refuse(asked, "SlowDown", 500),
        WARNING,
        ("not checked", "run the command again"),
    ),
    "a fault as long as the owner is named": (
        "work bucket",
        {},
        lambda asked: refuse(asked, "SlowDown", 500) if OWNER in asked.headers else Reply(200),
        WARNING,
        ("not checked", "run the command again"),
    ),
    # Without EventBridge no archive starts a run; moto does not keep this setting.
    "events": ("events", {}, _sends("<EventBridgeConfiguration/>"), OK, ("arrivals sends",)),
    "no events": ("events", {}, _sends(""), FAILURE, ("no archive will start a run",)),
    # Step Functions describes it until its last execution has ended.
    "a state machine that is being deleted": (
        "state machine",
        {},
        lambda _: Reply(200, b'{"status": "DELETING"}'),
        FAILURE,
        ("somebody has deleted", RESTORE),
    ),
}


@pytest.mark.parametrize(
    ("name", "variables", "answer", "expected", "words"), BY_ANSWER.values(), ids=BY_ANSWER
)
def test_a_resource_is_checked_by_what_aws_answers(
    runs: DeployedRuns,
    name: str,
    variables: dict[str, str],
    answer: Callable[[Asked], Reply],
    expected: CheckStatus,
    words: tuple[str, ...],
) -> None:
    """The region, owner and events of a bucket are told, or that they could not be checked."""
    runs.variables |= variables
    with answering(runs, answer, "s3", "stepfunctions"):
        check(runs, name, expected, *words)


PLAN: dict[str, Any] = {
    "protectedResource": {"s3Bucket": {"bucketName": "arrivals"}},
    "actions": {"tagging": {"status": "ENABLED"}},
    "status": "ACTIVE",
}


@pytest.mark.parametrize(
    ("plan", "expected", "word"),
    [
        (PLAN, OK, "tags what it has scanned"),
        (PLAN | {"status": "WARNING"}, WARNING, "the plan p1 of GuardDuty is WARNING"),
        (
            PLAN | {"actions": {"tagging": {"status": "DISABLED"}}},
            WARNING,
            "submit cannot start runs",
        ),
        (
            PLAN | {"protectedResource": {"s3Bucket": {"bucketName": "another"}}},
            FAILURE,
            "no archive will be opened",
        ),
    ],
)
def test_malware_scan(
    runs: DeployedRuns, plan: dict[str, Any], expected: CheckStatus, word: str
) -> None:
    """Where archives wait for their scan, a plan must be at work, and set tags."""
    check(runs, "malware scan", OK, "ingest.scan is not set")
    del runs.config
    runs.variables |= {Variable.SCAN: "guardduty"}

    def answer(asked: Asked) -> Reply:
        if asked.path.endswith("/malware-protection-plan"):
            return Reply(200, b'{"malwareProtectionPlans": [{"malwareProtectionPlanId": "p1"}]}')
        return Reply(200, json.dumps(plan).encode())

    with answering(runs, answer, "guardduty"):
        check(runs, "malware scan", expected, word)


# By state: how a key is made; one of them is disabled.
KEYS: dict[str, dict[str, str]] = {
    "enabled": {},
    "disabled": {},
    "signing": {"KeyUsage": "SIGN_VERIFY", "KeySpec": "ECC_NIST_P256"},
}


@pytest.mark.parametrize(
    ("state", "region", "expected", "word"),
    [
        ("none", "us-east-1", OK, "not set"),
        ("enabled", "us-east-1", OK, "are enabled"),
        ("enabled", "eu-west-1", OK, "are enabled"),  # that of a destination there
        ("disabled", "us-east-1", FAILURE, "is Disabled"),
        ("signing", "us-east-1", FAILURE, "is a key for SIGN_VERIFY"),
        ("missing", "us-east-1", FAILURE, "does not exist"),
    ],
)
def test_the_kms_key_is_checked(
    runs: DeployedRuns,
    account: Account,
    state: str,
    region: str,
    expected: CheckStatus,
    word: str,
) -> None:
    """A key that cannot encrypt fails every PUT; the region of the key is asked for it."""
    kms = account.client("kms", region)
    arns = {
        "missing": "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000",
        **{name: kms.create_key(**how)["KeyMetadata"]["Arn"] for name, how in KEYS.items()},
    }
    kms.disable_key(KeyId=arns["disabled"].rpartition("/")[2])
    runs.outputs |= {"DestinationKey": arns.get(state, "")}
    check(runs, "kms key", expected, word)


ALIAS = "alias/members"
ALIAS_ARN = f"arn:aws:kms:us-east-1:123456789012:{ALIAS}"


@pytest.mark.parametrize(
    ("name", "setting", "expected", "word"),
    [
        ("", "none", FAILURE, "is encrypted with"),
        ("", "another", FAILURE, "set destination.kms_key to this key"),
        ("", "the same", OK, "are enabled"),
        (ALIAS, "the same", OK, "are enabled"),
        (ALIAS_ARN, "the same", OK, "are enabled"),
        (ALIAS_ARN, "another", FAILURE, ":key/"),  # an alias is no value of the setting
        ("alias/deleted", "the same", FAILURE, "is encrypted with alias/deleted"),
        # The console of S3 sets this one for "AWS managed key".
        (ALIAS_ARN.replace("members", "aws/s3"), "none", OK, "with a key of your own"),
    ],
)
def test_a_bucket_with_a_key_that_no_setting_names(
    runs: DeployedRuns,
    account: Account,
    name: str,
    setting: str,
    expected: CheckStatus,
    word: str,
) -> None:
    """Each write into it would be refused, because the roles have no rights on its key."""
    kms = account.client("kms")
    keys = [kms.create_key()["KeyMetadata"]["Arn"] for _ in range(2)]
    kms.create_alias(AliasName=ALIAS, TargetKeyId=keys[0])
    account.client("s3").put_bucket_encryption(
        Bucket="members",
        ServerSideEncryptionConfiguration={
            "Rules": [
                {
                    "ApplyServerSideEncryptionByDefault": {
                        "SSEAlgorithm": "aws:kms",
                        "KMSMasterKeyID": name or keys[0],
                    }
                }
            ]
        },
    )
    runs.outputs |= {"DestinationKey": {"another": keys[1], "the same": keys[0]}.get(setting, "")}
    check(runs, "kms key", expected, word)


@pytest.mark.parametrize(
    ("name", "field", "expected", "word"),
    [
        (None, "", OK, "not set"),
        ("word", "", OK, "holds a password"),
        ("word", "#zip", FAILURE, "field 'zip'"),
        ("deleted", "", FAILURE, "put the password into"),
    ],
)
def test_the_secret_of_the_password_is_checked(
    runs: DeployedRuns,
    account: Account,
    name: str | None,
    field: str,
    expected: CheckStatus,
    word: str,
) -> None:
    """A secret that is set must hold a password."""
    client = account.client("secretsmanager")
    arns = {
        secret: client.create_secret(Name=secret, SecretString="word")["ARN"]
        for secret in ("word", "deleted")
    }
    client.delete_secret(SecretId=arns["deleted"], ForceDeleteWithoutRecovery=True)
    if name is not None:
        runs.variables |= {Variable.PASSWORD_SECRET: arns[name] + field}
    check(runs, "password secret", expected, word)


WAKE = "arn:aws:sns:us-east-1:123456789012:wake"
ROLE = "arn:aws:iam::123456789012:role/one"
TAGS = {Variable.OPTIONS.value: '{"objects":{"tags":{"team":"data"},"acl":"private"}}'}


def _decide(
    decision: str, policy: str | None, calls: list[str], asked: Asked, missing: str = ""
) -> Reply:
    if b"Action=" in asked.body:
        calls.append(unquote(asked.body.decode()))
        return Reply(
            200,
            b"<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults>"
            b"<member><EvalActionName>x</EvalActionName>"
            + f"<EvalDecision>{decision}</EvalDecision><ResourceSpecificResults><member>"
            f"<MissingContextValues>{missing}</MissingContextValues></member>".encode()
            + b"</ResourceSpecificResults></member></EvaluationResults>"
            b"</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>",
        )
    if "policy" in asked.path:
        return deny(asked) if policy is None else Reply(200, policy.encode())
    return Reply(200, json.dumps({"Role": ROLE}).encode())


@pytest.mark.parametrize("variables", [{}, TAGS])
@pytest.mark.parametrize(
    ("decision", "missing", "expected", "word"),
    [
        ("allowed", "", OK, "s3:PutObject"),
        ("implicitDeny", "", FAILURE, f"somebody has changed the policy of the role: {RESTORE}"),
        # A key of the role's own conditions, none of which is about S3.
        ("implicitDeny", "<member>lambda:SourceFunctionArn</member>", FAILURE, "s3:PutObject"),
        ("explicitDeny", "", FAILURE, "s3:PutObject"),
        # A boundary that allows only requests by an endpoint of a VPC: a simulation has none.
        (
            "implicitDeny",
            "<member>aws:SourceVpce</member>",
            WARNING,
            "a simulation cannot check conditions on aws:SourceVpce",
        ),
    ],
)
@pytest.mark.parametrize("partition", ["aws", "aws-us-gov"])
def test_the_right_to_write(
    runs: DeployedRuns,
    *,
    partition: str,
    variables: dict[str, str],
    decision: str,
    missing: str,
    expected: CheckStatus,
    word: str,
) -> None:
    """The role of each function that writes members is simulated, tags included.

    In GovCloud and China the bucket's ARN has another partition.
    """
    calls: list[str] = []
    runs.resources = (*RESOURCES, resource("FunctionsSettle1", FUNCTION, "settle"))
    runs.variables |= variables
    runs.partition = partition
    with answering(runs, lambda one: _decide(decision, None, calls, one, missing), "iam", "lambda"):
        check(runs, "rights", expected, word)
    # A boundary with a condition on the region would refuse a simulation without a region.
    assert all(
        word in call
        for call in calls
        for word in (f"arn:{partition}:s3:::members/", ROLE, "ContextKeyName=aws:RequestedRegion")
    )
    for action in ("s3:PutObjectAcl", "s3:PutObjectTagging"):
        assert all((action in call) is bool(variables) for call in calls)
    assert len(calls) == (3 if expected is OK else 1)


@pytest.mark.parametrize(
    ("principal", "expected", "word"),
    [
        (ROLE, OK, "names 2 roles"),
        ("arn:aws:iam::123456789012:root", OK, "names 2 roles"),
        ("arn:aws:iam::123456789012:role/two", FAILURE, "does not name " + ROLE),
        (None, WARNING, "only that account can read the policy"),
    ],
)
@pytest.mark.usefixtures("resources")
def test_a_destination_of_another_account(
    runs: DeployedRuns, principal: str | None, expected: CheckStatus, word: str
) -> None:
    """Its own policy must allow each role, too; who may not read it is told what to compare."""
    policy = (
        None
        if principal is None
        else json.dumps({"Statement": [{"Effect": "Allow", "Principal": {"AWS": [principal]}}]})
    )
    runs.variables |= {Variable.DESTINATION_OWNER: "999999999999"}
    with answering(runs, lambda one: _decide("allowed", policy, [], one), "iam", "lambda", "s3"):
        check(runs, "rights", expected, word)


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_events_that_come_by_a_topic(runs: DeployedRuns, account: Account, region: str) -> None:
    """The bucket sends none itself; it and its topic may be of another account and region."""
    sns = account.client("sns", region)
    topic = sns.create_topic(Name="arrivals")["TopicArn"]
    runs.outputs["IngestTopic"] = topic
    queue = "arn:aws:sqs:us-east-1:123456789012:intake"
    arn = sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue)["SubscriptionArn"]
    runs.resources = (resource("IntakeQueueArrivals1", "AWS::SNS::Subscription", arn),)
    check(runs, "events", OK, f"the queue is subscribed to {topic}")
    sns.unsubscribe(SubscriptionArn=arn)
    check(runs, "events", FAILURE, f"not subscribed to {topic}: no archive will start", RESTORE)
    runs.resources = ()
    check(runs, "events", FAILURE, "not subscribed")
    with answering(runs, _elsewhere(200), "s3"):
        check(
            runs,
            "ingest bucket",
            WARNING,
            "arrivals is in eu-west-1, but the stack is in us-east-1",
        )
    reply = Reply(200, b"", {"x-amz-bucket-region": "us-east-1"})
    with answering(runs, lambda asked: Reply(403) if asked.headers.get(OWNER) else reply, "s3"):
        check(runs, "ingest bucket", OK, "arrivals is in us-east-1")


@pytest.mark.usefixtures("resources")
def test_disabled_rules_are_named(runs: DeployedRuns, account: Account) -> None:
    """A rule that somebody disabled or deleted is named, with what to do."""
    events = account.client("events")
    events.put_rule(Name="ArchivePut", EventPattern='{"source": ["aws.s3"]}', State="ENABLED")
    check(runs, "rules", OK, "1 EventBridge rules are enabled")
    events.disable_rule(Name="ArchivePut")
    check(runs, "rules", FAILURE, "aws events enable-rule --name ArchivePut")
    events.delete_rule(Name="ArchivePut")
    check(runs, "rules", FAILURE, "ArchivePut does not exist", RESTORE)


def test_a_disabled_trigger_is_named(runs: DeployedRuns, account: Account) -> None:
    """The queue's trigger may be missing or disabled, and so may be the queue."""
    check(runs, "trigger", FAILURE, "no queue invokes plan", RESTORE)
    client = account.client("lambda")
    made = client.create_event_source_mapping(
        EventSourceArn=account.queue_arn(account.outputs["QueueUrl"]), FunctionName="plan"
    )
    check(runs, "trigger", OK, "the queue has 0 messages and invokes plan")
    client.update_event_source_mapping(UUID=made["UUID"], Enabled=False)
    check(runs, "trigger", FAILURE, "Disabled")
    account.client("sqs").delete_queue(QueueUrl=account.outputs["QueueUrl"])
    check(runs, "trigger", FAILURE, "does not exist", RESTORE)


def test_dead_letters_are_counted(runs: DeployedRuns, account: Account) -> None:
    """Messages in any queue but the intake want a person."""
    runs.resources = (resource("IntakeQueue1", "AWS::SQS::Queue", account.outputs["QueueUrl"]),)
    check(runs, "dead letters", FAILURE, "no dead-letter queue", RESTORE)
    dead = account.outputs["DeadLettersUrl"]
    runs.resources += (resource("IntakeDeadLetters1", "AWS::SQS::Queue", dead),)
    check(runs, "dead letters", OK, "no messages in dead")
    account.client("sqs").send_message(QueueUrl=dead, MessageBody="lost")
    check(runs, "dead letters", WARNING, "1 message is in dead")


def _put_alarm(account: Account, *actions: str, name: str = "DeadLetters", **more: Any) -> None:
    account.client("cloudwatch").put_metric_alarm(
        AlarmName=name,
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


@pytest.mark.usefixtures("resources")
def test_alarms(runs: DeployedRuns, account: Account) -> None:
    """An alarm without action tells nobody; one that is on is named, also without action."""
    check(runs, "alarms", WARNING, "somebody has deleted DeadLetters", RESTORE)
    check(runs, "subscriptions", WARNING, "do not publish to a topic")
    _put_alarm(account, WAKE)
    check(runs, "alarms", OK, "1 alarms")
    runs.resources += (resource("AlarmsOther1", "AWS::CloudWatch::Alarm", "Other"),)
    _put_alarm(account, WAKE, ActionsEnabled=False)
    check(runs, "alarms", WARNING, "somebody has deleted Other", RESTORE)
    _put_alarm(account, WAKE, name="Other")
    check(runs, "alarms", WARNING, "1 of 2 alarms has no action, so", "DeadLetters", "alarms.email")
    _put_alarm(account)
    check(runs, "alarms", WARNING, "no action", "DeadLetters")
    account.client("cloudwatch").set_alarm_state(
        AlarmName="DeadLetters", StateValue="ALARM", StateReason="because"
    )
    check(runs, "alarms", WARNING, "in ALARM: DeadLetters")


@pytest.mark.parametrize(
    ("words", "expected", "names"),
    [("Successfully executed", OK, ""), ("Failed to execute", FAILURE, "DeadLetters")],
)
@pytest.mark.usefixtures("resources")
def test_a_notification_that_failed_is_named(
    runs: DeployedRuns, words: str, expected: CheckStatus, names: str
) -> None:
    """An action and a subscription are not enough: the topic's policy may refuse CloudWatch."""
    answers = {  # an answer to each request: clients take what is theirs
        "MetricAlarms": [{"AlarmName": "DeadLetters", "StateValue": "OK"}],
        "AlarmHistoryItems": [
            {"AlarmName": "DeadLetters", "HistorySummary": f"{words} action {WAKE}"}
        ],
    }
    with answering(runs, lambda _: Reply(200, json.dumps(answers).encode()), "cloudwatch"):
        check(runs, "notifications", expected, names)


@pytest.mark.parametrize(
    ("arns", "expected", "word"),
    [
        ([f"{WAKE}:1"], OK, "confirmed for"),
        (["PendingConfirmation"], WARNING, "not confirmed"),
        ([], WARNING, "has no subscription"),
    ],
)
@pytest.mark.usefixtures("resources")
def test_subscriptions(
    runs: DeployedRuns, account: Account, arns: list[str], expected: CheckStatus, word: str
) -> None:
    """Moto confirms e-mail at once, AWS when somebody follows the link."""
    _put_alarm(account, WAKE)
    members = "".join(f"<member><SubscriptionArn>{arn}</SubscriptionArn></member>" for arn in arns)
    body = (
        "<ListSubscriptionsByTopicResponse><ListSubscriptionsByTopicResult>"
        f"<Subscriptions>{members}</Subscriptions>"
        "</ListSubscriptionsByTopicResult></ListSubscriptionsByTopicResponse>"
    )
    with answering(runs, lambda _: Reply(200, body.encode(), {"Content-Type": "text/xml"}), "sns"):
        check(runs, "subscriptions", expected, word)


@pytest.mark.parametrize(
    "name", [name for name in ACCOUNT_CHECKS if name not in {"stack", "version"}]
)
def test_a_right_that_is_missing(runs: DeployedRuns, account: Account, name: str) -> None:
    """A check that is denied is a warning that names the action, never a traceback."""
    _put_alarm(account, WAKE)
    runs.resources = (
        *RESOURCES,
        resource("Dead", "AWS::SQS::Queue", "https://sqs/1/dead"),
        resource("FunctionsPlanLogs1", "AWS::Logs::LogGroup", "plan-logs"),
    )
    runs.outputs |= {"DestinationKey": "arn:aws:kms:us-east-1:123456789012:key/k"}
    runs.variables |= TAGS | {
        Variable.PASSWORD_SECRET: "arn:aws:secretsmanager:us-east-1:123456789012:secret:z-AAAAAA",
        Variable.SCAN: "guardduty",
    }
    services = ("sns",) if name == "subscriptions" else SERVICES
    with answering(runs, deny, *services):
        check(runs, name, WARNING, "not checked", "-> allow the action")


def test_expired_keys_end_the_command(runs: DeployedRuns) -> None:
    """No further check can be made, unlike after the page of a proxy."""
    with answering(runs, lambda _: Reply(200, b"<html>"), "lambda"):
        check(runs, "concurrency", WARNING, "does not answer as AWS does", "-> run the command")
    with (
        answering(runs, lambda asked: refuse(asked, "ExpiredToken", 400), "lambda"),
        pytest.raises(ExpiredKeysError, match="; get new credentials"),
    ):
        check(runs, "concurrency", WARNING)


REMOVED = (
    b"<ListStackResourcesResponse><ListStackResourcesResult><StackResourceSummaries><member>"
    b"<LogicalResourceId>AlarmsAbortedRuns1</LogicalResourceId>"
    b"<PhysicalResourceId>AbortedRuns</PhysicalResourceId>"
    b"<ResourceType>AWS::CloudWatch::Alarm</ResourceType>"
    b"<ResourceStatus>DELETE_COMPLETE</ResourceStatus>"
    b"</member></StackResourceSummaries></ListStackResourcesResult></ListStackResourcesResponse>"
)


def test_a_stack_whose_resources_are_not_listed(runs: DeployedRuns) -> None:
    """They may not be listed, or CloudFormation deleted them and then failed to delete the rest."""
    with answering(runs, deny, "cloudformation"):
        check(runs, "rules", WARNING, "cloudformation:ListStackResources")
        check(runs, "trigger", FAILURE)
    with answering(runs, lambda _: Reply(200, REMOVED), "cloudformation"):
        for name in ("rights", "rules", "dead letters", "logs", "alarms", "notifications"):
            check(runs, name, FAILURE, "s3unzip-dev has no AWS::", RESTORE)
    del runs.resources
    assert [one["ResourceType"] for one in runs.resources] == ["AWS::SNS::Topic"]


# The canary: the functions are called in this process, because moto runs no Maps


PATIENCE = 60.0  # seconds; the report is there before it is waited for


@pytest.fixture
def deploy(deploy: Callable[..., Site]) -> Callable[..., Site]:
    """A function that deploys the environment, whose buckets keep versions."""

    def make(**variables: str) -> Site:
        site = deploy(**variables)
        for bucket in ("arrivals", "members"):
            site.account.client("s3").put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )
        return site

    return make


def _put(runs: DeployedRuns) -> Canary:
    canary = Canary(runs)
    assert canary.put().status is OK
    return canary


def begin(site: Site) -> str:
    """Take the event of the archive that lies there; return its run if it is not done at once."""
    (key,) = site.account.objects("arrivals")
    return site.notify(key)


def _left(account: Account) -> list[str]:
    return [
        version["Key"]
        for bucket in ("arrivals", "members", "work")
        for kind, versions in account.client("s3").list_object_versions(Bucket=bucket).items()
        if kind in {"Versions", "DeleteMarkers"}
        for version in versions
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"marker": True},
        {"as_gzip": "suffix"},
        {"key_template": "all/{name}"},
        {"on_conflict": "never"},
    ],
)
def test_the_canary_is_extracted_and_removed(
    deploy: Callable[..., Site], account: Account, options: dict[str, object]
) -> None:
    """This holds for all options of the environment."""
    site = deploy(**{Variable.OPTIONS: json.dumps(options)})
    canary = _put(site.runs)
    site.work(begin(site))
    answer = canary.check(PATIENCE)
    assert (answer.status, answer.message[:14]) == (OK, "5 of 5 members")
    assert (canary.remove(keep_run=False).status, _left(account)) == (OK, [])


def test_a_run_that_is_refused(deploy: Callable[..., Site], account: Account) -> None:
    """The result has the report's message, and the run's records are kept."""
    site = deploy(**{Variable.LIMITS: '{"members": 2}'})
    canary = _put(site.runs)
    assert not begin(site)
    expect(canary.check(PATIENCE), FAILURE, "REJECTED", "5 declared; the limit is 2")
    assert "is kept for diagnosis" in canary.remove(keep_run=True).message
    left = _left(account)
    assert {key.partition("/")[0] for key in left} == {"runs"}
    assert any(key.endswith("report.json") for key in left)


@pytest.mark.parametrize(
    ("options", "body"), [({}, b"something else"), ({"as_gzip": "suffix"}, b"\x1f\x8bdamaged")]
)
def test_an_object_that_is_not_what_was_put(
    deploy: Callable[..., Site], account: Account, options: dict[str, object], body: bytes
) -> None:
    """The objects are read, not only listed; one that may not be read leaves the run unjudged."""
    site = deploy(**{Variable.OPTIONS: json.dumps(options)})
    canary = _put(site.runs)
    site.work(begin(site))
    with answering(canary._runs, deny, "s3"), pytest.raises(AccessDeniedError, match="s3:Get"):
        canary.check(PATIENCE)
    key = next(key for key in account.objects("members") if "stored.bin" in key)
    account.put(key, body, bucket="members")
    expect(canary.check(PATIENCE), FAILURE, key)
    assert (canary.remove(keep_run=False).status, _left(account)) == (OK, [])


def test_filters_that_select_nothing(deploy: Callable[..., Site], account: Account) -> None:
    """The run completes but proves little, which is a warning."""
    site = deploy(**{Variable.OPTIONS: '{"include": ["*.none"]}'})
    canary = _put(site.runs)
    assert not begin(site)  # a run without tasks ends at once
    assert canary.check(PATIENCE).status is WARNING
    assert (canary.remove(keep_run=False).status, _left(account)) == (OK, [])


def test_a_run_that_does_not_end(site: Site, runs: DeployedRuns) -> None:
    """The result has its state, and the command to watch it."""
    canary = _put(runs)
    begin(site)
    expect(canary.check(0.0), FAILURE, "its run is RUNNING", " -> s3unzip watch ")


def test_a_marker_that_archives_share(deploy: Callable[..., Site], account: Account) -> None:
    """The canary would replace it, so it is not tried."""
    (result,) = try_canary(
        deploy(**{Variable.OPTIONS: '{"marker": true, "key_template": "{member}"}'}).runs, 1.0
    )
    assert (result.status, "_SUCCESS" in result.message, _left(account)) == (WARNING, True, [])


def test_an_archive_that_may_not_be_put(runs: DeployedRuns) -> None:
    """The missing action is named, and nothing is to be removed."""
    with answering(runs, deny, "s3"):
        (found,) = try_canary(runs, 1.0)
    assert (found.status, found.message[:31]) == (WARNING, "not checked: s3:PutObject: Acce"), found


@pytest.mark.parametrize(
    ("answer", "service", "run"),
    [
        (lambda _: Reply(200), "s3", "runs/..., if it exists"),
        (deny, "stepfunctions", "runs/20"),
        (lambda asked: refuse(asked, "ExpiredToken", 400), "stepfunctions", "runs/20"),
    ],
)
def test_a_canary_whose_run_cannot_be_followed(
    runs: DeployedRuns, answer: Callable[[Asked], Reply], service: str, run: str
) -> None:
    """The archive is removed; the run may be at work, so its records stay."""
    results = try_canary(runs, 1.0)
    with answering(runs, answer, service):
        expect(next(results), WARNING, "not checked")
    expect(next(results), OK, f"; {run}", "is kept for diagnosis")


def test_objects_that_may_not_be_deleted(runs: DeployedRuns) -> None:
    """The result names what is left, with the token to search for."""
    results = try_canary(runs, 0.1)
    assert next(results).status is FAILURE
    with answering(runs, deny, "s3"):
        expect(next(results), WARNING, "s3:ListBucketVersions", "s3unzip-doctor-")


def test_a_canary_without_a_run_is_explained(runs: DeployedRuns, account: Account) -> None:
    """Where no event arrives the checks before the canary say why; the archive is removed."""
    canary, removal = try_canary(runs, 0.1)
    expect(canary, FAILURE, "no run began for the canary", "the intake function's log")
    assert (removal.status, _left(account)) == (OK, [])


def test_a_refused_delete_is_not_silent(runs: DeployedRuns) -> None:
    """DeleteObjects answers 200 with errors inside."""
    listing = (
        "<ListVersionsResult><Version><Key>a</Key><VersionId>1</VersionId></Version>"
        "<Version><Key>ab</Key><VersionId>2</VersionId></Version></ListVersionsResult>"
    )
    refusal = "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error></DeleteResult>"

    def answer(asked: Asked) -> Reply:
        if asked.method == "POST":
            assert b"<Key>ab</Key>" not in asked.body
            return Reply(200, refusal.encode())
        return Reply(200, listing.encode())

    with (
        answering(runs, answer, "s3"),
        pytest.raises(AccessDeniedError, match="1 object remains in bucket: AccessDenied for a"),
    ):
        remove_versions(runs, "bucket", "a", "a".__eq__)
