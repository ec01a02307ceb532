"""The plan of an archive of 1,000,000 members: CPU and memory, compared with `zipfile`."""

from __future__ import annotations

import json
import os
import struct
import sys
import tempfile
import zipfile
from pathlib import Path

from bench.measure import RUNS, median, print_figure, print_step, run_command

MEMBERS = int(os.environ.get("S3UNZIP_BENCH_MEMBERS", "1000000"))


def write_archive(path: Path) -> None:
    """Write an archive of tiny stored members quickly: only its directory matters."""
    local = struct.Struct("<4s5H3I2H")
    central = struct.Struct("<4s6H3I5H2I")
    body = b"0123456789"
    crc = 0xA684C7C6
    directory: list[bytes] = []
    offset = 0
    with path.open("wb") as file:
        for number in range(MEMBERS):
            name = b"case-%03d/2026-11/document-%07d.json" % (number % 211, number)
            head = local.pack(b"PK\3\4", 20, 0, 0, 0, 23413, crc, 10, 10, len(name), 0)
            file.write(head + name + body)
            directory.append(
                central.pack(
                    b"PK\1\2", 788, 20, 0, 0, 0, 23413, crc, 10, 10, len(name), 0, 0, 0, 0,
                    0o100644 << 16, offset,
                )
                + name
            )  # fmt: skip
            offset += len(head) + len(name) + len(body)
        size = sum(map(len, directory))
        file.writelines(directory)
        end = offset + size
        file.write(
            struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, MEMBERS, MEMBERS, size, offset)
        )
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, size, offset, 0))


def plan(source: str, work: str, include: tuple[str, ...]) -> None:
    """Plan as a run does: everything that a run writes before its first task."""
    from s3unzip.context import Context  # noqa: PLC0415
    from s3unzip.model import Options, Request  # noqa: PLC0415
    from s3unzip.planning.plan import Plan  # noqa: PLC0415
    from s3unzip.settling.loop import begin  # noqa: PLC0415
    from s3unzip.stores.clock import LocalClock  # noqa: PLC0415
    from s3unzip.stores.config import StoreConfig  # noqa: PLC0415
    from s3unzip.stores.locations import parse_destination, parse_source  # noqa: PLC0415
    from s3unzip.stores.open import OpenedStores  # noqa: PLC0415

    context = Context(stores=OpenedStores(StoreConfig(parse_destination(work))), clock=LocalClock())
    target = parse_destination(f"{work}/out")
    request = Request(parse_source(source), target, Options(include=include))
    plans: list[Plan] = []
    begin(request, context, planned=plans.append)
    print(json.dumps({"members": plans[0].summary.selected, "tasks": plans[0].summary.tasks}))


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
