"""Credentials at the command line: asked for once, renewed, and what is said if they are gone."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from xml.sax.saxutils import escape

import pytest

from s3unzip.stores.ports import ObjectFacts
from tests.functional.test_places import signers
from tests.support.memory_server import Asked, MemoryS3, run_memory_s3
from tests.support.patience import HANG_SECONDS
from tests.support.processes import COMMAND, Ended, Program
from tests.support.servers import HttpServer, Reply, s3_error
from tests.support.zips import DEFLATE, Entry, build

SOURCE, TARGET = "s3://from/a.zip", "s3://out/to"
MEMBERS = 60
ARCHIVE = build(*(Entry(f"{number:03}.txt", b"text " * 50, DEFLATE) for number in range(MEMBERS)))
ROLE = f"arn:aws:iam::111122223333:role/{'division/' * 20}reader"
DENIED = f"User: {ROLE} is not authorized to perform: sts:AssumeRole on resource: {ROLE}"
KEYS = "aws_access_key_id = {}\naws_secret_access_key = secret\naws_session_token = token\n"
PROFILES = f"""
[profile process]
credential_process = {{folder}}/process
[profile broken]
credential_process = {{folder}}/broken
[profile absent]
credential_process = {{folder}}/absent
[profile odd]
credential_process = {{folder}}/odd
[profile line]
credential_process = {{folder}}/line
[profile late]
credential_process = {{folder}}/late
[profile sso]
sso_session = company
sso_account_id = 111122223333
sso_role_name = reader
[sso-session company]
sso_region = eu-west-1
sso_start_url = https://sso.example/start
[profile old-sso]
sso_region = eu-west-1
sso_start_url = https://sso.example/start
sso_account_id = 111122223333
sso_role_name = reader
[profile role]
role_arn = {ROLE}
source_profile = process
[profile code]
role_arn = {ROLE}
source_profile = process
mfa_serial = arn:aws:iam::111122223333:mfa/me
[profile far]
role_arn = {ROLE}
source_profile = process
services = far
[services far]
sts =
  endpoint_url = http://127.0.0.1:9
[profile half]
aws_access_key_id = HALF
"""
PROCESS = """#!/bin/sh
echo asked >> {folder}/asked
echo '{{"Version": 1, "AccessKeyId": "PROCESS", "SecretAccessKey": "secret"{more}}}'
"""
ASSUMED = """<AssumeRoleResponse><AssumeRoleResult><Credentials>
<AccessKeyId>ASSUMED</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>
<SessionToken>token</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration>
</Credentials></AssumeRoleResult></AssumeRoleResponse>"""


class ExpiringS3(MemoryS3):
    """A store that refuses one access key, from a number of objects on."""

    def __init__(self, shared: Path) -> None:
        super().__init__()
        self.shared = shared
        self.expired, self.holds_for = "", 0
        self.refusal = (400, "ExpiredToken")
        self.renews = ""  # the access key that the profile has from the first refusal on
        self.in_vain = 0

    def answer(self, asked: Asked) -> Reply:
        signed = asked.headers.get("authorization", "")
        written = len(self.buckets["out"].objects)
        if f"Credential={self.expired}/" not in signed or written < self.holds_for:
            return super().answer(asked)
        self.in_vain += 1
        if self.renews:
            new = self.shared.with_name(f"new-{threading.get_ident()}")
            new.write_text(f"[kept]\n{KEYS.format(self.renews)}")
            new.replace(self.shared)
        return s3_error(*self.refusal, "The provided token has expired")


class Login:
    """A bucket of archives, another one, and the profiles of a machine."""

    def __init__(self, program: Program, held: ExitStack) -> None:
        self.program, folder = program, program.folder
        self.shared = folder / "no-credentials"
        self.shared.write_text(f"[kept]\n{KEYS.format('OLD')}")
        (folder / "no-config").write_text(PROFILES.format(folder=folder))
        late = ', "SessionToken": "token", "Expiration": "2001-01-01T00:00:00Z"'
        for name, text in {
            "process": PROCESS.format(folder=folder, more=""),
            "late": PROCESS.format(folder=folder, more=late),
            "odd": "#!/bin/sh\necho '[]'\n",
            "line": PROCESS.format(folder=folder, more="").replace('PROCESS"', 'A\\\\nB"'),
            "broken": "#!/bin/sh\necho 'no luck' >&2\nexit 3\n",
        }.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.sts: Reply = Reply(200, ASSUMED.encode())
        self.tokens = held.enter_context(HttpServer(lambda asked: self.sts))
        self.s3 = ExpiringS3(self.shared)
        url = held.enter_context(run_memory_s3(self.s3))
        self.source = self.s3.create_bucket("from")
        self.out = self.s3.create_bucket("out")
        self.source.put("a.zip", ARCHIVE, ObjectFacts("application/zip", {}), if_absent=False)
        self.endpoint = ("--endpoint-url", url)
        program.variables |= {
            "AWS_REGION": "eu-west-1",
            "AWS_ENDPOINT_URL_STS": self.tokens.url,
            "AWS_EC2_METADATA_DISABLED": "true",
            "S3UNZIP_TUNING": json.dumps(
                {"batch_members": 20, "retry_seconds": 20, "min_worker_seconds": 0}
            ),
        }
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            del program.variables[name]

    def start(self, *words: str) -> Ended:
        return self.program.start(*words, *self.endpoint)

    @property
    def asked(self) -> int:
        """How often the profile's program was started."""
        log = self.program.folder / "asked"
        return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.fixture
