"""``s3unzip doctor``: checks of a deployed environment, each a function that returns one answer.

To add a check, write a function and add a line to `ACCOUNT_CHECKS`; the canary is the last check.
If the operator lacks a permission, or an emulator lacks a service, the answer is not a failure, but
a warning that names the action. If a resource that archives need is gone, the answer is a failure.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from s3unzip.errors import NotFoundError, S3UnzipError
from s3unzip.operate.canary import try_canary
from s3unzip.operate.checks import (
    FAILURE,
    FUNCTION,
    OK,
    RESTORE,
    TOPIC_OUTPUT,
    WARNING,
    Answer,
    CheckResult,
    check_bucket,
    check_key,
    check_rights,
    check_route,
    check_secret,
    run_check,
)
from s3unzip.operate.runs import DeployedRuns
from s3unzip.printable import choose_form, show_count
from s3unzip.version import __version__, source_fingerprint

ALARM = "AWS::CloudWatch::Alarm"
MAX_NAMES = 100  # maximum number of alarms in one DescribeAlarms request
MAX_SHARE = 0.9  # maximum share of the available concurrency; the other functions need the rest
QUOTA = "request a higher quota: Service Quotas, AWS Lambda, Concurrent executions (L-B99A9384)"
UNRESERVE = "aws lambda delete-function-concurrency --function-name"
SET_EMAIL = "set alarms.email in the environment's file and deploy, or add your own action"


def check_stack(runs: DeployedRuns) -> Answer:
    """Check that the last deployment is complete.

    https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/view-stack-events.html
    """
    status: str = runs.stack["StackStatus"]
    state = f"{runs.stack['StackName']} is {status} in {runs.region}, account {runs.account}"
    if status in {"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE"}:
        return Answer(OK, state)
    if status.endswith("IN_PROGRESS"):
        return Answer(WARNING, state, "wait until CloudFormation ends, then run this command again")
    if status == "UPDATE_ROLLBACK_COMPLETE":  # the state before the update was fully restored
        return Answer(
            WARNING,
            state,
            "the update was rolled back: read its events; deploy again if make diff shows changes",
        )
    commands = {  # CloudFormation cannot update a stack that has one of these statuses
        "UPDATE_ROLLBACK_FAILED": "aws cloudformation continue-update-rollback --stack-name "
        f"{runs.stack['StackName']}",
        "DELETE_FAILED": f"make destroy ENV={_environment_name(runs)}",
    }
    advice = "read the stack's events, fix the cause, and deploy again"
    if status in commands:
        advice = f"read the stack's events, fix the cause, {commands[status]}, then deploy again"
    return Answer(FAILURE, state, advice)


def _environment_name(runs: DeployedRuns) -> str:
    """Return the environment's name for `make`; `runs.environment` may be the name of a stack."""
    return str(runs.outputs.get("Environment", runs.environment))


def check_version(runs: DeployedRuns) -> Answer:
    """Check that the functions run the code of this package."""
    deploy = f"deploy again: make deploy ENV={_environment_name(runs)}"
    deployed = runs.outputs.get("Version", "unknown")
    if deployed != __version__:
        return Answer(WARNING, f"version {deployed} is deployed, but this is {__version__}", deploy)
    if runs.outputs.get("Fingerprint") != source_fingerprint():
        return Answer(
            WARNING,
            f"version {deployed} is deployed from source files that differ from this package's",
            f"{deploy}; or check out the deployed version",
        )
    return Answer(OK, f"version {deployed}, from the same source files as this package")


def check_concurrency(runs: DeployedRuns) -> Answer:
    """Check that Lambda may call each function, and ``runs.max_workers`` workers at the same time.

    The quota is 1,000 executions, or 10 for a new account. At least 100 executions stay unreserved:
    https://docs.aws.amazon.com/lambda/latest/dg/lambda-concurrency.html
    """
    limits = runs.ask("lambda:GetAccountSettings", "AccountLimit")
    unreserved = limits["UnreservedConcurrentExecutions"]
    extract = runs.resource_names(FUNCTION, "FunctionsExtract")[0]
    stopped = " ".join(name for name, limit in runs.reserved_concurrency.items() if limit == 0)
    if stopped:
        problem = f"the reserved concurrency of {stopped} is 0, so Lambda does not call it"
        return Answer(FAILURE, problem, f"for NAME in {stopped}; do {UNRESERVE} $NAME; done")
    reserved = runs.reserved_concurrency[extract]
    max_workers = runs.config.tuning.max_workers
    if reserved is None:
        available = unreserved
        pool = "unreserved"
        advice = f"lower runs.max_workers to {int(MAX_SHARE * unreserved):,}, or {QUOTA}"
    else:
        available = reserved
        pool = "reserved"
        advice = (
            "raise functions.extract.reserved_concurrency; a limit that was set in the console "
            f"stays until {UNRESERVE} {extract}"
        )
    state = (
        f"{unreserved:,} of the account's {limits['ConcurrentExecutions']:,} concurrent executions "
        f"are unreserved; a run may have {show_count(max_workers, 'worker')}, and the extract "
        f"function can use {available:,} {pool} executions"
    )
    if max_workers > available:
        return Answer(FAILURE, f"{state}: Lambda will refuse workers", advice)
    if reserved is None and max_workers > MAX_SHARE * available:
        return Answer(
            WARNING,
            f"{state}: runs leave too few executions for other functions",
            "set functions.extract.reserved_concurrency below "
            f"{MAX_SHARE:.0%} of the unreserved concurrency, or {QUOTA}",
        )
    return Answer(OK, state)


