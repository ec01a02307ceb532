"""The deployed pipeline as a user sees it: put an archive, watch the run, read the report."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from embedded.deploy import Assembly, deploy, make_client
from embedded.ministack import EmbeddedAwsError
from s3unzip.model import PlanSummary, Report, decode
from s3unzip.run_ids import execution_name
from s3unzip.runs.records import REPORT, RUN, RUNS

# Between two looks at a run, seconds: each look takes CPU time from the functions on this machine.
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.05, 0.4, 1.25
HANG_SECONDS = 600.0  # a limit for a busy machine, no promise


@dataclass(slots=True)
class DeployedPipeline:
    """One deployed stack, by its outputs."""

    variables: Mapping[str, str]
    outputs: Mapping[str, str]
    _clients: dict[str, Any] = field(default_factory=dict)
    _keys: dict[str, str] = field(default_factory=dict)  # of archives by run

    @classmethod
    def create(cls, assembly: Assembly, variables: Mapping[str, str]) -> DeployedPipeline:
        return cls(variables, deploy(assembly, variables))

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = make_client(service, self.variables)
        return self._clients[service]

    def put(self, key: str, body: bytes) -> None:
        self.client("s3").put_object(Bucket=self.outputs["IngestBucket"], Key=key, Body=body)

    def runs(self) -> list[str]:
        """Return the ids of all runs that have records, the newest last."""
        folders = (run for day in self._folders(RUNS) for run in self._folders(day))
        return [folder.removeprefix(RUNS).rstrip("/") for folder in folders]

    def find_run(self, key: str) -> str | None:
        """Return the id of the newest run of the archive `key`, None if there is none yet."""
        runs = self.runs()
        for run in runs:
            if run not in self._keys:
                plan = self.plan(run)
                report = self.find_report(run) if plan is None else None
                source = plan.run.source if plan else report.source if report else None
                if source is not None:
                    self._keys[run] = source.key
        return next((run for run in reversed(runs) if self._keys.get(run) == key), None)

    def plan(self, run: str) -> PlanSummary | None:
        """Return the plan of a run, None before it is whole and where there are only two records.

        Of a small archive that was extracted the outcomes and the report are kept.
        """
        body = self.read(f"{RUNS}{run}/{RUN}")
        return None if body is None else decode(body, PlanSummary)

    def find_report(self, run: str) -> Report | None:
        """Return the report of a run as it is, None if it has none."""
        body = self.read(f"{RUNS}{run}/{REPORT}")
        return None if body is None else decode(body, Report)

    def report(self, run: str) -> Report | None:
        """Return the report of a run, None while the run is active."""
        # The status first: a report that is read after the end is the last one.
        return None if self.status(run) == "RUNNING" else self.find_report(run)

    def status(self, run: str) -> str | None:
        """Return the status of the run's last execution, None if it never had one."""
        machine, found = self.outputs["StateMachineArn"], None
        states, base = self.client("stepfunctions"), execution_name(run)
        for name in (base, *(f"{base}-r{number}" for number in range(2, 100))):
            arn = f"{machine.replace(':stateMachine:', ':execution:')}:{name}"
            try:
                found = str(states.describe_execution(executionArn=arn)["status"])
            except states.exceptions.ExecutionDoesNotExist:
                break
        return found

    def wait(
        self,
        key: str,
        seconds: float = HANG_SECONDS,
        look: Callable[[str], None] = lambda _run: None,
    ) -> Report:
        """Return the report of the archive `key` when its run has ended.

        Until then `look` is called with the run again and again.
        """
        deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
        while time.monotonic() < deadline:
            run = self.find_run(key)
            report = None if run is None else self.report(run)
            if report is not None:
                return report
            if run is not None:
                look(run)
            time.sleep(pause)
            pause = min(pause * GROWTH, LONGEST_PAUSE)
        raise EmbeddedAwsError(f"no report of {key} in {seconds:.0f} s\n{self.logs()}")

    def extract(self, key: str, body: bytes) -> Report:
        self.put(key, body)
        return self.wait(key)

    def read(self, name: str) -> bytes | None:
        """Return an object of the work bucket, None if there is none."""
        s3 = self.client("s3")
        try:
            answer = s3.get_object(Bucket=self.outputs["WorkBucket"], Key=name)
        except s3.exceptions.NoSuchKey:
            return None
        body: bytes = answer["Body"].read()
        return body

    def members(self, prefix: str = "") -> dict[str, bytes]:
        s3, bucket = self.client("s3"), self.outputs["DestinationBucket"]
        return {
            key: s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            for key in self.member_keys(prefix)
        }

    def member_keys(self, prefix: str = "") -> list[str]:
        pages = self.client("s3").get_paginator("list_objects_v2")
        listed = pages.paginate(Bucket=self.outputs["DestinationBucket"], Prefix=prefix)
        return [found["Key"] for page in listed for found in page.get("Contents", [])]

    def waiting(self, queue: str = "QueueUrl") -> int:
        """Return how many messages a queue holds, in flight or not."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        answer = self.client("sqs").get_queue_attributes(
            QueueUrl=self.outputs[queue], AttributeNames=names
        )
        return sum(int(answer["Attributes"][name]) for name in names)

    def logs(self, since: float = 0.0) -> str:
        """Return what the functions logged since a Unix time, newest last."""
        logs = self.client("logs")
        events: list[dict[str, Any]] = []
        for group in logs.describe_log_groups()["logGroups"]:
            found = logs.filter_log_events(
                logGroupName=group["logGroupName"], startTime=int(since * 1_000)
            )
            events += found["events"]
        events.sort(key=lambda event: event["timestamp"])
        return "\n".join(event["message"] for event in events)

    def metrics(self) -> Iterator[dict[str, Any]]:
        """Yield the EMF lines that the functions logged."""
        for line in self.logs().splitlines():
            if line.startswith("{") and '"_aws"' in line:
                yield json.loads(line)

    def _folders(self, prefix: str) -> list[str]:
        pages = self.client("s3").get_paginator("list_objects_v2")
        listed = pages.paginate(Bucket=self.outputs["WorkBucket"], Prefix=prefix, Delimiter="/")
        return [one["Prefix"] for page in listed for one in page.get("CommonPrefixes", [])]
