"""The commands of an operator against the deployed stack, as a user types them."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from embedded.pipeline import DeployedPipeline
from s3unzip.errors import NotFoundError
from s3unzip.model import Report, Verdict, decode
from s3unzip.operate.runs import DeployedRuns
from s3unzip.settings import Tuning, Variable
from s3unzip.stores.factory import StoreConfig
from tests.e2e.functions import with_variables
from tests.processes import run_command
from tests.zips import Entry, build
from tools.house import ROOT


class Operator:
    """Somebody at a terminal with the credentials of the account."""

    def __init__(self, pipeline: DeployedPipeline, home: Path) -> None:
        self._variables = {**os.environ, **pipeline.variables, "S3UNZIP_HOME": str(home)}

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run ``s3unzip`` with `words`."""
        return run_command(words, ROOT, self._variables)


@pytest.fixture
def operator(pipeline: DeployedPipeline, tmp_path: Path) -> Operator:
    """An operator of the environment dev."""
    return Operator(pipeline, tmp_path)


@pytest.fixture
def runs(pipeline: DeployedPipeline, monkeypatch: pytest.MonkeyPatch) -> DeployedRuns:
    """The runs of the environment dev."""
    for name, value in pipeline.variables.items():
        monkeypatch.setenv(name, value)
    return DeployedRuns("dev", StoreConfig(endpoint_url=pipeline.variables["AWS_ENDPOINT_URL"]))


def members_of(count: int) -> list[Entry]:
    """Return so many small members."""
    return [
        Entry(f"d{n % 7}/f{n:04}.json", json.dumps({"n": n}).encode() * 30) for n in range(count)
    ]


def test_watch_ends_with_the_verdict(pipeline: DeployedPipeline, operator: Operator) -> None:
    """A run is followed to its report; the exit code is its verdict's."""
    pipeline.put("watched.zip", build(*members_of(300)))
    run = pipeline.wait("watched.zip").run
    done = operator.call("watch", run, "--env", "dev", "--json")
    assert done.returncode == 0, done.stderr
    report = decode(done.stdout.splitlines()[-1], Report)
    assert (report.run, report.verdict, report.extracted) == (run, Verdict.COMPLETED, 300)
    assert "300 members: 300 extracted" in done.stderr


def test_a_run_is_listed_and_shown(pipeline: DeployedPipeline, operator: Operator) -> None:
    """By the beginning of its id, or as the latest one; its page is fetched."""
    pipeline.put("shown.zip", build(*members_of(20)))
    run = pipeline.wait("shown.zip").run
    listed = operator.call("runs", "--env", "dev")
    assert any(run in line and "COMPLETED" in line for line in listed.stdout.splitlines())
    shown = operator.call("show", run[:-4], "--env", "dev", "--json")
    assert decode(shown.stdout, Report).extracted == 20
    page = operator.call("show", "latest", "--env", "dev", "--html").stdout.strip()
    assert page.endswith(".html")
    assert "<title>" in Path(page).read_text(encoding="utf-8")


def test_failures_are_retried(pipeline: DeployedPipeline, operator: Operator) -> None:
    """A retry is a separate execution for the failed members only."""
    archive = bytearray(build(*members_of(40), Entry("bad", b"x" * 500)))
    archive[archive.index(b"x" * 500)] ^= 1
    pipeline.put("retried.zip", bytes(archive))
    first = pipeline.wait("retried.zip")
    assert (first.verdict, first.failed) == (Verdict.COMPLETED_WITH_ERRORS, 1)
    shown = operator.call("show", first.run, "--env", "dev", "--failures", "--json")
    assert json.loads(shown.stdout)["outcome"]["key"] == "retried/bad"
    retried = operator.call("resume", first.run, "--failed", "--env", "dev")
    assert retried.stdout.startswith("resumed: "), retried.stderr
    watched = operator.call("watch", first.run, "--env", "dev", "--json")
    assert watched.returncode == Verdict.COMPLETED_WITH_ERRORS.exit_code
    again = decode(watched.stdout.splitlines()[-1], Report)
    assert (again.failed, again.extracted) == (1, 40)
    assert again.finished > first.finished
    assert [failure.key for failure in again.failures] == ["retried/bad"]


