"""ResultWriter: a Distributed Map's results in S3, and its small output.

``<prefix>/<uuid of the Map Run>/manifest.json`` names SUCCEEDED_0.json, FAILED_0.json (failed,
timed out and aborted children) and PENDING_0.json, or .jsonl with OutputType JSONL; a status
without children has no file. Transformation NONE (the default with S3) writes each child's
whole record, COMPACT its output, FLATTEN the elements of outputs that are arrays; failed
children are always whole. Without S3 the state's result is formatted so, COMPACT by default.
A failure to write is States.ResultWriterFailed.
https://docs.aws.amazon.com/step-functions/latest/dg/input-output-resultwriter.html
"""

from __future__ import annotations

import json
from typing import Any

from embedded.strict import stepfunctions_calls as calls
from embedded.strict import stepfunctions_engine as engine

sfn = engine.sfn
FAILED = "States.ResultWriterFailed"
FILES = {
    "FAILED": ("FAILED", "TIMED_OUT", "ABORTED"),
    "PENDING": ("PENDING", "PENDING_REDRIVE", "RUNNING"),
    "SUCCEEDED": ("SUCCEEDED",),
}


def write_results(
    record: dict[str, Any],
    writer: dict[str, Any],
    children: list[dict[str, Any]],
    ctx: dict[str, Any],
) -> dict[str, Any]:
    """Write the results of a Map Run, ``record``; return the output of its state.

    Raises:
        ministack.services.stepfunctions._ExecutionError: States.ResultWriterFailed.
    """
    effective = record["_effective"]
    where = sfn._resolve_params_obj(writer.get("Parameters") or {}, effective, ctx)
    bucket, prefix = where["Bucket"], where.get("Prefix", "").strip("/")
    folder = "/".join(filter(None, (prefix, record["mapRunArn"].rsplit(":", 1)[1])))
    lines = (writer.get("WriterConfig") or {}).get("OutputType") == "JSONL"
    files: dict[str, list[dict[str, Any]]] = {}
    manifest = {
        "DestinationBucket": bucket,
        "MapRunArn": record["mapRunArn"],
        "ResultFiles": files,
    }
    execution = sfn._executions[record["executionArn"]]
    try:
        for name, statuses in FILES.items():
            ours = [child for child in children if child["status"] in statuses]
            files[name] = []
            if ours:
                texts = format_results(ours, writer)
                body = _join(texts, lines=lines).encode()
                key = f"{folder}/{name}_0.{'jsonl' if lines else 'json'}"
                calls.put_object(execution, bucket, key, body)
                files[name].append({"Key": key, "Size": len(body)})
        key = f"{folder}/manifest.json"
        calls.put_object(execution, bucket, key, json.dumps(manifest).encode())
    except (calls.DeniedError, OSError) as error:
        raise sfn._ExecutionError(FAILED, str(error)) from None
    written = sum(child["status"] not in FILES["PENDING"] for child in children)
    for counts in (record["itemCounts"], record["executionCounts"]):
        counts["resultsWritten"] = written
    details = {"Bucket": bucket, "Key": key}
    return {"MapRunArn": record["mapRunArn"], "ResultWriterDetails": details}


def _join(texts: list[str], *, lines: bool) -> str:
    return "".join(f"{text}\n" for text in texts) if lines else f"[{','.join(texts)}]"


def format_results(children: list[dict[str, Any]], writer: dict[str, Any]) -> list[str]:
    """Return the JSON of each element of the results, by the writer's Transformation."""
    usual = "NONE" if writer.get("Resource") else "COMPACT"
    how = (writer.get("WriterConfig") or {}).get("Transformation", usual)
    texts: list[str] = []
    for child in children:
        if how == "NONE" or child["status"] != "SUCCEEDED":
            texts.append(json.dumps(_whole(child), ensure_ascii=False, separators=(",", ":")))
        elif how == "FLATTEN" and child["output"].startswith("["):
            elements = json.loads(child["output"])
            texts += (json.dumps(one, ensure_ascii=False) for one in elements)
        else:
            texts.append(child["output"])
    return texts


def _whole(child: dict[str, Any]) -> dict[str, Any]:
    """Return a child as a result file has it: fields in the order of the alphabet."""
    status = child["status"]
    whole = {
        "ExecutionArn": child["executionArn"],
        "Input": child["input"],
        "InputDetails": {"Included": True},
        "Name": child["name"],
        "RedriveCount": child["redriveCount"],
        "StartDate": child["startDate"],
        "StateMachineArn": child["stateMachineArn"],
        "Status": status,
        "StopDate": child["stopDate"],
    }
    if status == "SUCCEEDED":
        whole |= {
            "Output": child["output"],
            "OutputDetails": {"Included": True},
            "RedriveStatus": "NOT_REDRIVABLE",
            "RedriveStatusReason": "Execution is SUCCEEDED and cannot be redriven",
        }
    elif status in FILES["FAILED"]:
        whole |= {"Cause": child.get("cause"), "Error": child.get("error")}
        whole["RedriveStatus"] = "REDRIVABLE"
    kept = {key: value for key, value in whole.items() if value is not None}
    return dict(sorted(kept.items()))
