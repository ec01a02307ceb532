"""What the functions share: environment variables, the password in a secret, events, telemetry."""

import base64
import json
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import boto3
import botocore.session
import pytest
from botocore.config import Config
from msgspec.structs import replace
from mypy_boto3_secretsmanager import SecretsManagerClient

from s3unzip.aws.environment import read_config, read_secret
from s3unzip.aws.events import (
    EVENT_TITLES,
    MESSAGE_CHARACTERS,
    NOT_SCANNED,
    event_detail,
    passes_scan,
    publish_run_event,
    read_puts,
    read_scan_tag,
)
from s3unzip.aws.executions import extract_current_version
from s3unzip.aws.telemetry import (
    CLIENT_LIBRARIES,
    END_METRICS,
    STOPPED_RUNS,
    add_archive_metrics,
    add_metrics,
    add_plan_metrics,
    add_source_metrics,
    add_task_metrics,
    metrics,
)
from s3unzip.errors import AccessDeniedError, NotFoundError, ServiceFaultError, UsageError
from s3unzip.model import (
    Location,
    OnConflict,
    Pin,
    Report,
    Requests,
    SourceAction,
    SourceResult,
    SourceState,
    TaskKind,
    TaskReport,
    Verdict,
)
from s3unzip.runs.step import STOPPED
from s3unzip.settings import METRICS, NAMESPACE, SERVICE, Variable
from s3unzip.stores.ports import Tail
from tests.support.account import CREDENTIALS, Account
from tests.support.contexts import Invocation
from tests.support.reports import PLAN, REPORT, RUN
from tests.support.servers import Asked, HttpServer, Reply, s3_error, set_variables

VARIABLES: dict[str, str] = {
    Variable.ENVIRONMENT: "test",
    Variable.WORK_BUCKET: "work",
    Variable.WORK_PREFIX: "s3unzip/",
    Variable.DESTINATION: "s3://out/members/",
    Variable.TRIGGER_BUCKET: "arrivals",
    Variable.TRIGGER_PREFIX: "zips/",
    Variable.TRIGGER_SUFFIX: ".zip",
    Variable.STATE_MACHINE: "arn:aws:states:us-east-1:000000000000:stateMachine:runs",
    Variable.OPTIONS: '{"on_conflict": "never"}',
    Variable.TUNING: '{"max_workers": 7}',
    Variable.LIMITS: '{"members": 9}',
}


def test_worker_is_what_the_variables_say() -> None:
    """Each variable ends where it belongs."""
    worker = read_config(VARIABLES)
    assert (
        worker.work,
        worker.environment_defaults.destination,
        worker.environment_defaults.options.on_conflict,
    ) == (
        Location("s3", "work", "s3unzip/"),
        Location("s3", "out", "members/"),
        OnConflict.NEVER,
    )
    assert (worker.tuning.max_workers, worker.limits.members, worker.max_cost) == (7, 9, None)


@pytest.mark.parametrize(
    ("stack", "name"),
    [
        ("s3unzip-test", "test"),
        ("acme-unzip", "acme-unzip"),
        ("StackSet-s3unzip-test-0a1b", "StackSet-s3unzip-test-0a1b"),
        ("", "test"),
    ],
)
def test_commands_find_the_environment_by_its_stack(stack: str, name: str) -> None:
    """`--env` takes the whole name of a stack that is not named after its environment."""
    worker = read_config({**VARIABLES, Variable.STACK: stack})
    assert (worker.context(Invocation()).environment, worker.environment) == (name, "test")


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch) -> Callable[[HttpServer], None]:
    """Let clients made by the environment reach a server."""

    def set_address(server: HttpServer) -> None:
        set_variables(monkeypatch, {**CREDENTIALS, "AWS_ENDPOINT_URL": server.url})

    return set_address


