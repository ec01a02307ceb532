"""Service roles and resource policies, with rights checked (AUTH=true): each is needed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from embedded.deploy import make_client
from embedded.ministack import EmbeddedAws
from tests.strict.machines import invocation
from tests.strict.places import Place, Queue, until

if TYPE_CHECKING:
    from collections.abc import Iterator

FAILS = "def handler(event, context): raise ValueError('no')\n"
# What CDK grants a state machine that logs; the page cw-logs.html names the same.
LOG_DELIVERY = (
    *(f"logs:{verb}LogDelivery" for verb in ("Create", "Get", "Update", "Delete")),
    *("logs:ListLogDeliveries", "logs:PutResourcePolicy"),
    *("logs:DescribeResourcePolicies", "logs:DescribeLogGroups"),
)
POLLING = ("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Place]:
    """An embedded AWS that checks rights, over TLS."""
    variables = {"LAMBDA_ASYNC_RETRY_BASE_SECONDS": "0.05"}
    with EmbeddedAws(auth=True, variables=variables) as aws:
        yield Place(aws)


def make_role(place: Place, name: str, service: str, *statements: dict[str, Any]) -> str:
    """Make a role that a service assumes, with the statements as its policy; return its ARN."""
    iam = place.client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    arn: str = iam.create_role(
        RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]})
    )["Role"]["Arn"]
    set_rights(place, name, *statements)
    return arn


def set_rights(place: Place, name: str, *statements: dict[str, Any]) -> None:
    """Replace a role's policy."""
    document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    place.client("iam").put_role_policy(RoleName=name, PolicyName="rights", PolicyDocument=document)


def allow(resource: str, *actions: str) -> dict[str, Any]:
    """Return a statement that allows the actions on one resource."""
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource}


def test_certificates_stay_where_they_are(guarded: Place) -> None:
    """A start does not replace the files that another one, at the same time, is told to trust."""
    name = guarded.function(
        "import os\ndef handler(event, context):\n"
        "    return [os.getpid(), os.stat(os.environ['AWS_CA_BUNDLE']).st_ino]\n",
        Role=make_role(guarded, "trusting", "lambda.amazonaws.com", allow("*", "logs:*")),
    )
    first = guarded.invoke(name).payload
    update = guarded.client("lambda").update_function_configuration
    update(FunctionName=name, Environment={"Variables": {"CHANGED": "1"}})
    second = guarded.invoke(name).payload
    assert first[0] != second[0]  # another environment
    assert first[1] == second[1]


@pytest.mark.parametrize("missing", POLLING)
def test_an_event_source_needs_its_rights(guarded: Place, missing: str) -> None:
    """CreateEventSourceMapping is refused without any one of the three SQS actions."""
    queue = guarded.queue()
    role = f"without-{missing.partition(':')[2]}"
    rest = [action for action in POLLING if action != missing]
    arn = make_role(guarded, role, "lambda.amazonaws.com", allow(queue.arn, *rest))
    name = guarded.function("def handler(event, context): ...\n", Role=arn)
    create = guarded.client("lambda").create_event_source_mapping
    with pytest.raises(ClientError, match=f"to call {missing.partition(':')[2]} on SQS"):
        create(FunctionName=name, EventSourceArn=queue.arn)
    set_rights(guarded, role, allow(queue.arn, *POLLING))
    create(FunctionName=name, EventSourceArn=queue.arn)
    queue.send("one")
    until(lambda: queue.count() == 0, "the message to be worked on")


def test_a_poller_that_may_not_delete_repeats(guarded: Place) -> None:
    """A right that is taken away later counts: what was worked on comes again."""
    queue, dead = guarded.queue(VisibilityTimeout="3"), guarded.queue()
    arn = make_role(guarded, "deleting", "lambda.amazonaws.com", allow(queue.arn, *POLLING))
    name = guarded.function("def handler(event, context): ...\n", Role=arn)
    guarded.client("lambda").create_event_source_mapping(
        FunctionName=name, EventSourceArn=queue.arn
    )
    set_rights(guarded, "deleting", allow(queue.arn, *POLLING[::2]))
    queue.send("one")
    policy = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 2})
    queue.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"RedrivePolicy": policy})
    until(lambda: dead.receive(1), "the message to be received twice")


