"""What to do about each alarm: the text beside the alarms on the dashboard.

docs/howto/alarms.md has the full steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aws_cdk import aws_cloudwatch as cloudwatch


@dataclass(frozen=True, slots=True)
class Step:
    """Alarms with the same first step, and that step in Markdown."""

    alarms: tuple[str, ...]
    action: str


def runbook_steps(environment: str, dead_letters_arn: str, report_function: str) -> list[Step]:
    """Return the steps, the most urgent first."""
    env = f"--env {environment}"
    return [
        Step(
            ("FailedRuns", "TimedOutRuns", "AbortedRuns"),
            f"`s3unzip runs {env}` lists the runs, `s3unzip show RUN {env}` says why. Fix the "
            f"cause, then `s3unzip resume RUN {env}`.",
        ),
        Step(
            ("DeadLetters", "PlanCrashed"),
            "Archives have no plan. Read the plan function's log. Fix the cause, then `aws sqs "
            f"start-message-move-task --source-arn {dead_letters_arn}`.",
        ),
        Step(
            ("UndeliveredArchives",),
            f"Events of archives were lost: `s3unzip reconcile {env} --start`. Then purge the "
            "queue.",
        ),
        Step(
            ("UndeliveredFailures", "FailedReports"),
            f"Runs failed without a report: invoke `{report_function}` with each message.",
        ),
        Step(
            ("RunsWaitLong",),
            f"Runs wait for workers: `s3unzip runs {env}`. Nothing is lost. If it lasts: "
            "docs/howto/bursts.md.",
        ),
        Step(
            ("SlowArchives", "S3Throttling", "ExtractThrottled"),
            "Runs go on, slower. Compare the stages and the throttles below: a queue that waits "
            "needs `intake.concurrency`, tasks that wait need `runs.max_workers` or fewer "
            "throttles.",
        ),
    ]


def runbook_text(steps: list[Step], alarms: Mapping[str, cloudwatch.Alarm]) -> str:
    """Return the Markdown table of the steps, with a link to each alarm in the console."""
    rows = [f"| {_links(step, alarms)} | {step.action} |" for step in steps]
    return "\n".join(
        [
            "## What to do",
            "An alarm is red: find its row. Every step in full: docs/howto/alarms.md.",
            "",
            "| alarm | do |",
            "| --- | --- |",
            *rows,
        ]
    )


def _links(step: Step, alarms: Mapping[str, cloudwatch.Alarm]) -> str:
    """Link by fragment, like the documented `#dashboards:name=`, which works in any Region."""
    return ", ".join(f"[{name}](#alarmsV2:alarm/{alarms[name].alarm_name})" for name in step.alarms)
