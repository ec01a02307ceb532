"""The context of cdk.json, with which the CDK CLI builds the template.

The context includes feature flags, which change the template. So an app without them is not the app
that is deployed.
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
