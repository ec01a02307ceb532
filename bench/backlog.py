"""A backlog of 400,000 archives, through the code of ``submit`` and ``backlog``: time and memory.

    uv run python -m bench.backlog

Each size runs in a process of its own. Listing, archives, queue and reports are answered by
stand-ins in that process, without a network, and the records are files. So the figures are the
command's own: the CPU for one archive, and the peak of the process. With ten times the archives
both must stay about the same, or something is quadratic or is kept in memory.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from hashlib import blake2b
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

from msgspec.structs import replace

from bench.measure import print_figure, print_step, run_command
from s3unzip.model import Location, Options, Report, Verdict, encode
from s3unzip.operate.backlog import submitting
from s3unzip.operate.backlog.summary import Summary
from s3unzip.operate.runs import DeployedRuns
from s3unzip.run_files import REPORT
from s3unzip.runs.records import RunRecords
from s3unzip.settings import MIB, Variable
from s3unzip.stores.folder.run_store import FolderRunStore
from tests.memory import MemorySource, MemoryStores, MemoryWork, put_archive

if TYPE_CHECKING:
    from collections.abc import Iterator

    from s3unzip.model import Pin
    from s3unzip.stores.ports import Archive, Tail

FEW, MANY = 40_000, 400_000
PAGE = 1_000  # keys of a LIST
MEMBERS = 5
SOURCE = Location("s3", "arrivals", "in/archive.zip")
VARIABLES = {
    Variable.TRIGGER_BUCKET.value: "arrivals",
    Variable.TRIGGER_SUFFIX.value: ".zip",
    Variable.DESTINATION.value: "s3://members/out/",
}
PHASES = ("look", "write", "queue", "first_look", "later_look")


class Archives:
    """The reading side of a bucket in which each key is the same archive with its own ETag."""

    def __init__(self) -> None:
        body = BytesIO()
        with ZipFile(body, "w") as archive:
            for number in range(MEMBERS):
                archive.writestr(f"{number}.txt", b"%d" % number * 400)
        stores = MemoryStores()
        put_archive(stores, body.getvalue(), SOURCE.key)
        self._source = MemorySource(stores.bucket("ingest"))
        self._there = Location("s3", "ingest", SOURCE.key)

    def tail(self, location: Location, length: int) -> Tail:
        """Return the end of an archive."""
        tail = self._source.tail(self._there, length)
        etag = blake2b(location.key.encode(), digest_size=16).hexdigest()
        return tail._replace(pin=replace(tail.pin, etag=f'"{etag}"'))

    def head(self, location: Location) -> Pin:
        """Return what is there."""
        return self.tail(location, 1).pin

    def pinned(self, location: Location, pin: Pin) -> Archive:  # noqa: ARG002 - all are the same
        """Return a reader of one version."""
        return self._source.pinned(self._there, self._source.head(self._there))


class Site(DeployedRuns):
    """An environment without a network: `archives` archives, whose runs have ended or not."""

    def __init__(self, archives: int, folder: str) -> None:
        self.environment = "bench"
        self.outputs = {"QueueUrl": "queue", "PlanFunction": "plan"}
        self.ended = False
        self.sent = 0
        self._archives = archives
        bucket = Archives()
        there: Any = SimpleNamespace(
            source=lambda _: bucket,
            destination=MemoryStores().destination,
            run_store=lambda run, _=None: FolderRunStore(folder, run),
        )
        self.stores = there
        self._report = Report("", Verdict.COMPLETED, SOURCE, None, SOURCE, Options(), cost=0.0)

    def client(self, service: str) -> Any:
        """Return a stand-in of the calls that the commands make."""
        return {
            "s3": SimpleNamespace(get_paginator=lambda _: SimpleNamespace(paginate=self._list)),
            "sqs": SimpleNamespace(
                send_message_batch=self._send,
                get_queue_attributes=lambda **_: {"Attributes": {}},
            ),
            "lambda": SimpleNamespace(
                list_event_source_mappings=lambda **_: {"EventSourceMappings": []}
            ),
        }[service]

    def planner_variables(self) -> dict[str, str]:
        """Return the variables of the plan function."""
        return VARIABLES

    def records(self, run: str) -> RunRecords:
        """Return the records of a run: its report, if it has ended."""
        objects = {REPORT: encode(replace(self._report, run=run))} if self.ended else {}
        return RunRecords(MemoryWork(objects))

    def _list(self, **_: object) -> Iterator[dict[str, Any]]:
        for first in range(0, self._archives, PAGE):
            numbers = range(first, min(first + PAGE, self._archives))
            yield {"Contents": [{"Key": f"in/{n % 97}/{n:07d}.zip"} for n in numbers]}

    def _send(self, *, Entries: list[Any], **_: object) -> dict[str, Any]:  # noqa: N803 - AWS's
        self.sent += len(Entries)
        return {"Successful": Entries}


def run_once(archives: int) -> dict[str, float]:
    """Submit a backlog and look at it before and after its end; return seconds by phase."""
    took: dict[str, float] = {}
    began = time.process_time()

    def note(phase: str) -> None:
        nonlocal began
        now = time.process_time()
        took[phase], began = now - began, now

    with tempfile.TemporaryDirectory(prefix="s3unzip-bench-") as folder:
        site = Site(archives, folder)
        words = ["s3://arrivals/in/"]
        with submitting.open_spool() as spool:
            found = submitting.find_archives(words, site, spool, sample=20)
            note("look")
            backlog = submitting.write_backlog(found, spool, words, site, time.time())
        note("write")
        assert submitting.queue_backlog(backlog, site) == site.sent == archives
        note("queue")
        site.ended = True
        summary = Summary(backlog, site)
        assert summary.look().verdicts == {"COMPLETED": archives}
        note("first_look")
        assert summary.look().verdicts == {"COMPLETED": archives}
        note("later_look")
        lists = sum(one.stat().st_size for one in Path(folder).rglob("archives-*"))
    took["list_bytes"] = lists / archives
    took["rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB
    return took


def main() -> None:
    """Run both sizes, each in a process of its own."""
    if sys.argv[1:]:
        print(json.dumps(run_once(int(sys.argv[1]))))
        return
    found = {}
    for archives in (FEW, MANY):
        print_step(f"{archives:,} archives")
        told = run_command([sys.executable, "-m", "bench.backlog", str(archives)])
        found[archives] = json.loads(told.output.splitlines()[-1])
    few, many = found[FEW], found[MANY]
    for phase in PHASES:
        print_figure(f"backlog.{phase}.us_per_archive", many[phase] / MANY * 1e6, "us")
    cpu = [sum(one[phase] for phase in PHASES) / count for count, one in found.items()]
    print_figure("backlog.list.bytes_per_archive", many["list_bytes"], "bytes")
    print_figure("backlog.cpu_growth", cpu[1] / cpu[0], "x")
    print_figure("backlog.rss_mb", many["rss_mb"], "MB")
    print_figure("backlog.rss_growth_mb", many["rss_mb"] - few["rss_mb"], "MB")


if __name__ == "__main__":
    main()
