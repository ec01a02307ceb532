"""What the functions' logs hold besides their own lines."""

import logging

import botocore.session
import pytest

from s3unzip.aws import telemetry


@pytest.mark.parametrize("level", [logging.INFO, logging.DEBUG])
def test_client_libraries_log_warnings_only(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, level: int
) -> None:
    """With the root logger at Lambda's level a client adds no line; its warnings come through."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    caplog.set_level(level)
    botocore.session.get_session().create_client("sqs", region_name="eu-west-1")
    logging.getLogger("another.library").info("heard")
    for name in telemetry.CLIENT_LIBRARIES:
        logging.getLogger(f"{name}.part").warning("warned")
    heard = [(record.name, record.message) for record in caplog.records]
    assert heard == [
        ("another.library", "heard"),
        *((f"{name}.part", "warned") for name in telemetry.CLIENT_LIBRARIES),
    ]
