"""Archives are listed, estimated and queued as S3 would queue them, also with two routes."""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from s3unzip.aws.environment import load_config
from s3unzip.cli import deployed
from s3unzip.errors import ServiceFaultError
from s3unzip.model import Location, Route, Verdict
from s3unzip.operate.checks import FAILURE, FUNCTION, OK, WARNING, check_route
from s3unzip.operate.doctor import diagnose
from s3unzip.operate.submit import ATTEMPTS, LONGEST_WAIT, list_archives, send_events
from s3unzip.printable import show_count
from s3unzip.settings import Variable
from tests.docs.test_json import check_lines
from tests.support.processes import Ended, Program
from tests.support.servers import Reply
from tests.support.zips import Entry, build
from tests.unit.operate.conftest import GOOD, Site, answering, deny, expect, resource

BUCKET = "s3://arrivals/"
ARCHIVE = build(Entry("a", b"a" * 500))


class Shell(Program):
    """Somebody who types ``s3unzip submit``, or another command, in an environment."""

    def __init__(self, folder: Path, site: Site) -> None:
        super().__init__(folder)
        self.site = site

    def __call__(self, *words: str, answer: str | None = None, command: str = "submit") -> Ended:
        return self.run(command, *words, "--env", "dev", answer=answer)

    def put(self, *keys: str, body: bytes = ARCHIVE) -> None:
        for key in keys:
            self.site.account.put(key, body)

    def queued(self) -> list[str]:
        account = self.site.account
        messages = account.receive(account.variables["S3UNZIP_QUEUE_URL"])
        assert {one["source"] for one in messages} <= {"s3unzip.submit"}
        return sorted(one["detail"]["object"]["key"] for one in messages)


@pytest.fixture
def shell(site: Site, tmp_path: Path) -> Shell:
    return Shell(tmp_path, site)


def test_advice_names_the_environment(shell: Shell) -> None:
    """A run without a report is followed, then resumed, where it is; a list may be empty."""
    shell(command="runs").ends(0, "no run of dev has begun yet")
    run = shell.site.begin("a.zip")
    shell(run, command="show").ends(6, f"follow it: s3unzip watch {run} --env dev")
    assert shell.site.runs.stop(run)
    shell(run, command="show").ends(6, f"continue it: s3unzip resume {run} --env dev")


def test_a_stop_is_told_though_uploads_cannot_be_dropped(
    deploy: Callable[..., Site], tmp_path: Path
) -> None:
    """A right to the destination may be missing, or the bucket may be gone."""
    site = deploy(**{Variable.TUNING: '{"max_direct_members": 0, "small_member": 100}'})
    run = site.begin("a.zip")
    site.account.client("s3").delete_bucket(Bucket="members")
    Shell(tmp_path, site)(run, command="abort").ends(
        6, f"{run}: stopped, but its incomplete uploads could not be dropped: s3:ListBucket"
    )


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["in/"], ["in/00.zip", "in/01.zip", "in/sub/02.zip"]),
        (["in/*.zip"], ["in/00.zip", "in/01.zip"]),
        (["in/01.zip"], ["in/01.zip"]),
        (["in/sub/[0].zip"], ["in/sub/[0].zip"]),
        (["", "in/01.zip"], ["in/00.zip", "in/01.zip", "in/sub/02.zip", "x.zip"]),
    ],
)
def test_words_select_archives(shell: Shell, words: list[str], keys: list[str]) -> None:
    """Prefixes, globs and keys; each archive is queued once, and nothing else."""
    shell.put("in/00.zip", "in/01.zip", "in/sub/02.zip", "in/text.txt", "in/folder.zip/", "x.zip")
    for name in (key for key in keys if "[" in key):  # it wins over what it fits as a glob
        shell.put(name, name.replace("[", "").replace("]", ""))
    ended = shell(*(BUCKET + word for word in words), "--yes", "--json").ends(0)
    (made,) = check_lines("submit", ended.out)
    assert (made["archives"], made["queued"], made["size"]) == (
        len(keys),
        len(keys),
        len(keys) * len(ARCHIVE),
    )
    assert made["dollars"] > 0
    assert (ended.err, shell.queued()) == (
        f"queued {show_count(len(keys), 'archive')}: s3unzip runs --env dev\n",
        keys,
    )


