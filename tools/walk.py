"""Count what one member passes: modules and functions of the package in plan, extract and report.

``python -m tools.walk [--list]`` extracts an archive with one small member from a folder to a
folder, in one process, and watches every call of a function of the package. docs/architecture.md
keeps the figures. The adapters of folders are left out: each kind of store has its own. Functions
inside of others (lambdas, comprehensions) count with the one they are in.
"""

import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import FrameType

import s3unzip
from s3unzip.context import Context
from s3unzip.extraction.task import run_task
from s3unzip.model import Location, Request
from s3unzip.runs.records import RunRecords
from s3unzip.settling.loop import begin_run, settle
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import Clock

PACKAGE = f"{Path(s3unzip.__file__).parent}/"
ADAPTERS = ("stores/folder.py", "stores/files.py")


class Walk:
    """The functions of the package that were called: module and name of each."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()

    def see(self, frame: FrameType, event: str, _: object) -> None:
        """Note a call; the interpreter's profiler tells of each."""
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        module = code.co_filename.removeprefix(PACKAGE)
        if code.co_flags & CO_OPTIMIZED and not module.startswith(ADAPTERS):  # no class's body
            self.functions.add((module, code.co_qualname.split(".<locals>")[0]))

    @property
    def modules(self) -> set[str]:
        return {module for module, _ in self.functions}


@contextmanager
def watching() -> Iterator[Walk]:
    """Watch the calls of this thread and of those that begin meanwhile."""
    walk = Walk()
    threading.setprofile(walk.see)
    sys.setprofile(walk.see)
    try:
        yield walk
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def walk_member(home: Path) -> dict[str, Walk]:
    """Extract an archive with one member below `home`; return the walk of each step."""
    archive = home / "archive.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("folder/member.json", '{"a": 1}' * 100)
    stores = OpenedStores(StoreConfig(work=Location("file", "", str(home / "home"))))
    context = Context(stores=stores, clock=Clock())
    request = Request(
        Location("file", "", str(archive)), Location("file", "", str(home / "out") + "/")
    )
    with watching() as plan:
        planned = begin_run(request, context)
    if planned.report is not None:
        raise TypeError(f"the archive was refused: {planned.report.message}")
    run = RunRecords.open(context.stores, planned.next.run).read_plan().run
    with watching() as extract:
        run_task(run, planned.next.tasks[0], context)
    with watching() as report:
        settle(planned.next, context)
    return {"plan": plan, "extract": extract, "report": report}


def main() -> None:
    """Print the figures; with ``--list`` the functions too."""
    with tempfile.TemporaryDirectory(prefix="s3unzip-walk-") as home:
        walks = walk_member(Path(home))
    for step, walk in walks.items():
        lines = [f"{step}: {len(walk.modules)} modules, {len(walk.functions)} functions"]
        if "--list" in sys.argv:
            lines += [f"  {module}: {name}" for module, name in sorted(walk.functions)]
        sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