@pytest.mark.parametrize(("setting", "payer"), [("requester", "requester"), ("", None)])
def test_only_requests_for_the_archive_name_the_payer(
    setting: str, payer: str | None, reach: Callable[[HttpServer], None]
) -> None:
    """Requests for the archive say who pays; those of the destination do not."""
    with HttpServer(lambda _: Reply(200, b"", {"ETag": '"e"'})) as server:
        reach(server)
        worker = read_config({**VARIABLES, Variable.REQUEST_PAYER: setting})
        archive = Location("s3", "arrivals", "zips/a.zip")
        worker.stores.source(archive).stat(archive)
        worker.stores.destination(worker.environment_defaults.destination).head("members/a")
    archives, *destinations = [a.headers.get("x-amz-request-payer") for a in server.asked]
    assert (archives, set(destinations)) == (payer, {None})


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        (Variable.WORK_BUCKET, "", "S3UNZIP_WORK_BUCKET is not set"),
        (Variable.TUNING, "[1]", r"S3UNZIP_TUNING: .* Expected `object`.*'\[1\]'"),
        (Variable.TUNING, "{", "S3UNZIP_TUNING: .*: Input data was truncated"),
        (Variable.TUNING, '{"speed": 1}', "'speed' is unknown"),
        (Variable.TUNING, '{"max_few_tasks": 41}', "must be at most 40, not 41"),
        (Variable.TUNING, '{"copy_part_bytes": 6e9}', "must be at most 5,368,709,120, not 6"),
        (Variable.LIMITS, '{"speed": 1}', "S3UNZIP_LIMITS: .*`speed`"),
        (Variable.LIMITS, '{"members": "many"}', "S3UNZIP_LIMITS: .*Expected `int`"),
        (Variable.OPTIONS, '{"on_conflict": "maybe"}', "S3UNZIP_OPTIONS: .*maybe"),
        (Variable.MAX_COST, "cheap", "S3UNZIP_MAX_COST: not a float: .*'cheap'"),
        # Members that could start runs: both places are named.
        *(
            (
                Variable.DESTINATION,
                f"s3://arrivals/{place}",
                r"s3://arrivals/.* \(s3://arrivals/zips/\*\.zip\)|\.\.",
            )
            for place in ("", "zips/", "zips/out/", "z/../zips/")
        ),
    ],
)
def test_wrong_variable_is_one_line(name: Variable, value: str, line: str) -> None:
    """What is wrong is named, before the first plan."""
    with pytest.raises(UsageError, match=line):
        read_config({**VARIABLES, name: value})


def _event_of(
    key: str, bucket: str = "arrivals", version: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "detail-type": "Object Created",
        "time": "2026-01-01T00:00:01Z",
        "detail": {"bucket": {"name": bucket}, "object": {"key": key} | (version or {})},
    }


def _record_of(key: str, version: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "eventName": "ObjectCreated:CompleteMultipartUpload",
        "eventTime": "2026-01-01T00:00:01.000Z",
        "s3": {"bucket": {"name": "arrivals"}, "object": {"key": key} | (version or {})},
    }


def _notification_of(event: dict[str, Any]) -> dict[str, Any]:
    return {
        "Type": "Notification",
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": "arn:aws:sns:us-west-2:123456789012:uploads",
        "Subject": "Amazon S3 Notification",
        "Message": json.dumps(event),
        "Timestamp": "2026-01-01T00:00:02.000Z",
        "SignatureVersion": "1",
        "Signature": "EXAMPLEw6JRN...",
    }


def scan_of(key: str, version: dict[str, str], status: str) -> dict[str, Any]:
    """Return GuardDuty's result of a scan, as its user guide has it."""
    is_threat = status == "THREATS_FOUND"
    return {
        "version": "0",
        "id": "72c7d362-737a-6dce-fc78-9e27a0EXAMPLE",
        "detail-type": "GuardDuty Malware Protection Object Scan Result",
        "source": "aws.guardduty",
        "account": "111122223333",
        "time": "2026-01-01T00:00:01Z",
        "region": "us-east-1",
        "resources": [
            "arn:aws:guardduty:us-east-1:111122223333:malware-protection-plan/b4c7EXAMPLE"
        ],
        "detail": {
            "schemaVersion": "1.0",
            "scanStatus": "COMPLETED",
            "resourceType": "S3_OBJECT",
            "s3ObjectDetails": {"bucketName": "arrivals", "objectKey": key, **version},
            "scanResultDetails": {
                "scanResultStatus": status,
                "threats": [{"name": "EICAR-Test-File (not a virus)"}] if is_threat else None,
            },
        },
    }


