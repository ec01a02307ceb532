"""An archive that is replaced during its run, on the embedded AWS with every right checked.

The bucket keeps versions, so the older run goes on. It ends after the newer one here: its workers
are held back until then.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.model import OnConflict, Report, Run, Verdict
from s3unzip.settings import Variable
from tests.e2e import test_rights
from tests.e2e.functions import with_variables, without_workers
from tests.e2e.ledger import await_that, count_refusals
from tests.e2e.rights import ARCHIVES, Right
from tests.e2e.test_service_rights import role_of, without
from tests.patience import looks
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embedded.deploy import Assembly

MANY, FEW = 101, 100  # an execution, a direct run
BOUND = {Variable.TUNING.value: json.dumps({"max_direct_members": FEW})}


@pytest.fixture(scope="module")
def guarded(assembly: Assembly) -> Iterator[DeployedPipeline]:
    """The stack of dev, over TLS with all rights checked."""
    with start_aws(auth=True, wait_scale=0.02) as aws:
        pipeline = DeployedPipeline.create(assembly, aws.environment)
        with with_variables(pipeline, "plan", BOUND):
            yield pipeline


def contents(count: int, word: bytes) -> dict[str, bytes]:
    """Return the members of an archive."""
    return {f"f{number:03}.txt": word * 100 for number in range(count)}


def put(pipeline: DeployedPipeline, key: str, members: dict[str, bytes]) -> None:
    """Put an archive of these members."""
    pipeline.put(key, build(*(Entry(name, body, DEFLATE) for name, body in members.items())))


def replace_during_run(pipeline: DeployedPipeline, key: str) -> Run:
    """Replace an archive that is being extracted; return the older run when the newer has ended."""
    with without_workers(pipeline, "extract"):
        put(pipeline, key, contents(MANY, b"older"))
        for _ in looks():
            older = pipeline.find_run(key)
            if older is not None and pipeline.status(older) == "RUNNING":
                break
        put(pipeline, key, contents(FEW, b"newer"))
        for _ in looks():
            newer = pipeline.find_run(key)
            if older and newer and newer.id != older.id and pipeline.report(newer):
                return older
    raise AssertionError(f"{key} has no newer run\n{pipeline.logs()}")


def await_recheck(pipeline: DeployedPipeline, key: str) -> Run:
    """Return the run that compares the members of the newest archive."""
    for _ in looks():
        run = pipeline.find_run(key)
        if run is not None and run.options.on_conflict is OnConflict.SKIP_UNCHANGED:
            return run
    raise AssertionError(f"{key} has no recheck\n{pipeline.logs()}")


def end(pipeline: DeployedPipeline, run: Run) -> Report:
    """Return the report of a run when it has ended."""
    for _ in looks():
        report = pipeline.report(run)
        if report is not None:
            return report
    raise AssertionError(f"{run.id} did not end\n{pipeline.logs()}")


def test_the_newest_archive_is_what_lies_there(guarded: DeployedPipeline) -> None:
    """The older run writes all of its members last, and then the newer ones are written again."""
    older = replace_during_run(guarded, "replaced.zip")
    report = end(guarded, older)
    assert (report.verdict, report.extracted) == (Verdict.COMPLETED, MANY)
    again = end(guarded, await_recheck(guarded, "replaced.zip"))
    assert (again.extracted, again.unchanged, again.failed) == (FEW, 0, 0)
    wanted = contents(MANY, b"older") | contents(FEW, b"newer")
    assert guarded.members("replaced/") == {f"replaced/{name}": wanted[name] for name in wanted}


def test_the_report_function_needs_the_right_to_look(guarded: DeployedPipeline) -> None:
    """Without it the run ends as it would, and the log says that it could not tell."""
    since = time.time()
    with test_rights.without(guarded, Right("report", "s3:GetObject", ARCHIVES)):
        older = replace_during_run(guarded, "blind.zip")
        assert end(guarded, older).verdict is Verdict.COMPLETED
        assert "cannot tell whether the archive was replaced" in guarded.logs(since)


def test_the_report_function_needs_the_right_to_send(guarded: DeployedPipeline) -> None:
    """Without it the report fails and is tried again."""
    denied = count_refusals(guarded)
    with without(guarded, role_of(guarded, "report"), "sqs:SendMessage"):
        replace_during_run(guarded, "mute.zip")
        await_that(guarded, lambda: count_refusals(guarded) > denied)