def check_events(runs: DeployedRuns) -> Answer:
    """Check that the ingest bucket sends events to EventBridge, or that the queue gets them by SNS.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/enable-event-notifications-eventbridge.html
    """
    topic = runs.outputs.get(TOPIC_OUTPUT)
    if topic is not None:
        return _check_topic(runs, topic)
    bucket = runs.outputs["IngestBucket"]
    # If events are enabled, the response has this field, with an empty value.
    if "EventBridgeConfiguration" not in runs.ask(
        "s3:GetBucketNotificationConfiguration", Bucket=bucket
    ):
        return Answer(
            FAILURE,
            f"{bucket} does not send events to EventBridge: no archive will start a run",
            "switch it on in the bucket's properties: Event notifications, Amazon EventBridge",
        )
    return Answer(OK, f"{bucket} sends its events to EventBridge")


def _check_topic(runs: DeployedRuns, topic: str) -> Answer:
    """Check that the queue is subscribed to the topic that sends the events about archives."""
    try:
        subscription = runs.resource_names("AWS::SNS::Subscription", "IntakeQueue")[0]
        runs.ask(
            "sns:GetSubscriptionAttributes", region_of=subscription, SubscriptionArn=subscription
        )
    except NotFoundError:
        return Answer(
            FAILURE, f"the queue is not subscribed to {topic}: no archive will start a run", RESTORE
        )
    return Answer(OK, f"the queue is subscribed to {topic}")


def check_rules(runs: DeployedRuns) -> Answer:
    """Check that the EventBridge rules of the stack are enabled."""
    rules = [
        runs.ask("events:DescribeRule", Name=name)
        for name in runs.resource_names("AWS::Events::Rule")
    ]
    disabled = [rule["Name"] for rule in rules if rule.get("State") != "ENABLED"]
    if disabled:
        return Answer(
            FAILURE,
            f"{', '.join(disabled)}: not enabled, so no target receives events",
            f"aws events enable-rule --name {disabled[0]}",
        )
    return Answer(OK, f"{len(rules)} EventBridge rules are enabled")


def check_scan(runs: DeployedRuns) -> Answer:
    """Check that GuardDuty scans and tags the ingest bucket's objects, if archives wait for a scan.

    https://docs.aws.amazon.com/guardduty/latest/APIReference/API_GetMalwareProtectionPlan.html
    """
    bucket = runs.outputs["IngestBucket"]
    advice = "docs/howto/malware.md says how to create a plan"
    if not runs.config.scan:
        return Answer(OK, "ingest.scan is not set: archives are opened as they arrive")
    # A page can have 100 plans; the quota for an account in a region is lower.
    for summary in runs.ask("guardduty:ListMalwareProtectionPlans", "MalwareProtectionPlans"):
        name = summary["MalwareProtectionPlanId"]
        plan = runs.ask("guardduty:GetMalwareProtectionPlan", MalwareProtectionPlanId=name)
        if plan["ProtectedResource"]["S3Bucket"]["BucketName"] != bucket:
            continue
        if plan["Status"] != "ACTIVE":
            return Answer(WARNING, f"the plan {name} of GuardDuty is {plan['Status']}", advice)
        if plan["Actions"]["Tagging"]["Status"] != "ENABLED":
            return Answer(
                WARNING,
                f"the plan {name} of GuardDuty sets no tags, so submit cannot start runs",
                "enable tagging in the plan",
            )
        return Answer(OK, f"GuardDuty scans {bucket} and tags what it has scanned")
    return Answer(
        FAILURE,
        f"no GuardDuty Malware Protection plan protects {bucket}, so no archive will be opened",
        advice,
    )


