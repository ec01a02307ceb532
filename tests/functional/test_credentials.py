"""How the command line reaches servers: credentials, regions, links."""

import itertools
import json
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from xml.sax.saxutils import escape

import pytest

from tests.functional.test_places import SOURCE, TARGET, signers
from tests.support import memory_server, zips
from tests.support.processes import COMMAND, Ended, Program
from tests.support.servers import (
    HANG_SECONDS,
    Asked,
    HttpServer,
    Reply,
    WebFiles,
    s3_error,
)

MEMBERS = 60
ENTRIES = [zips.Entry(f"{number:03}.txt", b"text " * 50, zips.DEFLATE) for number in range(MEMBERS)]
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
[profile once]
credential_process = {{folder}}/once
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


class Login:
    """A bucket of archives, another one, and the profiles of a machine.

    The store refuses one access key, by default once the other bucket has a number of objects.
    """

    tokens: HttpServer  # of STS

    def __init__(self, program: Program, s3: memory_server.MemoryS3) -> None:
        self.program, folder = program, program.folder
        self.shared = folder / "no-credentials"
        self.shared.write_text(f"[kept]\n{KEYS.format('OLD')}")
        (folder / "no-config").write_text(PROFILES.format(folder=folder))
        late = ', "SessionToken": "token", "Expiration": "2001-01-01T00:00:00Z"'
        for name, text in {
            "process": PROCESS.format(folder=folder, more=""),
            "late": PROCESS.format(folder=folder, more=late),
            "odd": "#!/bin/sh\necho '[]'\n",
            "once": PROCESS.format(folder=folder, more="").replace("PROCESS", "OLD") + 'rm "$0"\n',
            "line": PROCESS.format(folder=folder, more="").replace('PROCESS"', 'A\\\\nB"'),
            "broken": "#!/bin/sh\necho 'no luck' >&2\nexit 3\n",
        }.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.sts: Reply = Reply(200, ASSUMED.encode())
        self.s3 = s3
        s3.spoil = self._refuse
        s3.buckets["from"].add("a.zip", zips.build(*ENTRIES))
        self.out = s3.buckets["out"]
        self.expired, self.holds_for = "", 25
        self.refusal = (400, "ExpiredToken")
        self.renews = ""  # the access key that the profile has from the first refusal on
        self.in_vain = 0
        self.endpoint = ("--endpoint-url", s3.url)
        program.variables |= {
            "AWS_REGION": "eu-west-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "S3UNZIP_TUNING": json.dumps(
                {"batch_members": 20, "retry_seconds": 20, "min_worker_seconds": 0}
            ),
        }

    def start(self, *words: str) -> Ended:
        return self.program.start(*words, *self.endpoint)

    def _refuse(self, asked: Asked) -> Reply | None:
        signed = asked.headers.get("authorization", "")
        if f"Credential={self.expired}/" not in signed or len(self.out.objects) < self.holds_for:
            return None
        self.in_vain += 1
        if self.renews:
            new = self.shared.with_name(f"new-{threading.get_ident()}")
            new.write_text(f"[kept]\n{KEYS.format(self.renews)}")
            new.replace(self.shared)
        # Clients of S3 and of other services read this form.
        status, code = self.refusal
        error = (
            f"<Error><Code>{code}</Code><Message>The provided token has expired</Message></Error>"
        )
        return Reply(status, f"<ErrorResponse>{error}</ErrorResponse>".encode())


