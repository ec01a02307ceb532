"""A dashboard of a template as CloudWatch would get it, and what CloudWatch takes.

Limits: CloudWatch-Dashboard-Body-Structure and cloudwatch_limits in the
documentation of CloudWatch.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.infra.templates import Synthesized

COLUMNS = 24
HEIGHT = 1_000  # of one widget
WIDGETS = 500  # of a dashboard
METRICS_EACH = 500  # of a widget, those inside expressions included
METRICS_ALL = 2_500
ALARMS = 100  # of a status widget
NEEDED = {
    "metric": {"metrics", "region", "view"},
    "log": {"query", "region", "view"},
    "text": {"markdown"},
    "alarm": {"alarms"},
}
VIEWS = {"timeSeries", "singleValue", "table"}


@dataclass(frozen=True, slots=True)
class DrawnMetric:
    """One row of a metric widget, with its values spelled out."""

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    options: dict[str, Any]


def read_dashboard(made: Synthesized) -> dict[str, Any]:
    """Return the body of the one dashboard, references as ``<logical id>``."""
    (board,) = made.resources("AWS::CloudWatch::Dashboard").values()
    body = board["Properties"]["DashboardBody"]
    parts = body["Fn::Join"][1] if isinstance(body, dict) else [body]
    text = "".join(part if isinstance(part, str) else _spell(part) for part in parts)
    found: dict[str, Any] = json.loads(text)
    return found


def widgets_of(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the properties of the widgets of one type, top to bottom."""
    found = sorted(body["widgets"], key=lambda one: (one["y"], one["x"]))
    return [one["properties"] for one in found if one["type"] == kind]


def metrics_of(properties: dict[str, Any]) -> Iterator[DrawnMetric]:
    """Yield the metrics of a widget; ``.`` repeats what the row above has."""
    above: list[str] = []
    for row in properties["metrics"]:
        options = row[-1] if isinstance(row[-1], dict) else {}
        if "expression" in options:
            continue
        given = row[:-1] if options else row
        names = [above[at] if one == "." else one for at, one in enumerate(given)]
        above = names
        pairs = tuple(sorted(zip(names[2::2], names[3::2], strict=True)))
        yield DrawnMetric(names[0], names[1], pairs, options)


def dashboard_faults(body: dict[str, Any]) -> list[str]:
    """Return what CloudWatch would refuse or draw one over the other."""
    widgets = body.get("widgets")
    if not isinstance(widgets, list) or len(widgets) > WIDGETS:
        return ["no widgets, or too many"]
    faults = [fault for widget in widgets for fault in _widget_faults(widget)]
    counts = [len(one["metrics"]) for one in widgets_of(body, "metric")]
    if sum(counts) > METRICS_ALL or max(counts, default=0) > METRICS_EACH:
        faults.append("too many metrics")
    taken: dict[tuple[int, int], str] = {}
    for widget in widgets:
        name = widget["properties"].get("title", widget["type"])
        for x in range(widget["x"], widget["x"] + widget["width"]):
            for y in range(widget["y"], widget["y"] + widget["height"]):
                if (x, y) in taken:
                    faults.append(f"{name} is over {taken[x, y]} at {x}, {y}")
                taken[x, y] = name
    return faults


def _widget_faults(widget: dict[str, Any]) -> Iterator[str]:
    kind, properties = widget["type"], widget["properties"]
    title = properties.get("title", kind)
    if kind not in NEEDED:
        yield f"{title} is of an unknown type"
        return
    missing = NEEDED[kind] - properties.keys()
    if missing:
        yield f"{title} has no {', '.join(sorted(missing))}"
        return
    yield from _place_faults(title, widget)
    if properties.get("view", "table") not in VIEWS:
        yield f"{title} has an unknown view"
    if kind == "log" and not properties["query"].startswith("SOURCE "):
        yield f"{title} asks no log group"
    if kind == "alarm" and not 1 <= len(properties["alarms"]) <= ALARMS:
        yield f"{title} has no alarms, or too many"
    if kind == "metric":
        yield from _metric_faults(title, properties["metrics"])


def _place_faults(title: str, widget: dict[str, Any]) -> Iterator[str]:
    if widget["x"] < 0 or widget["width"] < 1 or widget["x"] + widget["width"] > COLUMNS:
        yield f"{title} does not fit into {COLUMNS} columns"
    if widget["y"] < 0 or not 1 <= widget["height"] <= HEIGHT:
        yield f"{title} has a wrong height"


def _metric_faults(title: str, rows: list[list[Any]]) -> Iterator[str]:
    seen: set[str] = set()
    for row in rows:
        options = row[-1] if isinstance(row[-1], dict) else {}
        name = options.get("id")
        if name in seen:
            yield f"{title} has the id {name} twice"
        if name is not None:
            seen.add(name)
            if not name[0].islower():
                yield f"{title} has the id {name}, which does not begin in lower case"
        plain = row[:-1] if options else row
        if "expression" not in options and (len(plain) < 2 or len(plain) % 2):
            yield f"{title} has a metric without a name, or a dimension without a value"


def _spell(part: dict[str, Any]) -> str:
    if "Ref" in part:
        return f"<{part['Ref']}>"
    return f"<{'.'.join(part['Fn::GetAtt'])}>"
