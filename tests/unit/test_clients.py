"""Clients are as a plain boto3 session makes them: credentials, region, endpoint and retries."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import NoRegionError, ProfileNotFound

from s3unzip.clients import AwsSession
from s3unzip.clients.variables import FILES, read_variables, s3_endpoint

if TYPE_CHECKING:
    from pathlib import Path

RETRIES = {"total_max_attempts": 6, "mode": "standard"}
CONFIG = Config(retries={"total_max_attempts": 6, "mode": "standard"}, read_timeout=20)
# credential_process prints what the AWS CLI's user guide says.
SECRET = '{"Version": 1, "AccessKeyId": "AKIDPROCESS", "SecretAccessKey": "made-up"}'
REGIONAL = Config(s3={"us_east_1_regional_endpoint": "regional"})
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
LAMBDA = {**KEYS, "AWS_SESSION_TOKEN": "token", "AWS_DEFAULT_REGION": "eu-north-1"}


@pytest.fixture
def no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without ~/.aws, as a Lambda function's."""
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no config"))


@pytest.mark.usefixtures("no_files")
@pytest.mark.parametrize("region", [None, "us-west-2"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"AWS_ENDPOINT_URL": ENDPOINT},
        {"AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_ENDPOINT_URL_S3": ENDPOINT},
        {"AWS_CA_BUNDLE": "/etc/bundle.pem"},
        {"AWS_SECURITY_TOKEN": "older"},
        {"AWS_DEFAULT_REGION": ""},
    ],
)
def test_variables_say_what_botocore_finds(
    region: str | None, more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where variables decide, credentials, region, certificates and endpoint are boto3's."""
    for name, value in {**LAMBDA, **more}.items():
        monkeypatch.setenv(name, value)
    theirs = boto3.session.Session(region_name=region)
    ours = AwsSession(region=region)
    check_settings(ours, theirs)
    used = ours.region or "us-east-1"
    client = theirs.client("s3", region_name=used, config=REGIONAL)
    assert ours.s3_endpoint(used) == client.meta.endpoint_url


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_endpoints_of_all_regions(partition: str) -> None:
    """They are botocore's."""
    session = boto3.session.Session()
    for region in session.get_available_regions("s3", partition_name=partition):
        if "fips" not in region:
            client = session.client("s3", region_name=region, config=REGIONAL)
            assert s3_endpoint(region) == client.meta.endpoint_url, region


def test_an_endpoint_that_is_not_known() -> None:
    """Regions of other partitions have domains of their own, so botocore is asked."""
    assert s3_endpoint("us-iso-east-1") is None
    assert s3_endpoint("eusc-de-east-1") is None
    assert s3_endpoint("us-east-1.example.org/") is None


@pytest.mark.usefixtures("no_files")
@pytest.mark.parametrize(
    "more",
    [
        {"AWS_PROFILE": "keys"},
        {"AWS_USE_FIPS_ENDPOINT": "true"},
        {"AWS_USE_DUALSTACK_ENDPOINT": "true"},
        {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"},
        {"AWS_ENDPOINT_URL": "127.0.0.1:9"},
        {"AWS_SECRET_ACCESS_KEY": ""},
        {"AWS_SHARED_CREDENTIALS_FILE": __file__},
        {"AWS_CONFIG_FILE": "~nobody-has-this-name/config"},
    ],
)
def test_botocore_decides_the_rest(more: dict[str, str]) -> None:
    """A profile, a file of settings, or a variable that changes others is left to botocore."""
    missing = {name: os.environ[name] for name in FILES}
    assert read_variables({**missing, **LAMBDA}) is not None
    assert read_variables({**missing, **LAMBDA, **more}) is None


def test_profiles_are_botocores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The credentials of a profile that is named beat those of variables."""
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    session = AwsSession("keys")
    found = session.credentials()
    assert found is not None
    assert (found().access_key, session.region) == ("AKIDKEYS", "eu-west-3")
    assert session.s3_endpoint("eu-west-3") is None


@pytest.mark.usefixtures("no_files")
def test_no_credentials() -> None:
    """Nothing is guessed."""
    assert AwsSession().credentials() is None


@pytest.mark.usefixtures("no_files")
def test_reading_s3_imports_no_botocore(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker whose variables decide reads and writes S3 without boto3 and botocore's session."""
    code = (
        "import sys\n"
        "from s3unzip.handlers import extract, link\n"
        "from s3unzip.stores.s3.access import S3Access, Writing\n"
        "from s3unzip.stores.s3.session import Session\n"
        "session = Session(S3Access())\n"
        "session.reader('a'), session.writer('a', Writing()), session.asker('a', None)\n"
        "print([name for name in ('boto3', 'botocore.session', 'urllib3') if name in sys.modules])"
    )
    for name, value in LAMBDA.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
