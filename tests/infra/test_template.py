"""Resources, rights and retention of the synthesized template."""

import json
from collections.abc import Callable

import pytest

from infra.environment import Environment, load_environment
from infra.reasons import reason_for, resources_of
from s3unzip.settings import PROCESS_VARIABLES, Variable
from tests.infra.templates import Synthesized, listed

FUNCTIONS = ("intake", "plan", "extract", "settle")
ARCHIVES = "<StorageIngest.Arn>/*"
MEMBERS = "<StorageDestination.Arn>/*"
RUNS = "<StorageWork.Arn>/runs/*"
MACHINE = "arn:<AWS::Partition>:states:<AWS::Region>:<AWS::AccountId>:stateMachine:s3unzip-dev"
BUS = "arn:<AWS::Partition>:events:<AWS::Region>:<AWS::AccountId>:event-bus/default"
XRAY = {("xray:PutTraceSegments", "*"), ("xray:PutTelemetryRecords", "*")}
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
    for name in prod.resources("AWS::IAM::Policy"):
        for statement in prod.statements(name):
            if "sqs:SendMessage" in listed(statement["Action"]):
                assert not any("IntakeQueue" in one for one in resources_of(statement))


def test_each_function_has_its_own_role(dev: Synthesized) -> None:
    """No two functions share a role, and no role has a managed policy."""
    functions = dev.resources("AWS::Lambda::Function").values()
    roles = [function["Properties"]["Role"]["Fn::GetAtt"][0] for function in functions]
    assert len(set(roles)) == len(roles) == len(FUNCTIONS)
    for role in dev.resources("AWS::IAM::Role").values():
        assert "ManagedPolicyArns" not in role["Properties"]


def test_every_wildcard_has_a_reason(dev: Synthesized) -> None:
    """A resource that ends in * is one of those that `infra.reasons` gives a reason for."""
    for policy in dev.resources("AWS::IAM::Policy").values():
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            actions = statement["Action"]
            actions = actions if isinstance(actions, list) else [actions]
            assert not any("*" in action for action in actions)
            for resource in resources_of(statement):
                assert "*" not in resource or reason_for(actions, resource) is not None


def test_a_new_wildcard_has_none() -> None:
    """A wildcard without a reason is not excused."""
    assert reason_for(["s3:PutObject"], "*") is None
    assert reason_for(["s3:DeleteBucket"], "<StorageIngest.Arn>/*") is None
    assert reason_for(["s3:*"], "<StorageIngest.Arn>/*") is None
    assert reason_for(["iam:PassRole"], "*") is None


def test_functions(dev: Synthesized) -> None:
    """All are arm64 from one asset, with the environment's memory and time."""
    functions = dev.resources("AWS::Lambda::Function").values()
    assert {one["Properties"]["Architectures"][0] for one in functions} == {"arm64"}
    assert len({json.dumps(one["Properties"]["Code"]) for one in functions}) == 1
    for name in FUNCTIONS:
        made = dev.properties("AWS::Lambda::Function", f"Functions{name.capitalize()}")
        section = getattr(dev.environment.functions, name)
        assert (made["MemorySize"], made["Timeout"]) == (section.memory, section.timeout)
        assert made["TracingConfig"] == {"Mode": "Active"}
        assert "VpcConfig" not in made
        variables = made["Environment"]["Variables"]
        assert PROCESS_VARIABLES.items() <= variables.items()
        known = {variable for variable in Variable if variable in variables}
        missing = set(Variable) - known - {Variable.PASSWORD_SECRET}  # if asked for
        assert missing == (set() if name == "intake" else {Variable.QUEUE})


