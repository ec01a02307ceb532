"""`make demo`: the whole pipeline on this machine, from an archive put to its report.

Starts MiniStack, synthesizes and deploys the stack, puts an archive, shows the run's progress,
prints the report, and stops. With ``--keep`` it keeps running.
"""

import argparse
import contextlib
import io
import json
import random
import signal
import sys
import tempfile
import time
import zipfile
from collections import Counter
from functools import partial
from pathlib import Path

from rich.console import Console

from embedded.deploy import start_aws, synthesize
from embedded.ministack import EmbeddedAws, EmbeddedAwsError
from embedded.pipeline import DeployedPipeline
from infra import RefusedError
from s3unzip.cli.output import print_report
from s3unzip.cli.progress import RunDisplay
from s3unzip.model import PlanSummary, Report
from s3unzip.runs.records import RUNS

MEMBERS = 3_000
PAGE = Path("build/demo-report.html")


def make_archive(members: int = MEMBERS, seed: int = 1) -> bytes:
    """Return an archive of mixed members: JSON, text, noise, a few of some MiB, one stored."""
    dice = random.Random(seed)  # noqa: S311 - the same archive each time
    words = [dice.randbytes(dice.randint(2, 6)).hex() for _ in range(500)]
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for number in range(members):
            text = " ".join(dice.choices(words, k=dice.randint(5, 300)))
            record = json.dumps({"number": number, "text": text})
            archive.writestr(f"records/{number % 40:02}/{number:06}.json", record)
        for number in range(3):
            lines = "\n".join(" ".join(dice.choices(words, k=12)) for _ in range(20_000))
            archive.writestr(f"logs/{number}.log", lines)
        noise = zipfile.ZipInfo("images/noise.raw", (2026, 1, 1, 0, 0, 0))
        archive.writestr(noise, dice.randbytes(9 * 1024**2), zipfile.ZIP_STORED)
    return body.getvalue()


def _show_progress(pipeline: DeployedPipeline, display: RunDisplay, run: str) -> None:
    plan = display.plan or pipeline.plan(run)
    if plan is None:
        return
    if display.plan is None:
        display.planned(plan)
    display.finished(count_written(pipeline, plan) - display.counts)


def count_written(pipeline: DeployedPipeline, plan: PlanSummary) -> Counter[str]:
    """Count the members in the destination, and the share of the work that their bytes are.

    A task reports its members when it ends; a listing shows them as they come.
    """
    pages = pipeline.client("s3").get_paginator("list_objects_v2")
    listing = pages.paginate(
        Bucket=pipeline.outputs["DestinationBucket"], Prefix=plan.run.key_prefix
    )
    sizes = [listed["Size"] for page in listing for listed in page.get("Contents", ())]
    share = sum(sizes) / max(1, plan.bytes_out)
    return Counter(extracted=len(sizes), bytes_done=int(plan.work * share))


def show_around(console: Console, aws: EmbeddedAws, pipeline: DeployedPipeline) -> None:
    """Print the names of all resources and commands to look at them."""
    outputs = pipeline.outputs
    console.print("\nLook around, in another terminal:", style="bold")
    for name, value in aws.environment.items():
        console.print(f"  export {name}={value}", soft_wrap=True)
    for command in (
        f"aws s3 ls --recursive s3://{outputs['DestinationBucket']}/",
        f"aws s3 ls --recursive s3://{outputs['WorkBucket']}/runs/",
        f"aws s3 cp my.zip s3://{outputs['IngestBucket']}/",
        f"aws stepfunctions list-executions --state-machine-arn {outputs['StateMachineArn']}",
        "aws cloudformation describe-stacks",
    ):
        console.print(f"  {command}", soft_wrap=True)


def _run_demo(archive: Path | None, *, keep: bool, console: Console) -> Report:
    started = time.monotonic()

    def step(what: str) -> None:
        console.print(f"{time.monotonic() - started:6.1f} s  {what}", soft_wrap=True)

    with (
        tempfile.TemporaryDirectory(prefix="s3unzip-demo-") as folder,
        contextlib.ExitStack() as on,
    ):
        aws = start_aws()
        step("dependencies of the functions installed")
        assembly = synthesize("dev", Path(folder))
        step("stack synthesized (infra/environments/dev.toml)")
        on.enter_context(aws)
        step(f"MiniStack started at {aws.endpoint}")
        pipeline = DeployedPipeline.create(assembly, aws.environment)
        step(f"template deployed: stack {assembly.stack}")
        body = make_archive() if archive is None else archive.read_bytes()
        key = "demo.zip" if archive is None else archive.with_suffix(".zip").name
        pipeline.put(key, body)
        step(f"{len(body):,} bytes put to s3://{pipeline.outputs['IngestBucket']}/{key}")
        with RunDisplay(console) as display:
            report = pipeline.wait(key, look=partial(_show_progress, pipeline, display))
        step("run ended")
        console.print()
        print_report(report, sys.stderr)
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_bytes(pipeline.read(f"{RUNS}{report.run}/report.html") or b"")
        console.print(f"  its page: {PAGE}")
        if keep:
            show_around(console, aws, pipeline)
            console.print("\nRunning until Ctrl-C.")
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
        else:
            console.print("  make demo KEEP=1 keeps the pipeline running; docs/deploy.md: on AWS")
    return report


def main() -> None:
    """Run the demo from the command line."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the files are deleted
    parser = argparse.ArgumentParser(prog="embedded.demo", description=__doc__)
    parser.add_argument("--archive", type=Path, help="a ZIP of yours; default: a generated one")
    parser.add_argument("--keep", action="store_true", help="keep it running until Ctrl-C")
    chosen = parser.parse_args()
    if chosen.archive is not None and not chosen.archive.is_file():
        sys.exit(f"{chosen.archive}: no such file")
    console = Console(stderr=True, highlight=False)
    try:
        report = _run_demo(chosen.archive, keep=chosen.keep, console=console)
    except (EmbeddedAwsError, RefusedError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(report.verdict.exit_code)


if __name__ == "__main__":
    main()