@pytest.mark.parametrize("action", ["SendMessage", "DeleteMessage", "ChangeMessageVisibility"])
def test_a_batch_needs_the_right_of_the_single_call(guarded: Place, action: str) -> None:
    """IAM has no actions of the batch calls: the single call's allows them, their name nothing."""
    queue = guarded.queue()
    queue.send("one")
    (message,) = until(lambda: queue.receive(1), "the message")
    receipt = {"Id": "1", "ReceiptHandle": message["ReceiptHandle"]}
    entries = {
        "SendMessage": {"Id": "1", "MessageBody": "two"},
        "DeleteMessage": receipt,
        "ChangeMessageVisibility": {**receipt, "VisibilityTimeout": 0},
    }
    name = f"only-{action}"
    user = make_user(guarded, name, allow(queue.arn, f"sqs:{action}Batch"))
    call = {
        "SendMessage": user.send_message_batch,
        "DeleteMessage": user.delete_message_batch,
        "ChangeMessageVisibility": user.change_message_visibility_batch,
    }[action]
    with pytest.raises(ClientError, match=f"not authorized to perform: sqs:{action}"):
        call(QueueUrl=queue.url, Entries=[entries[action]])
    set_user_rights(guarded, name, allow(queue.arn, f"sqs:{action}"))
    answer = call(QueueUrl=queue.url, Entries=[entries[action]])
    assert [one["Id"] for one in answer["Successful"]] == ["1"]


def make_user(place: Place, name: str, *statements: dict[str, Any]) -> Any:
    """Make a user with the statements as its policy; return its client of SQS."""
    iam = place.client("iam")
    iam.create_user(UserName=name)
    set_user_rights(place, name, *statements)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    credentials = {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
    }
    return make_client("sqs", {**place.aws.environment, **credentials})


def set_user_rights(place: Place, name: str, *statements: dict[str, Any]) -> None:
    """Replace a user's policy."""
    document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
    place.client("iam").put_user_policy(UserName=name, PolicyName="rights", PolicyDocument=document)


def test_a_destination_needs_the_functions_right(guarded: Place) -> None:
    """Without sqs:SendMessage the record of a failure is lost; with it it comes."""
    failures = guarded.queue()
    arn = make_role(guarded, "sending", "lambda.amazonaws.com", allow("*", "logs:*"))
    name = guarded.function(FAILS, Role=arn)
    functions = guarded.client("lambda")
    functions.put_function_event_invoke_config(
        FunctionName=name,
        MaximumRetryAttempts=0,
        DestinationConfig={"OnFailure": {"Destination": failures.arn}},
    )
    functions.invoke(FunctionName=name, InvocationType="Event", Payload=b'"lost"')
    until(lambda: "is lost" in guarded.aws.log.read_text(), "the record to be lost")
    set_rights(guarded, "sending", allow(failures.arn, "sqs:SendMessage"))
    functions.invoke(FunctionName=name, InvocationType="Event", Payload=b'"kept"')
    (message,) = until(lambda: failures.receive(1), "the record")
    assert json.loads(message["Body"])["requestPayload"] == "kept"


def rule_to(place: Place, name: str, target: str, dead: Queue, **settings: str) -> str:
    """Make a rule of events of a source of that name; return the rule's ARN."""
    events = place.client("events")
    arn: str = events.put_rule(Name=name, EventPattern=json.dumps({"source": [name]}))["RuleArn"]
    dead_letters = {"Arn": dead.arn}
    events.put_targets(
        Rule=name,
        Targets=[{"Id": "1", "Arn": target, "DeadLetterConfig": dead_letters, **settings}],
    )
    return arn


def let_in(queue: Queue, rule: str) -> None:
    """Give a queue the policy that lets EventBridge send to it for a rule."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": queue.arn,
        "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    queue.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": policy})


def put_event(place: Place, source: str) -> None:
    """Put an event of a source."""
    entry = {"Source": source, "DetailType": "any", "Detail": "{}"}
    place.client("events").put_events(Entries=[entry])


def refused(dead: Queue) -> str:
    """Return why the one event in a rule's dead-letter queue was not delivered."""
    (message,) = until(lambda: dead.receive(1), "an event that was not delivered")
    dead.sqs.delete_message(QueueUrl=dead.url, ReceiptHandle=message["ReceiptHandle"])
    code: str = message["MessageAttributes"]["ERROR_CODE"]["StringValue"]
    return code


def test_a_queue_must_let_a_rule_in(guarded: Place) -> None:
    """A rule reaches a queue by the queue's policy only; else the event is a dead letter."""
    queue, dead = guarded.queue(), guarded.queue()
    rule = rule_to(guarded, "to-queue", queue.arn, dead)
    let_in(dead, rule)
    put_event(guarded, "to-queue")
    assert (refused(dead), queue.count()) == ("NO_PERMISSIONS", 0)
    let_in(queue, rule)
    put_event(guarded, "to-queue")
    until(lambda: queue.count() == 1, "the event")
    assert dead.count() == 0


