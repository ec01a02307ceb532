"""Clients are as a plain boto3 session makes them: credentials, region, endpoint and retries."""

import sys
from pathlib import Path

import boto3
import botocore.session
import pytest
from botocore.config import Config
from msgspec.structs import replace

from s3unzip.errors import AccessDeniedError, UsageError
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.s3 import botocore_clients, credentials
from s3unzip.stores.s3.aws_session import AwsSession
from s3unzip.stores.s3.plain_settings import read_plain_settings
from s3unzip.stores.s3.session import Session
from tests.support.servers import set_variables

RETRIES = {"total_max_attempts": 6, "mode": "standard"}
CONFIG = Config(retries={"total_max_attempts": 6, "mode": "standard"}, read_timeout=20)
# credential_process prints what the AWS CLI's user guide says.
SECRET = '{"Version": 1, "AccessKeyId": "AKIDPROCESS", "SecretAccessKey": "made-up"}'
ENDPOINT = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with the profiles `keys` and `process`."""
    secret = tmp_path / "secret.py"
    secret.write_text(f"print('{SECRET}')")
    (tmp_path / "config").write_text(
        "[profile keys]\nregion = eu-west-3\n"
        "aws_access_key_id = AKIDKEYS\naws_secret_access_key = made-up\n"
        "[profile process]\nregion = sa-east-1\nendpoint_url = http://127.0.0.1:8\n"
        f"credential_process = {sys.executable} {secret}\n"
    )
    set_variables(
        monkeypatch,
        {
            "AWS_CONFIG_FILE": str(tmp_path / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        },
    )


KEYS = {"AWS_ACCESS_KEY_ID": "AKIDVARIABLE", "AWS_SECRET_ACCESS_KEY": "made-up"}


@pytest.mark.parametrize(
    ("profile", "region", "endpoint_url", "variables"),
    [
        ("keys", None, None, {}),
        ("keys", "us-west-2", None, {"AWS_DEFAULT_REGION": "eu-north-1"}),
        ("keys", None, None, KEYS),  # the profile beats the variables
        ("process", None, None, {}),
        ("process", None, ENDPOINT, {}),
        (None, None, None, {"AWS_PROFILE": "process"}),
        (None, None, None, {"AWS_PROFILE": "keys", "AWS_ENDPOINT_URL": ENDPOINT}),
        (None, None, None, {"AWS_PROFILE": "keys", "AWS_USE_FIPS_ENDPOINT": "true"}),
        (None, "eu-north-1", None, {**KEYS, "AWS_SESSION_TOKEN": "token"}),
    ],
)
def test_a_client_is_as_boto3_makes_it(
    profile: str | None,
    region: str | None,
    endpoint_url: str | None,
    variables: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same keys sign requests of the same region to the same endpoint, as often."""
    set_variables(monkeypatch, variables)
    ours_session = AwsSession(StoreConfig(profile=profile, region=region))
    theirs_session = boto3.session.Session(profile_name=profile, region_name=region)
    make = getattr(theirs_session, "client")  # noqa: B009 - its overloads want literals
    for service in ("s3", "sqs"):
        ours = ours_session.client(
            service, endpoint_url=endpoint_url, retries=RETRIES, read_timeout=20
        ).meta
        theirs = make(service, config=CONFIG, endpoint_url=endpoint_url).meta
        assert (ours.endpoint_url, ours.region_name) == (theirs.endpoint_url, theirs.region_name)
        assert ours.config.retries == theirs.config.retries == RETRIES
    keys = ours_session.keys.require()
    expected = theirs_session.get_credentials()
    assert expected is not None
    assert (keys.access_key, keys.secret_key, keys.token) == expected.get_frozen_credentials()[:3]
    assert (ours_session.region or None, ours_session.settings.ca_bundle) == (
        theirs_session.region_name or None,
        theirs_session._session.get_config_variable("ca_bundle"),
    )


def test_keys_are_looked_for_in_the_region_of_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no plain keys, botocore's chain has the region that an option names."""
    monkeypatch.setattr(
        botocore_clients,
        "load_credentials",
        lambda session: botocore.credentials.Credentials(
            session.get_config_variable("region"), "made-up"
        ),
    )
    assert repr(AwsSession(StoreConfig(region="cn-north-1")).keys.current()) == "Keys(cn-north-1)"


