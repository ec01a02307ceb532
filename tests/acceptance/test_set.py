"""The archives of the acceptance set, and the set as it is typed, on the deployed stack."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance import cases, incidents, site
from acceptance.__main__ import main
from embedded.deploy import make_client, start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.cli.terminal import Stopping
from s3unzip.settings import GIB, MIB, Variable
from tests.e2e.conftest import with_variables, without_events, without_workers
from tests.support import servers
from tests.support.assemblies import for_embedded_aws
from tests.support.processes import Ended

# Members of the runs that the set stops, so that few of them keep a run active long enough. Those
# of the case overwrite are written at once: both of its runs write the same keys.
SLOW_PUTS = "0.2 ^/[^/]+/acceptance-[^/]+-(abort|resume)-[^/]+/"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedPipeline]:
    """The stack, once a module; its retries wait a fiftieth of their time."""
    with start_aws(wait_scale=0.02, slow_puts=SLOW_PUTS) as aws:
        secrets = make_client("secretsmanager", aws.environment)
        secret = secrets.create_secret(Name="archives", SecretString="correct horse")["ARN"]
        yield DeployedPipeline.create(
            for_embedded_aws(tmp_path_factory, "acceptance", secret), aws.environment
        )


NAMES = [
    case.name for case in (*cases.CASES, *incidents.INCIDENTS, *cases.published_cases(full=False))
]
EMPTY = "0 archives, 0 members, 0 runs"
SECONDS = 900.0  # of one set, on a machine that is busy with much else


def _call(pipeline: DeployedPipeline, *words: str) -> Ended:
    out, error = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
    ):
        servers.set_variables(patch, pipeline.variables)
        code = main(words)
    return Ended(code, out.getvalue(), error.getvalue())


def what_lies_there(pipeline: DeployedPipeline) -> list[str]:
    """Return all that the buckets, queues and rules of the account hold of any set."""
    s3, found = pipeline.client("s3"), []
    for name in ("IngestBucket", "DestinationBucket", "WorkBucket"):
        bucket = pipeline.outputs[name]
        listed = s3.list_object_versions(Bucket=bucket)
        found += [
            one["Key"] for one in (*listed.get("Versions", ()), *listed.get("DeleteMarkers", ()))
        ]
        found += [one["Key"] for one in s3.list_multipart_uploads(Bucket=bucket).get("Uploads", ())]
    found += pipeline.client("sqs").list_queues(QueueNamePrefix="acceptance-").get("QueueUrls", [])
    return found + [
        rule["Name"]
        for rule in pipeline.client("events").list_rules(NamePrefix="acceptance-")["Rules"]
    ]


def _running_executions(pipeline: DeployedPipeline) -> set[str]:
    answer = pipeline.client("stepfunctions").list_executions(
        stateMachineArn=pipeline.outputs["StateMachineArn"], statusFilter="RUNNING"
    )
    return {execution["executionArn"] for execution in answer["executions"]}


def test_every_case_is_ok(pipeline: DeployedPipeline, tmp_path: Path) -> None:
    """The set at the small scale exits with 0, prints one row for each case, and leaves nothing."""
    table = tmp_path / "table.json"
    done = _call(pipeline, "--env", "dev", "--scale", "small", "--json", str(table)).ends(0)
    lines = done.out.splitlines()
    rows = [line for line in lines if line.split(" ", 1)[0] in NAMES]
    assert [row.split(" ", 1)[0] for row in rows] == NAMES
    assert all(row.endswith("  ok") for row in rows)
    assert f"{len(NAMES)} ok, 0 failed, 0 not applicable" in done.out
    assert f"before: {EMPTY}" in lines
    assert f"left:   {EMPTY}" in lines
    told = json.loads(table.read_text())
    assert (told["environment"], told["scale"]) == ("dev", "small")
    by_name: dict[str, dict[str, Any]] = {row["case"]: row for row in told["cases"]}
    assert (list(by_name), by_name["tiny"]["got"]) == (NAMES, "COMPLETED, 5 equal, by a direct run")
    many = by_name["members"]
    assert many["got"] == "COMPLETED, 5,000 equal, by an execution"
    assert many["dollars"] == pytest.approx(0.025, rel=0.2)  # 5,000 PUTs
    assert what_lies_there(pipeline) == []


def test_ctrl_c_leaves_nothing(pipeline: DeployedPipeline) -> None:
    """A set that is stopped at its work stops its runs, removes all of it and exits with 130.

    Its run waits for a worker, so it is at work whenever the signal arrives. An execution of a
    test before this one may still end meanwhile; it is not the one to wait for.
    """
    earlier = _running_executions(pipeline)
    with (
        without_workers(pipeline, "extract"),
        subprocess.Popen(
            [sys.executable, "-m", "acceptance", "--env", "dev", "--only", "members"],
            env={**os.environ, **pipeline.variables},  # as an operator's shell has them
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        next((line for line in process.stdout or () if line.startswith("case ")), None)
        while process.poll() is None and _running_executions(pipeline) <= earlier:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=SECONDS)
    assert process.returncode == 130, out + error
    assert f"left:   {EMPTY}" in out.splitlines()
    assert (error, what_lies_there(pipeline)) == ("", [])


def test_an_environment_that_extracts_nothing(pipeline: DeployedPipeline) -> None:
    """With a wrong setting of the extract function the row says so, and the set exits with 1."""
    with with_variables(pipeline, "extract", {Variable.TUNING.value: "nonsense"}):
        done = _call(pipeline, "--env", "dev", "--only", "members").ends(1)
    (row,) = (line for line in done.out.splitlines() if line.startswith("members"))
    assert row.endswith("  FAILED")
    assert "FAILED: 0 extracted, 0 failed, 5,000 missing" in row
    assert "Traceback" not in done.out + done.err
    assert what_lies_there(pipeline) == []


def test_an_environment_that_hears_nothing(pipeline: DeployedPipeline) -> None:
    """With its rule switched off the row says that no run began, and where to look."""
    with without_events(pipeline):
        _call(pipeline, "--env", "dev", "--only", "tiny", "--timeout", "1").ends(1).prints(
            "acceptance-", "began in 1 s: is the EventBridge rule enabled"
        )
    assert what_lies_there(pipeline) == []


def test_full_scale_asks_first(pipeline: DeployedPipeline) -> None:
    """Its cost is printed, and without --yes nothing is put."""
    done = (
        _call(pipeline, "--env", "dev", "--scale", "full")
        .ends(2)
        .prints("the published archives in full size cost about $5.00")
    )
    assert done.err == "acceptance: nothing was put; to continue, add --yes (make: YES=1)\n"
    assert what_lies_there(pipeline) == []


def test_clean_removes_the_objects_of_a_killed_set(pipeline: DeployedPipeline) -> None:
    """--clean with its token removes that set's things and no others."""
    ours, theirs = "acceptance-00000001", "acceptance-00000002"
    s3, bucket = pipeline.client("s3"), pipeline.outputs["DestinationBucket"]
    for token in (ours, theirs):
        s3.put_object(Bucket=bucket, Key=f"{token}-tiny/a.txt", Body=b"left")
    s3.create_multipart_upload(Bucket=bucket, Key=f"{ours}-split/huge.txt")
    try:
        _call(pipeline, "--env", "dev", "--clean", ours).ends(0).prints(
            "1 members, 1 uploads of members"
        )
        assert what_lies_there(pipeline) == [f"{theirs}-tiny/a.txt"]
    finally:
        s3.delete_object(Bucket=bucket, Key=f"{theirs}-tiny/a.txt")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("--env", "elsewhere"), 6, "no stack s3unzip-elsewhere"),
        (("--env", "dev", "--only", "nothing"), 2, "--only nothing: no such case; there are: tiny"),
        (("--env", "dev", "--clean", "acceptance-"), 2, "no set has this token"),
    ],
)
def test_wrong_requests(
    pipeline: DeployedPipeline, words: tuple[str, ...], code: int, message: str
) -> None:
    """One line says what is wrong, and nothing is put."""
    assert _call(pipeline, *words).ends(code, message).err.count("\n") == 1


