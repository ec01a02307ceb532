"""A subscriber to the environment's completion events, created for one case."""

import contextlib
import json
from typing import Any, Self

from acceptance.site import Mismatch, Site
from s3unzip.aws.events import SOURCE

PROBE = "s3unzip.acceptance"  # source of a probe event, which shows that the rule works
PROBES, PROBE_EACH = 24, 5.0  # seconds; "allow a short period of time for changes to take effect"


class Listener:
    """A rule and a queue with the set's token in their names; a context manager."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._events = site.runs.client("events")
        self._queue = ""
        self._seen: dict[str, Any] = {}  # by id, because EventBridge may deliver an event twice

    def __enter__(self) -> Self:
        site, names = self._site, {"EventBusName": self._site.event_bus}
        begins = f"s3://{site.ingest}/{site.key('').rpartition('/')[0]}/"
        pattern = {"source": [SOURCE, PROBE], "detail": {"source": [{"prefix": begins}]}}
        self._queue = site.sqs.create_queue(QueueName=site.token)["QueueUrl"]
        try:
            rule = self._events.put_rule(
                Name=site.token, EventPattern=json.dumps(pattern), **names
            )["RuleArn"]
            target = {"Id": "queue", "Arn": self._allow(rule)}
            self._events.put_targets(Rule=site.token, Targets=[target], **names)
            self._probe(f"{begins}probe")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        remove_listener(self._site)

    def count(self, run: str) -> int:
        self._receive()
        return sum(event["detail"].get("run") == run for event in self._seen.values())

    def _allow(self, rule: str) -> str:
        """Allow only the rule to write to the queue; return the queue's ARN."""
        sqs = self._site.sqs
        answer = sqs.get_queue_attributes(QueueUrl=self._queue, AttributeNames=["QueueArn"])
        arn: str = answer["Attributes"]["QueueArn"]
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

    def _probe(self, source: str) -> None:
        """Wait until the new rule delivers a probe event."""
        entry = {"Source": PROBE, "DetailType": "Probe", "Detail": json.dumps({"source": source})}
        for _ in range(PROBES):
            self._events.put_events(Entries=[entry | {"EventBusName": self._site.event_bus}])
            if self._site.until(PROBE_EACH, self._receive):
                return
        raise Mismatch(f"no event came through a new rule in {PROBES * PROBE_EACH:.0f} s")

    def _receive(self) -> bool:
        sqs, url = self._site.sqs, self._queue
        wanted = {"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 1}
        while messages := sqs.receive_message(**wanted).get("Messages", []):
            for message in messages:
                event = json.loads(message["Body"])
                self._seen[event["id"]] = event
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return bool(self._seen)


def remove_listener(site: Site) -> None:
    """Remove the rule and the queue of this set, if they exist."""
    events, rule = site.runs.client("events"), {"EventBusName": site.event_bus}
    with contextlib.suppress(events.exceptions.ResourceNotFoundException):
        events.remove_targets(Rule=site.token, Ids=["queue"], **rule)
        events.delete_rule(Name=site.token, **rule)
    with contextlib.suppress(site.sqs.exceptions.QueueDoesNotExist):
        site.sqs.delete_queue(QueueUrl=site.sqs.get_queue_url(QueueName=site.token)["QueueUrl"])
