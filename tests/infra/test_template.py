"""Resources, rights and retention of the synthesized template.

A synthesis fails where cdk-nag finds a wildcard without a reason.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from infra.reasons import listed, reason_for
from s3unzip.settings import PROCESS_VARIABLES, Variable
from tests.infra.templates import Synthesized
from tests.support.assemblies import BOUNDARY, KMS_KEY, TOPIC

FUNCTIONS = ("intake", "plan", "extract", "settle")
ARCHIVES = "<StorageIngest.Arn>/*"
MEMBERS = "<StorageDestination.Arn>/*"
RUNS = "<StorageWork.Arn>/runs/*"
XRAY = {("xray:PutTraceSegments", "*"), ("xray:PutTelemetryRecords", "*")}
MACHINE = "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:stateMachine:s3unzip-dev"
BUS = "arn:<AWS::Partition>:events:<AWS::Region>:<AWS::AccountId>:event-bus/default"
TASKS = {
    ("s3:GetObject", ARCHIVES),
    ("s3:GetObjectVersion", ARCHIVES),
    ("s3:GetObject", MEMBERS),
    ("s3:PutObject", MEMBERS),
    ("s3:AbortMultipartUpload", MEMBERS),
    ("s3:ListBucket", "<StorageDestination.Arn>"),
    ("s3:GetObject", RUNS),
    ("s3:PutObject", RUNS),
    ("s3:AbortMultipartUpload", RUNS),
    ("s3:ListBucket", "<StorageWork.Arn>"),
}
ENDS = TASKS | {
    ("s3:ListBucket", "<StorageIngest.Arn>"),
    ("s3:ListBucketMultipartUploads", "<StorageDestination.Arn>"),
    ("states:StartExecution", MACHINE),
    ("states:DescribeExecution", MACHINE.replace(":stateMachine:", ":execution:") + ":*"),
    ("events:PutEvents", BUS),
}
POLLS = ("ReceiveMessage", "ChangeMessageVisibility", "GetQueueUrl", "DeleteMessage")
RIGHTS = {
    "intake": ENDS
    | {(f"sqs:{one}", "<IntakeQueue.Arn>") for one in (*POLLS, "GetQueueAttributes")},
    "plan": ENDS | {("s3:DeleteObject", RUNS)},
    "extract": TASKS,
    "settle": ENDS | {("sqs:SendMessage", "<IntakeFailedReports.Arn>")},
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_rights_are_exact(dev: Synthesized, function: str) -> None:
    """A function's role has exactly these actions on these resources, and its log group."""
    logs = f"<Functions{function.capitalize()}Logs.Arn>"
    own = {("logs:CreateLogStream", logs), ("logs:PutLogEvents", logs)}
    assert dev.rights(function) == RIGHTS[function] | own | XRAY


def test_nothing_sends_to_the_queue_that_feeds_intake(prod: Synthesized) -> None:
    """No role may: Lambda stops functions that feed themselves by a queue (loop detection)."""
    rights = {right for name in prod.resources("AWS::IAM::Policy") for right in prod.policy(name)}
    assert not [one for one in rights if one[0] == "sqs:SendMessage" and "IntakeQueue" in one[1]]


def test_each_function_has_its_own_role(dev: Synthesized) -> None:
    """No two functions share a role, and no role has a managed policy."""
    functions = dev.resources("AWS::Lambda::Function").values()
    roles = {function["Role"]["Fn::GetAtt"][0] for function in functions}
    assert len(roles) == len(functions) == len(FUNCTIONS)
    assert not [r for r in dev.resources("AWS::IAM::Role").values() if "ManagedPolicyArns" in r]


