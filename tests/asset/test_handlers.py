"""Every handler answers real events: the asset alone, CPython 3.13, AWS's runtime client."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest

from embedded.deploy import start_like_lambda
from embedded.ministack import PYTHON
from embedded.pipeline import DeployedPipeline
from s3unzip.settings import Variable
from tests.assemblies import replace_asset, synthesize_once
from tests.strict.places import ROLE, zipped
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.asset.conftest import Asset

MIB = 1024**2
HANDLERS = ("plan", "planner", "link", "extract", "report")
# So that a member of 1.5 MiB is scanned and linked.
TUNING = {"small_member": MIB // 4, "split_from": MIB, "segment_bytes": MIB // 2}
TUNING["max_direct_members"] = 0
TUNING["tail_bytes"] = 300  # so that the planner reads the directory


@pytest.fixture(scope="module")
def pipeline(asset: Asset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedPipeline]:
    """The stack of dev with the built asset, whose functions run in nothing else."""
    if not PYTHON.exists():
        pytest.skip("no embedded AWS: make it with `uv sync --project embedded --frozen`")
    dev = synthesize_once(tmp_path_factory, "dev")
    assembly = replace_asset(dev, asset.folder, tmp_path_factory.mktemp("assembly") / "cdk.out")
    with start_like_lambda(asset.python) as aws:
        pipeline = DeployedPipeline.create(assembly, aws.environment)
        functions = pipeline.client("lambda")
        for function in functions.list_functions()["Functions"]:
            variables = dict(function["Environment"]["Variables"])
            variables[Variable.TUNING.value] = json.dumps(TUNING)
            functions.update_function_configuration(
                FunctionName=function["FunctionName"], Environment={"Variables": variables}
            )
        yield pipeline


def test_every_handler_answers_in_the_runtime_client(pipeline: DeployedPipeline) -> None:
    """One archive with a split member goes through all of them; its members are right."""
    dice = random.Random(3)
    large = dice.randbytes(3 * MIB // 2).hex().encode()
    archive = build(
        *(Entry(f"small/{n}.txt", dice.randbytes(40).hex().encode(), DEFLATE) for n in range(5)),
        Entry("large.txt", large, DEFLATE),
    )
    pipeline.put("one.zip", archive)
    report = pipeline.wait("one.zip")
    assert (report.extracted, report.failed, report.missing) == (6, 0, 0)
    (written,) = pipeline.members("one/large.txt").values() or pipeline.members("large").values()
    assert written == large
    invoked = set(invocations(pipeline))
    assert {name for name in HANDLERS if any(name in log for log in invoked)} == set(HANDLERS)
    assert "Traceback" not in pipeline.logs()


def invocations(pipeline: DeployedPipeline) -> Iterator[str]:
    """Yield the log group, in small letters, of each function that was invoked."""
    logs = pipeline.client("logs")
    for group in logs.describe_log_groups()["logGroups"]:
        name = group["logGroupName"]
        events = logs.filter_log_events(logGroupName=name)["events"]
        if any("START RequestId" in event["message"] for event in events):
            yield name.lower()


def test_the_functions_see_the_asset_alone(pipeline: DeployedPipeline) -> None:
    """Nothing but the asset, the runtime client and the standard library can be imported."""
    source = "import sys\ndef handler(event, context): return [sys.version_info[:2], sys.path]\n"
    version, path = probe(pipeline, source)
    assert version == [3, 13]
    assert path[0] == "/var/task"
    outside = [one for one in path[1:] if "site-packages" in one or "dist-packages" in one]
    assert outside == []
    assert sum("runtime-" in one for one in path) == 1


def probe(pipeline: DeployedPipeline, source: str) -> tuple[list[int], list[str]]:
    """Run a function of one module in the same environment; return its answer."""
    functions = pipeline.client("lambda")
    functions.create_function(
        FunctionName="probe",
        Runtime="python3.13",
        Handler="index.handler",
        Role=ROLE,
        Code={"ZipFile": zipped(source)},
    )
    version, path = json.loads(functions.invoke(FunctionName="probe")["Payload"].read())
    return version, path
