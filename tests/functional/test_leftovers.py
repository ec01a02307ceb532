"""Uploads of a killed run are dropped by the next run of its archive, whatever the options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from s3unzip.cli.main import main
from s3unzip.context import Context
from s3unzip.local.locking import lock_run
from s3unzip.model import Location
from s3unzip.objects.upload_registry import begin_upload
from s3unzip.runs.records import RunRecords
from s3unzip.runs.step import Step
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.stores.ports import ObjectFacts
from tests.zips import Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FACTS = ObjectFacts("text/plain", {})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with two archives, which is also where runs are kept."""
    monkeypatch.setenv("S3UNZIP_HOME", str(tmp_path / "home"))
    for name in ("a.zip", "b.zip"):
        (tmp_path / name).write_bytes(build(Entry("f", b"1"), Entry("g", b"2")))
    return tmp_path


@pytest.fixture
def killed(home: Path) -> Callable[..., str]:
    """Return a function that runs an archive and leaves an upload of the run; it gives its id."""

    def run(archive: str, *options: str) -> str:
        before = set((home / "home/runs").glob("*"))
        extract(home, archive, *options)
        (new,) = set((home / "home/runs").iterdir()) - before
        context = context_of(home)
        key = f"{home}/out/{archive.removesuffix('.zip')}/f"
        records = RunRecords.open(context.stores, new.name)
        step = Step(records.read_run(), "stream-0", context, context.calls())
        begin_upload(step, "stream-0", key, FACTS)
        return new.name

    return run


def extract(home: Path, archive: str, *options: str) -> None:
    """Run an archive."""
    with pytest.raises(SystemExit) as end:
        main(["run", str(home / archive), str(home / "out"), "-w", "1", "-q", *options])
    assert end.value.code == 0


def context_of(home: Path) -> Context:
    """Return a context as the command line has one."""
    config = StoreConfig(Location("file", "", f"{home}/home/"))
    return Context(stores=open_stores(config), clock=LocalClock())


def uploads(home: Path) -> int:
    """Count the uploads that are left."""
    place = Location("file", "", f"{home}/out/")
    return len(list(context_of(home).stores.destination(place).uploads(place.key)))


def test_a_run_with_other_options_drops_them(home: Path, killed: Callable[..., str]) -> None:
    """The run that was killed had another id; nothing of it is left."""
    killed("a.zip", "--include", "f")
    assert uploads(home) == 1
    extract(home, "a.zip")
    assert uploads(home) == 0


def test_a_newer_version_of_the_archive_drops_them(home: Path, killed: Callable[..., str]) -> None:
    """No run will complete the uploads of the older version."""
    killed("a.zip")
    (home / "a.zip").write_bytes(build(Entry("f", b"newer")))
    extract(home, "a.zip")
    assert uploads(home) == 0


def test_uploads_of_others_are_left_alone(home: Path, killed: Callable[..., str]) -> None:
    """Those of another archive, and those of a run that another process is doing."""
    killed("b.zip")
    busy = killed("a.zip", "--include", "f")
    with lock_run(str(home / "home"), busy):
        extract(home, "a.zip")
    assert uploads(home) == 2
