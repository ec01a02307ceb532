"""The resource of a call about a Map Run is the Map Run.

``UpdateMapRun`` and ``DescribeMapRun`` name it by ``mapRunArn``, and a policy allows them on
``arn:aws:states:<region>:<account>:mapRun:<state machine>/<label>:<id>``. MiniStack checks such a
call against ``*``, so only a policy for all resources would allow it.
docs.aws.amazon.com/service-authorization/latest/reference/list_awsstepfunctions.html
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_actions: Any = import_module("ministack.core.iam_actions")


def install() -> None:
    """Check calls about a Map Run against its ARN."""
    stock = _actions.extract_resource_arn

    def extract(service: str, method: str, path: str, headers: Any, body: Any, *more: Any) -> str:
        named = _actions._safe_json_field(body, "mapRunArn") if service == "states" else ""
        return named or str(stock(service, method, path, headers, body, *more))

    _actions.extract_resource_arn = extract
