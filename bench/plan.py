"""The plan of an archive of 1,000,000 members: CPU and memory, compared with `zipfile`."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path

from bench.measure import RUNS, median, print_figure, print_step, run_command

MEMBERS = int(os.environ.get("S3UNZIP_BENCH_MEMBERS", "1000000"))


def write_archive(path: Path) -> None:
    """Write an archive of tiny stored members: only its directory matters."""
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(MEMBERS):
            name = f"case-{number % 211:03}/2026-11/document-{number:07}.json"
            archive.writestr(zipfile.ZipInfo(name, (2026, 11, 1, 0, 0, 0)), b"0123456789")


def plan(source: str, work: str, include: tuple[str, ...]) -> None:
    """Plan as a run does: everything that a run writes before its first task."""
    from s3unzip.context import Context  # noqa: PLC0415
    from s3unzip.model import Options, PlanSummary, Request  # noqa: PLC0415
    from s3unzip.settling.loop import begin_run  # noqa: PLC0415
    from s3unzip.stores.config import (  # noqa: PLC0415
        StoreConfig,
        parse_destination,
        parse_source,
    )
    from s3unzip.stores.open import OpenedStores  # noqa: PLC0415
    from s3unzip.stores.ports import Clock  # noqa: PLC0415

    context = Context(stores=OpenedStores(StoreConfig(parse_destination(work))), clock=Clock())
    target = parse_destination(f"{work}/out")
    request = Request(parse_source(source), target, Options(include=include))
    plans: list[PlanSummary] = []
    begin_run(request, context, planned=plans.append)
    print(json.dumps({"members": plans[0].selected, "tasks": plans[0].tasks}))


def main() -> None:
    """Measure three times."""
    if len(sys.argv) > 1:
        if sys.argv[1] == "zipfile":
            print(len(zipfile.ZipFile(sys.argv[2]).infolist()))
        else:
            plan(sys.argv[2], sys.argv[3], tuple(sys.argv[4:]))
        return
    with tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder:
        archive = Path(folder, "million.zip")
        print_step(f"making an archive of {MEMBERS:,} members")
        write_archive(archive)
        me = [sys.executable, "-m", "bench.plan"]
        ours, theirs = [], []
        for turn in range(RUNS):
            print_step(f"plan, then zipfile's directory, turn {turn + 1} of {RUNS}")
            ours.append(run_command([*me, "plan", str(archive), folder]))
            assert json.loads(ours[-1].output)["members"] == MEMBERS, ours[-1].output
            theirs.append(run_command([*me, "zipfile", str(archive)]))
            print(
                f"turn {turn + 1}: plan {ours[-1].cpu:.2f} CPU s, {ours[-1].rss_mb:.0f} MB; "
                f"zipfile's directory alone {theirs[-1].cpu:.2f} CPU s, {theirs[-1].rss_mb:.0f} MB"
            )
        print_step("plan by a glob")
        selected = run_command([*me, "plan", str(archive), folder, "*.json"])
        assert json.loads(selected.output)["members"] == MEMBERS, selected.output
    print_figure("plan.million.cpu_s", median([cost.cpu for cost in ours]), "s")
    print_figure("plan.million.rss_mb", max(cost.rss_mb for cost in ours), "MB")
    print_figure("plan.million_by_glob.cpu_s", selected.cpu, "s")
    print_figure("plan.million_by_glob.rss_mb", selected.rss_mb, "MB")
    ratio = [a.cpu / b.cpu for a, b in zip(ours, theirs, strict=True)]
    print_figure("plan.million.cpu_vs_zipfile", median(ratio), "ratio")


if __name__ == "__main__":
    main()