def test_a_key_is_looked_up_with_one_request(shell: Shell) -> None:
    """One HEAD shows its size; no right to list is needed, however many keys begin with it."""
    shell.put("a.zip", "a.zip.zip")
    runs = shell.site.runs
    shell.site.account.asked.clear()
    assert list_archives([f"{BUCKET}a.zip"], runs) == ({"a.zip": len(ARCHIVE)}, 0)
    assert [
        f"{request.method} {request.path}"
        for request in shell.site.account.asked
        if "/arrivals" in request.path
    ] == ["HEAD /arrivals/a.zip"]


@pytest.mark.parametrize(
    ("word", "code", "says"),
    [
        ("s3://arrivals/none/", 6, "s3://arrivals/none/: matches no archive that dev accepts"),
        ("s3://arrivals/none.zip", 6, "s3://arrivals/none.zip: matches no archive"),
        ("s3://arrivals/no*.zip", 6, "s3://arrivals/no*.zip: matches no archive"),
        ("s3://arrivals/text.txt", 2, "the environment dev accepts only s3://arrivals/*.zip; copy"),
        ("s3://other/a.zip", 2, "accepts only s3://arrivals/*.zip"),
        ("a.zip", 2, "archives are in S3; give s3://bucket/prefix/"),
    ],
)
def test_words_that_select_nothing_queue_nothing(
    shell: Shell, word: str, code: int, says: str
) -> None:
    """Nothing is queued of any word then, and one line says why."""
    shell.put("a.zip", "text.txt")
    shell(BUCKET, word, "--yes").ends(code, says)
    assert shell.queued() == []


@pytest.mark.parametrize("more", ["--yes", "--dry-run"])
def test_archives_that_are_not_queued(shell: Shell, more: str) -> None:
    """Archives that the environment does not take, a budget that is too low, and a dry run."""
    shell.put("odd/A.zIp")
    ended = shell(f"{BUCKET}odd/", more).ends(0).prints("left out: 1 that dev does not accept")
    assert ended.out.startswith("0 archives to extract")
    assert ended.err == "nothing is queued: no archive was found that dev accepts\n"
    shell.put("a.zip", "b.zip")
    shell(BUCKET, more, "--max-cost", "0.0000001").ends(2, "Nothing is queued: raise --max-cost")
    ended = shell(BUCKET, "--dry-run").ends(0)
    assert ended.out.startswith("2 archives to extract, 1.2 KiB, about $0.0000")
    assert (ended.err, shell.queued()) == ("nothing is queued\n", [])