@pytest.mark.parametrize(
    ("actions", "resource", "reasons"),
    [
        (["s3:PutObject"], "<StorageIngest.Arn>/*", ["Keys below a prefix have no ARNs"]),
        (
            # CDK merges statements.
            ["logs:CreateLogDelivery", "logs:DeleteLogDelivery", "xray:PutTraceSegments"],
            "*",
            ["X-Ray's actions take no resource.", "log delivery takes no resource"],
        ),
        (["s3:PutObject"], "*", []),
        (["s3:DeleteBucket"], "<StorageIngest.Arn>/*", []),
        (["s3:*"], "<StorageIngest.Arn>/*", []),
        (["iam:PassRole"], "*", []),
        (["xray:PutTraceSegments", "s3:GetObject"], "*", []),
        ([], "*", []),
    ],
)
def test_reasons_for_wildcards(actions: list[str], resource: str, reasons: list[str]) -> None:
    """Each action needs one; merged actions have all of theirs, each once."""
    found = reason_for(actions, resource)
    assert (found is None) == (not reasons)
    assert [reason for reason in reasons if str(found).count(reason) != 1] == []


def test_functions(dev: Synthesized) -> None:
    """All are arm64 from one asset, with the environment's memory and time."""
    functions = dev.resources("AWS::Lambda::Function").values()
    assert {one["Architectures"][0] for one in functions} == {"arm64"}
    assert len({json.dumps(one["Code"]) for one in functions}) == 1
    for name in FUNCTIONS:
        made = dev.properties("AWS::Lambda::Function", f"Functions{name.capitalize()}")
        section = getattr(dev.environment.functions, name)
        assert (made["MemorySize"], made["Timeout"]) == (section.memory, section.timeout)
        assert made["TracingConfig"] == {"Mode": "Active"}
        assert "VpcConfig" not in made
        variables = made["Environment"]["Variables"]
        assert PROCESS_VARIABLES.items() <= variables.items()
        missing = set(Variable) - variables.keys() - {Variable.PASSWORD_SECRET}  # if asked for
        assert missing == (set() if name == "intake" else {Variable.QUEUE})


def test_buckets(dev: Synthesized, prod: Synthesized) -> None:
    """Buckets are private, encrypted, TLS-only, and outlive the stack where it says so."""
    for synthesized, policy in ((dev, "Delete"), (prod, "RetainExceptOnCreate")):
        buckets = synthesized.resources("AWS::S3::Bucket")
        assert len(buckets) == 3
        for name, bucket in buckets.items():
            assert synthesized.template["Resources"][name]["DeletionPolicy"] == policy
            assert set(bucket["PublicAccessBlockConfiguration"].values()) == {True}
            (rule,) = bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"]
            assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
        refused = [
            statement
            for one in synthesized.resources("AWS::S3::BucketPolicy").values()
            for statement in one["PolicyDocument"]["Statement"]
            if statement["Effect"] == "Deny"
            and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        ]
        assert len(refused) == 3


def test_versions_and_events(options: Synthesized) -> None:
    """The ingest bucket keeps versions and sends events; a destination keeps them if asked to."""
    ingest = options.properties("AWS::S3::Bucket", "StorageIngest")
    for bucket in (ingest, options.properties("AWS::S3::Bucket", "StorageDestination")):
        assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}
    events = ingest["NotificationConfiguration"]["EventBridgeConfiguration"]
    assert events == {"EventBridgeEnabled": True}


@pytest.mark.parametrize(("bucket", "days"), [("Ingest", 1), ("Destination", 28), ("Work", 1)])
def test_incomplete_uploads(dev: Synthesized, bucket: str, days: int) -> None:
    """Parts of members outlive a run of a week, 14 days until it is resumed, and that run."""
    properties = dev.properties("AWS::S3::Bucket", f"Storage{bucket}")
    name = "AbortIncompleteMultipartUpload"
    rules = properties["LifecycleConfiguration"]["Rules"]
    assert [one[name] for one in rules if name in one] == [{"DaysAfterInitiation": days}]
    assert dev.definition()["TimeoutSeconds"] == 7 * 24 * 3600