@pytest.mark.parametrize(
    ("event", "keys"),
    [
        (_notification_of({"Records": [_record_of("zips/a+b.zip")]}), ["zips/a b.zip"]),
        (_notification_of(_event_of("zips/a+b.zip")), ["zips/a+b.zip"]),
        (_notification_of({"Service": "Amazon S3", "Event": "s3:TestEvent"}), []),
        *(
            (_event_of("zips/a.zip") | {"source": "aws.s3", "detail-type": f"Object {change}"}, [])
            for change in ("Deleted", "Tags Added", "Storage Class Changed", "Restore Completed")
        ),
        *(
            ({"Records": [_record_of("zips/a.zip") | {"eventName": name}]}, [])
            for name in ("ObjectRemoved:Delete", "ObjectRestore:Completed", "ObjectTagging:Put")
        ),
        (_event_of("zips/a b+c%20ü.zip"), ["zips/a b+c%20ü.zip"]),
        ({"Records": [_record_of("zips/a+b%2Bc%C3%BC.zip")]}, ["zips/a b+cü.zip"]),
        ({"Records": [_record_of("zips/1"), _record_of("zips/2.zip")]}, ["zips/2.zip"]),
        ({"Event": "s3:TestEvent", "Bucket": "in"}, []),
        *((_event_of(f"zips/b/a.{end}"), [f"zips/b/a.{end}"]) for end in ("ZIP", "Zip")),
    ],
)
def test_events_name_archives(event: dict[str, Any], keys: list[str]) -> None:
    """Keys are decoded as events require; suffixes have the spellings of the rule's patterns.

    Only an event about a created object names an archive.
    """
    puts, faults = read_puts(json.dumps(event), read_config(VARIABLES))
    assert ([(put.source, put.time) for put in puts], faults) == (
        [(Location("s3", "arrivals", key), 1767225601.0) for key in keys],
        [],
    )