def login(program: Program, monkeypatch: pytest.MonkeyPatch) -> Iterator[Login]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as held:
        yield Login(program, held)


@pytest.mark.parametrize(
    ("source", "more"),
    [
        (SOURCE, ()),
        ("s3://from/", ()),  # it is listed before
        (SOURCE, ("--dest-profile", "process")),
        (SOURCE, ("--delete-extra", "1")),
        (SOURCE, ("--region", "eu-central-1")),
    ],
)
def test_a_program_of_a_profile_is_started_once(
    login: Login, source: str, more: tuple[str, ...]
) -> None:
    """All processes of a command share what it gives; no record has a secret."""
    login.start("run", source, TARGET, "--profile", "process", "-w", "2", *more).ends(0)
    assert len(login.out.objects) == MEMBERS
    assert signers(login.s3) == {"PROCESS"}
    assert login.asked == 1
    records = login.program.files(".runs")
    assert records
    assert not any(b"secret" in data for data in records.values())


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("expires", [False, True])
def test_a_code_is_typed_once(login: Login, workers: str, *, expires: bool) -> None:
    """AWS takes a code once; every process signs with the session that it gives.

    Nobody is asked for another one in mid-run.
    """
    program = login.program
    if expires:
        login.s3.expired, login.s3.holds_for = "ASSUMED", 25
    words = ["run", SOURCE, TARGET, "--profile", "code", "-w", workers, *login.endpoint]
    ended = subprocess.run(
        [*COMMAND, *words],
        cwd=program.folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)} | program.variables,
        input=b"123456\n654321\n",
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
        start_new_session=True,  # no terminal: the code comes by standard input
    )
    assert ended.returncode == (5 if expires else 0), ended.stderr
    assert ended.stderr.count(b"MFA code") == 1
    assert [b"TokenCode=123456" in asked.body for asked in login.tokens.asked] == [True]
    assert signers(login.s3) == {"ASSUMED"}
    told = b"the profile code: they have expired, and new ones need a code; start the command again"
    assert (told in ended.stderr) is expires


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("refusal", [(400, "ExpiredToken"), (403, "InvalidAccessKeyId")])
@pytest.mark.parametrize("more", [(), ("--on-conflict", "skip-unchanged")])
def test_a_profile_that_has_new_keys(
    login: Login, workers: str, refusal: tuple[int, str], more: tuple[str, ...]
) -> None:
    """The next attempt signs with them, in every process."""
    login.s3.expired, login.s3.holds_for, login.s3.renews = "OLD", 25, "NEW"
    login.s3.refusal = refusal
    login.start("run", SOURCE, TARGET, "--profile", "kept", "-w", workers, *more).ends(0)
    assert len(login.out.objects) == MEMBERS
    assert signers(login.s3) == {"OLD", "NEW"}


def test_expired_variables_end_a_run_at_once(login: Login) -> None:
    """A process finds no others: nothing is tried again, and the line names the variables."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    login.program.variables |= dict(zip(names, ("OLD", "secret", "token"), strict=True))
    login.s3.expired, login.s3.holds_for = "OLD", 25
    login.start("run", SOURCE, TARGET, "-w", "2").ends(
        5, "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN anew"
    ).hides("no answer from")
    assert login.s3.in_vain < 100
    login.s3.expired = "-"
    login.start("resume", "latest").ends(0)


def test_expired_keys_end_a_command_at_once(login: Login) -> None:
    """The command ends after one refusal, with what to do."""
    login.s3.expired = "OLD"
    login.start("ls", SOURCE, "--profile", "kept").ends(
        6, "ExpiredToken: The provided token has expired; get new credentials"
    )
    assert login.s3.in_vain == 1


TOLD = {
    "sso": "Token for company does not exist; log in again: aws sso login --profile sso",
    "old-sso": "does not exist; log in again: aws sso login --profile old-sso",
    "role": f"calling the AssumeRole operation: {DENIED}; the right to do so, or the trust of ",
    "broken": "from custom-process: no luck; see what is configured: aws configure list",
    "odd": "a program or a file gives unexpected data: 'list' object has no attribute",
    "line": "the access key id is empty, or has a character that no request can have; see",
    "absent": "No such file or directory: '",
    "late": "the refreshed credentials are still expired; see what",
    "code": "need a code, and standard input is not a terminal; start the command on a terminal",
    "far": 'Could not connect to the endpoint URL: "http://127.0.0.1:9/"; check the network',
    "half": "Partial credentials found in config-file, missing: aws_secret_access_key; see what",
}


@pytest.mark.parametrize("profile", TOLD)
def test_missing_credentials_end_a_command_at_once(login: Login, profile: str) -> None:
    """Exit code 6 and one line, whichever of the two profiles it is; the store is not asked."""
    if profile == "far":
        del login.program.variables["AWS_ENDPOINT_URL_STS"]
    error = f"<Error><Code>AccessDenied</Code><Message>{escape(DENIED)}</Message></Error>"
    login.sts = Reply(403, f"<ErrorResponse>{error}</ErrorResponse>".encode())
    login.start("ls", SOURCE, "--profile", profile).ends(
        6, f"s3unzip: credentials of the profile {profile}: ", TOLD[profile]
    )
    assert not login.s3.asked
    login.start("run", SOURCE, TARGET, "--profile", "kept", "--dest-profile", profile).ends(
        6, TOLD[profile]
    )
    assert not login.out.objects
    assert not login.program.runs()