def test_a_program_that_gives_no_keys_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The user reads what is waited for, while it is waited for."""
    goes_on = tmp_path / "goes-on"
    (tmp_path / "secret.py").write_text(
        "import os, time\n"
        "for _ in range(6000):\n"  # a minute, if nobody tells the user
        f"    if os.path.exists({str(goes_on)!r}):\n"
        "        break\n"
        "    time.sleep(0.01)\n"
        f"print('{SECRET}')"
    )
    monkeypatch.setattr(credentials, "SILENT_SECONDS", 0.0)
    caplog.handler.addFilter(lambda _: goes_on.write_bytes(b"") == 0)
    assert AwsSession(StoreConfig(profile="process")).keys.current() is not None
    assert "waiting for AWS credentials (profile process) from a program" in caplog.text


def test_a_file_that_is_no_configuration_is_an_error(tmp_path: Path) -> None:
    """The error names the file, and is one of ours."""
    (tmp_path / "config").write_text("[default")
    with pytest.raises(AccessDeniedError, match="config"):
        AwsSession(StoreConfig()).reaches_aws  # noqa: B018 - reads the settings


KEYS_OF_FILE = "aws_access_key_id = AKIDFILE\naws_secret_access_key = made-up\n"


@pytest.mark.parametrize(
    ("config", "credentials", "variables", "is_plain"),
    [
        ("", "", KEYS, True),
        ("", "", KEYS | {"AWS_SESSION_TOKEN": "t", "AWS_ENDPOINT_URL_S3": ENDPOINT}, True),
        ("[default]\nregion=eu-west-1\n", f"[default]\n{KEYS_OF_FILE}", {}, True),
        ("[default]\n# x = y\nregion = a\n", f"[default]\nREGION = b\n{KEYS_OF_FILE}", {}, True),
        ("[profile p]\nregion = eu-west-1\n", f"[p]\n{KEYS_OF_FILE}", {"AWS_PROFILE": "p"}, True),
        ("[profile p]\nregion = eu-west-1\n", "", {"AWS_PROFILE": "p", **KEYS}, True),
        ("[default]\n[profile q]\ns3 =\n  addressing_style = path\n", "", KEYS, True),
        ("[default]\nca_bundle = /a/b c.pem\n", f"[default]\n{KEYS_OF_FILE}", {}, True),
        ("[DEFAULT]\nregion = a\n[default]\n", f"[default]\n{KEYS_OF_FILE}", {}, True),
        ("[default]\nregion: a%20b ; c\n", f"[default]\n{KEYS_OF_FILE}", {}, True),
        ("[default]\ns3 =\n  addressing_style = path\n", "", KEYS, False),
        ("[default]\nendpoint_url = http://127.0.0.1:8\n", "", KEYS, False),
        ("[default]\nregion\n", "", KEYS, False),
        ("[default]\nregion = a\n b\n", "", KEYS, False),
        ("[default]\n[default]\n", "", KEYS, False),
        ("region = a\n", "", KEYS, False),
        ("", "[default]\naws_access_key_id = half\n", {}, False),
        ("", f"[default]\n{KEYS_OF_FILE}role_arn = r\n", {}, False),
        (
            f"[default]\n{KEYS_OF_FILE}aws_session_token = t\n",
            f"[default]\n{KEYS_OF_FILE}",
            {},
            False,
        ),
        ("[profile default]\nregion = eu-west-1\n", f"[default]\n{KEYS_OF_FILE}", {}, False),
        ("[ default ]\nregion = eu-west-1\n", f"[default]\n{KEYS_OF_FILE}", {}, False),
        ("", f"[p  q]\n{KEYS_OF_FILE}", {"AWS_PROFILE": "p q"}, False),
        ('[profile "p"]\nregion = a\n', f"[p]\n{KEYS_OF_FILE}", {"AWS_PROFILE": "p"}, False),
        ("", "", {"AWS_ACCESS_KEY_ID": "half"}, False),
        ("", "", KEYS | {"AWS_DEFAULT_REGION": ""}, False),
        ("", "", KEYS | {"AWS_USE_DUALSTACK_ENDPOINT": "true"}, False),
        ("", "", KEYS | {"AWS_ENDPOINT_URL": "127.0.0.1:9"}, True),
        ("", "", {"AWS_PROFILE": "nobody", **KEYS}, False),
    ],
)
def test_what_is_read_without_botocore_is_what_botocore_reads(
    config: str,
    credentials: str,
    variables: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_plain: bool,
) -> None:
    """Only variables and plain profiles are read; anything else is left to botocore."""
    (tmp_path / "config").write_text(config)
    (tmp_path / "none").write_text(credentials)
    set_variables(monkeypatch, variables)
    settings = read_plain_settings(None)
    assert (settings is not None) is is_plain
    if settings is None:
        return
    session = botocore.session.get_session()
    assert replace(settings, keys=None) == botocore_clients.read_settings(None, session)
    keys = session.get_credentials()
    assert settings.keys is not None
    assert keys is not None
    assert (settings.keys.access_key, settings.keys.token) == (keys.access_key, keys.token)
    assert settings.keys.is_fixed is (keys.method == "env")


@pytest.mark.parametrize(
    "region", ["us-east-1", "eu-west-1", "us-gov-west-1", "cn-north-1", "eusc-de-east-1"]
)
@pytest.mark.parametrize(
    "settings_of_endpoint",
    [
        "region = eu-west-3",
        "use_fips_endpoint = true",
        "s3 =\n  use_dualstack_endpoint = true",
        f"ignore_configured_endpoint_urls = true\nendpoint_url = {ENDPOINT}",
    ],
)
def test_the_endpoint_of_a_region_is_botocores(
    region: str, settings_of_endpoint: str, tmp_path: Path
) -> None:
    """Common regions need no client of botocore, unless a setting changes the endpoint."""
    (tmp_path / "config").write_text(f"[default]\n{KEYS_OF_FILE}{settings_of_endpoint}\n")
    session = Session(AwsSession(StoreConfig(region=region)))
    assert (
        dict(session.reader("a.bucket").config)["endpoint"]
        == session.client("control").meta.endpoint_url
    )


@pytest.mark.parametrize("value", ["", "\n  file = none"])
def test_a_bundle_that_names_no_file_is_not_read(value: str, tmp_path: Path) -> None:
    """An empty value and a section stand for the certificates that are trusted by default."""
    (tmp_path / "config").write_text(f"[default]\n{KEYS_OF_FILE}ca_bundle ={value}\n")
    assert (
        dict(Session(AwsSession(StoreConfig(region="eu-west-1"))).reader("bucket").config)["region"]
        == "eu-west-1"
    )


def test_a_user_without_a_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a user that no passwd entry has; "/" is then the home."""
    monkeypatch.setattr("os.environ", {})
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # raises KeyError
    assert StoreConfig().work.key == "/.local/state/s3unzip/"


def test_a_home_folder_that_no_shell_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are not written below the current folder if ``HOME`` is `~name`, as from a file."""
    monkeypatch.setenv("HOME", "~no-such-user")
    monkeypatch.delenv("S3UNZIP_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    with pytest.raises(UsageError, match=r"~no-such-user/.*: there is no such home folder"):
        StoreConfig()