@pytest.fixture
def login(program: Program, s3: memory_server.MemoryS3) -> Iterator[Login]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        del program.variables[name]
    login = Login(program, s3)
    with HttpServer(lambda _: login.sts) as login.tokens:
        program.variables["AWS_ENDPOINT_URL_STS"] = login.tokens.url
        yield login


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
    """All processes of a command share its keys; no record has a secret."""
    login.start("run", source, TARGET, "--profile", "process", "-w", "2", *more).ends(0)
    assert (len(login.out.objects), signers(login.s3)) == (MEMBERS, {"PROCESS"})
    assert (login.program.folder / "asked").read_text() == "asked\n"
    assert login.program.records_with(b"secret") == []


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(("expired", "code"), [("", 0), ("ASSUMED", 5)])
def test_a_code_is_typed_once(login: Login, workers: str, expired: str, code: int) -> None:
    """AWS takes a code once; every process signs with the keys that AWS gives for it.

    Nobody is asked for another code during the run.
    """
    login.expired = expired
    ended = subprocess.run(
        [*COMMAND, "run", SOURCE, TARGET, "--profile", "code", "-w", workers, *login.endpoint],
        cwd=login.program.folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)} | login.program.variables,
        input=b"123456\n654321\n",
        capture_output=True,
        timeout=HANG_SECONDS,
        check=False,
        start_new_session=True,  # no terminal: the code comes by standard input
    )
    assert ended.returncode == code, ended.stderr
    assert ended.stderr.count(b"Enter MFA code") == 1
    assert [b"TokenCode=123456" in asked.body for asked in login.tokens.asked] == [True]
    assert signers(login.s3) == {"ASSUMED"}
    advice = b"have expired, and new credentials need an MFA code; run the command"
    assert (advice + b" again" in ended.stderr) is bool(expired)


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("refusal", [(400, "ExpiredToken"), (403, "InvalidAccessKeyId")])
@pytest.mark.parametrize("more", [(), ("--on-conflict", "skip-unchanged")])
def test_a_profile_that_has_new_keys(
    login: Login, workers: str, refusal: tuple[int, str], more: tuple[str, ...]
) -> None:
    """The next attempt signs with the new keys, in every process."""
    login.expired, login.renews = "OLD", "NEW"
    login.refusal = refusal
    login.start("run", SOURCE, TARGET, "--profile", "kept", "-w", workers, *more).ends(0)
    assert (len(login.out.objects), signers(login.s3)) == (MEMBERS, {"OLD", "NEW"})


def test_expired_variables_end_a_run_at_once(login: Login) -> None:
    """A process finds no other keys: nothing is tried again, and the line names the variables."""
    login.program.variables |= {
        "AWS_ACCESS_KEY_ID": "OLD",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_SESSION_TOKEN": "token",
    }
    login.expired = "OLD"
    login.start("run", SOURCE, TARGET, "-w", "2").ends(
        5, "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN again"
    ).hides("no answer from")
    assert login.in_vain < 100
    login.expired = "-"
    login.start("resume", "latest").ends(0)


@pytest.mark.parametrize("by", ["variable", "profile"])
def test_a_server_has_regions_of_its_own(login: Login, by: str) -> None:
    """Fly.io sets AWS_ENDPOINT_URL_S3 and the region "auto"; a profile may name a server, too."""
    url = login.endpoint[1]
    login.program.variables["AWS_REGION"] = "auto"
    if by == "variable":
        login.program.variables["AWS_ENDPOINT_URL_S3"] = url
        login.program.variables["AWS_ENDPOINT_URL"] = "http://127.0.0.1:9"  # of other services
    else:
        (login.program.folder / "no-config").write_text(f"[profile kept]\nendpoint_url = {url}\n")
    login.program.start("ls", SOURCE, "--profile", "kept").ends(0)


@pytest.mark.parametrize(
    ("words", "told", "refusals", "renewed"),
    [
        (
            ("ls", SOURCE, "--profile", "kept"),
            "ExpiredToken: The provided token has expired; get new credentials",
            1,
            (0, ""),
        ),
        # This server answers with its buckets.
        (
            ("runs", "--env", "dev", "--profile", "kept"),
            "ExpiredToken: The provided token has expired; get new credentials",
            1,
            (5, "does not answer as AWS does"),
        ),
        # The process of the profile gives keys once; its failure is not why they are refused. The
        # stack is looked for by two names.
        (
            ("runs", "--env", "dev", "--profile", "once"),
            "InvalidClientTokenId: The provided token has expired; check the credentials",
            2,
            (6, "No such file or directory"),
        ),
    ],
)
def test_refused_keys_end_a_command_at_once(
    login: Login, words: tuple[str, ...], told: str, refusals: int, renewed: tuple[int, str]
) -> None:
    """The command ends after one refusal, with what to do, unless the profile has new keys."""
    login.expired, login.holds_for = "OLD", 0
    login.refusal = (400, told.partition(":")[0])
    login.start(*words).ends(6, told)
    assert login.in_vain == refusals
    login.renews = "NEW"
    login.start(*words).ends(*renewed)