def test_a_function_must_let_a_rule_in(guarded: Place) -> None:
    """A rule invokes a function by the function's resource policy only."""
    dead, good = guarded.queue(), guarded.queue()
    arn = make_role(guarded, "invoked", "lambda.amazonaws.com", allow(good.arn, "sqs:SendMessage"))
    name = guarded.function("def handler(event, context): ...\n", Role=arn)
    functions = guarded.client("lambda")
    functions.put_function_event_invoke_config(
        FunctionName=name, DestinationConfig={"OnSuccess": {"Destination": good.arn}}
    )
    rule = rule_to(guarded, "to-function", guarded.function_arn(name), dead)
    let_in(dead, rule)
    put_event(guarded, "to-function")
    assert (refused(dead), good.count()) == ("NO_PERMISSIONS", 0)
    functions.add_permission(
        FunctionName=name,
        StatementId="rule",
        Action="lambda:InvokeFunction",
        Principal="events.amazonaws.com",
        SourceArn=rule,
    )
    put_event(guarded, "to-function")
    until(lambda: good.count() == 1, "the function to run")


def test_a_state_machine_needs_the_targets_role(guarded: Place) -> None:
    """A rule starts an execution as the role of its target, which must be allowed to."""
    dead = guarded.queue()
    states = guarded.client("stepfunctions")
    own = make_role(guarded, "machine", "states.amazonaws.com", allow("*", "logs:*"))
    definition = {"StartAt": "End", "States": {"End": {"Type": "Succeed"}}}
    machine = states.create_state_machine(
        name="target", definition=json.dumps(definition), roleArn=own
    )["stateMachineArn"]
    role = make_role(guarded, "starting", "events.amazonaws.com", allow("*", "logs:*"))
    let_in(dead, rule_to(guarded, "to-machine", machine, dead, RoleArn=role))
    put_event(guarded, "to-machine")
    assert refused(dead) == "NO_PERMISSIONS"
    set_rights(guarded, "starting", allow(machine, "states:StartExecution"))
    put_event(guarded, "to-machine")
    found = until(lambda: states.list_executions(stateMachineArn=machine)["executions"], "a run")
    assert len(found) == 1


@pytest.mark.parametrize(("kind", "answer"), [("RequestResponse", "done"), ("Event", "")])
def test_a_task_needs_the_machines_right(guarded: Place, kind: str, answer: str) -> None:
    """A state machine invokes a function as its own role, whether it waits for it or not."""
    name = f"invoking-{kind}"
    role = make_role(guarded, name, "states.amazonaws.com", allow("*", "logs:*"))
    own = make_role(guarded, f"task-{kind}", "lambda.amazonaws.com", allow("*", "logs:*"))
    function = guarded.function_arn(
        guarded.function("def handler(event, context): return 'done'\n", Role=own)
    )
    task = invocation(function, {}, kind)
    states = guarded.client("stepfunctions")
    machine = states.create_state_machine(
        name=name,
        definition=json.dumps({"StartAt": "Task", "States": {"Task": task}}),
        roleArn=role,
    )["stateMachineArn"]

    def run() -> Any:
        arn = states.start_execution(stateMachineArn=machine)["executionArn"]
        until(lambda: states.describe_execution(executionArn=arn)["status"] != "RUNNING", "its end")
        return states.describe_execution(executionArn=arn)

    refused_run = run()
    assert refused_run["status"] == "FAILED"
    assert "lambda:InvokeFunction" in refused_run["cause"]
    set_rights(guarded, name, allow(function, "lambda:InvokeFunction"))
    assert json.loads(run()["output"])["Payload"] == answer


def test_a_machine_that_logs_needs_log_delivery(guarded: Place) -> None:
    """CreateStateMachine with a log level is refused without the log delivery rights."""
    guarded.client("logs").create_log_group(logGroupName="/aws/vendedlogs/states/test")
    group = "arn:aws:logs:us-east-1:000000000000:log-group:/aws/vendedlogs/states/test:*"
    definition = {"StartAt": "End", "States": {"End": {"Type": "Succeed"}}}
    settings = {
        "name": "logging",
        "definition": json.dumps(definition),
        "roleArn": make_role(guarded, "logging", "states.amazonaws.com", allow("*", "xray:*")),
        "loggingConfiguration": {
            "level": "ALL",
            "destinations": [{"cloudWatchLogsLogGroup": {"logGroupArn": group}}],
        },
    }
    create = guarded.client("stepfunctions").create_state_machine
    with pytest.raises(ClientError, match="not authorized to access the Log Destination"):
        create(**settings)
    rest = [one for one in LOG_DELIVERY if one != "logs:PutResourcePolicy"]
    set_rights(guarded, "logging", allow("*", *rest))
    with pytest.raises(ClientError, match="not authorized to access the Log Destination"):
        create(**settings)
    set_rights(guarded, "logging", allow("*", *LOG_DELIVERY))
    create(**settings)