def test_retention(prod: Synthesized) -> None:
    """Runs, logs and dead letters are kept as long as the environment says, and no longer."""
    work = prod.properties("AWS::S3::Bucket", "StorageWork")
    expiry = [rule.get("ExpirationInDays") for rule in work["LifecycleConfiguration"]["Rules"]]
    assert prod.environment.work.expire_days in expiry
    groups = prod.resources("AWS::Logs::LogGroup")
    assert len(groups) == len(FUNCTIONS) + 1
    every = prod.template["Resources"]
    for name, group in groups.items():
        ours = not name.startswith("Workflow")  # it has a name, which a retained one would hold
        assert group["RetentionInDays"] == (prod.environment.logs.days if ours else 30)
        assert every[name]["DeletionPolicy"] == ("RetainExceptOnCreate" if ours else "Delete")
    for name, queue in prod.resources("AWS::SQS::Queue").items():
        assert queue["MessageRetentionPeriod"] == 14 * 86_400
        assert (
            name.startswith("IntakeQueue")
            or every[name]["DeletionPolicy"] == "RetainExceptOnCreate"
        )


def test_reserved_concurrency(dev: Synthesized, prod: Synthesized) -> None:
    """In prod each function has its own, in dev none has."""
    for made, has in ((dev, False), (prod, True)):
        for function in made.resources("AWS::Lambda::Function").values():
            assert bool(function.get("ReservedConcurrentExecutions")) == has
    assert prod.environment.max_workers < prod.environment.workers == 700


def test_event_path(dev: Synthesized) -> None:
    """S3's events of archives reach the queue, and the queue the intake function, one by one."""
    rule = dev.properties("AWS::Events::Rule", "IntakeArchivePut")
    assert rule["EventPattern"]["detail"]["object"]["key"] == [
        {"wildcard": "*.zip"},
        {"wildcard": "*.ZIP"},
        {"wildcard": "*.Zip"},
    ]
    (mapping,) = dev.resources("AWS::Lambda::EventSourceMapping").values()
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    queue = dev.properties("AWS::SQS::Queue", "IntakeQueue")
    assert queue["VisibilityTimeout"] >= 6 * dev.environment.functions.intake.timeout
    assert queue["RedrivePolicy"]["maxReceiveCount"] == dev.environment.intake.attempts


def test_a_malware_gate(dev: Synthesized, synthesized: Callable[[str], Synthesized]) -> None:
    """Every result of a scan reaches the queue, S3's events do not; tags may be read."""
    made = synthesized("scanned")
    pattern = made.properties("AWS::Events::Rule", "IntakeArchivePut")["EventPattern"]
    assert pattern["source"] == ["aws.guardduty"]
    assert pattern["detail-type"] == ["GuardDuty Malware Protection Object Scan Result"]
    (bucket,) = pattern["detail"]["s3ObjectDetails"]["bucketName"]
    assert bucket["Ref"].startswith("StorageIngest")
    keys = [{"wildcard": f"in/*{suffix}"} for suffix in (".zip", ".ZIP", ".Zip")]
    assert pattern["detail"]["s3ObjectDetails"]["objectKey"] == keys
    read = ("s3:GetObjectVersionTagging", "<StorageIngest.Arn>/in/*")
    for name in FUNCTIONS:
        assert (read in made.rights(name)) == (name != "extract")
        assert read[0] not in {action for action, _ in dev.rights(name)}
        function = made.properties("AWS::Lambda::Function", f"Functions{name.capitalize()}")
        variables = function["Environment"]["Variables"]
        assert variables[Variable.SCAN] == "guardduty"
        assert json.loads(variables[Variable.LIMITS])["parts"] == 1
    alarm = made.properties("AWS::CloudWatch::Alarm", "AlarmsWithheldArchives")
    assert alarm["MetricName"] == "ArchivesWithheld"


def test_failed_executions_are_reported(dev: Synthesized) -> None:
    """Executions that fail, time out or are aborted reach the settle function."""
    rule = dev.properties("AWS::Events::Rule", "WorkflowFailed")
    assert rule["EventPattern"]["detail"]["status"] == ["FAILED", "TIMED_OUT", "ABORTED"]
    (target,) = rule["Targets"]
    assert target["Arn"]["Fn::GetAtt"][0].startswith("FunctionsSettle")
    dead = target["DeadLetterConfig"]["Arn"]["Fn::GetAtt"][0]
    assert dead.startswith("IntakeUndeliveredFailures")


