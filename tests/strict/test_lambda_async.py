"""Asynchronous invocations: retries, age, destinations, and what EventBridge keeps of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.strict.machines import ROLE, invocation, machine
from tests.strict.places import until

if TYPE_CHECKING:
    from tests.strict.places import Place, Queue

# Tells the queue named in the event of each try, and fails where the event says so.
TELLS = (
    "import botocore.session\n"
    "sqs = botocore.session.get_session().create_client('sqs')\n"
    "class Broken(Exception): ...\n"
    "def handler(event, context):\n"
    "    sqs.send_message(QueueUrl=event['tell'], MessageBody='tried')\n"
    "    if event.get('fail'): raise Broken('on purpose')\n"
    "    return 'good'\n"
)


def invoke(place: Place, name: str, event: Any) -> None:
    """Invoke a function asynchronously."""
    place.client("lambda").invoke(
        FunctionName=name, InvocationType="Event", Payload=json.dumps(event).encode()
    )


def record(queue: Queue) -> Any:
    """Return the one message that comes, parsed."""
    (message,) = until(lambda: queue.receive(1), "a record")
    return json.loads(message["Body"])


def test_a_failure_is_tried_three_times_and_recorded(place: Place) -> None:
    """After two retries the event and its error are in the on-failure queue, as AWS writes it."""
    tell, failures = place.queue(), place.queue()
    name = place.function(TELLS)
    place.client("lambda").put_function_event_invoke_config(
        FunctionName=name, DestinationConfig={"OnFailure": {"Destination": failures.arn}}
    )
    event = {"tell": tell.url, "fail": True}
    invoke(place, name, event)
    found = record(failures)
    assert tell.count() == 3
    assert found["version"] == "1.0"
    assert found["requestPayload"] == event
    assert found["requestContext"]["condition"] == "RetriesExhausted"
    assert found["requestContext"]["approximateInvokeCount"] == 3
    assert found["requestContext"]["functionArn"] == f"{place.function_arn(name)}:$LATEST"
    assert found["responseContext"] == {
        "statusCode": 200,
        "executedVersion": "$LATEST",
        "functionError": "Unhandled",
    }
    assert found["responsePayload"]["errorType"] == "Broken"


def test_a_success_is_recorded_once(place: Place) -> None:
    """A function that succeeds is run once; the on-success destination has its answer."""
    tell, good = place.queue(), place.queue()
    name = place.function(TELLS)
    place.client("lambda").put_function_event_invoke_config(
        FunctionName=name, DestinationConfig={"OnSuccess": {"Destination": good.arn}}
    )
    invoke(place, name, {"tell": tell.url})
    found = record(good)
    assert (found["requestContext"]["condition"], found["responsePayload"]) == ("Success", "good")
    assert tell.count() == 1


def test_a_template_configures_invocations(place: Place) -> None:
    """AWS::Lambda::EventInvokeConfig of a stack sets retries and destination, for $LATEST too."""
    tell, failures = place.queue(), place.queue()
    name = place.function(TELLS)
    properties = {
        "FunctionName": name,
        "Qualifier": "$LATEST",
        "MaximumRetryAttempts": 0,
        "DestinationConfig": {"OnFailure": {"Destination": failures.arn}},
    }
    resource = {"Type": "AWS::Lambda::EventInvokeConfig", "Properties": properties}
    formation = place.client("cloudformation")
    formation.create_stack(
        StackName="invokes", TemplateBody=json.dumps({"Resources": {"Config": resource}})
    )
    formation.get_waiter("stack_create_complete").wait(
        StackName="invokes", WaiterConfig={"Delay": 1}
    )
    invoke(place, name, {"tell": tell.url, "fail": True})
    assert record(failures)["requestContext"]["approximateInvokeCount"] == 1
    assert tell.count() == 1


def test_throttled_events_wait_until_they_are_too_old(place: Place) -> None:
    """A throttled event is not a try; it expires at the maximum age of events."""
    failures = place.queue()
    name = place.function(TELLS)
    functions = place.client("lambda")
    functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    functions.put_function_event_invoke_config(
        FunctionName=name,
        MaximumEventAgeInSeconds=60,
        DestinationConfig={"OnFailure": {"Destination": failures.arn}},
    )
    invoke(place, name, {"tell": "nobody"})
    found = record(failures)
    assert found["requestContext"]["condition"] == "EventAgeExceeded"
    assert found["requestContext"]["approximateInvokeCount"] == 0
    assert "responsePayload" not in found


@pytest.mark.parametrize(
    ("throttled", "condition", "tries"),
    [(False, "RetriesExhausted", 1), (True, "EventAgeExceeded", 0)],
)
def test_an_event_of_a_task_is_the_queues_alone(
    place: Place, condition: str, tries: int, *, throttled: bool
) -> None:
    """The execution succeeds, whatever the function's configuration makes of the event."""
    tell, failures = place.queue(), place.queue()
    name = place.function(TELLS)
    functions, states = place.client("lambda"), place.client("stepfunctions")
    functions.put_function_event_invoke_config(
        FunctionName=name,
        MaximumRetryAttempts=0,
        MaximumEventAgeInSeconds=60,
        DestinationConfig={"OnFailure": {"Destination": failures.arn}},
    )
    if throttled:
        functions.put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    event = {"tell": tell.url, "fail": True}
    definition = machine(A=invocation(place.function_arn(name), event, "Event"))
    made = states.create_state_machine(
        name=f"tells-{condition}", definition=json.dumps(definition), roleArn=ROLE
    )
    run = states.start_execution(stateMachineArn=made["stateMachineArn"])["executionArn"]
    found = record(failures)["requestContext"]
    assert (found["condition"], found["approximateInvokeCount"]) == (condition, tries)
    told = until(
        lambda: (one := states.describe_execution(executionArn=run))["status"] != "RUNNING" and one,
        "its end",
    )
    assert (told["status"], tell.count()) == ("SUCCEEDED", tries)