TOLD = {
    "sso": "Token for company does not exist; log in again: aws sso login --profile sso",
    "old-sso": "does not exist; log in again: aws sso login --profile old-sso",
    "role": f"calling the AssumeRole operation: {DENIED}; the permission may ",
    "broken": "from custom-process: no luck; see what is configured: aws configure list",
    "odd": "a credential process or a file returned unexpected data: 'list' object has no ",
    "line": "the access key id is empty, or contains a character not allowed in a request; see",
    "absent": "No such file or directory: '",
    "late": "the refreshed credentials are still expired; see what",
    "code": "need an MFA code, but standard input is not a terminal; run the command in a terminal",
    "far": 'Could not connect to the endpoint URL: "http://127.0.0.1:9/"; check the network',
    "half": "Partial credentials found in config-file, missing: aws_secret_access_key; see what",
}


@pytest.mark.parametrize("profile", TOLD)
def test_missing_credentials_end_a_command_at_once(login: Login, profile: str) -> None:
    """Exit code 6 and one line, whichever of the two profiles it is; the store is not asked.

    Each command looks up the keys once.
    """
    if profile == "far":
        del login.program.variables["AWS_ENDPOINT_URL_STS"]
    error = f"<Error><Code>AccessDenied</Code><Message>{escape(DENIED)}</Message></Error>"
    login.sts = Reply(403, f"<ErrorResponse>{error}</ErrorResponse>".encode())
    for words in (("ls", SOURCE), ("runs", "--env", "dev")):
        login.start(*words, "--profile", profile).ends(
            6, f"s3unzip: credentials of the profile {profile}: ", TOLD[profile]
        )
    assert (login.s3.asked, len(login.tokens.asked)) == ([], 2 * (profile == "role"))
    login.start("run", SOURCE, TARGET, "--profile", "kept", "--dest-profile", profile).ends(
        6, TOLD[profile]
    )
    assert (login.out.objects, login.program.runs()) == ({}, [])


def test_an_answer_that_is_no_answer_of_sts_names_the_profile(login: Login) -> None:
    """A service that issues keys may answer with the page of a proxy."""
    login.sts = Reply(200, b"<html><p>Log in")
    login.start("ls", SOURCE, "--profile", "role").ends(
        6, "s3unzip: credentials of the profile role: Unable to parse response"
    )


NAME = "my%20report.zip"


def test_a_new_link_goes_on_where_the_old_one_expired(program: Program) -> None:
    """The offered command extracts what is left, with the new link in place of NEW-URL.

    A space in the name of the archive is also in the name of the folder, as for archives in S3.
    """
    files, numbers = WebFiles({NAME: zips.build(*ENTRIES)}), itertools.count(1)

    def answer(asked: Asked) -> Reply:
        if "old" in asked.path and next(numbers) > 1:  # it expires after the plan's request
            return s3_error(403, "AccessDenied", "Request has expired")
        return files(asked)

    with HttpServer(answer) as server:
        ended = (
            program.extract(f"{server.url}/{NAME}?old", "out")
            .ends(5, "Request has expired")
            .hides("old")
        )
        command = f"s3unzip run NEW-URL {program.folder}/out/ --on-conflict skip-unchanged"
        assert f"next: {command}\n" in ended.err
        program.run(
            *shlex.split(command.replace("NEW-URL", f"{server.url}/{NAME}?new"))[1:], "-w", "1"
        ).ends(0)
    assert len(program.files("out/my report")) == len(ENTRIES)


def test_an_archive_without_a_date_has_runs_of_the_first_day(program: Program) -> None:
    """If a server sends no Last-Modified, the id has the time of the first run, and stays."""
    with HttpServer(WebFiles({"a.zip": zips.build(*ENTRIES)})) as server:
        for _ in range(2):
            ended = program.extract(f"{server.url}/a.zip", "out").ends(0)
    (run,) = program.runs()
    assert not run.startswith("1970")
    assert run in ended.err


def test_a_profile_with_a_region_that_is_none(program: Program) -> None:
    """The line names the region, and how one looks."""
    (program.folder / "no-config").write_text("[default]\nregion = eu west 1\n")
    program.run("ls", "s3://from/a.zip").ends(2, "'eu west 1'", "a region looks like eu-west-1")