@pytest.mark.parametrize(
    ("key", "bucket"),
    [
        ("zips/a.zIp", "arrivals"),
        ("zips/a.txt", "arrivals"),
        ("elsewhere/a.zip", "arrivals"),
        ("zips/a.zip", "another"),
    ],
)
def test_what_no_trigger_covers_is_logged(
    key: str, bucket: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The settings may have changed while the message was in the queue."""
    caplog.set_level(logging.INFO, SERVICE)
    assert read_puts(json.dumps(_event_of(key, bucket)), read_config(VARIABLES)) == ([], [])
    assert [vars(record)["source"] for record in caplog.records] == [f"s3://{bucket}/{key}"]


HERE = Pin(9, f'"{"a" * 32}"')


@pytest.mark.parametrize(
    ("put", "stored", "is_older"),
    [
        (_event_of("zips/a.zip") | {"time": "2026-01-01T00:00:00Z"}, HERE, True),
        (_event_of("zips/a.zip") | {"time": "2026-01-01T00:00:59Z"}, HERE, False),
        (_event_of("zips/a.zip", version={"etag": "a" * 32}), HERE, False),
        (_event_of("zips/a.zip", version={"etag": "b" * 32}), HERE, True),
        (
            _event_of("zips/a.zip", version={"etag": "stale"}),
            HERE,
            True,
        ),  # no ETag: the time says it
        (
            _event_of("zips/a.zip", version={"etag": "a" * 32, "version-id": "1"}),
            replace(HERE, version_id="1"),
            False,
        ),
        (
            _event_of("zips/a.zip", version={"etag": "a" * 32, "version-id": "1"}),
            replace(HERE, version_id="2"),
            True,
        ),
        (
            _event_of("zips/a.zip", version={"etag": "b" * 32, "version-id": "null"}),
            replace(HERE, version_id="null"),
            True,
        ),
        ({"Records": [_record_of("zips/a.zip", {"eTag": "a" * 32, "size": 9})]}, HERE, False),
        ({"Records": [_record_of("zips/a.zip", {"eTag": "b" * 32})]}, HERE, True),
    ],
)
def test_an_event_is_older_than_the_archive_that_is_there(
    put: dict[str, Any],
    stored: Pin,
    is_older: bool,  # noqa: FBT001 - a case
) -> None:
    """Its version says so, or its ETag; without them its time, as S3 has whole seconds."""
    (parsed,), _ = read_puts(json.dumps(put), read_config(VARIABLES))
    assert parsed.is_older(Tail(b"", stored, modified=1767225660.0)) is is_older


@pytest.mark.parametrize("wrap", [dict, _notification_of])
@pytest.mark.parametrize(
    ("status", "threats"),
    [("NO_THREATS_FOUND", ()), ("THREATS_FOUND", ("EICAR-Test-File (not a virus)",))],
)
def test_a_scan_names_its_version(
    wrap: Callable[[dict[str, Any]], dict[str, Any]], status: str, threats: tuple[str, ...]
) -> None:
    """The result, its threats and the version come out of GuardDuty's event, as it is or by SNS."""
    event = scan_of("zips/a b.zip", {"eTag": "a" * 32, "versionId": "1"}, status)
    (put,), _ = read_puts(json.dumps(wrap(event)), read_config(VARIABLES))
    assert (put.source, put.scan, put.threats) == (
        Location("s3", "arrivals", "zips/a b.zip"),
        status,
        threats,
    )
    assert [
        put.is_of(Pin(9, f'"{etag * 32}"', version))
        for etag, version in (("a", "1"), ("a", "2"), ("b", "1"))
    ] == [True, False, False]


def test_a_scan_without_versions_is_bound_by_the_etag() -> None:
    """Without versions the ETag alone says what was scanned, and no tag does."""
    config = read_config(VARIABLES)
    event = scan_of("zips/a.zip", {"eTag": "a" * 32}, "NO_THREATS_FOUND")
    (put,), _ = read_puts(json.dumps(event), config)
    calls = config.context(Invocation()).calls()
    # S3 gives "null" to each version that it does not keep.
    assert [
        put.is_of(HERE),
        put.is_of(replace(HERE, etag=f'"{"b" * 32}"')),
        put._replace(etag=None, version_id="null").is_of(replace(HERE, version_id="null")),
        # A tag may be that of an object that was overwritten, so it is not even read.
        read_scan_tag(put.source, HERE, config, calls),
    ] == [True, False, False, NOT_SCANNED]


@pytest.mark.parametrize(
    ("event", "count"),
    [
        (_event_of("zips/a.zip") | {"source": "aws.s3"}, 0),
        (_event_of("zips/a.zip"), 0),
        (_event_of("zips/a.zip") | {"source": None}, 0),
        ({"Records": [_record_of("zips/a.zip")]}, 0),
        (_event_of("zips/a.zip") | {"source": "s3unzip.submit"}, 1),
        (scan_of("zips/a.zip", {"eTag": "a" * 32}, "NO_THREATS_FOUND"), 1),
    ],
)
def test_with_a_gate_uploads_start_nothing(event: dict[str, Any], count: int) -> None:
    """S3's own events wait for the scan; commands queue archives whose tag is read."""
    puts, _ = read_puts(json.dumps(event), read_config({**VARIABLES, Variable.SCAN: "guardduty"}))
    assert len(puts) == count


@pytest.mark.parametrize(
    "body",
    [
        "no JSON",
        "{}",
        "7",
        "[]",
        "[" * 100_000,
        '{"Hello": 1}',
        json.dumps(_notification_of({"AlarmName": "x"})),
        '{"Type": "Notification", "TopicArn": "arn:aws:sns:x", "Message": "plain text"}',
        '{"Records": [7]}',
        json.dumps(_event_of("x", version={"key": None})),
        '{"Records": [{"s3": {}}]}',
        '{"detail-type": "Object Created", "detail": {"bucket": "arrivals"}, "time": 7}',
        json.dumps(_event_of("zips/a.zip") | {"time": "soon"}),
        json.dumps(
            scan_of("zips/a.zip", {"eTag": "a" * 32}, "NO_THREATS_FOUND") | {"source": "app"}
        ),
    ],
)
def test_unknown_messages_are_refused(body: str) -> None:
    """A message that is not an S3 event is an error, so that it ends among the dead letters."""
    puts, (fault,) = read_puts(body, read_config(VARIABLES))
    assert (puts, type(fault)) == ([], UsageError)


@pytest.mark.parametrize(
    ("record", "fault"),
    [
        (_record_of(f"zips/{'x' * 9_000}\ud800.zip"), "UnicodeEncodeError('utf-8', 'zips/x"),
        (_record_of(f"zips/{'x' * 1_024}.zip"), "a key can have at most 1,024 bytes, not 1,033"),
        (_record_of("zips/caf%E9.zip"), "not an S3 event: UnicodeDecodeError"),
        (scan_of("zips/a.zip", {}, "NO_THREATS_FOUND"), "scan result does not name a version"),
        (_record_of("zips/a.zip") | {"s3": {}}, "not an S3 event: KeyError('object')"),
        ({"s3": {}}, "not an S3 event: ValueError"),
        (7, "not an S3 event: TypeError"),
    ],
)
def test_a_record_that_cannot_be_of_an_archive_is_refused_at_once(
    record: object, fault: str
) -> None:
    """S3 is not asked for it; the archives beside it in the message are taken."""
    body = json.dumps({"Records": [record, _record_of("zips/b.zip")]})
    (put,), (refusal,) = read_puts(body, read_config(VARIABLES))
    assert (put.source.key, fault in str(refusal), len(str(refusal)) < 600) == (
        "zips/b.zip",
        True,
        True,
    )


def test_a_version_that_cannot_be_read_starts_nothing(reach: Callable[[HttpServer], None]) -> None:
    """The step that would extract the newest version goes on, and that version's event is left."""
    with HttpServer(lambda _: s3_error(400, "InvalidRequest")) as server:  # no key of SSE-C
        reach(server)
        config = read_config({**VARIABLES, Variable.OPTIONS: "{}"})
        extract_current_version(
            config.request("zips/a.zip"), "cause", config, config.context(Invocation())
        )
    assert {asked.method for asked in server.asked} == {"GET", "HEAD"}


def _client(service: Any, server: HttpServer, region: str = "eu-west-1") -> Any:
    return boto3.client(
        service,
        endpoint_url=server.url,
        region_name=region,
        aws_access_key_id="id",
        aws_secret_access_key="key",
        config=Config(retries={"total_max_attempts": 1}),
    )


@pytest.mark.parametrize("verdict", Verdict)
def test_event_of_a_run(verdict: Verdict) -> None:
    """Every verdict has a title, and the size of the event is bounded for every archive."""
    report = replace(REPORT, verdict=verdict, message="x" * 10**6)
    detail = event_detail(read_config(VARIABLES), report)
    assert EVENT_TITLES[verdict].startswith("Archive ")
    assert (len(detail["message"]), detail["report"]) == (
        MESSAGE_CHARACTERS,
        "s3://work/s3unzip/runs/a-0/report.json",
    )


@pytest.mark.parametrize(("region", "aws"), [("eu-west-1", "aws"), ("cn-north-1", "aws-cn")])
def test_an_event_names_the_archive_in_its_partition(region: str, aws: str) -> None:
    """Rules of users match the ARN, which in China is another."""
    with HttpServer(lambda _: Reply(200, b'{"FailedEntryCount": 0, "Entries": [{}]}')) as server:
        publish_run_event(_client("events", server, region), read_config(VARIABLES), REPORT)
    (entry,) = json.loads(server.asked[0].body)["Entries"]
    assert entry["Resources"] == [f"arn:{aws}:s3:::arrivals/a.zip"]


VALUE = "p\u00e4ss"
ARN = "arn:aws:secretsmanager:eu-west-1:111122223333:secret:zip-AbCdEf"
SECRETS: dict[str, dict[str, str]] = {
    "zip": {"SecretString": VALUE},
    ARN: {"SecretString": VALUE},
    "binary": {"SecretBinary": base64.b64encode(b"\x00\xff").decode()},
    "fields": {"SecretString": json.dumps({"zip": VALUE, "number": 7})},
    "windows": {"SecretString": "\ufeff" + json.dumps({"zip": VALUE})},
    "empty": {"SecretString": ""},
}
REFUSALS = {
    "denied": (400, "AccessDeniedException"),
    "locked": (400, "DecryptionFailure"),
    "down": (500, "InternalServiceError"),
}


def _answer(asked: Asked) -> Reply:
    name = json.loads(asked.body)["SecretId"]
    if name in SECRETS:
        return Reply(200, json.dumps({"Name": name, **SECRETS[name]}).encode())
    status, code = REFUSALS.get(name, (400, "ResourceNotFoundException"))
    return Reply(status, json.dumps({"__type": code, "message": "no"}).encode())


@pytest.fixture(scope="module")
def client() -> Iterator[SecretsManagerClient]:
    with HttpServer(_answer) as server:
        yield _client("secretsmanager", server)


@pytest.mark.parametrize(
    ("ref", "password"),
    [
        ("secretsmanager:zip", VALUE.encode()),
        (f"secretsmanager:{ARN}", VALUE.encode()),
        ("secretsmanager:binary", b"\x00\xff"),
        ("secretsmanager:fields#zip", VALUE.encode()),
        ("secretsmanager:windows#zip", VALUE.encode()),
    ],
)
def test_passwords_of_secrets_are_read(
    client: SecretsManagerClient, ref: str, password: bytes
) -> None:
    """Text, bytes and a field of a JSON object, by name and by ARN."""
    assert read_secret(ref, client) == password


@pytest.mark.parametrize(
    ("ref", "error"),
    [
        ("secretsmanager:gone", NotFoundError),
        ("secretsmanager:denied", AccessDeniedError),
        ("secretsmanager:locked", AccessDeniedError),
        ("secretsmanager:down", ServiceFaultError),
        ("secretsmanager:empty", UsageError),
        ("secretsmanager:zip#field", UsageError),
        ("secretsmanager:fields#number", UsageError),
        ("secretsmanager:fields#other", UsageError),
    ],
)
def test_secrets_without_a_password_are_refused(
    client: SecretsManagerClient, ref: str, error: type[Exception]
) -> None:
    """Each refusal is of the right kind, and no message holds a value."""
    with pytest.raises(error) as caught:
        read_secret(ref, client)
    assert VALUE not in str(caught.value)


def test_a_changed_secret_is_read_again(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that has worked for hours does not keep an old password; it asks now and then."""
    secrets = account.client("secretsmanager")
    secrets.create_secret(Name="changed", SecretString="old")
    config = read_config({**VARIABLES, Variable.PASSWORD_SECRET: "changed"})
    assert config.context(Invocation()).policy.password == b"old"
    secrets.put_secret_value(SecretId="changed", SecretString="new")
    monkeypatch.setattr("s3unzip.aws.environment.PASSWORD_SECONDS", 1e-6)
    assert config.context(Invocation()).policy.password == b"new"


REQUESTS = Requests(get=5, head=1, put=3, list=2, part=4, throttled=7)
PLANNED = replace(PLAN, run=replace(RUN, event_time=1.0), requests=REQUESTS)
TASK = TaskReport(
    "batch-1", TaskKind.BATCH, members=3, extracted=3, requests=REQUESTS, put_seconds=0.14
)

EVERY_END = (*END_METRICS.values(), STOPPED_RUNS)


def report_of(verdict: Verdict) -> Report:
    """Return the report of a run that took 10 s, 12 s after the archive was put."""
    return replace(REPORT, verdict=verdict, event_time=1_000.0, started=1_002.0, finished=1_012.0)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    """No test leaves metrics to the next one."""
    metrics.clear_metrics()
    yield
    metrics.clear_metrics()


def _emitted() -> dict[str, list[float]]:
    line: dict[str, Any] = dict(metrics.serialize_metric_set())
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], sorted(directive["Dimensions"][0])) == (
        NAMESPACE,
        ["environment", "service"],
    )
    assert {one["Name"]: one["Unit"] for one in directive["Metrics"]}.items() <= METRICS.items()
    return {metric["Name"]: line[metric["Name"]] for metric in directive["Metrics"]}


def test_every_metric_is_emitted() -> None:
    """A run with every step emits all that `METRICS` names."""
    add_plan_metrics(PLANNED)
    add_task_metrics(TASK)
    add_metrics(DirectHandovers=1)
    assert not passes_scan(RUN.source, "THREATS_FOUND", ("EICAR-Test-File (not a virus)",))
    add_metrics(SettleDuration=1)
    add_archive_metrics(report_of(Verdict.COMPLETED))
    add_source_metrics(SourceResult(SourceAction.DELETE, SourceState.DONE))
    assert _emitted().keys() == METRICS.keys()


REQUESTED = {"BytesRead", "ReadRequests", "WriteRequests", "S3Throttles"}
PLAN_METRICS = {"PlanDuration", "MembersFailed", *REQUESTED}


@pytest.mark.parametrize(
    ("record", "names"),
    [
        (lambda: add_plan_metrics(PLANNED), PLAN_METRICS | {"QueueDelay"}),
        (lambda: add_plan_metrics(PLAN), PLAN_METRICS),
        (
            lambda: add_task_metrics(TASK),
            {
                "TaskDuration",
                "MembersExtracted",
                "MembersFailed",
                "MembersUnchanged",
                "BytesWritten",
                "PutLatency",
                *REQUESTED,
            },
        ),
        (
            lambda: add_task_metrics(replace(TASK, requests=Requests())),  # no PUT has a latency
            {name for name in METRICS if name.startswith(("Task", "Members", "Bytes"))} | REQUESTED,
        ),
        (lambda: add_archive_metrics(REPORT), {*EVERY_END, "RunDuration"}),
        (lambda: add_archive_metrics(report_of(Verdict.COMPLETED), is_first=False), {*EVERY_END}),
    ],
    ids=["plan", "no event", "task", "no PUT", "no event of an archive", "resumed days later"],
)
def test_each_step_emits_its_metrics(record: Callable[[], None], names: set[str]) -> None:
    """A run without an event waited for none; a resumed one was not slow."""
    record()
    assert _emitted().keys() == names


@pytest.mark.parametrize(
    ("verdict", "reason", "metric"),
    [
        *((verdict, None, END_METRICS[verdict]) for verdict in Verdict),
        (Verdict.FAILED, STOPPED, STOPPED_RUNS),  # by somebody: no alarm of failures rings
    ],
)
def test_one_end_is_counted(
    verdict: Verdict, reason: str | None, metric: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The metric of the verdict is 1, the others are 0; failures are logged by reason."""
    caplog.set_level(logging.INFO, SERVICE)
    add_archive_metrics(replace(report_of(verdict), reason=reason, reasons={"crc-mismatch": 2}))
    expected = {name: [float(name == metric)] for name in EVERY_END}
    expected |= {"ArchiveDuration": [12.0], "RunDuration": [10.0]}
    assert expected.items() <= _emitted().items()
    assert caplog.messages == ["archive", "failures"]


COUNTS = {"ReadRequests": [6.0], "WriteRequests": [9.0], "S3Throttles": [7.0]}


@pytest.mark.parametrize(
    ("record", "figures"),
    [
        (lambda: add_plan_metrics(PLANNED), COUNTS),
        (lambda: add_task_metrics(TASK), COUNTS),
        (lambda: add_task_metrics(replace(TASK, requests=Requests(put=4))), {"PutLatency": [35.0]}),
        (lambda: add_archive_metrics(report_of(Verdict.COMPLETED)), {"ArchivePace": [12.0]}),
        (
            lambda: add_archive_metrics(replace(report_of(Verdict.COMPLETED), members=400_000)),
            {"ArchivePace": [3.0]},
        ),
        (
            lambda: add_archive_metrics(
                replace(
                    report_of(Verdict.COMPLETED), bytes_in=20_000_000_000, bytes_out=60_000_000_000
                )
            ),
            {"ArchivePace": [2.0]},
        ),
    ],
)
def test_figures_of_a_step(record: Callable[[], None], figures: dict[str, list[float]]) -> None:
    """Requests of plans and tasks, milliseconds of a PUT, seconds for 10 GB or 100,000 members."""
    record()
    assert figures.items() <= _emitted().items()


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_client_libraries_log_warnings_only(caplog: pytest.LogCaptureFixture, level: int) -> None:
    """With the root logger at Lambda's level a client adds no line; its warnings come through."""
    caplog.set_level(level)
    session = botocore.session.get_session()
    session.set_credentials("id", "secret")
    session.create_client("sqs", region_name="eu-west-1")
    logging.getLogger("another.library").info("heard")
    for name in CLIENT_LIBRARIES:
        logging.getLogger(f"{name}.part").warning("warned")
    assert [(record.name, record.message) for record in caplog.records] == [
        ("another.library", "heard"),
        *((f"{name}.part", "warned") for name in CLIENT_LIBRARIES),
    ]


@pytest.mark.parametrize(
    ("level", "lines"),
    [("DEBUG", ["info", "error"]), ("INFO", ["info", "error"]), ("ERROR", ["error"])],
)
def test_metrics_survive_every_log_level(level: str, lines: list[str]) -> None:
    """The level of the environment filters the logger's lines, and never a line of metrics."""
    code = (
        "from s3unzip.aws.telemetry import logger, metrics\n"
        "logger.info('info'); logger.error('error')\n"
        "metrics.add_metric('ArchivesFailed', 'Count', 1); metrics.flush_metrics()\n"
    )
    lambda_level = "DEBUG" if level == "DEBUG" else "INFO"  # as infra/functions.py sets it
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"AWS_LAMBDA_LOG_LEVEL": lambda_level, "POWERTOOLS_LOG_LEVEL": level},
        capture_output=True,
        text=True,
        check=True,
    )
    *logged, measured = map(json.loads, done.stdout.splitlines())
    assert ([line["message"] for line in logged], measured["ArchivesFailed"]) == (lines, [1.0])


