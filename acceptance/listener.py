"""A subscriber to the environment's completion events, created for one case."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any

from acceptance.site import Mismatch
from s3unzip.aws.events import SOURCE

if TYPE_CHECKING:
    from typing import Self

    from acceptance.site import Site

PROBE = "s3unzip.acceptance"  # source of a probe event, which shows that the rule works
PROBE_SECONDS = 120.0  # "allow a short period of time for changes to take effect": EventBridge
PROBE_EACH = 5.0  # seconds


class Listener:
    """A rule and a queue with the set's token in their names; a context manager.

    It needs events:PutRule, PutTargets, RemoveTargets, DeleteRule and PutEvents, and
    sqs:CreateQueue, ReceiveMessage and DeleteQueue.
    """

    def __init__(self, site: Site) -> None:
        self._site = site
        self._events = site.runs.client("events")
        self._rule = {"Rule": site.token, "EventBusName": site.event_bus}
        self._queue = ""
        self._seen: dict[
            str, Any
        ] = {}  # by the event's id, because EventBridge may deliver an event twice

    def __enter__(self) -> Self:
        site, bus = self._site, self._site.event_bus
        self._queue = site.sqs.create_queue(QueueName=site.token)["QueueUrl"]
        try:
            rule = self._events.put_rule(
                Name=site.token, EventBusName=bus, EventPattern=json.dumps(self._pattern())
            )["RuleArn"]
            arn = self._allow(rule)
            self._events.put_targets(**self._rule, Targets=[{"Id": "queue", "Arn": arn}])
            self._probe()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        remove_listener(self._site)

    def count(self, run: str) -> int:
        """Return how many events of the run have arrived so far."""
        self._receive()
        details = [event["detail"] for event in self._seen.values()]
        return sum(detail.get("run") == run for detail in details)

    def _pattern(self) -> dict[str, Any]:
        begins = f"s3://{self._site.ingest}/{self._site.key('').rpartition('/')[0]}/"
        return {"source": [SOURCE, PROBE], "detail": {"source": [{"prefix": begins}]}}

    def _allow(self, rule: str) -> str:
        """Allow only the rule to write to the queue; return the queue's ARN."""
        sqs = self._site.sqs
        asked = sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
        arn: str = asked["Attributes"]["QueueArn"]
        statement = {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": arn,
            "Condition": {"ArnEquals": {"aws:SourceArn": rule}},
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        sqs.set_queue_attributes(QueueUrl=self._queue, Attributes={"Policy": policy})
        return arn

    def _probe(self) -> None:
        """Wait until the new rule delivers a probe event."""
        detail = {"source": f"s3://{self._site.ingest}/{self._site.key('probe')}"}
        entry = {
            "Source": PROBE,
            "DetailType": "Probe",
            "Detail": json.dumps(detail),
            "EventBusName": self._site.event_bus,
        }
        for _ in range(round(PROBE_SECONDS / PROBE_EACH)):
            self._events.put_events(Entries=[entry])
            if self._site.until(PROBE_EACH, self._hears):
                return
        raise Mismatch(f"no event came through a new rule in {PROBE_SECONDS:.0f} s")

    def _hears(self) -> bool:
        self._receive()
        return bool(self._seen)

    def _receive(self) -> None:
        sqs = self._site.sqs
        while True:
            answer = sqs.receive_message(
                QueueUrl=self._queue, MaxNumberOfMessages=10, WaitTimeSeconds=1
            )
            messages = answer.get("Messages", [])
            for message in messages:
                event = json.loads(message["Body"])
                self._seen[event["id"]] = event
                sqs.delete_message(QueueUrl=self._queue, ReceiptHandle=message["ReceiptHandle"])
            if not messages:
                return


def remove_listener(site: Site) -> None:
    """Remove the rule and the queue of this set, if they exist."""
    events, rule = site.runs.client("events"), {"EventBusName": site.event_bus}
    with contextlib.suppress(events.exceptions.ResourceNotFoundException):
        events.remove_targets(Rule=site.token, Ids=["queue"], **rule)
        events.delete_rule(Name=site.token, **rule)
    with contextlib.suppress(site.sqs.exceptions.QueueDoesNotExist):
        url = site.sqs.get_queue_url(QueueName=site.token)["QueueUrl"]
        site.sqs.delete_queue(QueueUrl=url)
