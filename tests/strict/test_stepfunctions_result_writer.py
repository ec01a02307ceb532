"""ResultWriter: files, their contents, and failures to write them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.strict.machines import distributed, machine, task

if TYPE_CHECKING:
    from tests.strict.machines import Machines

ITEMS = {"items": [[1, 2], [3]]}
SAME = {"Type": "Pass"}


def writing(bucket: str, prefix: str = "results/", **config: str) -> dict[str, Any]:
    """Return a ResultWriter."""
    where = {"Bucket": bucket, "Prefix": prefix}
    writer: dict[str, Any] = {"Resource": "arn:aws:states:::s3:putObject", "Parameters": where}
    return writer | ({"WriterConfig": config} if config else {})


def test_files_and_output(machines: Machines) -> None:
    """The manifest names one file; a record has the fields that AWS documents."""
    bucket = machines.bucket()
    execution = machines.start(machine(M=distributed(SAME, ResultWriter=writing(bucket))), ITEMS)
    output = json.loads(machines.wait(execution)["output"])
    run = machines.map_run(execution)["mapRunArn"]
    folder = f"results/{run.rsplit(':', 1)[1]}"
    details = {"Bucket": bucket, "Key": f"{folder}/manifest.json"}
    assert output == {"MapRunArn": run, "ResultWriterDetails": details}
    objects = machines.objects(bucket)
    assert sorted(objects) == [f"{folder}/SUCCEEDED_0.json", f"{folder}/manifest.json"]
    body = objects[f"{folder}/SUCCEEDED_0.json"]
    assert json.loads(objects[f"{folder}/manifest.json"]) == {
        "DestinationBucket": bucket,
        "MapRunArn": run,
        "ResultFiles": {
            "FAILED": [],
            "PENDING": [],
            "SUCCEEDED": [{"Key": f"{folder}/SUCCEEDED_0.json", "Size": len(body)}],
        },
    }
    first, second = json.loads(body)
    assert (first["Input"], first["Output"], first["Status"]) == ("[1,2]", "[1,2]", "SUCCEEDED")
    assert first["InputDetails"] == second["OutputDetails"] == {"Included": True}
    assert first["RedriveStatus"] == "NOT_REDRIVABLE"
    assert machines.map_run(execution)["executionCounts"]["resultsWritten"] == 2


@pytest.mark.parametrize(
    ("config", "body"),
    [
        ({"Transformation": "COMPACT", "OutputType": "JSON"}, "[[1,2],[3]]"),
        ({"Transformation": "FLATTEN", "OutputType": "JSON"}, "[1,2,3]"),
        ({"Transformation": "COMPACT", "OutputType": "JSONL"}, "[1,2]\n[3]\n"),
        ({"Transformation": "FLATTEN", "OutputType": "JSONL"}, "1\n2\n3\n"),
    ],
)
def test_formats(machines: Machines, config: dict[str, str], body: str) -> None:
    """Each Transformation and OutputType."""
    bucket = machines.bucket()
    writer = writing(bucket, "", **config)
    assert machines.run(machine(M=distributed(SAME, ResultWriter=writer)), ITEMS)["output"]
    name = "SUCCEEDED_0." + config["OutputType"].lower()
    (found,) = [text for key, text in machines.objects(bucket).items() if key.endswith(name)]
    assert found.decode() == body


def test_format_without_s3(machines: Machines) -> None:
    """A WriterConfig alone formats the state's own result."""
    writer = {"WriterConfig": {"Transformation": "FLATTEN", "OutputType": "JSON"}}
    told = machines.run(machine(M=distributed(SAME, ResultWriter=writer)), ITEMS)
    assert told["output"] == "[1,2,3]"


def test_failed_and_pending_children(machines: Machines) -> None:
    """A Map Run that failed writes what failed and what never began."""
    bucket = machines.bucket()
    child = task(machines.function(), Parameters={"fail": "FinalError"})
    state = distributed(child, MaxConcurrency=1, ResultWriter=writing(bucket))
    told = machines.run(machine(M=state), {"items": [1, 2, 3]})
    assert told["error"] == "States.ExceedToleratedFailureThreshold"
    files = {
        key.rsplit("/", 1)[1]: json.loads(body) for key, body in machines.objects(bucket).items()
    }
    (failed,) = files["FAILED_0.json"]
    assert (failed["Status"], failed["Error"]) == ("FAILED", "FinalError")
    assert [child["Status"] for child in files["PENDING_0.json"]] == ["PENDING", "PENDING"]
    assert "SUCCEEDED_0.json" not in files


def test_failed_children_are_whole_in_the_result(machines: Machines) -> None:
    """COMPACT keeps the full record of a tolerated failure, so such results are large."""
    child = task(machines.function(), Parameters={"fail": "FinalError"})
    state = distributed(child, ToleratedFailurePercentage=100)
    (failed,) = json.loads(machines.run(machine(M=state), {"items": [1]})["output"])
    assert (failed["Status"], failed["Error"], failed["Input"]) == ("FAILED", "FinalError", "1")


def test_a_bucket_that_is_not_there(machines: Machines) -> None:
    """States.ResultWriterFailed."""
    state = distributed(SAME, ResultWriter=writing("no-such-bucket-anywhere"))
    told = machines.run(machine(M=state), ITEMS)
    assert told["error"] == "States.ResultWriterFailed"
    assert "NoSuchBucket" in told["cause"]