def test_archives_that_have_a_verdict(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their events would start nothing, so they are left out; many archives are not looked up."""
    shell.site.work(shell.site.begin("a.zip"))
    shell.site.begin("bad.zip", b"no archive")
    shell.site.begin("running.zip")
    shell.put("new.zip")
    ended = shell(BUCKET, "--dry-run").ends(0)
    assert re.fullmatch("2 archives to extract, .*; left out: 2 with a verdict\n", ended.out)
    ended = shell(f"{BUCKET}*a*.zip", "--yes", "--json").ends(0)
    (made,) = check_lines("submit", ended.out)
    assert (made["ended"], ended.err) == (
        2,
        (
            "nothing is queued: every archive already has a verdict; "
            "to list the runs, use: s3unzip runs --env dev\n"
        ),
    )
    monkeypatch.setattr("s3unzip.operate.submit.MAX_LOOKED_UP", 3)
    shell(BUCKET, "--yes").ends(0)
    assert shell.queued() == ["a.zip", "bad.zip", "new.zip", "running.zip"]


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("", 1)])
def test_a_yes_is_needed(shell: Shell, answer: str, code: int) -> None:
    """Only a yes queues anything."""
    shell.put("a.zip")
    assert shell(BUCKET, answer=answer).ends(code).err.startswith("Queue 1 archive? [y/N] ")
    assert shell.queued() == ([] if code else ["a.zip"])


@pytest.mark.parametrize(
    ("cause", "code", "submitted", "missing"),
    [
        (
            KeyboardInterrupt(),
            130,
            "stopped after 0 of 1 archive; the same command queues them all again",
            "some of 1 archive may have been started: repeat",
        ),
        (
            ServiceFaultError("the queue is full"),
            5,
            "stopped after 0 of 1 archive: the queue is full",
            "the queue is full",
        ),
    ],
)
def test_an_interruption(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    cause: BaseException,
    code: int,
    submitted: str,
    missing: str,
) -> None:
    """The command that was stopped, or met a fault, says how far it came."""

    def stop(*_: object) -> None:
        raise cause

    shell.put("a.zip")
    monkeypatch.setattr(deployed, "send_events", stop)
    shell(BUCKET, "--yes").ends(code, submitted)
    monkeypatch.setattr(deployed, "start_missing", stop)
    shell("--missing", "--yes").ends(code, missing)


def test_missing_archives_are_listed_and_started(shell: Shell) -> None:
    """A dry run starts nothing and exits with 1; with a yes each archive gets its verdict."""
    shell.put("a.zip", "in/b.zip", "in/c.zip")
    *lines, last = shell("--missing", "--dry-run").ends(1).out.splitlines()
    assert ([line.split()[2:4] for line in lines], last) == (
        [["no", "run"]] * 3,
        "3 archives: 0 running, 3 without a verdict",
    )
    ended = shell("--missing", answer="n\n").ends(1)
    assert ended.err.startswith("Start 3 archives? [y/N] ")
    shell("--missing", "--yes", "--max-cost", "0.0000001").ends(2)
    assert shell.queued() == []
    ended = shell("--missing", f"{BUCKET}in/", "--yes", "--json").ends(0)
    (found,) = check_lines("missing", ended.out)
    assert ([archive["state"] for archive in found["unsettled"]], found["started"], ended.err) == (
        ["no run"] * 2,
        2,
        "2 started: s3unzip runs --env dev\n",
    )
    assert shell.queued() == ["in/b.zip", "in/c.zip"]
    ended = shell("--missing", "--days", "0", "--yes")
    assert (ended.code, ended.out) == (0, "0 archives: 0 running, 0 without a verdict\n")


def test_a_plan_above_the_limit_of_the_environment(
    deploy: Callable[..., Site], tmp_path: Path
) -> None:
    """The message names the setting, or the option that replaces it."""
    shell = Shell(tmp_path, deploy(**{Variable.MAX_COST: "0.0000001"}))
    shell.put("a.zip")
    for words, name in ((), "runs.max_cost"), (("--max-cost", "0.0000002"), "--max-cost"):
        shell(f"{BUCKET}a.zip", *words, command="plan").ends(2, f"Raise {name}, or")


def test_a_run_at_work_is_running_whatever_its_records_are(shell: Shell) -> None:
    """After a deployment that changed their format, an execution is still at work."""
    run = shell.site.begin("a.zip")
    shell.site.account.put(f"runs/{run}/run.json", b"{}", "work")
    ended = shell(command="runs").ends(0, f"runs/{run}/: {run}: another version of s3unzip wrote")
    assert ended.out.splitlines()[1].split()[2] == "RUNNING"


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["in/*.zip"], ["in/00.zip", "in/[0].zip"]),
        (["in/[0].zip"], ["in/[0].zip"]),
        (["in/00.zip", "in/"], ["in/00.zip", "in/00.zip.zip/2.zip", "in/[0].zip"]),
        (["in/00.zip"], ["in/00.zip"]),
    ],
)
def test_words_select_missing_archives(shell: Shell, words: list[str], keys: list[str]) -> None:
    """Prefixes, globs and keys name the archives that are looked up, each once."""
    shell.put("in/00.zip", "in/[0].zip", "in/00.zip.zip/2.zip", "x.zip")
    shell("--missing", *(BUCKET + word for word in words), "--yes").ends(0)
    assert shell.queued() == keys


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--yes",), "submit: name archives (SRC), or give --missing"),
        ((BUCKET, "--days", "1", "--yes"), "submit: --days can be given only with --missing"),
        (("--missing", "s3://other/", "--yes"), "accepts only s3://arrivals/*.zip"),
    ],
)
def test_contradictory_requests(shell: Shell, words: tuple[str, ...], says: str) -> None:
    """They are refused before anything is looked up."""
    shell(*words).ends(2, says)


@dataclass
class Queue:
    """SendMessageBatch of a queue that refuses some messages.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html
    """

    # By attempt and keys: the keys that are refused, and whether the sender is to blame.
    refuse: Callable[[int, Sequence[str]], list[tuple[str, bool]]]
    batches: list[list[str]] = field(default_factory=list)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> Any:  # noqa: N803 - boto3's names
        assert QueueUrl == "queue"
        ids = {
            json.loads(entry["MessageBody"])["detail"]["object"]["key"]: entry["Id"]
            for entry in Entries
        }
        self.batches.append(list(ids))
        failed = [
            {"Id": ids[key], "SenderFault": blamed, "Code": "Busy", "Message": key}
            for key, blamed in self.refuse(len(self.batches), list(ids))
        ]
        return {"Successful": [], "Failed": failed} if failed else {"Successful": []}


def _send(queue: Queue, count: int) -> list[float]:
    slept: list[float] = []
    archives = [Location("s3", "b", f"{n}.zip") for n in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("s3unzip.operate.submit.time.sleep", slept.append)
        assert [*send_events(queue, "queue", archives)][-1] == count
    return slept


def test_only_refused_messages_are_sent_again() -> None:
    """After a pause, until all are taken; ten are one request, without a pause."""
    queue = Queue(lambda _, __: [])
    assert (_send(queue, 21), sorted(len(batch) for batch in queue.batches)) == ([], [1, 10, 10])
    queue = Queue(lambda attempt, keys: [(key, False) for key in keys[attempt:]])
    slept = _send(queue, 4)
    assert queue.batches == [
        ["0.zip", "1.zip", "2.zip", "3.zip"],
        ["1.zip", "2.zip", "3.zip"],
        ["3.zip"],
    ]
    assert len(slept) == 2
    assert all(0 <= seconds <= LONGEST_WAIT for seconds in slept)


@pytest.mark.parametrize("blamed", [False, True])
def test_submit_gives_up_after_all_attempts(*, blamed: bool) -> None:
    """After all attempts, or at once if the sender is to blame, it says what was not taken."""
    queue = Queue(lambda _, __: [("2.zip", False), ("3.zip", blamed)])
    with pytest.raises(
        ServiceFaultError,
        match=rf"2 of the messages: Busy: {2 + blamed}\.zip; when the cause is gone, run",
    ):
        _send(queue, 5)
    assert [len(batch) for batch in queue.batches] == [5] + [2] * (0 if blamed else ATTEMPTS - 1)


KEY = "arn:aws:kms:us-east-1:123456789012:key/0f"
ROUTES: list[dict[str, Any]] = [
    {
        "name": "acme",
        "prefix": "acme/",
        "suffix": ".zip",
        "bucket": "acme-members",
        "destination": "in/",
        "owner": "123456789012",
        "kms_key": KEY,
        "options": {"key_template": "{member}"},
    },
    {
        "name": "globex",
        "prefix": "globex/",
        "suffix": ".zipx",
        "destination": "globex/",
        "options": {"password_ref": "absent"},
    },
]


@pytest.fixture
def routed(deploy: Callable[..., Site]) -> Site:
    site = deploy(**{Variable.ROUTES: json.dumps(ROUTES)})
    site.account.client("s3").create_bucket(Bucket="acme-members")
    return site


@pytest.fixture
def traveller(routed: Site, tmp_path: Path) -> Shell:
    """A shell in the environment with routes."""
    return Shell(tmp_path, routed)


def test_a_run_writes_as_its_route_says(routed: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The destination, the key and the options are the route's; the report has it.

    A deployment that changes the route meanwhile changes nothing of a run that has begun.
    """
    run = routed.begin("acme/a.zip")
    changed = {**ROUTES[0], "bucket": "another", "kms_key": f"{KEY}1", "options": {}}
    monkeypatch.setenv(Variable.ROUTES, json.dumps([changed]))
    load_config.cache_clear()
    routed.work(run)
    report = routed.report(run)
    assert report.verdict is Verdict.COMPLETED
    assert report.route == Route("acme", "123456789012", KEY)
    assert set(routed.account.objects("acme-members")) == {"in/good", "in/other"}
    head = routed.account.client("s3").head_object(Bucket="acme-members", Key="in/good")
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", KEY)


def test_a_failed_execution_is_ended_with_the_rights_of_its_route(
    deploy: Callable[..., Site],
) -> None:
    """What follows its report reads nested archives, in a bucket of another owner."""
    route = {**ROUTES[0], "kms_key": None, "options": {"nested_depth": 1}}
    variables = {
        Variable.ROUTES: json.dumps([route]),
        Variable.DESTINATION_OWNER: "999999999999",
    }
    site = deploy(**variables)
    site.account.client("s3").create_bucket(Bucket="acme-members")
    run = site.extract("acme/outer.zip", build(Entry("a.zip", GOOD)))
    started = site.account.executions()
    site.fail(run)
    assert set(started) < set(site.account.executions())
    assert site.runs.records(run).read_report().verdict is Verdict.COMPLETED


def test_commands_name_the_route(traveller: Shell) -> None:
    """`runs`, `show` and `submit` do; a key that no route and no trigger takes is refused."""
    run = traveller.site.begin("acme/a.zip")
    traveller(command="runs").prints("route acme")  # before it has a report
    traveller.site.work(run)
    traveller(command="runs").prints("route acme")
    traveller(run, command="show").prints("  route acme\n")
    traveller.put("globex/b.zipx", "acme/b.zip", "c.zip")
    traveller(BUCKET, "--dry-run").prints("3 archives to extract", "by route: acme 1, globex 1")
    traveller(f"{BUCKET}a.zipx", "--dry-run").says(
        "accepts only s3://arrivals/acme/*.zip and s3://arrivals/globex/*.zipx and"
    )


def test_missing_archives_of_routes(traveller: Shell) -> None:
    """`submit --missing` looks below each route, and each archive is listed once."""
    traveller.put("globex/b.zipx", "acme/b.zip", "c.zip")
    assert traveller("--missing", "--dry-run").out.count("no run") == 3


def test_doctor_checks_each_route(routed: Site) -> None:
    """A route whose bucket is gone is a failure with its name; settings not read are a warning.

    A missing secret is a failure also where a simulation cannot tell the rights on the bucket.
    """
    runs = routed.runs
    with answering(runs, deny, "lambda"):
        expect([*diagnose(runs)][-1], WARNING, "no canary is tried: lambda:GetFunctionConfig")
    runs.resources = (resource("FunctionsPlan1", FUNCTION, "plan"),)
    allowed = (
        b"<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults>"
        b"<member><EvalDecision>allowed</EvalDecision></member></EvaluationResults>"
        b"</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"
    )
    replies = {
        False: allowed,
        True: allowed.replace(
            b"allowed</EvalDecision>",
            b"implicitDeny</EvalDecision><MissingContextValues><member>aws:SourceVpce</member>"
            b"</MissingContextValues>",
        ),
    }
    with answering(runs, lambda asked: Reply(200, replies[b"globex" in asked.body]), "iam"):
        answers = {result.name: (result.status, result.message) for result in diagnose(runs)}
    assert (answers["route acme"], answers["route globex"][0]) == (
        (OK, "s3://arrivals/acme/*.zip -> s3://acme-members/in/"),
        FAILURE,
    )
    routed.account.client("s3").delete_bucket(Bucket="acme-members")
    expect(check_route(routed.runs, 0, Route("acme")), FAILURE, "acme-members does not exist")