def test_verify_what_the_pipeline_wrote(pipeline: DeployedPipeline, operator: Operator) -> None:
    """Objects written by Lambdas are proved from anywhere."""
    pipeline.put("proved.zip", build(*members_of(30)))
    pipeline.wait("proved.zip")
    source = f"s3://{pipeline.outputs['IngestBucket']}/proved.zip"
    target = f"s3://{pipeline.outputs['DestinationBucket']}/"
    done = operator.call("verify", source, target, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["equal"] == 30
    pipeline.client("s3").delete_object(
        Bucket=pipeline.outputs["DestinationBucket"], Key="proved/d0/f0000.json"
    )
    done = operator.call("verify", source, target)
    assert done.returncode == 1
    assert "missing  proved/d0/f0000.json" in done.stdout


def test_abort_stops_what_runs(pipeline: DeployedPipeline, operator: Operator) -> None:
    """Of a run that is over nothing is left to stop, and that is no error."""
    pipeline.put("aborted.zip", build(*members_of(5)))
    run = pipeline.wait("aborted.zip").run
    done = operator.call("abort", run, "--env", "dev")
    assert (done.returncode, done.stdout) == (0, f"{run}: 0 incomplete uploads dropped\n")


def test_a_rejected_archive_is_found(pipeline: DeployedPipeline, operator: Operator) -> None:
    """It has a record and no execution."""
    pipeline.put("refused.zip", b"no zip")
    run = pipeline.wait("refused.zip").run
    done = operator.call("watch", run, "--env", "dev")
    assert done.returncode == Verdict.REJECTED.exit_code
    assert "REJECTED" in done.stderr
    listed = operator.call("runs", "--env", "dev", "--limit", "1")
    assert run in listed.stdout, listed.stderr
    assert "REJECTED" in listed.stdout
    assert operator.call("show", "latest", "--env", "dev").returncode == done.returncode


def test_names_that_are_not_there(runs: DeployedRuns, operator: Operator) -> None:
    """One line says what is missing and where to look."""
    with pytest.raises(NotFoundError, match="see s3unzip runs"):
        runs.find("nothing-of-that-name")
    assert runs.state("nothing-of-that-name") is None
    assert runs.items("nothing-of-that-name") is None
    done = operator.call("runs", "--env", "elsewhere")
    assert done.returncode == NotFoundError.exit_code
    assert "no stack s3unzip-elsewhere" in done.stderr


def test_items_of_the_map(pipeline: DeployedPipeline, runs: DeployedRuns) -> None:
    """The counts of a Distributed Map are read."""
    tuning = json.dumps({"max_direct_members": 0, "max_few_tasks": 0})
    with with_variables(pipeline, "intake", {Variable.TUNING.value: tuning}):
        pipeline.put("counted.zip", build(*members_of(10)))
        run = pipeline.wait("counted.zip").run
    items = runs.items(run)
    assert items is not None
    assert (items.waiting, items.running, items.succeeded, items.failed) == (0, 0, 1, 0)


def test_an_archive_whose_event_was_lost_is_found_and_begun(
    pipeline: DeployedPipeline, operator: Operator
) -> None:
    """Reconcile names archives without a run, and no others; --start queues them again."""
    pipeline.put("kept.zip", build(*members_of(3)))
    pipeline.wait("kept.zip")
    events = pipeline.client("events")
    rule = events.list_rules()["Rules"][0]["Name"]
    events.disable_rule(Name=rule)
    pipeline.put("lost one.zip", build(*members_of(4)))
    pipeline.put("unasked.txt", b"its suffix starts no run")
    events.enable_rule(Name=rule)
    found = operator.call("reconcile", "--env", "dev", "--json")
    assert found.returncode == 1, found.stderr
    unsettled = json.loads(found.stdout)["unsettled"]
    assert [(one["source"]["key"], one["state"]) for one in unsettled] == [
        ("lost one.zip", "no run")
    ]
    begun = operator.call("reconcile", "--env", "dev", "--start")
    assert "lost one.zip" in begun.stdout
    assert begun.stderr == "1 started: s3unzip runs --env dev\n"
    assert pipeline.wait("lost one.zip").run == unsettled[0]["run"]
    settled = operator.call("reconcile", "--env", "dev")
    assert settled.returncode == 0, settled.stdout
    assert settled.stdout.endswith(" archives: 0 running, 0 without a verdict\n")
    assert operator.call("reconcile", "--env", "dev", "--days", "0").returncode == 0


def test_archives_that_are_there_are_submitted(
    pipeline: DeployedPipeline, operator: Operator
) -> None:
    """One estimate, one budget; submitted again, nothing is extracted again."""
    events = pipeline.client("events")
    rule = events.list_rules()["Rules"][0]["Name"]
    events.disable_rule(Name=rule)
    count = Tuning().max_direct_members + 1  # no direct run
    names = ("one", "two", "large", "bad")
    for name in names[:2]:
        pipeline.put(f"stock/{name}.zip", build(*members_of(4)))
    pipeline.put("stock/large.zip", build(*(Entry(f"f{n}", b"x") for n in range(count))))
    pipeline.put("stock/bad.zip", b"no archive")
    events.enable_rule(Name=rule)
    words = ["submit", f"s3://{pipeline.outputs['IngestBucket']}/stock/", "--env", "dev"]
    refused = operator.call(*words, "--yes", "--max-cost", "0.00001")
    assert refused.returncode == 2, refused.stderr
    assert "Nothing is queued" in refused.stderr
    done = operator.call(*words, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["queued"] == 4
    first = [pipeline.wait(f"stock/{name}.zip") for name in names]
    assert [report.verdict.value for report in first] == ["COMPLETED"] * 3 + ["REJECTED"]
    assert operator.call(*words, "--yes").returncode == 0
    again = [pipeline.wait(f"stock/{name}.zip") for name in names]
    assert [report.finished for report in again] == [report.finished for report in first]


def test_a_local_run_writes_with_a_key(pipeline: DeployedPipeline, operator: Operator) -> None:
    """--kms-key goes with every object, small or in parts."""
    pipeline.put("by hand.zip", build(*members_of(5), Entry("large", b"x" * (9 << 20), method=8)))
    bucket = pipeline.outputs["DestinationBucket"]
    source = f"s3://{pipeline.outputs['IngestBucket']}/by hand.zip"
    key = "arn:aws:kms:us-east-1:000000000000:key/k"
    done = operator.call("run", source, f"s3://{bucket}/here", "--kms-key", key)
    assert done.returncode == 0, done.stderr
    s3 = pipeline.client("s3")
    for name in ("d0/f0000.json", "large"):
        found = s3.head_object(Bucket=bucket, Key=f"here/by hand/{name}")
        assert (found["ServerSideEncryption"], found["SSEKMSKeyId"]) == ("aws:kms", key)


def test_a_plan_for_an_environment(pipeline: DeployedPipeline, operator: Operator) -> None:
    """Its forecast is made with the workers, memory and options that are deployed."""
    count = Tuning().max_direct_members + 1  # no direct run
    pipeline.put("planned.data", build(*(Entry(f"f{n}", b"x") for n in range(count))))
    source = f"s3://{pipeline.outputs['IngestBucket']}/planned.data"
    done = operator.call("plan", source, "--env", "dev", "--json")
    assert done.returncode == 0, done.stderr
    deployed = json.loads(done.stdout)
    usual = json.loads(operator.call("plan", source, "--on", "aws", "--json").stdout)
    assert (deployed["platform"], usual["platform"]) == ("aws", "aws")
    assert deployed["cost"] != usual["cost"]  # 2,048 MB against 1,769
    refused = operator.call("plan", source, "--env", "dev", "--on", "local")
    assert refused.returncode == 2
    assert refused.stderr == "s3unzip: --env dev is on aws, not on local\n"