@pytest.mark.parametrize("one", cases.PUBLISHED, ids=lambda one: one.name)
def test_small_scale_archives_are_valid(one: cases.Published) -> None:
    """Every member has its CRC-32, the published size, and is compressed about as well."""
    archive = cases.published_archive(one, full=False)
    with zipfile.ZipFile(io.BytesIO(b"".join(archive.pieces()))) as made:
        assert (made.testzip(), len(made.namelist())) == (None, archive.count)
        largest = max(made.infolist(), key=lambda member: member.file_size)
    assert largest.file_size == one.size if one.members > 1 else largest.file_size >= 10**7
    assert largest.compress_size / largest.file_size == pytest.approx(one.share, rel=0.15)


def test_a_hundred_gigabytes_need_no_memory() -> None:
    """The member of 100 GB is sent piece by piece; no piece and no sum of them is large."""
    (one,) = (one for one in cases.PUBLISHED if one.name == "100gb")
    archive = cases.published_archive(one, full=True)
    tracemalloc.start()
    size = largest = 0
    for piece in archive.pieces():
        size += len(piece)
        largest = max(largest, len(piece))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    (member,) = archive.members()
    assert member.content.size >= 100_000_000_000
    assert size > member.content.compressed_size > 30 * GIB
    assert largest < 4 * MIB
    assert peak < 32 * MIB


def test_an_exit_code_that_no_case_expects() -> None:
    """The row of the case has it, with what the command said."""
    with pytest.raises(site.Mismatch, match=r"ls: exit code 6: s3unzip: .*no-such\.zip"):
        site.Site.call("ls", "no-such.zip")


def test_ctrl_c_during_a_command_ends_the_set() -> None:
    """The command ends as it does alone, and the set with it."""

    def interrupt(_: servers.Asked) -> servers.Reply:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return servers.Reply(404)

    def call(url: str) -> None:
        with Stopping().like_ctrl_c():
            site.Site.call("ls", f"{url}/a.zip")

    with servers.HttpServer(interrupt) as server, pytest.raises(KeyboardInterrupt):
        call(server.url)
