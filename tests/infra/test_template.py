"""Resources, rights and retention of the synthesized template.

A synthesis fails where cdk-nag finds a wildcard without a reason.
"""

import json
import re
from typing import Any

import pytest

from infra.reasons import listed, reason_for, text_of
from s3unzip.settings import PROCESS_VARIABLES, Variable
from tests.infra.conftest import Synthesized, wildcards
from tests.support.assemblies import BOUNDARY, KMS_KEY, TOPIC

FUNCTIONS = ("intake", "plan", "extract", "settle")
ENDS_RUNS = ("intake", "plan", "settle")
ARCHIVES = "<StorageIngest.Arn>/*"
MEMBERS = "<StorageDestination.Arn>/*"
RUNS = "<StorageWork.Arn>/runs/*"
XRAY = {("xray:PutTraceSegments", "*"), ("xray:PutTelemetryRecords", "*")}
MACHINE = "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:stateMachine:s3unzip-dev"
BUS = "arn:<AWS::Partition>:events:<AWS::Region>:<AWS::AccountId>:event-bus/default"
TASKS = {
    ("s3:GetObject", ARCHIVES),
    ("s3:GetObjectVersion", ARCHIVES),
    ("s3:ListBucket", "<StorageIngest.Arn>"),
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
    ("s3:ListBucketMultipartUploads", "<StorageDestination.Arn>"),
    ("states:StartExecution", MACHINE),
    ("states:DescribeExecution", MACHINE.replace(":stateMachine:", ":execution:") + ":*"),
    ("events:PutEvents", BUS),
}
RIGHTS = {
    "intake": ENDS
    | {
        (f"sqs:{action}", "<IntakeQueue.Arn>")
        for action in (
            *("ReceiveMessage", "ChangeMessageVisibility", "GetQueueUrl", "DeleteMessage"),
            "GetQueueAttributes",
        )
    },
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
    rights = {
        right for name in prod.resources("AWS::IAM::Policy") for right in prod.policy(name[:-8])
    }
    assert not [one for one in rights if one[0] == "sqs:SendMessage" and "IntakeQueue" in one[1]]


def test_each_function_has_its_own_role(dev: Synthesized) -> None:
    """No two functions share a role, and no role has a managed policy."""
    roles = [str(one["Role"]) for one in dev.resources("AWS::Lambda::Function").values()]
    assert len(set(roles)) == len(roles) == len(FUNCTIONS)
    assert not [r for r in dev.resources("AWS::IAM::Role").values() if "ManagedPolicyArns" in r]


@pytest.mark.parametrize(
    ("actions", "resource", "reasons"),
    [
        (["s3:PutObject"], "<StorageIngest.Arn>/*", ["Keys below a prefix have no ARNs"]),
        (
            # CDK merges statements.
            ["logs:CreateLogDelivery", "logs:DeleteLogDelivery", "xray:PutTraceSegments"],
            "*",
            [
                "X-Ray's actions do not support resources.",
                "log delivery does not support resources",
            ],
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


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(dev: Synthesized, name: str) -> None:
    """All are arm64 from one asset, with the environment's memory and time."""
    made, section = dev.function(name), getattr(dev.environment.functions, name)
    settings = {
        "Architectures": ["arm64"],
        "Code": dev.function("plan")["Code"],
        "MemorySize": section.memory,
        "Timeout": section.timeout,
        "TracingConfig": {"Mode": "Active"},
        "VpcConfig": None,
    }
    assert {setting: made.get(setting) for setting in settings} == settings


def test_variables_of_functions(dev: Synthesized) -> None:
    """Each function has all variables; the queue is intake's, and no password is asked for."""
    variables = {name: dev.variables(name) for name in FUNCTIONS}
    # A StackSet names its stacks itself.
    equal = {**PROCESS_VARIABLES, Variable.STACK: {"Ref": "AWS::StackName"}}
    assert all(equal.items() <= one.items() for one in variables.values())
    unset = {name: set(Variable) - one.keys() for name, one in variables.items()}
    neither = {Variable.PASSWORD_SECRET, Variable.QUEUE}
    assert unset == dict.fromkeys(FUNCTIONS, neither) | {"intake": {Variable.PASSWORD_SECRET}}


@pytest.mark.parametrize(
    ("variant", "policy"), [("dev", "Delete"), ("prod", "RetainExceptOnCreate")]
)
def test_buckets(made: Synthesized, policy: str) -> None:
    """Buckets are private, encrypted, TLS-only, and outlive the stack where it says so."""
    assert [
        (
            made.template["Resources"][name]["DeletionPolicy"],
            set(bucket["PublicAccessBlockConfiguration"].values()),
            bucket["BucketEncryption"]["ServerSideEncryptionConfiguration"],
        )
        for name, bucket in made.resources("AWS::S3::Bucket").items()
    ] == [(policy, {True}, [{"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}])] * 3
    assert [
        (made.template["Resources"][name]["DeletionPolicy"], statement.get("Condition"))
        for name, one in made.resources("AWS::S3::BucketPolicy").items()
        for statement in one["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
    ].count((policy, {"Bool": {"aws:SecureTransport": "false"}})) == 3


VERSIONS = {"VersioningConfiguration": {"Status": "Enabled"}}


@pytest.mark.parametrize(
    ("variant", "resource", "wanted"),
    [
        pytest.param(
            "options",
            "StorageIngest",
            {
                **VERSIONS,
                "NotificationConfiguration": {
                    "EventBridgeConfiguration": {"EventBridgeEnabled": True}
                },
            },
            id="the ingest bucket keeps versions and sends events",
        ),
        pytest.param(
            "options", "StorageDestination", VERSIONS, id="a destination keeps them if asked to"
        ),
        pytest.param(
            "dev",
            "IntakeArchivePut",
            {
                "EventPattern": {
                    "detail": {
                        "bucket": {"name": ["StorageIngest"]},
                        "object": {"key": wildcards()},
                    }
                },
                "Targets": [
                    {
                        "Arn": "IntakeQueue",
                        "DeadLetterConfig": {"Arn": "IntakeUndeliveredArchives"},
                        "Id": "Target0",
                    }
                ],
            },
            id="events of archives reach the queue",
        ),
        pytest.param(
            "existing",
            "IntakeArchivePut",
            {"EventPattern": {"detail": {"object": {"key": wildcards("my zips/")}}}},
            id="a prefix is in the rule",
        ),
        pytest.param(
            "routes",  # those below the environment's own prefix need no pattern
            "IntakeArchivePut",
            {
                "EventPattern": {
                    "detail": {
                        "object": {
                            "key": [
                                {"prefix": "globex/"},
                                *({"suffix": suffix} for suffix in (".zip", ".ZIP", ".Zip")),
                            ]
                        }
                    }
                }
            },
            id="the rule of several routes has no wildcards, of which EventBridge takes few",
        ),
        pytest.param(
            "scanned",
            "IntakeArchivePut",
            {
                "EventPattern": {
                    "source": ["aws.guardduty"],
                    "detail-type": ["GuardDuty Malware Protection Object Scan Result"],
                    "detail": {
                        "s3ObjectDetails": {
                            "bucketName": ["StorageIngest"],
                            "objectKey": wildcards("in/"),
                        },
                        "object": None,
                        "bucket": None,
                    },
                }
            },
            id="results of scans reach the queue and events of S3 do not",
        ),
        pytest.param(
            "dev",
            "FunctionsIntakeSqsEventSource.*",
            {
                "FunctionResponseTypes": ["ReportBatchItemFailures"],
                "ScalingConfig": {"MaximumConcurrency": 100},
            },
            id="the queue reaches intake message by message",
        ),
        pytest.param(
            "dev",  # intake may take 60 seconds
            "IntakeQueue",
            {"VisibilityTimeout": 6 * 60, "RedrivePolicy": {"maxReceiveCount": 5}},
            id="a message is hidden while intake works and dead after some attempts",
        ),
        # A reservation without a maximum would let messages count as received while throttled.
        pytest.param(
            "prod",
            "FunctionsIntakeSqsEventSource.*",
            {"ScalingConfig": {"MaximumConcurrency": 50}},
            id="the event source of prod is the limit of intake",
        ),
        pytest.param(
            "existing",
            "FunctionsIntakeSqsEventSource.*",
            {"ScalingConfig": {"MaximumConcurrency": 1_000}},
            id="the event source takes no more of a larger reservation",
        ),
        pytest.param(
            "prod",
            "FunctionsIntake",
            {"ReservedConcurrentExecutions": 50},
            id="the reservation of intake is as large",
        ),
        pytest.param(
            "company",
            "IntakeQueue.*IntakeArrivals.*",
            {"TopicArn": TOPIC, "Protocol": "sqs", "Endpoint": "IntakeQueue"},
            id="the queue subscribes to a topic of SNS",
        ),
        pytest.param(
            "options",
            "AlarmsTopicon.*",
            {"Endpoint": "on-call@example.com"},
            id="an address is notified of alarms",
        ),
        pytest.param(
            "dev",
            "WorkflowFailed",
            {
                "EventPattern": {"detail": {"status": ["FAILED", "TIMED_OUT", "ABORTED"]}},
                "Targets": [
                    {
                        "Arn": "FunctionsSettle",
                        "DeadLetterConfig": {"Arn": "IntakeUndeliveredFailures"},
                        "Id": "Target0",
                        "RetryPolicy": {
                            "MaximumEventAgeInSeconds": 21_600,
                            "MaximumRetryAttempts": 10,
                        },
                    }
                ],
            },
            id="executions that fail or are aborted reach the settle function",
        ),
        pytest.param(
            "dev",
            "WorkflowRuns",
            {"StateMachineName": "s3unzip-dev"},
            id="the state machine has the name of the stack, by which others name it",
        ),
        pytest.param(
            "dev",
            "IntakeSettleAttempts",
            {
                "FunctionName": "FunctionsSettle",
                "MaximumRetryAttempts": 2,
                "DestinationConfig": {"OnFailure": {"Destination": "IntakeFailedReports"}},
            },
            id="an event that is not settled goes to a queue",
        ),
        pytest.param(
            "dev",
            "AlarmsFailedReports",
            {"Dimensions": [{"Name": "QueueName", "Value": "IntakeFailedReports"}]},
            id="a message in that queue rings",
        ),
        pytest.param(
            "scanned",
            "AlarmsWithheldArchives",
            {"MetricName": "ArchivesWithheld"},
            id="an archive that is withheld rings",
        ),
        pytest.param(
            "dev",
            "AlarmsArchivesWait",
            {
                "MetricName": "ApproximateAgeOfOldestMessage",
                "Period": 300,
                "EvaluationPeriods": 3,
                "Threshold": 900,
            },
            id="archives that wait for a quarter of an hour ring",
        ),
        pytest.param(
            "dev",
            "AlarmsIntakeThrottled",
            {"MetricName": "Throttles", "EvaluationPeriods": 3},
            id="archives that Lambda refuses ring",
        ),
        pytest.param(
            "dev",  # S3 grows its partitions within minutes
            "AlarmsS3Throttling",
            {"Period": 300, "EvaluationPeriods": 12, "Statistic": "Sum"},
            id="throttling of S3 rings after an hour",
        ),
        pytest.param(
            "dev",  # two runs may share too few workers
            "AlarmsExtractThrottled",
            {"Period": 300, "EvaluationPeriods": 12, "Statistic": "Sum"},
            id="throttling of workers rings after an hour",
        ),
    ],
)
def test_properties_of_a_resource(
    made: Synthesized,
    resource: str,
    wanted: dict[str, Any],
) -> None:
    """A resource has what the architecture needs of it."""
    assert made.part(resource, wanted) == wanted


@pytest.mark.parametrize(("bucket", "days"), [("Ingest", 7), ("Destination", 28), ("Work", 7)])
def test_incomplete_uploads(dev: Synthesized, bucket: str, days: int) -> None:
    """Parts of members outlive a run of a week, 14 days until it is resumed, and that run.

    The upload of an archive may take some days, and that of a Map's result a whole run.
    """
    lifecycle = dev.properties(f"Storage{bucket}")["LifecycleConfiguration"]
    limits = [rule.get("AbortIncompleteMultipartUpload") for rule in lifecycle["Rules"]]
    assert [limit for limit in limits if limit] == [{"DaysAfterInitiation": days}]
    assert dev.definition()["TimeoutSeconds"] == 7 * 24 * 3600


def test_retention(prod: Synthesized) -> None:
    """Runs, logs and dead letters are kept as long as the environment says, and no longer."""
    assert prod.environment.work.expire_days in [
        rule.get("ExpirationInDays")
        for rule in prod.properties("StorageWork")["LifecycleConfiguration"]["Rules"]
    ]
    policies = {
        name: resource.get("DeletionPolicy")
        for name, resource in prod.template["Resources"].items()
    }
    assert {
        name[:-8]: (group["RetentionInDays"], policies[name])
        for name, group in prod.resources("AWS::Logs::LogGroup").items()
    } == dict.fromkeys(
        [f"Functions{name.capitalize()}Logs" for name in FUNCTIONS],
        (prod.environment.logs.days, "RetainExceptOnCreate"),
    ) | {
        # It has a name, which a retained one would hold.
        "WorkflowLogs": (prod.environment.logs.days, "Delete")
    }
    queues = prod.resources("AWS::SQS::Queue")
    assert (
        {queue["MessageRetentionPeriod"] for queue in queues.values()},
        {policies[name] for name in queues if not name.startswith("IntakeQueue")},
    ) == ({14 * 86_400}, {"RetainExceptOnCreate"})


@pytest.mark.parametrize(("variant", "is_reserved"), [("dev", False), ("prod", True)])
def test_reserved_concurrency(made: Synthesized, *, is_reserved: bool) -> None:
    """In prod each function has its own, in dev none has."""
    functions = made.resources("AWS::Lambda::Function").values()
    assert {bool(one.get("ReservedConcurrentExecutions")) for one in functions} == {is_reserved}


def test_one_run_leaves_workers_to_others(prod: Synthesized) -> None:
    """Each run of prod gets fewer workers than there are."""
    assert prod.environment.max_workers < prod.environment.functions.extract.reserved_concurrency


def test_a_malware_gate(scanned: Synthesized) -> None:
    """Functions that begin runs may read the tag of a scan, and open no split archive."""
    tagged = {name: scanned.allowed(name, "s3:GetObjectVersionTagging") for name in FUNCTIONS}
    ends = dict.fromkeys(ENDS_RUNS, frozenset({"<StorageIngest.Arn>/in/*"}))
    assert tagged == {**ends, "extract": set()}
    assert [
        (one[Variable.SCAN], json.loads(one[Variable.LIMITS])["parts"])
        for one in map(scanned.variables, FUNCTIONS)
    ] == [("guardduty", 1)] * 4


def test_each_sender_has_its_own_dead_letters(dev: Synthesized) -> None:
    """SQS can move messages back only out of a queue that only SQS puts messages into."""
    redriven = dev.properties("IntakeQueue")["RedrivePolicy"]
    senders = [
        redriven["deadLetterTargetArn"],
        *(target["DeadLetterConfig"]["Arn"] for target in _targets(dev)),
        *_destinations(dev),
    ]
    names = set(map(_reference, senders))
    assert len(names) == len(senders) == 4
    assert names < dev.resources("AWS::SQS::Queue").keys()
    told = dev.template["Outputs"]
    assert told["DeadLettersArn"]["Value"] == redriven["deadLetterTargetArn"]
    assert {"UndeliveredArchivesUrl", "UndeliveredFailuresUrl", "FailedReportsUrl"} <= set(told)


@pytest.mark.parametrize(
    ("variant", "level"), [("nested", "DEBUG"), ("dev", "INFO"), ("options", "INFO")]
)
def test_log_levels(made: Synthesized, level: str) -> None:
    """Lambda's own filter never drops metrics, which are INFO, nor an invocation's report."""
    wanted = {"LogFormat": "JSON", "ApplicationLogLevel": level, "SystemLogLevel": "INFO"}
    for function in made.resources("AWS::Lambda::Function").values():
        assert wanted.items() <= function["LoggingConfig"].items()


def test_existing_buckets_and_key(existing: Synthesized) -> None:
    """Existing buckets are used by name, none is created, and their key is granted exactly."""
    assert existing.resources("AWS::S3::Bucket") == {}
    arrivals, members = "arn:<AWS::Partition>:s3:::arrivals", "arn:<AWS::Partition>:s3:::members"
    assert existing.rights("extract") >= {
        ("s3:GetObject", f"{arrivals}/my zips/*"),
        ("s3:GetObjectVersion", f"{arrivals}/my zips/*"),  # whatever `versioned` says
        ("s3:GetObject", f"{members}/out/*"),
        ("s3:ListBucket", members),
        ("kms:Decrypt", KMS_KEY),
        ("kms:GenerateDataKey", KMS_KEY),
    }


def test_policy_for_a_destination_of_another_account(existing: Synthesized) -> None:
    """The stack says what the policy of an existing destination bucket must allow, and whom."""
    text = json.dumps(existing.template["Outputs"]["DestinationPolicy"]["Value"])
    actions = ("s3:PutObject", "s3:AbortMultipartUpload", "s3:ListBucket")
    roles = (f"Functions{name.capitalize()}Role" for name in FUNCTIONS)
    assert [part for part in (*actions, *roles, "members/out/*") if part not in text] == []


def _reference(value: object) -> str:
    """Return the logical id that a Ref or a GetAtt names; any other value as it is."""
    return re.sub(r"<(\w+)(\.\w+)?>", r"\1", text_of(value))


def _targets(made: Synthesized) -> list[dict[str, Any]]:
    rules = made.resources("AWS::Events::Rule").values()
    return [target for rule in rules for target in rule["Targets"]]


def _destinations(made: Synthesized) -> list[Any]:
    """Return where Lambda puts the events that a function did not take."""
    configs = made.resources("AWS::Lambda::EventInvokeConfig").values()
    return [config["DestinationConfig"]["OnFailure"]["Destination"] for config in configs]


def _policies(made: Synthesized, kind: str, member: str) -> dict[str, list[dict[str, Any]]]:
    return {
        _reference(protected): policy["PolicyDocument"]["Statement"]
        for policy in made.resources(kind).values()
        for protected in policy[member]
    }


def _lets_in(statements: list[dict[str, Any]], action: str, service: str) -> bool:
    return any(
        statement["Effect"] == "Allow"
        and action in listed(statement["Action"])
        and statement["Principal"] == {"Service": service}
        and ("aws:SourceAccount" in str(statement["Condition"]) or "ArnEquals" in str(statement))
        for statement in statements
    )


@pytest.mark.parametrize("variant", ["told", "options"])
def test_each_alarm_reaches_its_topic(made: Synthesized) -> None:
    """Each action is a topic whose policy lets CloudWatch publish, or a topic of the user's."""
    alarms = made.resources("AWS::CloudWatch::Alarm").values()
    own = {_reference(action) for alarm in alarms for action in alarm["AlarmActions"]} - {TOPIC}
    assert own == made.resources("AWS::SNS::Topic").keys()
    policies = _policies(made, "AWS::SNS::TopicPolicy", "Topics")
    assert all(
        _lets_in(policies[topic], "sns:Publish", "cloudwatch.amazonaws.com") for topic in own
    )


@pytest.mark.parametrize("variant", ["dev", "prod", "nested", "existing"])
def test_each_rule_reaches_its_target(made: Synthesized) -> None:
    """A queue's policy or a function's permission lets each rule in, dead letters included."""
    policies = _policies(made, "AWS::SQS::QueuePolicy", "Queues")
    service = "events.amazonaws.com"
    permitted = {
        (_reference(permission["FunctionName"]), _reference(permission["SourceArn"]))
        for permission in made.resources("AWS::Lambda::Permission").values()
        if permission["Principal"] == service
    }
    for name, logical in [
        (name, _reference(arn))
        for name, rule in made.resources("AWS::Events::Rule").items()
        for target in rule["Targets"]
        for arn in (target["Arn"], target["DeadLetterConfig"]["Arn"])
    ]:
        if logical in made.resources("AWS::SQS::Queue"):
            assert _lets_in(policies[logical], "sqs:SendMessage", service)
        else:
            assert (logical, name) in permitted


def test_each_queue_has_a_sender_that_may_send(told: Synthesized) -> None:
    """Of each queue of prod somebody knows what comes, and nobody may send without TLS."""
    queues = told.resources("AWS::SQS::Queue")
    redriven = [queue["RedrivePolicy"] for queue in queues.values() if "RedrivePolicy" in queue]
    senders = [
        *(target["Arn"] for target in _targets(told)),
        *(target["DeadLetterConfig"]["Arn"] for target in _targets(told)),
        *(policy["deadLetterTargetArn"] for policy in redriven),
        *_destinations(told),
    ]
    assert queues.keys() <= set(map(_reference, senders))
    assert {
        f"<{_reference(destination)[:-8]}.Arn>" for destination in _destinations(told)
    } <= told.allowed("settle", "sqs:SendMessage")
    policies = _policies(told, "AWS::SQS::QueuePolicy", "Queues")
    for name in queues:
        assert [one["Condition"] for one in policies[name] if one["Effect"] == "Deny"] == [
            {"Bool": {"aws:SecureTransport": "false"}}
        ]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_key_has_its_rights(company: Synthesized, name: str) -> None:
    """Existing buckets and the secret have keys of their own; the key of members is not sent."""
    buckets = {KMS_KEY, f"{KMS_KEY}1", f"{KMS_KEY}2"}
    assert company.allowed(name, "kms:GenerateDataKey") == buckets
    secret = set() if name == "settle" else {f"{KMS_KEY}3"}
    assert company.allowed(name, "kms:Decrypt") == buckets | secret
    assert company.variables(name)[Variable.DESTINATION_KMS_KEY] == ""


def test_the_machine_and_the_outputs_have_their_keys(company: Synthesized) -> None:
    """The state machine reads what lies in the work bucket; the stack tells the key of each."""
    read = {
        key
        for action, key in company.policy("WorkflowRunsRoleDefaultPolicy")
        if action == "kms:Decrypt"
    }
    outputs = company.template["Outputs"]
    told = [outputs[f"{role}Key"]["Value"] for role in ("Ingest", "Destination", "Work")]
    assert (read, told) == ({KMS_KEY}, [f"{KMS_KEY}1", f"{KMS_KEY}2", KMS_KEY])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_in_a_network(company: Synthesized, name: str) -> None:
    """Each function is in the subnets; the rights for network interfaces are not for its code."""
    assert company.function(name)["VpcConfig"] == {
        "SubnetIds": company.environment.network.subnets,
        "SecurityGroupIds": company.environment.network.security_groups,
    }
    # What a function in a VPC needs: docs.aws.amazon.com/lambda, configuration-vpc.
    actions = [
        "ec2:AssignPrivateIpAddresses",
        "ec2:CreateNetworkInterface",
        "ec2:DeleteNetworkInterface",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSubnets",
        "ec2:UnassignPrivateIpAddresses",
    ]
    assert [
        statement | {"Action": [one for one in statement["Action"] if one in actions]}
        for statement in company.properties(f"Functions{name.title()}RoleDefaultPolicy")[
            "PolicyDocument"
        ]["Statement"]
        if "ec2:" in str(statement["Action"])
    ] == [
        {"Effect": "Allow", "Action": actions, "Resource": "*"},
        {
            "Effect": "Deny",
            "Action": actions,
            "Resource": "*",
            "Condition": {"Null": {"lambda:SourceFunctionArn": "false"}},
        },
    ]


def test_a_boundary_is_on_every_role(company: Synthesized) -> None:
    """The bootstrap's qualifier is the environment's, too."""
    assert {
        role["PermissionsBoundary"] for role in company.resources("AWS::IAM::Role").values()
    } == {BOUNDARY}
    version = company.template["Parameters"]["BootstrapVersion"]
    assert version["Default"] == "/cdk-bootstrap/acme/version"


def test_a_topic_of_sns_reaches_the_queue(company: Synthesized) -> None:
    """The queue's policy lets this topic in and no other; `doctor` finds topic and subscription."""
    assert company.template["Outputs"]["IngestTopic"]["Value"] == TOPIC
    assert next(iter(company.resources("AWS::SNS::Subscription"))).startswith("IntakeQueue")
    assert [
        statement["Condition"]
        for statement in _policies(company, "AWS::SQS::QueuePolicy", "Queues")[
            _reference(company.only("AWS::SNS::Subscription")["Endpoint"])
        ]
        if statement["Principal"] == {"Service": "sns.amazonaws.com"}
    ] == [{"ArnEquals": {"aws:SourceArn": TOPIC}}]
