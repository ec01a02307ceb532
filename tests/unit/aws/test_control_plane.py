"""Executions, events, secrets and refusals over moto's control plane."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError
from moto.events.models import EventPattern
from msgspec.structs import replace
from s3unzip.aws.admission.bids import planned_bid
from s3unzip.aws.admission.door import Start
from s3unzip.aws.admission.opening import open_door
from s3unzip.aws.refusals import list_refusals, note_refusal

from infra.environment import load_environment
from infra.intake import _patterns
from s3unzip.aws.aws_faults import read_fault
from s3unzip.aws.environment import open_client, open_worker, read_scale
from s3unzip.aws.events import announce, queue_nested, read_requests
from s3unzip.aws.executions import planned_input
from s3unzip.aws.secrets import read_secret
from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    S3UnzipError,
    ServiceFaultError,
    StorageError,
    ThrottledError,
    UsageError,
)
from s3unzip.model import (
    Budget,
    Location,
    Options,
    Request,
)
from s3unzip.settings import Variable
from tests.servers import HttpServer, Reply
from tests.unit.aws.contexts import Invocation
from tests.unit.aws.samples import PLAN, REPORT, RUN
from tests.unit.handlers.pipeline import object_created

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.aws.environment import LambdaConfig
    from tests.account import Account


@pytest.fixture
def worker(account: Account, monkeypatch: pytest.MonkeyPatch) -> LambdaConfig:
    """A function of the environment dev."""
    account.deploy(**{Variable.OPTIONS: '{"nested_depth": 1}'})
    for name, value in account.variables.items():
        monkeypatch.setenv(name, value)
    return open_worker()


def test_an_execution_is_started_once(worker: LambdaConfig, account: Account) -> None:
    """The name is the run's id: another input is no other run, and holds no workers."""
    door = open_door(worker.context(Invocation()))
    bid = planned_bid(PLAN, worker, 5.0)
    assert door.start(bid, planned_input(worker.work, PLAN, {})) is Start.STARTED
    assert door.start(bid, {}) is Start.KNOWN
    execution = door.machine.replace(":stateMachine:", ":execution:")
    account.client("stepfunctions").stop_execution(executionArn=f"{execution}:{RUN.id}")
    door.release(RUN.id)
    assert (
        door.start(bid, planned_input(worker.work, replace(PLAN, split_members=1), {}))
        is Start.KNOWN
    )
    assert account.objects("work") == {}


def test_the_event_of_a_run_arrives(worker: LambdaConfig, account: Account) -> None:
    """On the environment's bus, with the archive as its resource."""
    heard = account.listen()
    announce(open_client("events"), worker, replace(REPORT, message="x", event_time=50.0))
    (event,) = account.receive(heard)
    assert event["source"] == "s3unzip"
    assert event["detail"]["seconds"] == 60.0
    assert event["detail"]["environment"] == "dev"
    assert event["detail"]["version_id"] is None


def test_an_event_that_is_not_taken(worker: LambdaConfig) -> None:
    """PutEvents answers 200 with a failure inside; the report is tried again."""
    refusal = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "Busy", "ErrorMessage": "later"}]}
    with HttpServer(lambda _: Reply(200, json.dumps(refusal).encode())) as server:
        client = boto3.client("events", endpoint_url=server.url)
        with pytest.raises(ServiceFaultError, match="Busy, later"):
            announce(client, worker, REPORT)


def test_nested_requests_go_through_the_queue(worker: LambdaConfig, account: Account) -> None:
    """The planner reads the queued request, which causes no metric or event itself."""
    nested = Request(
        Location("s3", "members", "out/a/in.zip"),
        Location("s3", "members", "out/a/in/"),
        Options(nested_depth=0, nested_budget=Budget(1, 2, 3)),
    )
    assert queue_nested(open_client("sqs"), worker, [nested, nested]) == 2
    bodies = account.receive(worker.queue)
    assert [list(read_requests(json.dumps(body), worker, 7.0)) for body in bodies] == [
        [replace(nested, received_time=7.0)]
    ] * 2


def test_refusals_are_listed_latest_first(worker: LambdaConfig) -> None:
    """Their time is in the key, so one LIST finds the latest."""
    context = worker.context(Invocation())
    for number, started in enumerate((100.0, 300.0, 200.0)):
        note_refusal(worker, replace(REPORT, run=f"r-{number}", started=started), context)
    client = worker.stores.session.control
    found = list_refusals(client, worker.work, 2)
    assert [(one.id, one.started, one.state) for one in found] == [
        ("r-1", 300.0, "REFUSED"),
        ("r-2", 200.0, "REFUSED"),
    ]
    with pytest.raises(StorageError, match="s3:ListBucket"):
        list_refusals(client, Location("s3", "no-such-bucket", ""), 2)


