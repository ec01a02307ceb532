"""The fields of Map, Retry and Catch that a definition may have, for `stepfunctions_definition`.

https://docs.aws.amazon.com/step-functions/latest/dg/state-map-distributed.html
https://docs.aws.amazon.com/step-functions/latest/dg/input-output-resultwriter.html
https://docs.aws.amazon.com/step-functions/latest/dg/concepts-error-handling.html
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from embedded.strict.limits import LABEL_CHARACTERS
from embedded.strict.stepfunctions_names import NOT_IN_NAMES

if TYPE_CHECKING:
    from collections.abc import Iterator

RESOURCE = re.compile(r"arn:aws[a-z-]*:states:::(s3:\w+)")
READERS = ("s3:getObject", "s3:listObjectsV2")
WRITERS = ("s3:putObject",)
TRANSFORMATIONS = ("NONE", "COMPACT", "FLATTEN")
OUTPUT_TYPES = ("JSON", "JSONL")
DISTRIBUTED_ONLY = (
    "Label",
    "ItemReader",
    "ItemBatcher",
    "ResultWriter",
    "ToleratedFailureCount",
    "ToleratedFailureCountPath",
    "ToleratedFailurePercentage",
    "ToleratedFailurePercentagePath",
)
TYPES = ("STANDARD", "EXPRESS")
MOST = {
    "MaxConcurrency": math.inf,
    "ToleratedFailureCount": math.inf,
    "ToleratedFailurePercentage": 100,
}
BAD = "SCHEMA_VALIDATION_FAILED"


def find_retry_faults(state: dict[str, Any], place: str) -> Iterator[tuple[str, str]]:
    """Find faults of the Retry and Catch of a state."""
    for field in ("Retry", "Catch"):
        entries = state.get(field) or []
        for number, entry in enumerate(entries):
            here = f"{place}/{field}[{number}]"
            wanted = entry.get("ErrorEquals") or []
            if not wanted:
                yield f"{BAD}: ErrorEquals is missing", here
            if "States.ALL" in wanted and (len(wanted) > 1 or entry is not entries[-1]):
                yield f"{BAD}: States.ALL stands alone and last", here
            if field == "Retry":
                yield from _retrier_faults(entry, here)


def _retrier_faults(retrier: dict[str, Any], place: str) -> Iterator[tuple[str, str]]:
    for field, least in (("BackoffRate", 1), ("IntervalSeconds", 1), ("MaxAttempts", 0)):
        if retrier.get(field, least) < least:
            yield f"{BAD}: {field} is at least {least}", place
    if retrier.get("JitterStrategy", "NONE") not in ("NONE", "FULL"):
        yield f"{BAD}: JitterStrategy is NONE or FULL", place


def find_map_faults(state: dict[str, Any], place: str) -> Iterator[tuple[str, str]]:
    """Find faults of a Map state, apart from those of its states."""
    processor = state.get("ItemProcessor") or state.get("Iterator") or {}
    config = processor.get("ProcessorConfig") or {}
    if config.get("Mode", "INLINE") == "INLINE":
        for field in DISTRIBUTED_ONLY:
            if field in state:
                yield f"{BAD}: {field} is for the mode DISTRIBUTED", place
        return
    if config["Mode"] != "DISTRIBUTED" or config.get("ExecutionType") not in TYPES:
        yield f"{BAD}: a ProcessorConfig needs its Mode and ExecutionType", place
    yield from _number_faults(state, place)
    label = state.get("Label", "")
    if len(label) > LABEL_CHARACTERS or NOT_IN_NAMES.search(label):
        yield f"{BAD}: a Label has at most {LABEL_CHARACTERS} plain characters", f"{place}/Label"
    if "ItemReader" in state:
        yield from _call_faults(state["ItemReader"], READERS, f"{place}/ItemReader")
    if "ResultWriter" in state:
        yield from _writer_faults(state["ResultWriter"], f"{place}/ResultWriter")


def _number_faults(state: dict[str, Any], place: str) -> Iterator[tuple[str, str]]:
    for field, most in MOST.items():
        if field in state and f"{field}Path" in state:
            yield f"{BAD}: {field} and {field}Path exclude each other", place
        if not 0 <= _number(state, field) <= most:
            yield f"{BAD}: {field} is from 0 to {most}", place


def _number(state: dict[str, Any], field: str) -> float:
    value = state.get(field, 0)
    return value if isinstance(value, int | float) else 0  # a JSONata expression is not judged


def _call_faults(
    call: dict[str, Any], actions: tuple[str, ...], place: str
) -> Iterator[tuple[str, str]]:
    resource = RESOURCE.fullmatch(str(call.get("Resource")))
    if resource is None or resource[1] not in actions:
        yield f"{BAD}: the Resource is {' or '.join(actions)}", f"{place}/Resource"
    if "Parameters" not in call and "Arguments" not in call:
        yield f"{BAD}: Parameters is missing", place


def _writer_faults(writer: dict[str, Any], place: str) -> Iterator[tuple[str, str]]:
    if not writer:
        yield f"{BAD}: ResultWriter is empty", place
        return
    if "Resource" in writer or "Parameters" in writer or "WriterConfig" not in writer:
        yield from _call_faults(writer, WRITERS, place)
    config = writer.get("WriterConfig", {"Transformation": "NONE", "OutputType": "JSON"})
    if config.get("Transformation") not in TRANSFORMATIONS:
        yield f"{BAD}: Transformation is one of {TRANSFORMATIONS}", f"{place}/WriterConfig"
    if config.get("OutputType") not in OUTPUT_TYPES:
        yield f"{BAD}: OutputType is one of {OUTPUT_TYPES}", f"{place}/WriterConfig"
