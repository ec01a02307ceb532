"""A server that answers like AWS where moto has no answer, and what a check says."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import boto3
from botocore.config import Config

from s3unzip.operate.answers import OK, CheckStatus, run_check
from s3unzip.operate.bucket_checks import FUNCTION
from s3unzip.operate.doctor import ACCOUNT_CHECKS, ALARM, RULE
from s3unzip.operate.runs import DeployedRuns, Resource
from tests.support.account import REGION
from tests.support.servers import Asked, HttpServer, Reply

SERVICES = (
    *("cloudformation", "cloudwatch", "events", "guardduty", "kms"),
    *("iam", "lambda", "s3", "secretsmanager", "sns", "sqs"),
)
RESOURCES = (
    Resource("FunctionsExtract1", FUNCTION, "extract"),
    Resource("FunctionsPlan1", FUNCTION, "plan"),
    Resource("AlarmsDeadLetters1", ALARM, "DeadLetters"),
    Resource("IntakeArchivePut1", RULE, "ArchivePut"),
)


def deny(asked: Asked) -> Reply:
    """Refuse a request in the words of its protocol."""
    return refuse(asked, "AccessDenied", 403)


def refuse(asked: Asked, code: str, status: int) -> Reply:
    """Answer a request with an error, in the words of its protocol."""
    if b"Action=" in asked.body:  # query
        body = f"<ErrorResponse><Error><Code>{code}</Code></Error></ErrorResponse>"
        return Reply(status, body.encode(), {"Content-Type": "text/xml"})
    if "x-amz-target" in asked.headers:  # JSON
        return Reply(status, json.dumps({"__type": f"{code}Exception"}).encode())
    lambda_paths = ("/2015-03-31/", "/2016-08-19/", "/2019-09-30/")
    if asked.path.startswith((*lambda_paths, "/malware-protection-plan")):
        return Reply(status, b"{}", {"x-amzn-ErrorType": f"{code}Exception"})
    return Reply(status, f"<Error><Code>{code}</Code></Error>".encode())  # S3


@contextmanager
def answering(
    runs: DeployedRuns, answer: Callable[[Asked], Reply], *services: str
) -> Iterator[None]:
    """Let these services of an environment be answered by a function."""
    with HttpServer(answer) as server:
        for service in services:
            runs._clients[service] = boto3.client(
                service,  # type: ignore[call-overload]  # the stubs want each name spelt out
                endpoint_url=server.url,
                region_name=REGION,
                config=Config(retries={"total_max_attempts": 1}, s3={"addressing_style": "path"}),
            )
        yield
    for service in services:
        del runs._clients[service]  # the account's own is made when it is next asked for


def check(runs: DeployedRuns, name: str, status: CheckStatus, *words: str) -> None:
    """Assert what a check says: its status, words of its message and advice."""
    found = run_check(name, partial(ACCOUNT_CHECKS[name], runs))
    assert (found.name, found.status) == (name, status), found
    text = f"{found.message} -> {found.advice}"
    assert all(word in text for word in words), text
    assert bool(found.advice) is (status is not OK)