def test_failed_reports_are_kept(dev: Synthesized) -> None:
    """An event that the settle function fails to settle goes to a queue with an alarm."""
    properties = dev.properties("AWS::Lambda::EventInvokeConfig", "IntakeSettleAttempts")
    assert properties["FunctionName"]["Ref"].startswith("FunctionsSettle")
    assert properties["MaximumRetryAttempts"] == 2
    kept = properties["DestinationConfig"]["OnFailure"]["Destination"]["Fn::GetAtt"][0]
    assert kept.startswith("IntakeFailedReports")
    assert kept in json.dumps(dev.properties("AWS::CloudWatch::Alarm", "AlarmsFailedReports"))


def test_each_sender_has_its_own_dead_letters(dev: Synthesized) -> None:
    """SQS can move messages back only out of a queue that only SQS puts messages into."""
    redriven = dev.properties("AWS::SQS::Queue", "IntakeQueue")["RedrivePolicy"]
    senders = [redriven["deadLetterTargetArn"]]
    for rule in dev.resources("AWS::Events::Rule").values():
        senders += [target["DeadLetterConfig"]["Arn"] for target in rule["Targets"]]
    for config in dev.resources("AWS::Lambda::EventInvokeConfig").values():
        senders.append(config["DestinationConfig"]["OnFailure"]["Destination"])
    names = {sender["Fn::GetAtt"][0] for sender in senders}
    assert len(names) == len(senders) == 4
    assert names < dev.resources("AWS::SQS::Queue").keys()
    told = dev.template["Outputs"]
    assert told["DeadLettersArn"]["Value"] == redriven["deadLetterTargetArn"]
    assert {"UndeliveredArchivesUrl", "UndeliveredFailuresUrl", "FailedReportsUrl"} <= set(told)


@pytest.mark.parametrize(
    ("variant", "level"), [("nested", "DEBUG"), ("dev", "INFO"), ("options", "INFO")]
)
def test_log_levels(synthesized: Callable[[str], Synthesized], variant: str, level: str) -> None:
    """Lambda's own filter never drops metrics, which are INFO, nor an invocation's report."""
    for function in synthesized(variant).resources("AWS::Lambda::Function").values():
        logging = function["LoggingConfig"]
        assert (logging["LogFormat"], logging["ApplicationLogLevel"]) == ("JSON", level)
        assert logging["SystemLogLevel"] == "INFO"


def test_existing_buckets_and_key(synthesized: Callable[[str], Synthesized]) -> None:
    """Existing buckets are used by name, none is created, and their key is granted exactly."""
    made = synthesized("existing")
    assert made.resources("AWS::S3::Bucket") == {}
    arrivals, members = "arn:<AWS::Partition>:s3:::arrivals", "arn:<AWS::Partition>:s3:::members"
    assert made.rights("extract") >= {
        ("s3:GetObject", f"{arrivals}/zips/*"),
        ("s3:GetObjectVersion", f"{arrivals}/zips/*"),  # whatever `versioned` says
        ("s3:GetObject", f"{members}/out/*"),
        ("s3:ListBucket", members),
        ("kms:Decrypt", KMS_KEY),
        ("kms:GenerateDataKey", KMS_KEY),
    }
    rule = made.properties("AWS::Events::Rule", "IntakeArchivePut")
    assert rule["EventPattern"]["detail"]["object"]["key"] == [
        {"wildcard": "zips/*.zip"},
        {"wildcard": "zips/*.ZIP"},
        {"wildcard": "zips/*.Zip"},
    ]


def test_policy_for_a_destination_of_another_account(
    synthesized: Callable[[str], Synthesized],
) -> None:
    """The stack says what the policy of an existing destination bucket must allow, and whom."""
    text = json.dumps(synthesized("existing").template["Outputs"]["DestinationPolicy"]["Value"])
    actions = ("s3:PutObject", "s3:AbortMultipartUpload", "s3:ListBucket")
    roles = (f"Functions{name.capitalize()}Role" for name in FUNCTIONS)
    assert [part for part in (*actions, *roles, "members/out/*") if part not in text] == []


def _reference(value: object) -> str:
    """Return the logical id that a Ref or a GetAtt names; any other value as it is."""
    if isinstance(value, dict):
        if "Ref" in value:
            return str(value["Ref"])
        if "Fn::GetAtt" in value:
            return str(value["Fn::GetAtt"][0])
    return str(value)


