"""Folders of an archive that hold nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from s3unzip.cli.main import main
from tests.zips import Entry, build

if TYPE_CHECKING:
    from pathlib import Path


def test_an_empty_folder_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders come into being with the members in them, so that S3 and a folder get the same."""
    monkeypatch.setenv("S3UNZIP_HOME", str(tmp_path / "home"))
    archive = tmp_path / "a.zip"
    archive.write_bytes(build(Entry("empty/", b""), Entry("full/", b""), Entry("full/x", b"1")))
    with pytest.raises(SystemExit) as end:
        main(["run", str(archive), str(tmp_path / "out"), "-w", "1", "-q"])
    assert end.value.code == 0
    found = sorted(str(one.relative_to(tmp_path / "out")) for one in (tmp_path / "out").rglob("*"))
    assert found == ["a", "a/full", "a/full/x"]