def test_buckets(dev: Synthesized, prod: Synthesized) -> None:
    """Buckets are private, encrypted, TLS-only, and outlive the stack where it says so."""
    for synthesized, policy in ((dev, "Delete"), (prod, "Retain")):
        buckets = synthesized.resources("AWS::S3::Bucket")
        assert len(buckets) == 3
        for bucket in buckets.values():
            assert bucket["DeletionPolicy"] == policy
            properties = bucket["Properties"]
            assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
            (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
            assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
        refused = [
            statement
            for one in synthesized.resources("AWS::S3::BucketPolicy").values()
            for statement in one["Properties"]["PolicyDocument"]["Statement"]
            if statement["Effect"] == "Deny"
            and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        ]
        assert len(refused) == 3


def test_ingest_bucket(dev: Synthesized) -> None:
    """The ingest bucket keeps versions, sends events, and drops incomplete uploads in a day."""
    ingest = dev.properties("AWS::S3::Bucket", "StorageIngest")
    assert ingest["VersioningConfiguration"] == {"Status": "Enabled"}
    events = ingest["NotificationConfiguration"]["EventBridgeConfiguration"]
    assert events == {"EventBridgeEnabled": True}
    days = [
        rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"]
        for rule in ingest["LifecycleConfiguration"]["Rules"]
        if "AbortIncompleteMultipartUpload" in rule
    ]
    assert days == [1]


def test_uploads_are_kept_for_a_resumed_run(dev: Synthesized) -> None:
    """Parts outlive a run of seven days, 14 days until it is resumed, and the resumed run."""
    destination = dev.properties("AWS::S3::Bucket", "StorageDestination")
    (rule,) = destination["LifecycleConfiguration"]["Rules"]
    assert rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"] == 28
    assert dev.definition()["TimeoutSeconds"] == 7 * 24 * 3600


def test_retention(prod: Synthesized) -> None:
    """Runs, logs and dead letters are kept as long as the environment says, and no longer."""
    work = prod.properties("AWS::S3::Bucket", "StorageWork")
    expiry = [rule.get("ExpirationInDays") for rule in work["LifecycleConfiguration"]["Rules"]]
    assert prod.environment.work.expire_days in expiry
    groups = prod.resources("AWS::Logs::LogGroup")
    assert len(groups) == len(FUNCTIONS) + 1
    for name, group in groups.items():
        ours = not name.startswith("Workflow")  # it has a name, which a retained one would hold
        assert group["Properties"]["RetentionInDays"] == (
            prod.environment.logs.days if ours else 30
        )
        assert group["DeletionPolicy"] == ("Retain" if ours else "Delete")
    dead = prod.properties("AWS::SQS::Queue", "IntakeDeadLetters")
    assert dead["MessageRetentionPeriod"] == 14 * 86_400
    for name, queue in prod.resources("AWS::SQS::Queue").items():
        assert name.startswith("IntakeQueue") or queue["DeletionPolicy"] == "Retain"


def test_reserved_concurrency(dev: Synthesized, prod: Synthesized) -> None:
    """In prod each function has its own, in dev none has."""
    for name in FUNCTIONS:
        logical = f"Functions{name.capitalize()}"
        assert "ReservedConcurrentExecutions" not in dev.properties(
            "AWS::Lambda::Function", logical
        )
        made = prod.properties("AWS::Lambda::Function", logical)
        assert made["ReservedConcurrentExecutions"] > 0
    assert prod.environment.max_workers < prod.environment.workers == 700


def test_policy_for_a_destination_of_another_account(
    synthesize: Callable[[Environment], Synthesized],
) -> None:
    """The stack says what the policy of an existing destination bucket must allow, and whom."""
    values = load_environment("dev").model_dump()
    values["destination"] |= {"existing": "members", "prefix": "out/", "owner": "123456789012"}
    told = synthesize(Environment.model_validate(values)).template["Outputs"]
    text = json.dumps(told["DestinationPolicy"]["Value"])
    for name in FUNCTIONS:
        assert f"Functions{name.capitalize()}Role" in text
    for action in ("s3:PutObject", "s3:AbortMultipartUpload", "s3:ListBucket"):
        assert action in text
    assert "members/out/*" in text


def test_event_path(dev: Synthesized) -> None:
    """S3's events of archives reach the queue, and the queue the intake function, one by one."""
    rule = dev.properties("AWS::Events::Rule", "IntakeArchivePut")
    assert rule["EventPattern"]["detail"]["object"]["key"] == [
        {"wildcard": "*.zip"},
        {"wildcard": "*.ZIP"},
        {"wildcard": "*.Zip"},
    ]
    (mapping,) = dev.resources("AWS::Lambda::EventSourceMapping").values()
    assert mapping["Properties"]["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    queue = dev.properties("AWS::SQS::Queue", "IntakeQueue")
    assert queue["MessageRetentionPeriod"] == 14 * 86_400
    assert queue["VisibilityTimeout"] >= 6 * dev.environment.functions.intake.timeout
    assert queue["RedrivePolicy"]["maxReceiveCount"] == dev.environment.intake.attempts


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
        senders += [target["DeadLetterConfig"]["Arn"] for target in rule["Properties"]["Targets"]]
    for config in dev.resources("AWS::Lambda::EventInvokeConfig").values():
        kept = config["Properties"].get("DestinationConfig")
        senders += [kept["OnFailure"]["Destination"]] if kept else []
    names = [sender["Fn::GetAtt"][0] for sender in senders]
    assert len(set(names)) == len(names) == 4
    queues = dev.resources("AWS::SQS::Queue")
    assert len(queues) == 5
    for name in names:
        assert queues[name]["Properties"]["MessageRetentionPeriod"] == 14 * 86_400
    told = dev.template["Outputs"]
    assert told["DeadLettersArn"]["Value"] == redriven["deadLetterTargetArn"]
    assert {"UndeliveredArchivesUrl", "UndeliveredFailuresUrl", "FailedReportsUrl"} <= set(told)


@pytest.mark.parametrize(
    ("level", "lambdas"), [("DEBUG", "DEBUG"), ("INFO", "INFO"), ("WARNING", "WARN")]
)
def test_log_levels(
    synthesize: Callable[[Environment], Synthesized], level: str, lambdas: str
) -> None:
    """logs.level reaches Lambda's own filter; the report of each invocation is kept."""
    values = load_environment("dev").model_dump()
    values["logs"]["level"] = level
    made = synthesize(Environment.model_validate(values))
    for function in made.resources("AWS::Lambda::Function").values():
        logging = function["Properties"]["LoggingConfig"]
        assert (logging["LogFormat"], logging["ApplicationLogLevel"]) == ("JSON", lambdas)
        assert logging["SystemLogLevel"] == "INFO"


def test_versioned_destination(synthesize: Callable[[Environment], Synthesized]) -> None:
    """A created destination keeps what a run overwrites, if the environment says so."""
    values = load_environment("dev").model_dump()
    values["destination"]["versioned"] = True
    made = synthesize(Environment.model_validate(values))
    bucket = made.properties("AWS::S3::Bucket", "StorageDestination")
    assert bucket["VersioningConfiguration"] == {"Status": "Enabled"}


def test_existing_buckets_and_key(synthesize: Callable[[Environment], Synthesized]) -> None:
    """Existing buckets are used by name, none is created, and their key is granted exactly."""
    key = "arn:aws:kms:eu-west-1:123456789012:key/0f"
    values = load_environment("dev").model_dump()
    values["ingest"] |= {"existing": "in", "prefix": "zips/", "versioned": False}
    values["ingest"]["existing"] = "arrivals"
    values["destination"] |= {"existing": "members", "prefix": "out/", "owner": "123456789012"}
    values["work"]["existing"] = "runs-of-it"
    values["kms_key"] = key
    values["options"]["on_conflict"] = "skip-unchanged"
    made = synthesize(Environment.model_validate(values))
    assert made.resources("AWS::S3::Bucket") == {}
    arrivals, members = "arn:<AWS::Partition>:s3:::arrivals", "arn:<AWS::Partition>:s3:::members"
    rights = made.rights("extract")
    assert ("s3:GetObject", f"{arrivals}/zips/*") in rights
    assert ("s3:GetObject", f"{members}/out/*") in rights
    assert ("s3:ListBucket", members) in rights
    assert {("kms:Decrypt", key), ("kms:GenerateDataKey", key)} <= rights
    assert ("s3:GetObjectVersion", f"{arrivals}/zips/*") in rights  # whatever `versioned` says
    rule = made.properties("AWS::Events::Rule", "IntakeArchivePut")
    assert rule["EventPattern"]["detail"]["object"]["key"] == [
        {"wildcard": "zips/*.zip"},
        {"wildcard": "zips/*.ZIP"},
        {"wildcard": "zips/*.Zip"},
    ]
