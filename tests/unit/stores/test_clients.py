"""Clients are as a plain boto3 session makes them: credentials, region, endpoint and retries."""

import os
import sys
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import NoRegionError, ProfileNotFound

from s3unzip.stores.s3.session import AwsSession

RETRIES = {"total_max_attempts": 6, "mode": "standard"}
CONFIG = Config(retries={"total_max_attempts": 6, "mode": "standard"}, read_timeout=20)
# credential_process prints what the AWS CLI's user guide says.
SECRET = '{"Version": 1, "AccessKeyId": "AKIDPROCESS", "SecretAccessKey": "made-up"}'
ENDPOINT = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with the profiles `keys` and `process`, and no variables of AWS."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    secret = tmp_path / "secret.py"
    secret.write_text(f"print('{SECRET}')")
    config = tmp_path / "config"
    config.write_text(
        "[profile keys]\nregion = eu-west-3\n"
        "aws_access_key_id = AKIDKEYS\naws_secret_access_key = made-up\n"
        "[profile process]\nregion = sa-east-1\nendpoint_url = http://127.0.0.1:8\n"
        f"credential_process = {sys.executable} {secret}\n"
    )
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


@pytest.mark.parametrize("service", ["s3", "sqs", "stepfunctions", "secretsmanager"])
@pytest.mark.parametrize(
    ("profile", "region", "endpoint_url", "variables"),
    [
        ("keys", None, None, {}),
        ("keys", "us-west-2", None, {"AWS_DEFAULT_REGION": "eu-north-1"}),
        ("process", None, None, {}),
        ("process", None, ENDPOINT, {}),
        (None, None, None, {"AWS_PROFILE": "process"}),
        (None, None, None, {"AWS_PROFILE": "keys", "AWS_ENDPOINT_URL": ENDPOINT}),
        (None, None, None, {"AWS_PROFILE": "keys", "AWS_USE_FIPS_ENDPOINT": "true"}),
        (
            None,
            None,
            None,
            {
                "AWS_ACCESS_KEY_ID": "AKIDVARIABLE",
                "AWS_SECRET_ACCESS_KEY": "made-up",
                "AWS_SESSION_TOKEN": "token",
                "AWS_DEFAULT_REGION": "eu-north-1",
            },
        ),
    ],
)
def test_a_client_is_as_boto3_makes_it(
    service: str,
    profile: str | None,
    region: str | None,
    endpoint_url: str | None,
    variables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same keys sign requests of the same region to the same endpoint, as often."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    ours_session = AwsSession(profile, region)
    theirs_session = boto3.session.Session(profile_name=profile, region_name=region)
    ours = ours_session.client(service, endpoint_url=endpoint_url, retries=RETRIES, read_timeout=20)
    make = getattr(theirs_session, "client")  # noqa: B009 - its overloads want literals
    theirs = make(service, config=CONFIG, endpoint_url=endpoint_url)
    assert ours.meta.endpoint_url == theirs.meta.endpoint_url
    assert ours.meta.region_name == theirs.meta.region_name
    assert ours.meta.config.retries == theirs.meta.config.retries
    assert ours.meta.config.retries == RETRIES
    check_settings(ours_session, theirs_session)


def check_settings(ours: AwsSession, theirs: boto3.session.Session) -> None:
    """Compare credentials, region and certificates."""
    found, expected = ours.credentials(), theirs.get_credentials()
    assert found is not None
    assert expected is not None
    now, then = found(), expected.get_frozen_credentials()
    assert (now.access_key, now.secret_key, now.token) == (
        then.access_key,
        then.secret_key,
        then.token,
    )
    assert (ours.region or None) == (theirs.region_name or None)
    assert ours.ca_bundle == theirs._session.get_config_variable("ca_bundle")


def test_a_region_of_one_client_wins_over_the_session() -> None:
    """A bucket may be in another region than its session."""
    client = AwsSession("keys", "us-west-2").client("s3", region="ap-south-1")
    assert client.meta.region_name == "ap-south-1"


def test_a_profile_that_does_not_exist_is_an_error_of_the_first_client() -> None:
    """Its message names the profile."""
    with pytest.raises(ProfileNotFound, match="nobody"):
        AwsSession("nobody").client("s3")


def test_no_region_is_an_error_of_the_client() -> None:
    """Nothing is guessed."""
    with pytest.raises(NoRegionError):
        AwsSession().client("sqs")


KEYS = {"AWS_ACCESS_KEY_ID": "AKIDVARIABLE", "AWS_SECRET_ACCESS_KEY": "made-up"}


@pytest.fixture
def no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without ~/.aws, as a Lambda function's."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no config"))


def test_profiles_are_botocores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials of a profile that is named beat those of variables."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    session = AwsSession("keys")
    found = session.credentials()
    assert found is not None
    assert (found().access_key, session.region) == ("AKIDKEYS", "eu-west-3")


@pytest.mark.usefixtures("no_files")
def test_no_credentials() -> None:
    """Nothing is guessed."""
    assert AwsSession().credentials() is None