def _policies(made: Synthesized, kind: str, member: str) -> dict[str, list[dict[str, Any]]]:
    statements: dict[str, list[dict[str, Any]]] = {}
    for policy in made.resources(kind).values():
        for protected in policy[member]:
            statements[_reference(protected)] = policy["PolicyDocument"]["Statement"]
    return statements


def _lets_in(statements: list[dict[str, Any]], action: str, service: str) -> bool:
    return any(
        statement["Effect"] == "Allow"
        and action in listed(statement["Action"])
        and statement["Principal"] == {"Service": service}
        and ("aws:SourceAccount" in str(statement["Condition"]) or "ArnEquals" in str(statement))
        for statement in statements
    )


@pytest.mark.parametrize("variant", ["told", "options"])
def test_each_alarm_reaches_its_topic(
    synthesized: Callable[[str], Synthesized], variant: str
) -> None:
    """Each action is a topic whose policy lets CloudWatch publish, or a topic of the user's."""
    made = synthesized(variant)
    policies = _policies(made, "AWS::SNS::TopicPolicy", "Topics")
    alarms = made.resources("AWS::CloudWatch::Alarm").values()
    own = {_reference(action) for alarm in alarms for action in alarm["AlarmActions"]} - {TOPIC}
    assert own == made.resources("AWS::SNS::Topic").keys()
    for topic in own:
        assert _lets_in(policies[topic], "sns:Publish", "cloudwatch.amazonaws.com")


@pytest.mark.parametrize("variant", ["dev", "prod", "nested", "existing"])
def test_each_rule_reaches_its_target(
    synthesized: Callable[[str], Synthesized], variant: str
) -> None:
    """A queue's policy or a function's permission lets each rule in, dead letters included."""
    made = synthesized(variant)
    queues = _policies(made, "AWS::SQS::QueuePolicy", "Queues")
    permitted = {
        (_reference(permission["FunctionName"]), _reference(permission["SourceArn"]))
        for permission in made.resources("AWS::Lambda::Permission").values()
        if permission["Principal"] == "events.amazonaws.com"
    }
    for name, rule in made.resources("AWS::Events::Rule").items():
        for target in rule["Targets"]:
            for logical in map(_reference, [target["Arn"], target["DeadLetterConfig"]["Arn"]]):
                if logical in made.resources("AWS::SQS::Queue"):
                    assert _lets_in(queues[logical], "sqs:SendMessage", "events.amazonaws.com")
                else:
                    assert (logical, name) in permitted


def test_each_queue_has_a_sender_that_may_send(synthesized: Callable[[str], Synthesized]) -> None:
    """Of each queue of prod somebody knows what comes, and nobody may send without TLS."""
    made = synthesized("told")
    policies = _policies(made, "AWS::SQS::QueuePolicy", "Queues")
    queues = made.resources("AWS::SQS::Queue")
    targets = [
        target
        for rule in made.resources("AWS::Events::Rule").values()
        for target in rule["Targets"]
    ]
    redriven = [queue["RedrivePolicy"] for queue in queues.values() if "RedrivePolicy" in queue]
    configs = made.resources("AWS::Lambda::EventInvokeConfig").values()
    destinations = [one["DestinationConfig"]["OnFailure"]["Destination"] for one in configs]
    senders = {
        "EventBridge": [target["Arn"] for target in targets],
        "EventBridge, undelivered": [target["DeadLetterConfig"]["Arn"] for target in targets],
        "SQS": [policy["deadLetterTargetArn"] for policy in redriven],
        "Lambda": destinations,
    }
    reached = {_reference(arn) for arns in senders.values() for arn in arns}
    assert queues.keys() <= reached
    for destination in destinations:
        assert ("sqs:SendMessage", f"<{_reference(destination)[:-8]}.Arn>") in made.rights("settle")
    for name in queues:
        denials = [one for one in policies[name] if one["Effect"] == "Deny"]
        assert [one["Condition"] for one in denials] == [{"Bool": {"aws:SecureTransport": "false"}}]