@pytest.mark.parametrize("kind", ["sns", "events", "lambda"])
def test_other_destinations(place: Place, kind: str) -> None:
    """A topic, a bus and a function get the same record."""
    end, tell = place.queue(), place.queue()
    name = place.function(TELLS)
    place.client("lambda").put_function_event_invoke_config(
        FunctionName=name,
        MaximumRetryAttempts=0,
        DestinationConfig={"OnFailure": {"Destination": destination(place, kind, end)}},
    )
    invoke(place, name, {"tell": tell.url, "fail": True})
    found = record(end)
    if kind == "sns":
        found = json.loads(found["Message"])
    if kind == "events":
        assert found["detail-type"] == "Lambda Function Invocation Result - Failure"
        assert found["source"] == "lambda"
        found = found["detail"]
    assert found["requestContext"]["condition"] == "RetriesExhausted"


def destination(place: Place, kind: str, end: Queue) -> str:
    """Make a destination that hands on to a queue; return its ARN."""
    if kind == "sns":
        topics = place.client("sns")
        topic: str = topics.create_topic(Name="failures")["TopicArn"]
        topics.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=end.arn)
        return topic
    if kind == "events":
        buses = place.client("events")
        bus: str = buses.create_event_bus(Name="failures")["EventBusArn"]
        buses.put_rule(Name="all", EventBusName="failures", EventPattern='{"source": ["lambda"]}')
        buses.put_targets(
            Rule="all", EventBusName="failures", Targets=[{"Id": "1", "Arn": end.arn}]
        )
        return bus
    source = (
        "import botocore.session, json\n"
        "sqs = botocore.session.get_session().create_client('sqs')\n"
        "def handler(event, context):\n"
        f"    sqs.send_message(QueueUrl={end.url!r}, MessageBody=json.dumps(event))\n"
    )
    return place.function_arn(place.function(source))


def test_a_rules_dead_letters_are_what_was_not_delivered(place: Place) -> None:
    """A function that fails leaves nothing in its rule's queue; a target that is gone does."""
    tell, dead, failures = place.queue(), place.queue(), place.queue()
    failing, gone = place.function(TELLS), place.function(TELLS)
    place.client("lambda").put_function_event_invoke_config(
        FunctionName=failing, DestinationConfig={"OnFailure": {"Destination": failures.arn}}
    )
    rules = place.client("events")
    rule = rules.put_rule(Name="failing", EventPattern='{"source": ["test"]}')["RuleArn"]
    gone_arn = place.function_arn(gone)
    targets = [place.function_arn(failing), gone_arn]
    rules.put_targets(
        Rule="failing",
        Targets=[
            {
                "Id": str(n),
                "Arn": arn,
                "DeadLetterConfig": {"Arn": dead.arn},
                "InputPath": "$.detail",
            }
            for n, arn in enumerate(targets)
        ],
    )
    place.client("lambda").delete_function(FunctionName=gone)
    detail = json.dumps({"tell": tell.url, "fail": True})
    rules.put_events(Entries=[{"Source": "test", "DetailType": "any", "Detail": detail}])
    assert record(failures)["requestContext"]["approximateInvokeCount"] == 3
    (message,) = until(lambda: dead.receive(1), "the event that was not delivered")
    said = {key: value["StringValue"] for key, value in message["MessageAttributes"].items()}
    assert (said["RULE_ARN"], said["TARGET_ARN"]) == (rule, gone_arn)
    assert said["ERROR_CODE"] == "NO_RESOURCE"
    assert json.loads(message["Body"])["detail"]["fail"] is True
    assert dead.receive() == []