def check_trigger(runs: DeployedRuns) -> Answer:
    """Check that the queue exists and invokes the intake function."""
    function = runs.outputs["IntakeFunction"]
    waiting = count_messages(runs, runs.outputs["QueueUrl"])  # raises an error without the queue
    states = [
        source.get("State", "unknown")
        for source in runs.ask(
            "lambda:ListEventSourceMappings", "EventSourceMappings", FunctionName=function
        )
    ]
    if not states:
        return Answer(FAILURE, f"no queue invokes {function}", RESTORE)
    if set(states) != {"Enabled"}:
        return Answer(
            FAILURE,
            f"the trigger from the queue to {function} is {', '.join(states)}",
            "enable it in the configuration of the function, under Triggers",
        )
    return Answer(OK, f"the queue has {show_count(waiting, 'message')} and invokes {function}")


def check_machine(runs: DeployedRuns) -> Answer:
    """Check that the state machine exists; the canary is usually extracted without it."""
    status = runs.ask(
        "states:DescribeStateMachine", "status", stateMachineArn=runs.outputs["StateMachineArn"]
    )
    if status == "DELETING":  # an execution is still running
        raise NotFoundError("somebody has deleted the state machine")
    return Answer(OK, "the state machine for larger archives exists")


def check_dead_letters(runs: DeployedRuns) -> Answer:
    """Check that the dead-letter queues (all queues but the intake queue) are empty."""
    queues = [
        url for url in runs.resource_names("AWS::SQS::Queue") if url != runs.outputs["QueueUrl"]
    ]
    if not queues:
        raise NotFoundError("the stack has no dead-letter queue: a failed event would be lost")
    counts = {url.rsplit("/", 1)[-1]: count_messages(runs, url) for url in queues}
    names = [name for name, count in counts.items() if count]
    if names:
        total = sum(counts.values())
        return Answer(
            WARNING,
            f"{total:,} {choose_form(total, 'message is', 'messages are')} in {', '.join(names)}",
            "read the messages and the functions' logs, fix the cause, then move the messages "
            "back: docs/howto/dashboard.md, DeadLetters",
        )
    return Answer(OK, f"no messages in {', '.join(counts)}")


def count_messages(runs: DeployedRuns, queue: str) -> int:
    """Return the approximate number of messages in a queue, both waiting and in flight."""
    counts = runs.ask(
        "sqs:GetQueueAttributes",
        "Attributes",
        QueueUrl=queue,
        AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
    )
    return sum(map(int, counts.values()))


def check_logs(runs: DeployedRuns) -> Answer:
    """Check that the log groups of the stack exist.

    The functions have no permission to create a log group. Their metrics are log lines, so alarms
    without a log group stay silent.
    """
    deleted = [
        name
        for name in runs.resource_names("AWS::Logs::LogGroup")
        # The response also contains groups whose longer names begin with `name`.
        if not any(
            group["logGroupName"] == name
            for group in runs.ask("logs:DescribeLogGroups", "logGroups", logGroupNamePrefix=name)
        )
    ]
    if deleted:
        return Answer(
            WARNING,
            f"somebody has deleted {', '.join(deleted)}: log lines and metrics are lost, and the "
            "alarms on them stay silent",
            f"aws logs create-log-group --log-group-name {deleted[0]}; a new group keeps its lines "
            "forever, so limit the group to logs.days with aws logs put-retention-policy",
        )
    return Answer(OK, "the log groups exist")


def check_alarms(runs: DeployedRuns) -> Answer:
    """Check that each alarm of the stack exists, has an action, and is not in the state ALARM."""
    alarms = _read_alarms(runs)
    deleted = {*runs.resource_names(ALARM)} - {alarm["AlarmName"] for alarm in alarms}
    # First look for alarms in the state ALARM: if such an alarm has no action, nobody was notified.
    ringing = [alarm["AlarmName"] for alarm in alarms if alarm.get("StateValue") == "ALARM"]
    if ringing:
        return Answer(
            WARNING,
            f"in ALARM: {', '.join(ringing)}",
            "docs/howto/dashboard.md says what to do for each alarm",
        )
    if deleted:
        return Answer(WARNING, f"somebody has deleted {', '.join(sorted(deleted))}", RESTORE)
    silent = [
        alarm["AlarmName"]
        for alarm in alarms
        if not (alarm.get("AlarmActions") and alarm.get("ActionsEnabled", True))
    ]
    if silent:
        return Answer(
            WARNING,
            f"{len(silent)} of {len(alarms)} alarms {choose_form(len(silent), 'has', 'have')} no "
            f"action, so nobody is notified: {', '.join(silent)}",
            SET_EMAIL,
        )
    return Answer(OK, f"{len(alarms)} alarms, each with an action, none in ALARM")


