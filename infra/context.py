"""The context that cdk.json gives to every synthesis: with it the CDK CLI builds the template.

Feature flags are part of it and change the template, so an app that is built
without them is another app than the one that is deployed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

FILE = Path(__file__).resolve().parent.parent / "cdk.json"


def read_context(file: Path = FILE) -> dict[str, Any]:
    """Return the table ``context`` of `file`: feature flags and the default environment."""
    context: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["context"]
    return context