def test_the_event_source_is_the_limit_of_intake(dev: Synthesized, prod: Synthesized) -> None:
    """A reservation without a maximum would let messages count as received while throttled."""
    for made, maximum in ((dev, 100), (prod, 50)):
        (mapping,) = made.resources("AWS::Lambda::EventSourceMapping").values()
        assert mapping["ScalingConfig"] == {"MaximumConcurrency": maximum}
    intake = prod.properties("AWS::Lambda::Function", "FunctionsIntake")
    assert intake["ReservedConcurrentExecutions"] == 50


def test_a_map_survives_faults_of_its_own_requests(dev: Synthesized) -> None:
    """Step Functions reads the list and writes the result itself; a fault of S3 is retried."""
    (retry,) = dev.definition()["States"]["Many tasks"]["Retry"]
    assert retry["ErrorEquals"] == ["States.ItemReaderFailed", "States.ResultWriterFailed"]
    assert retry["MaxAttempts"] > 0


def test_each_key_has_its_rights(company: Synthesized) -> None:
    """Existing buckets and the secret have keys of their own; the key of members is not sent."""
    buckets = {KMS_KEY, f"{KMS_KEY}1", f"{KMS_KEY}2"}
    for name in FUNCTIONS:
        rights = company.rights(name)
        written = {key for action, key in rights if action == "kms:GenerateDataKey"}
        read = {key for action, key in rights if action == "kms:Decrypt"}
        assert written == buckets
        assert read == buckets | (set() if name == "settle" else {f"{KMS_KEY}3"})
        function = company.properties("AWS::Lambda::Function", f"Functions{name.capitalize()}")
        assert function["Environment"]["Variables"][Variable.DESTINATION_KMS_KEY] == ""
    machine = {key for action, key in company.policy("WorkflowRunsRole") if action == "kms:Decrypt"}
    assert machine == {KMS_KEY}
    outputs = company.template["Outputs"]
    keys = [outputs[f"{role}Key"]["Value"] for role in ("Ingest", "Destination", "Work")]
    assert keys == [f"{KMS_KEY}1", f"{KMS_KEY}2", KMS_KEY]


# What a function in a VPC needs: docs.aws.amazon.com/lambda, configuration-vpc.
NETWORK_INTERFACES = [
    "CreateNetworkInterface",
    "DescribeNetworkInterfaces",
    "DescribeSubnets",
    "DeleteNetworkInterface",
    "AssignPrivateIpAddresses",
    "UnassignPrivateIpAddresses",
]


def test_functions_in_a_network(company: Synthesized) -> None:
    """Each function is in the subnets, with the rights for its network interfaces only."""
    for name in FUNCTIONS:
        function = company.properties("AWS::Lambda::Function", f"Functions{name.capitalize()}")
        assert function["VpcConfig"] == {
            "SubnetIds": company.environment.network.subnets,
            "SecurityGroupIds": company.environment.network.security_groups,
        }
        rights = {right for right in company.rights(name) if right[0].startswith("ec2:")}
        assert rights == {(f"ec2:{action}", "*") for action in NETWORK_INTERFACES}


def test_a_boundary_is_on_every_role(company: Synthesized) -> None:
    """The bootstrap's qualifier is the environment's, too."""
    roles = company.resources("AWS::IAM::Role").values()
    assert {role["PermissionsBoundary"] for role in roles} == {BOUNDARY}
    version = company.template["Parameters"]["BootstrapVersion"]
    assert version["Default"] == "/cdk-bootstrap/acme/version"


def test_a_topic_of_sns_reaches_the_queue(company: Synthesized) -> None:
    """The subscription is the queue's, and its policy lets this topic in and no other."""
    (subscription,) = company.resources("AWS::SNS::Subscription").values()
    queue = _reference(subscription["Endpoint"])
    assert (subscription["TopicArn"], subscription["Protocol"]) == (TOPIC, "sqs")
    allowed = [
        statement["Condition"]
        for statement in _policies(company, "AWS::SQS::QueuePolicy", "Queues")[queue]
        if statement["Principal"] == {"Service": "sns.amazonaws.com"}
    ]
    assert allowed == [{"ArnEquals": {"aws:SourceArn": TOPIC}}]