def test_the_context_of_an_invocation(worker: LambdaConfig) -> None:
    """Time is what Lambda says is left."""
    context = worker.context(Invocation(12.0))
    assert context.clock.remaining() == 12.0
    context.clock.sleep(0.0)
    assert context.clock.now() > 0


def test_secrets(account: Account) -> None:
    """Text, bytes and a field; one that is deleted is not found."""
    client = account.client("secretsmanager")
    client.create_secret(Name="text", SecretString="word")
    client.create_secret(Name="bytes", SecretBinary=b"\x00\xff")
    client.create_secret(Name="fields", SecretString='{"zip": "inner"}')
    client.create_secret(Name="gone", SecretString="word")
    client.delete_secret(SecretId="gone")
    secrets = open_client("secretsmanager")
    assert read_secret("secretsmanager:text", secrets) == b"word"
    assert read_secret("secretsmanager:bytes", secrets) == b"\x00\xff"
    assert read_secret("secretsmanager:fields#zip", secrets) == b"inner"
    for name in ("gone", "never"):
        with pytest.raises(NotFoundError):
            read_secret(f"secretsmanager:{name}", secrets)


def test_a_secret_when_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network fault is tried again later."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    client = boto3.client(
        "secretsmanager",
        region_name="eu-west-1",
        endpoint_url="http://127.0.0.1:1",
        config=Config(retries={"total_max_attempts": 1}),
    )
    with pytest.raises(ServiceFaultError, match="EndpointConnectionError"):
        read_secret("secretsmanager:text", client)


@pytest.mark.parametrize("name", ["dev", "staging", "prod"])
@pytest.mark.parametrize(
    ("key", "taken"),
    [
        ("a.zip", True),
        ("deep/in a folder/\u00fc+b.zip", True),
        ("A.ZIP", True),
        ("a.zip.tmp", False),
        ("a.txt", False),
        ("zip", False),
    ],
)
def test_the_rule_takes_what_the_functions_take(name: str, key: str, *, taken: bool) -> None:
    """The pattern of the rule and the trigger of the functions agree, key by key."""
    environment = load_environment(name)
    pattern = {
        "source": ["aws.s3"],
        "detail-type": ["Object Created"],
        "detail": {"bucket": {"name": ["arrivals"]}, "object": {"key": _patterns(environment)}},
    }
    # moto's event is a TypedDict with fields of its own.
    matches: Callable[[Any], bool] = EventPattern.load(json.dumps(pattern)).matches_event
    assert matches(object_created(key)) is taken
    assert not matches(object_created(key, "another"))
    assert not matches({**object_created(key), "detail-type": "Object Deleted"})


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (NoCredentialsError(), AccessDeniedError),
        (EndpointConnectionError(endpoint_url="x"), ServiceFaultError),
        (("AccessDenied", 403), AccessDeniedError),
        (("UnauthorizedOperation", 403), AccessDeniedError),
        (("ExpiredToken", 400), AccessDeniedError),
        (("ThrottlingException", 400), ThrottledError),
        (("TooManyRequestsException", 429), ThrottledError),
        (("InternalFailure", 500), ServiceFaultError),
        (("NoSuchBucket", 404), StorageError),
    ],
)
def test_what_an_answer_means(error: Exception | tuple[str, int], kind: type[S3UnzipError]) -> None:
    """The refused action is named, and errors that a retry may solve are distinguished."""
    if isinstance(error, tuple):
        answer: Any = {
            "Error": {"Code": error[0], "Message": "because"},
            "ResponseMetadata": {"HTTPStatusCode": error[1]},
        }
        error = ClientError(answer, "Anything")
    found = read_fault(error, "service:Action")
    assert type(found) is kind
    assert str(found).startswith("service:Action: ")


def test_the_scale_of_an_environment() -> None:
    """Without memory and limit there are defaults; a number that is none is named."""
    scale = read_scale({})
    assert scale.max_cost is None
    assert read_scale({Variable.MAX_COST: "2.5"}).max_cost == 2.5
    with pytest.raises(UsageError, match="S3UNZIP_WORKER_MEMORY is no number"):
        read_scale({Variable.WORKER_MEMORY: "much"})
