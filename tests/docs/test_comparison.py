"""The forecasts of the comparison page are those that its commands print."""

from __future__ import annotations

import json
import re

import pytest

from s3unzip.cli.main import main
from tests.docs.commands import ROOT

PAGE = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
TOLD = re.findall(r"\| (\d+) s, `s3unzip (simulate \w+)` \|", PAGE)


def test_the_forecasts_of_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """Each is the expected duration, to the second."""
    assert len(TOLD) == 2
    for seconds, command in TOLD:
        with pytest.raises(SystemExit) as end:
            main([*command.split(), "--json"])
        assert end.value.code == 0
        forecast = json.loads(capsys.readouterr().out)
        assert round(forecast["duration"]["expected"]) == int(seconds), command
