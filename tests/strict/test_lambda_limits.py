"""Payloads and environment variables have AWS's limits."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from tests.strict.places import Place

MIB = 1024**2
ECHO = "def handler(event, context): return event if isinstance(event, str) else 'x' * event\n"


def test_a_request_has_six_megabytes(place: Place) -> None:
    """A synchronous request of 6 MB is taken, one byte more is not."""
    name = place.function("def handler(event, context): return len(event)\n")
    room = 6 * MIB - 2  # for the quotation marks
    assert place.invoke(name, "x" * room).payload == room
    with pytest.raises(ClientError) as refused:
        place.invoke(name, "x" * (room + 1))
    assert refused.value.response["Error"]["Code"] == "RequestTooLargeException"
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 413


def test_an_event_has_one_megabyte(place: Place) -> None:
    """An asynchronous request of 1 MB is taken, one byte more is not."""
    name = place.function(ECHO)
    functions = place.client("lambda")
    taken = json.dumps("x" * (MIB - 2)).encode()
    got = functions.invoke(FunctionName=name, InvocationType="Event", Payload=taken)
    assert got["StatusCode"] == 202
    with pytest.raises(ClientError, match="too large for the Event invocation type"):
        functions.invoke(FunctionName=name, InvocationType="Event", Payload=taken + b" ")


def test_a_response_has_six_megabytes(place: Place) -> None:
    """A longer response is the error Function.ResponseSizeTooLarge; the next call is answered."""
    name = place.function(ECHO, MemorySize=512)
    assert len(place.invoke(name, 6 * MIB).payload) == 6 * MIB
    failed = place.invoke(name, 6 * MIB + 99)  # with its quotation marks one too many
    assert failed.payload["errorType"] == "Function.ResponseSizeTooLarge"
    assert "maximum allowed payload size (6291556 bytes)" in failed.payload["errorMessage"]
    assert place.invoke(name, 3).payload == "xxx"


def test_variables_have_four_kilobytes(place: Place) -> None:
    """Longer environment variables are refused at creation and at a change."""
    fits = {"Variables": {"A": "x" * (4096 - len('{"A":""}'))}}
    longer = {"Variables": {"A": fits["Variables"]["A"] + "x"}}
    name = place.function(ECHO, Environment=fits)
    with pytest.raises(ClientError, match="exceeded the 4KB limit"):
        place.function(ECHO, Environment=longer)
    with pytest.raises(ClientError, match="exceeded the 4KB limit"):
        place.client("lambda").update_function_configuration(FunctionName=name, Environment=longer)
