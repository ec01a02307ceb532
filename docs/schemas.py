"""JSON Schemas of what a run writes and announces, made from the values' own types."""

from collections.abc import Iterable, Iterator
from typing import Any, get_args

import msgspec

from docs.declarations import read_declarations
from docs.meanings import EVENT_FIELDS
from s3unzip.aws.environment import read_config
from s3unzip.aws.events import EVENT_TITLES, event_detail
from s3unzip.model import Location, Options, Pin, Report, Route, Verdict
from s3unzip.settings import Variable

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(title: str, kinds: Iterable[type]) -> dict[str, Any]:
    """Return the schema of a value that is one of `kinds`, comments as descriptions."""
    wanted = list(kinds)
    homes = {name: kind for one in wanted for name, kind in _structs(one)}
    _, parts = msgspec.json.schema_components(wanted, ref_template="#/$defs/{name}")
    for name, part in parts.items():
        if "description" in part:  # `help` shows the fields there, too
            part["description"] = part["description"].partition("Attributes:")[0].rstrip()
        declared = read_declarations(homes[name]) if name in homes else {}
        for field, declaration in declared.items():
            known = part.get("properties", {}).get(field)
            if known is not None and declaration.comment:
                known["description"] = declaration.comment
    refs = [{"$ref": f"#/$defs/{kind.__name__}"} for kind in wanted]
    body = refs[0] if len(refs) == 1 else {"anyOf": refs}
    return {"$schema": DIALECT, "title": title, **body, "$defs": parts}


def event_schema() -> dict[str, Any]:
    """Return the schema of the `detail` of a run's event, its types taken from real ones.

    Raises:
        LookupError: a field of the event is not described here.
    """
    bare, full = _detail(None), _detail(Pin(22, '"e"', "v"))
    if full.keys() != EVENT_FIELDS.keys():
        odd = ", ".join(sorted(full.keys() ^ EVENT_FIELDS.keys()))
        raise LookupError(f"docs/meanings.py: EVENT_FIELDS and the event disagree about {odd}")
    properties: dict[str, Any] = {}
    for name, text in EVENT_FIELDS.items():
        types = sorted({TYPES[type(one[name])] for one in (bare, full)})
        properties[name] = {"description": text, "type": types[0] if len(types) == 1 else types}
    properties["verdict"]["enum"] = [verdict.value for verdict in Verdict]
    return {
        "$schema": DIALECT,
        "title": "detail of an event of s3unzip: one a run",
        "description": "detail-type: " + ", ".join(sorted(set(EVENT_TITLES.values()))),
        "type": "object",
        "properties": properties,
        "required": list(properties),
    }


def _structs(kind: object, home: type | None = None) -> Iterator[tuple[str, type]]:
    """Yield the names and the types of the structs that values of `kind` consist of.

    A field of `home` may have values of `home`, which are not told again.
    """
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        yield kind.__name__, kind
        for field in msgspec.structs.fields(kind):
            yield from _structs(field.type, kind)
    for part in get_args(kind):
        if part is not home:
            yield from _structs(part, home)


def _detail(pin: Pin | None) -> dict[str, Any]:
    worker = read_config(
        {
            Variable.DESTINATION: "s3://destination/",
            Variable.TRIGGER_BUCKET: "ingest",
            Variable.WORK_BUCKET: "work",
        }
    )
    report = Report(
        "a-1",
        Verdict.REJECTED,
        Location("s3", "ingest", "a.zip"),
        pin,
        destination=Location("s3", "destination", ""),
        options=Options(),
        reason=None if pin is None else "no-eocd",
        route=None if pin is None else Route("acme"),
    )
    return event_detail(worker, report)
