"""The policy of docs/howto/connections.md: the command works with it, and with nothing less."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from embedded.deploy import make_client
from embedded.ministack import EmbeddedAws
from infra.reasons import listed
from tests.docs.commands import ROOT
from tests.support.processes import Program
from tests.support.servers import require_embedded_aws
from tests.support.zips import DEFLATE, Entry, build

PAGE = ROOT / "docs" / "howto" / "connections.md"
POLICY: dict[str, Any] = json.loads(
    re.findall(r"```json\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
)
RUN = ("run", "s3://incoming/a.zip", "s3://extracted/here", "-w", "1")
READ_MEMBERS = {"Action": "s3:GetObject", "Resource": "arn:aws:s3:::extracted/*"}
# Five parts of 5 MiB each: one member is an upload.
TUNING = json.dumps({"small_member": 1_048_576, "part_bytes": 5_242_880})
ENTRIES = [Entry(f"f{number}.txt", b"text" * 99, DEFLATE) for number in range(9)]
# Needed only after a fault: to drop the upload of a member, and to find those of a killed worker.
AFTER_FAULTS = {"s3:AbortMultipartUpload", "s3:ListBucketMultipartUploads"}


class User(NamedTuple):
    """A user of the embedded AWS, and the command line with the user's key."""

    iam: Any
    program: Program

    def may(self, *statements: dict[str, Any]) -> None:
        allowed = [{"Effect": "Allow", **statement} for statement in statements]
        document = json.dumps({"Version": "2012-10-17", "Statement": allowed})
        self.iam.put_user_policy(UserName="zip", PolicyName="all", PolicyDocument=document)


@pytest.fixture(scope="module")
def aws() -> Iterator[EmbeddedAws]:
    """An AWS that checks rights, with an archive and a bucket for its members."""
    require_embedded_aws()
    with EmbeddedAws(auth=True) as running:
        s3 = make_client("s3", running.environment)
        for bucket in ("incoming", "extracted"):
            s3.create_bucket(Bucket=bucket)
        s3.put_object(
            Bucket="incoming",
            Key="a.zip",
            Body=build(*ENTRIES, Entry("large.bin", bytes(6 * 1_048_576), DEFLATE)),
        )
        make_client("iam", running.environment).create_user(UserName="zip")
        yield running


@pytest.fixture
def user(aws: EmbeddedAws, tmp_path: Path) -> User:
    iam = make_client("iam", aws.environment)
    for old in iam.list_access_keys(UserName="zip")["AccessKeyMetadata"]:
        iam.delete_access_key(UserName="zip", AccessKeyId=old["AccessKeyId"])
    key = iam.create_access_key(UserName="zip")["AccessKey"]
    program = Program(tmp_path)
    program.variables |= aws.environment | {
        "AWS_ACCESS_KEY_ID": key["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
        "S3UNZIP_TUNING": TUNING,
    }
    return User(iam, program)


def test_the_policy_is_enough(user: User) -> None:
    """Small and large members are written; to verify them needs what the table says."""
    user.may(*POLICY["Statement"])
    user.program.start(*RUN).ends(0)
    verify = ("verify", "s3://incoming/a.zip", "s3://extracted/here", "--deep")
    assert user.program.start(*verify).code == 6
    user.may(*POLICY["Statement"], READ_MEMBERS)
    user.program.start(*verify).ends(0)


NEEDED = [
    (number, action)
    for number, statement in enumerate(POLICY["Statement"])
    for action in listed(statement["Action"])
    if action not in AFTER_FAULTS | {"s3:ListBucket"}
]


@pytest.mark.parametrize(("number", "action"), NEEDED)
def test_nothing_less_is_enough(user: User, number: int, action: str) -> None:
    """Without the right the command ends with 6 or 5, and names the action."""
    statements = [dict(statement) for statement in POLICY["Statement"]]
    fewer = [one for one in listed(statements[number]["Action"]) if one != action]
    statements[number]["Action"] = fewer
    user.may(*(one for one in statements if one["Action"]))
    ended = user.program.start(*RUN)
    assert ended.code in {5, 6}
    assert action in ended.err + ended.out
