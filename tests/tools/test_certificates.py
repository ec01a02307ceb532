"""Trust does not change, and a folder of one's own is read."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from tests.certificates import FOLDER, read_each_once

FILE = ssl.get_default_verify_paths().cafile


@pytest.mark.skipif(not FILE, reason="the system has no file of certificates")
def test_the_systems_folder_is_left_out() -> None:
    """Whether it is named or not, the folder beside the file is not read."""
    for variables in ({}, {FOLDER: str(Path(FILE).resolve().parent)}):
        read_each_once(variables)
        assert not list(Path(variables[FOLDER]).glob("*.[0-9]"))


def test_another_folder_is_read(tmp_path: Path) -> None:
    """A folder that has other certificates stays."""
    variables = {FOLDER: str(tmp_path)}
    read_each_once(variables)
    assert variables == {FOLDER: str(tmp_path)}