def check_notifications(runs: DeployedRuns) -> Answer:
    """Check that CloudWatch delivered the last notification of each alarm.

    The history of an alarm shows which actions failed:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_DescribeAlarmHistory.html
    """
    for alarm in _read_alarms(runs):
        actions = runs.ask(
            "cloudwatch:DescribeAlarmHistory",
            "AlarmHistoryItems",
            AlarmName=alarm["AlarmName"],
            HistoryItemType="Action",
            MaxRecords=1,
        )
        for action in actions:
            if action["HistorySummary"].startswith("Failed"):
                return Answer(
                    FAILURE,
                    f"{alarm['AlarmName']}: {action['HistorySummary']}",
                    "let the policies of the topic and its key allow cloudwatch.amazonaws.com",
                )
    return Answer(OK, "no notification of an alarm failed")


def check_subscriptions(runs: DeployedRuns) -> Answer:
    """Check that each topic that the alarms publish to has a confirmed subscription.

    https://docs.aws.amazon.com/sns/latest/dg/SendMessageToHttp.confirm.html: before confirmation,
    nothing is delivered, and after two days the subscription is deleted.
    """
    topics = sorted(
        {
            arn
            for alarm in _read_alarms(runs)
            for arn in alarm.get("AlarmActions", ())
            if ":sns:" in arn
        }
    )
    if not topics:
        return Answer(WARNING, "the alarms do not publish to a topic", SET_EMAIL)
    for topic in topics:
        subscriptions = runs.ask("sns:ListSubscriptionsByTopic", "Subscriptions", TopicArn=topic)
        arns = [subscription["SubscriptionArn"] for subscription in subscriptions]
        # Before it is confirmed, a subscription has the ARN "PendingConfirmation".
        if not any(arn.startswith("arn:") for arn in arns):
            waiting = "has a subscription that is not confirmed" if arns else "has no subscription"
            return Answer(
                WARNING,
                f"{topic} {waiting}: nobody is notified",
                "follow the link in the message of AWS Notifications, or subscribe again",
            )
    return Answer(OK, f"subscriptions are confirmed for {', '.join(topics)}")


ACCOUNT_CHECKS: Mapping[str, Callable[[DeployedRuns], Answer]] = {
    "stack": check_stack,
    "version": check_version,
    "concurrency": check_concurrency,
    "ingest bucket": partial(check_bucket, purpose="ingest"),
    "destination bucket": partial(check_bucket, purpose="destination"),
    "work bucket": partial(check_bucket, purpose="work"),
    "rights": check_rights,
    "kms key": check_key,
    "password secret": check_secret,
    "events": check_events,
    "rules": check_rules,
    "malware scan": check_scan,
    "trigger": check_trigger,
    "state machine": check_machine,
    "dead letters": check_dead_letters,
    "logs": check_logs,
    "alarms": check_alarms,
    "subscriptions": check_subscriptions,
    "notifications": check_notifications,
}


def diagnose(
    runs: DeployedRuns, canary_seconds: float = 0.0, *, with_canary: bool = False
) -> Iterator[CheckResult]:
    """Run all checks of an environment, then one check per route, then the canary if requested.

    Args:
        runs: the runs of the environment.
        canary_seconds: maximum time to wait for the report of the canary's run.
        with_canary: whether to send the canary through the pipeline.
    """
    for name, check in ACCOUNT_CHECKS.items():
        yield run_check(name, partial(check, runs))
    try:
        routes = runs.config.routes
    except S3UnzipError as error:
        yield CheckResult(
            "settings",
            WARNING,
            f"not read, so no route is checked and no canary is tried: {error}",
            "see the checks above",
        )
        return
    for number, defaults in enumerate(routes):
        if defaults.route is not None:  # always true here, but the type checker cannot tell
            yield run_check(
                f"route {defaults.route.name}", partial(check_route, runs, number, defaults.route)
            )
    if with_canary:
        yield from try_canary(runs, canary_seconds)


def _read_alarms(runs: DeployedRuns) -> list[Any]:
    """Return the alarms of the stack, at most as many as fit into one request."""
    return list(
        runs.ask(
            "cloudwatch:DescribeAlarms",
            "MetricAlarms",
            # The list is never empty: without names, CloudWatch would describe all alarms.
            AlarmNames=runs.resource_names(ALARM)[:MAX_NAMES],
            MaxRecords=MAX_NAMES,
        )
    )
