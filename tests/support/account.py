"""An AWS account of moto behind a real HTTP port, with one environment deployed in it.

moto's ``mock_aws`` stands in front of botocore only; members and runs' records go through
obstore, which is not Python. A server answers both. What moto does not do: run the state
machine's Maps, and check rights.

moto comes with werkzeug's server, which closes the connection after each request, and so needs a
new connection and a new thread for the next: half of the processor time of a request. Here moto's
applications are behind one port of this machine, over HTTP/1.1.
"""

import io
import json
import sys
import urllib.request
from dataclasses import dataclass, field
from functools import cache
from threading import Lock
from typing import Any
from urllib.parse import unquote

import boto3
from moto.core.request import (
    PRESERVED_HEADER_NAMES_ENVIRON_KEY,
    environ_key_for_header,
    should_preserve_original_header_name,
)
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.test import run_wsgi_app

from s3unzip.settings import Variable
from tests.support.servers import HOST, Asked, Reply
from tests.support.zips import Entry, build

OWNER = "123456789012"  # the account that owns all buckets of moto


class Moto:
    """Answers one request at a time.

    A conditional PUT of moto is a check and then a write, so two at the same moment would both
    succeed.
    """

    def __init__(self) -> None:
        self._turn = Lock()
        self._app = DomainDispatcherApplication(create_backend_app)
        # moto lists its modules on the disk at each request, to find the service of a host.
        vars(self._app)["get_backend_for_host"] = cache(self._app.get_backend_for_host)

    def __call__(self, asked: Asked) -> Reply:
        with self._turn:
            if asked.headers.get("x-amz-expected-bucket-owner", OWNER) != OWNER:
                return Reply(403, b"<Error><Code>AccessDenied</Code></Error>", {})  # as in S3
            body, status, headers = run_wsgi_app(self._app, _environ(asked), buffered=True)
        # Of an answer to HEAD the length is the object's, and stands in its headers.
        names = {name.title(): value for name, value in headers.items()}
        return Reply(int(status.partition(" ")[0]), b"".join(body), names)


def _environ(asked: Asked) -> dict[str, Any]:
    path, _, query = asked.path.partition("?")
    host, _, port = asked.headers.get("host", HOST).partition(":")
    return {
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(asked.body),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
        "REQUEST_METHOD": asked.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(path, "latin-1"),
        "QUERY_STRING": query,
        "REQUEST_URI": asked.path,
        "RAW_URI": asked.path,
        "REMOTE_ADDR": HOST,
        "SERVER_NAME": host,
        "SERVER_PORT": port or "80",
        "SERVER_PROTOCOL": "HTTP/1.1",
        **{environ_key_for_header(name): value for name, value in asked.headers.items()},
        # Names of metadata with underscores, as moto's server has them.
        PRESERVED_HEADER_NAMES_ENVIRON_KEY: {
            environ_key_for_header(name): name
            for name in asked.headers
            if should_preserve_original_header_name(name)
        },
    }


REGION = "us-east-1"
ROLE = f"arn:aws:iam::{OWNER}:role/any"
BUS = "verdicts"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": REGION,
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass(slots=True)
class Account:
    """One account; `deploy` makes the environment ``dev`` in it."""

    url: str
    asked: list[Asked] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)  # of its plan function
    outputs: dict[str, str] = field(default_factory=dict)
    _clients: dict[tuple[str, str], Any] = field(default_factory=dict)  # by service and region

    def client(self, service: str, region: str = REGION) -> Any:
        if (service, region) not in self._clients:
            self._clients[service, region] = boto3.client(
                service,  # type: ignore[call-overload]  # the stubs want each name spelt out
                endpoint_url=self.url,
                region_name=region,
                aws_access_key_id="test",
                aws_secret_access_key="test",
            )
        return self._clients[service, region]

    def reset(self) -> None:
        request = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")  # noqa: S310 - ours
        urllib.request.urlopen(request).close()  # noqa: S310 - ours
        self.asked.clear()
        self.variables.clear()
        self.outputs.clear()

    def deploy(self, **variables: str) -> None:
        """Make buckets, queues, the state machine, the plan function and the stack.

        Args:
            variables: of the functions, besides those that name the resources.
        """
        for bucket in ("arrivals", "members", "work"):
            self.client("s3").create_bucket(Bucket=bucket)
        self.client("iam").create_role(
            RoleName="any",
            AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []}),
        )
        definition = {"StartAt": "A", "States": {"A": {"Type": "Pass", "End": True}}}
        machine = self.client("stepfunctions").create_state_machine(
            name="runs", definition=json.dumps(definition), roleArn=ROLE
        )["stateMachineArn"]
        queue = self.client("sqs").create_queue(QueueName="intake")["QueueUrl"]
        dead = self.client("sqs").create_queue(QueueName="dead")["QueueUrl"]
        self.client("events").create_event_bus(Name=BUS)
        self.variables |= {
            Variable.ENVIRONMENT: "dev",
            Variable.WORK_BUCKET: "work",
            Variable.DESTINATION: "s3://members/out/",
            Variable.TRIGGER_BUCKET: "arrivals",
            Variable.TRIGGER_SUFFIX: ".zip",
            Variable.STATE_MACHINE: machine,
            Variable.QUEUE: queue,
            Variable.EVENT_BUS: BUS,
            Variable.TUNING: json.dumps({"max_direct_members": 0}),  # the state machine's part
            **variables,
        }
        self.outputs |= {
            "Version": "0.0.0",  # of another package than this
            "IngestBucket": "arrivals",
            "IngestKeys": '[["", ".zip"]]',
            "DestinationBucket": "members",
            "WorkBucket": "work",
            "StateMachineArn": machine,
            "IntakeFunction": "plan",
            "PlanFunction": self._make_function(),
            "QueueUrl": queue,
            "DeadLettersUrl": dead,
        }
        self.make_stack("s3unzip-dev", self.outputs)

    def make_stack(self, name: str, outputs: dict[str, str]) -> None:
        template = {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic"}},  # a stack needs one
            "Outputs": {key: {"Value": value} for key, value in outputs.items()},
        }
        self.client("cloudformation").create_stack(
            StackName=name, TemplateBody=json.dumps(template)
        )

    def queue_arn(self, url: str) -> str:
        told = self.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(told["Attributes"]["QueueArn"])

    def receive(self, url: str) -> list[dict[str, Any]]:
        client = self.client("sqs")
        bodies = []
        while got := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            for message in got:
                bodies.append(json.loads(message["Body"]))
                client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return bodies

    def put(self, key: str, body: bytes, bucket: str = "arrivals") -> None:
        self.client("s3").put_object(Bucket=bucket, Key=key, Body=body)

    def objects(self, bucket: str, prefix: str = "") -> dict[str, bytes]:
        s3 = self.client("s3")
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
        return {key: s3.get_object(Bucket=bucket, Key=key)["Body"].read() for key in keys}

    def executions(self) -> list[str]:
        found = self.client("stepfunctions").list_executions(
            stateMachineArn=self.outputs["StateMachineArn"]
        )
        return [one["name"] for one in found["executions"]]

    def _make_function(self) -> str:
        return str(
            self.client("lambda").create_function(
                FunctionName="plan",
                Runtime="python3.13",
                Role=ROLE,
                Handler="nothing.handler",
                Code={"ZipFile": build(Entry("nothing.py"))},
                Environment={"Variables": self.variables},
            )["FunctionName"]
        )
