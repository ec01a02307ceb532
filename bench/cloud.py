"""The cloud pipeline on MiniStack: the demo, an archive from put to report, the asset.

MiniStack shares the machine with its functions. So these figures show the overhead of the pipeline,
not the performance of AWS.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import RUNS, median, print_figure, print_step, run_command
from embedded.deploy import prepare_dependencies, start_aws, synthesize
from embedded.pipeline import DeployedPipeline
from infra.bundle import build_bundle, find_python, find_uv
from infra.cdk_cli import COMMAND
from s3unzip.model import Verdict
from s3unzip.settings import PROCESS_VARIABLES, Variable
from tests.support.zips import DEFLATE, Entry, Shape, build

MEMBERS = int(os.environ.get("S3UNZIP_BENCH_MEMBERS", "50000"))
TASKS = int(os.environ.get("S3UNZIP_BENCH_TASKS", "10000"))  # in one Distributed Map
# One task for each member, and few workers, because each worker is a cold start on this machine.
ONE_EACH = {"batch_members": 1, "max_workers": 8, "max_direct_members": 0}


def make_archive(members: int) -> bytes:
    """Return an archive of `members` JSON documents of about 400 bytes."""
    documents = (
        json.dumps({"number": number, "values": list(range(number % 100))}).encode()
        for number in range(members)
    )
    entries = (
        Entry(f"documents/{number % 97:02}/{number:07}.json", text, DEFLATE)
        for number, text in enumerate(documents)
    )
    return build(*entries, shape=Shape(zip64=members > 0xFFFF))


def _measure_demo() -> None:
    prepare_dependencies()
    print_step(f"the demo, {RUNS} times")
    seconds = [run_command([sys.executable, "-m", "embedded.demo"]).wall for _ in range(RUNS)]
    print_figure("cloud.demo_warm.s", median(seconds), "s")


def measure_runs(folder: Path) -> None:
    """Time small archives and one large run, from put to report."""
    print_step("deploying to the embedded AWS, then small archives")
    assembly = synthesize("dev", folder)
    with start_aws() as aws:
        pipeline = DeployedPipeline.create(assembly, aws.environment)
        small = make_archive(100)
        seconds = [_time_run(pipeline, f"small-{n}.zip", small, 100) for n in range(RUNS + 1)]
        print_figure("cloud.put_to_done_100.s", median(seconds[1:]), "s")  # the first is cold
        print_figure("cloud.put_to_done_100_cold.s", seconds[0], "s")
        print_step(f"an archive of {MEMBERS:,} members")
        large = _time_run(pipeline, "large.zip", make_archive(MEMBERS), MEMBERS)
        print_figure(f"cloud.put_to_done_{MEMBERS}.s", large, "s")
        print_step(f"an archive of {TASKS:,} tasks")
        print_figure("cloud.map_tasks_survived", survive_tasks(pipeline, TASKS), "tasks")
        print_figure("cloud.input.bytes", _largest_input(pipeline), "bytes")


def _time_run(pipeline: DeployedPipeline, key: str, archive: bytes, members: int) -> float:
    started = time.perf_counter()
    pipeline.put(key, archive)
    report = pipeline.wait(key, seconds=1_800.0)
    seconds = time.perf_counter() - started
    assert report.verdict is Verdict.COMPLETED, report
    assert (report.extracted, report.missing) == (members, 0), report
    return seconds


def survive_tasks(pipeline: DeployedPipeline, tasks: int) -> int:
    """Let the deployed template run one Map of `tasks` tiny tasks; return how many it had.

    The embedded AWS fails a Map whose result exceeds 256 KiB, as AWS does.
    """
    for function in ("IntakeFunction", "PlanFunction"):
        _change_tuning(pipeline, pipeline.outputs[function])
    _time_run(pipeline, "many-tasks.zip", make_archive(tasks), tasks)
    run = pipeline.find_run("many-tasks.zip")
    assert run is not None
    plan = pipeline.plan(run)
    assert plan is not None
    assert plan.tasks >= tasks, plan
    return plan.tasks


def _change_tuning(pipeline: DeployedPipeline, function: str) -> None:
    client = pipeline.client("lambda")
    told = client.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    tuning = json.loads(told.get(Variable.TUNING.value, "{}")) | ONE_EACH
    told[Variable.TUNING.value] = json.dumps(tuning)
    client.update_function_configuration(FunctionName=function, Environment={"Variables": told})


def _largest_input(pipeline: DeployedPipeline) -> int:
    states, machine = pipeline.client("stepfunctions"), pipeline.outputs["StateMachineArn"]
    arns = [
        one["executionArn"] for one in states.list_executions(stateMachineArn=machine)["executions"]
    ]
    return max(len(states.describe_execution(executionArn=arn)["input"]) for arn in arns)


def _measure_asset(folder: Path) -> None:
    print_step("building the asset")
    build_bundle(folder / "lambda")
    size = sum(path.stat().st_size for path in (folder / "lambda").rglob("*") if path.is_file())
    print_figure("cloud.asset.mb", size / 1024**2, "MB")


def measure_synthesis(folder: Path) -> None:
    """Time `cdk synth` of dev with the real CLI and a built asset; all commands begin with it."""
    words = [str(COMMAND), "synth", "--quiet", "-c", "env=dev", "--output", str(folder / "cdk.out")]
    print_step("cdk synth, once to warm up, then measured")
    run_command(words)
    print_figure("cloud.cdk_synth.s", median([run_command(words).wall for _ in range(RUNS)]), "s")


def measure_imports(folder: Path) -> None:
    """Measure the import of each handler in a new process: built asset, 3.13.

    `cloud.import.<function>.ms` is the time on the clock. `cloud.import_cpu.<function>.ms` is
    the CPU time of the quickest run, which other processes change least.
    """
    python = find_python(find_uv())
    if python is None:
        sys.exit("cloud.import.*.ms: no CPython 3.13: install one with `uv python install 3.13`")
    asset = folder / "asset"
    build_bundle(asset, ("--python", python))
    variables = {
        "PYTHONPATH": str(asset),
        Variable.ENVIRONMENT.value: "bench",
        "PYTHONWARNINGS": "ignore",
        # As Lambda sets it. Without it, the X-Ray SDK creates two clients at its import.
        "LAMBDA_TASK_ROOT": str(asset),
        **PROCESS_VARIABLES,
    }
    for name in ("intake", "plan", "extract", "settle"):
        print_step(f"importing the handler {name}")
        code = (
            "import time; "
            "begun = time.perf_counter(), time.process_time(); "
            f"import s3unzip.aws.{name}; "
            "print(time.perf_counter() - begun[0], time.process_time() - begun[1])"
        )
        command = [python, "-S", "-s", "-B", "-c", code]  # only the asset
        run_command(command, variables)  # warms the file cache
        told = [run_command(command, variables).output.split() for _ in range(2 * RUNS + 1)]
        wall, cpu = ([float(seconds) * 1_000 for seconds in one] for one in zip(*told, strict=True))
        print_figure(f"cloud.import.{name}.ms", median(wall), "ms")
        print_figure(f"cloud.import_cpu.{name}.ms", min(cpu), "ms")


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as scratch:
        folder = Path(scratch)
        _measure_asset(folder)
        measure_synthesis(folder)
        measure_imports(folder)
        measure_runs(folder)
    _measure_demo()


if __name__ == "__main__":
    main()
