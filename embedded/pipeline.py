"""The deployed pipeline as a user sees it: put an archive, watch the run, read the report."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from embedded.deploy import deploy, make_client
from embedded.ministack import EmbeddedAwsError
from s3unzip import run_files
from s3unzip.direct.bundle import unpack
from s3unzip.model import PlanSummary, Report, Run, decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from embedded.deploy import Assembly

# Between two looks at a run, seconds: each look takes CPU time from the functions on this machine.
FIRST_PAUSE, LONGEST_PAUSE, GROWTH = 0.05, 0.4, 1.25
HANG_SECONDS = 600.0  # a limit for a busy machine, no promise


@dataclass(slots=True)
class DeployedPipeline:
    """One deployed stack, by its outputs."""

    variables: Mapping[str, str]
    outputs: Mapping[str, str]
    _clients: dict[str, Any] = field(default_factory=dict)
    _runs: dict[str, Run] = field(default_factory=dict)  # by prefix in the work bucket

    @classmethod
    def create(cls, assembly: Assembly, variables: Mapping[str, str]) -> DeployedPipeline:
        """Deploy the stack and return it."""
        return cls(variables, deploy(assembly, variables))

    def client(self, service: str) -> Any:
        """Return the boto3 client of a service."""
        if service not in self._clients:
            self._clients[service] = make_client(service, self.variables)
        return self._clients[service]

    def put(self, key: str, body: bytes) -> None:
        """Put an archive into the ingest bucket."""
        self.client("s3").put_object(Bucket=self.outputs["IngestBucket"], Key=key, Body=body)

    def find_run(self, key: str) -> Run | None:
        """Return the newest run of the archive `key`, None if there is none yet."""
        pages = self.client("s3").get_paginator("list_objects_v2")
        bucket = self.outputs["WorkBucket"]
        for page in pages.paginate(Bucket=bucket, Prefix="runs/", Delimiter="/"):
            for found in page.get("CommonPrefixes", []):
                prefix = found["Prefix"]
                if prefix not in self._runs and not prefix.startswith("runs/-"):
                    body = self._record(prefix, run_files.RUN)
                    if body is not None:
                        self._runs[prefix] = decode(body, Run)
        ours = [run for run in self._runs.values() if run.source.key == key]
        return max(ours, key=lambda run: run.created, default=None)

    def summary(self, run: Run) -> PlanSummary | None:
        """Return the plan's summary, None before the plan ends or if it refused the archive."""
        body = self._record(f"runs/{run.id}/", run_files.SUMMARY)
        return None if body is None else decode(body, PlanSummary)

    def finished_tasks(self, run: Run) -> int:
        """Return how many tasks have outcomes."""
        return sum(1 for _ in self._names(f"runs/{run.id}/outcomes/"))

    def report(self, run: Run) -> Report | None:
        """Return the report of a run, None while the run is active."""
        # The status first: a report that is read after the end is the last one.
        status = self.status(run)
        body = self.read(f"runs/{run.id}/report.json")
        report = None if body is None else decode(body, Report)
        return None if report is None or report.continues or status == "RUNNING" else report

    def status(self, run: Run) -> str | None:
        """Return the status of the run's execution, None if it never had one."""
        machine = self.outputs["StateMachineArn"]
        name = f"{machine.replace(':stateMachine:', ':execution:')}:{run.id}"
        states = self.client("stepfunctions")
        try:
            found: str = states.describe_execution(executionArn=name)["status"]
        except states.exceptions.ExecutionDoesNotExist:
            return None
        return found

    def wait(self, key: str, seconds: float = HANG_SECONDS) -> Report:
        """Return the report of the archive `key` when its run has ended.

        Raises:
            EmbeddedAwsError: it has not in so many seconds.
        """
        deadline, pause = time.monotonic() + seconds, FIRST_PAUSE
        while time.monotonic() < deadline:
            run = self.find_run(key)
            report = None if run is None else self.report(run)
            if report is not None:
                return report
            time.sleep(pause)
            pause = min(pause * GROWTH, LONGEST_PAUSE)
        raise EmbeddedAwsError(f"no report of {key} in {seconds:.0f} s\n{self.logs()}")

    def read(self, name: str) -> bytes | None:
        """Return an object of the work bucket, None if there is none."""
        s3 = self.client("s3")
        try:
            answer = s3.get_object(Bucket=self.outputs["WorkBucket"], Key=name)
        except s3.exceptions.NoSuchKey:
            return None
        body: bytes = answer["Body"].read()
        return body

    def _record(self, prefix: str, name: str) -> bytes | None:
        """Return a record of a run, from the object that has all of them if it was a direct run."""
        body = self.read(prefix + name)
        report = self.read(prefix + run_files.REPORT) if body is None else None
        records = None if report is None else decode(report, Report).records
        bundle = None if records is None else self.read(f"runs/{records}")
        return body if bundle is None else unpack(bundle)[1].get(name)

    def members(self, prefix: str = "") -> dict[str, bytes]:
        """Return the destination's objects below `prefix`, whole."""
        s3, bucket = self.client("s3"), self.outputs["DestinationBucket"]
        keys = self.member_keys(prefix)
        return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    def member_keys(self, prefix: str = "") -> list[str]:
        """Return the keys of the destination's objects below `prefix`."""
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

    def _names(self, prefix: str) -> Iterator[str]:
        pages = self.client("s3").get_paginator("list_objects_v2")
        for page in pages.paginate(Bucket=self.outputs["WorkBucket"], Prefix=prefix):
            yield from (found["Key"] for found in page.get("Contents", []))
