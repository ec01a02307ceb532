"""Trust does not change, and a folder of one's own is read."""

from __future__ import annotations

import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from tests.certificates import FILE, FOLDER, read_each_once

SYSTEMS = ssl.get_default_verify_paths().cafile
OPEN = """
from obstore.store import S3Store
S3Store("bucket", config={"endpoint": "https://s3.example", "region": "us-east-1"})
"""


@pytest.mark.skipif(not SYSTEMS, reason="the system has no file of certificates")
@pytest.mark.parametrize("named", [False, True])
def test_the_systems_folder_is_left_out(*, named: bool) -> None:
    """Whether it is named or not, only the file is read, and a store has what it needs."""
    variables = {FOLDER: str(Path(SYSTEMS).resolve().parent)} if named else {}
    read_each_once(variables)
    assert variables == {FILE: SYSTEMS}
    subprocess.run([sys.executable, "-c", OPEN], env=variables, check=True)


@pytest.mark.skipif(not SYSTEMS, reason="the system has no file of certificates")
def test_another_folder_is_read(tmp_path: Path) -> None:
    """A folder that has other certificates stays."""
    variables = {FOLDER: str(tmp_path)}
    read_each_once(variables)
    assert variables == {FOLDER: str(tmp_path)}
