"""Hostile directories: memory and CPU seconds a MB of planning each.

    python -m bench.hostile

Each archive has 100 MB of central directory or 1,000,000 members, whichever is less, with names as
an attacker would choose them. The bench plans as a run does, and writes everything that a run
writes. `S3UNZIP_BENCH_SCALE` makes all archives smaller.
"""

from __future__ import annotations

import itertools
import json
import os
import struct
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from bench import hostile_web
from bench.measure import print_figure, run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SCALE = float(os.environ.get("S3UNZIP_BENCH_SCALE", "1"))
MEMBERS = int(1_000_000 * SCALE)
DIRECTORY = int(100_000_000 * SCALE)
MAX_MB = 400
MAX_CPU_S_PER_MB = 1.0

_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_UTF8 = 1 << 11
_WIDE = "\U0001f600"


def deep() -> Iterator[str]:
    """Yield valid names of 480 folders, no two of which share any."""
    return (f"{number:07}/{'d/' * 480}f" for number in itertools.count())


def deepest() -> Iterator[str]:
    """Yield directories as deep as a name can be."""
    return (f"{number:07}/{'a/' * 32_760}" for number in itertools.count())


def long() -> Iterator[str]:
    """Yield names as long as the format allows, far too long for a key."""
    return (f"{number:07}" + "n" * 65_500 for number in itertools.count())


def wide() -> Iterator[str]:
    """Yield valid names in which one character makes all the others take four bytes."""
    return (f"{number:07}{_WIDE}" + "n" * 980 for number in itertools.count())


def combining() -> Iterator[str]:
    """Yield names of combining marks, out of order, as long as the format allows."""
    return (f"{number:07}" + "\u0323\u0301" * 16_000 for number in itertools.count())


def combining_keys() -> Iterator[str]:
    """Yield names that are valid keys, of letters with the maximum of marks."""
    return (f"{number:07}" + ("e" + "\u0323\u0301" * 15) * 16 for number in itertools.count())


def different() -> Iterator[str]:
    """Yield a million names, each in a folder of its own."""
    return (f"{number:07x}/{number * 7_919 % 9_973:04}/a" for number in itertools.count())


def alike() -> Iterator[str]:
    """Yield names that differ only in the case of their letters."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    for number in itertools.count():
        yield "".join(c.upper() if number >> bit & 1 else c for bit, c in enumerate(letters))


def refused() -> Iterator[str]:
    """Yield names of which each is refused."""
    return (f"../{number:07}/{number % 7}" for number in itertools.count())


def directories() -> Iterator[str]:
    """Yield directories, all different."""
    return (f"{number:07x}/{number % 9_973:04}/" for number in itertools.count())


CASES: dict[str, Callable[[], Iterator[str]]] = {
    "deep": deep,
    "deepest": deepest,
    "long": long,
    "wide": wide,
    "combining": combining,
    "combining_keys": combining_keys,
    "different": different,
    "alike": alike,
    "refused": refused,
    "directories": directories,
}


def write_archive(path: Path, names: Iterator[str]) -> tuple[int, int]:
    """Write an archive of empty members; return its members and its directory's bytes."""
    size = count = offset = 0
    with path.open("wb") as file, tempfile.TemporaryFile() as directory:
        for name in itertools.islice(names, MEMBERS):
            raw = name.encode()
            flags = 0 if name.isascii() else _UTF8
            if size + 46 + len(raw) > DIRECTORY:
                break
            # The local headers have no names: planning never reads them.
            file.write(_LOCAL.pack(b"PK\3\4", 20, flags, 0, 0, 23413, 0, 0, 0, len(raw), 0))
            file.seek(len(raw), os.SEEK_CUR)
            head = _CENTRAL.pack(
                b"PK\1\2", 788, 20, flags, 0, 0, 23413, 0, 0, 0, len(raw), 0, 0, 0, 0,
                0o100644 << 16, offset,
            )  # fmt: skip
            directory.write(head + raw)
            offset += 30 + len(raw)
            size += 46 + len(raw)
            count += 1
        directory.seek(0)
        while piece := directory.read(1 << 20):
            file.write(piece)
        end = offset + size
        file.write(
            struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
        )
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, end, 1))
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, size, offset, 0))
    return count, size


def plan(source: str, work: str) -> None:
    """Plan as a run does, and print the result."""
    from s3unzip.context import Context  # noqa: PLC0415 - only in the measured process
    from s3unzip.model import PlanSummary, Request  # noqa: PLC0415
    from s3unzip.planning.plan import make_plan  # noqa: PLC0415
    from s3unzip.stores.clock import LocalClock  # noqa: PLC0415
    from s3unzip.stores.factory import StoreConfig, open_stores  # noqa: PLC0415
    from s3unzip.stores.locations import parse_destination, parse_source  # noqa: PLC0415

    home = parse_destination(work)
    context = Context(stores=open_stores(StoreConfig(home)), clock=LocalClock())
    target = parse_destination(f"{work}/out")
    made = make_plan(Request(parse_source(source), target), context)
    if isinstance(made, PlanSummary):
        said: dict[str, object] = {"selected": made.selected, "failed": made.failed}
        said |= {"directories": made.directories, "warnings": made.warnings}
    else:
        said = {"rejected": made.reason}
    print(json.dumps(said))


def main() -> None:
    """Measure the named cases, or all."""
    if sys.argv[1:2] == ["plan"]:
        plan(sys.argv[2], sys.argv[3])
        return
    above = []
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder:
            archive = Path(folder, "hostile.zip")
            members, size = write_archive(archive, CASES[name]())
            me = [sys.executable, "-m", "bench.hostile", "plan", str(archive), folder]
            cost = run_command(me)
        per_mb = cost.cpu / (size / 1e6)
        print(f"{name}: {members:,} members in {size / 1e6:.1f} MB, {cost.cpu:.1f} CPU s")
        print(f"  {cost.output.strip()}")
        print_figure(f"hostile.{name}.peak_mb", cost.rss_mb, "MB")
        print_figure(f"hostile.{name}.cpu_s_per_mb", per_mb, "s")
        if cost.rss_mb > MAX_MB or per_mb > MAX_CPU_S_PER_MB:
            above.append(name)
    if not sys.argv[1:]:
        hostile_web.main()
    if above:
        sys.exit(f"above {MAX_MB} MB or {MAX_CPU_S_PER_MB} CPU s a MB: {', '.join(above)}")


if __name__ == "__main__":
    main()