ROOT = "1-5759e988-bd862e3fe1be46a994272793"
# Lambda's mode of the SDK is chosen when it is imported, so the functions have their own process.
FUNCTION = """
import os, sys
from s3unzip.aws.telemetry import bind_run, lambda_function
from tests.support.contexts import Invocation

@lambda_function
def handler(event, context):
    bind_run(event)
    if event == "bad":
        raise ValueError(event)
    return event

def invoke(event, header):
    if header is None:
        os.environ.pop("_X_AMZN_TRACE_ID", None)
    else:
        os.environ["_X_AMZN_TRACE_ID"] = header
    try:
        print(handler(event, Invocation()), "aws_xray_sdk" in sys.modules)
    except ValueError as error:
        print("raised", error)

for event, header in HEADERS:
    invoke(event, header)
"""


def _header(sampled: str) -> str:
    return f"Root={ROOT};Parent=53995c3f42cd8ad8;Sampled={sampled};Lineage=1:a87bd80c:0"


def run(invocations: list[tuple[str, str | None]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Invoke a traced function in a new process; return its answers and the subsegments sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as daemon:
        daemon.bind(("127.0.0.1", 0))
        daemon.setblocking(False)  # noqa: FBT003 - its only argument
        told = os.environ | {
            "AWS_XRAY_DAEMON_ADDRESS": f"127.0.0.1:{daemon.getsockname()[1]}",
            "LAMBDA_TASK_ROOT": "/var/task",
        }
        told.pop("POWERTOOLS_TRACE_DISABLED", None)
        done = subprocess.run(
            [sys.executable, "-c", FUNCTION.replace("HEADERS", repr(invocations))],
            env=told,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        sent = []
        with suppress(BlockingIOError):
            while True:
                sent.append(daemon.recv(65_536))
    return done.stdout.splitlines(), [json.loads(one.partition(b"\n")[2]) for one in sent]


def test_only_a_sampled_invocation_imports_the_sdk() -> None:
    """Nothing is sent if the header says no, nothing, or is missing; a later one is not cold."""
    answers, sent = run(
        [("a", _header("0")), ("b", _header("?")), ("c", None), ("d", _header("1"))]
    )
    assert answers == ["a False", "b False", "c False", "d True"]
    assert [one["annotations"] for one in sent] == [
        {"run": "d", "ColdStart": False, "Service": "s3unzip"}
    ]


def test_a_sampled_invocation_is_a_subsegment_with_its_run() -> None:
    """It is named after the handler, says that the start was cold, and has the error, if any."""
    answers, (good, bad) = run([("a", _header("1")), ("bad", _header("1"))])
    assert (answers, bad["fault"]) == (["a True", "raised bad"], True)
    assert (good["name"], good["trace_id"], good["annotations"]) == (
        "## handler",
        ROOT,
        {"run": "a", "ColdStart": True, "Service": "s3unzip"},
    )
    assert "bad" in json.dumps(bad["cause"])
