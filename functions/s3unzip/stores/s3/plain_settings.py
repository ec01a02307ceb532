"""AWS settings and keys that can be read without botocore, whose import takes 0.1 s of CPU time.

Rules:

* This module reads environment variables, and profiles with plain values. botocore would return the
  same settings.
* `read_plain_settings` returns None if it does not recognize a variable, profile or line. botocore
  then reads everything.
* Keys are read here only if botocore's chain would use them: from variables, or from a profile
  without any other source of keys.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from os import environ
from pathlib import Path

from msgspec import Struct

from s3unzip.stores.ports import Keys

DEFAULT_REGION = "us-east-1"
ENVIRONMENT = "env"  # botocore's name for environment variables as a source of keys
SHARED_FILE = "shared-credentials-file"
SENDABLE = re.compile(r"[!-~]+")  # the characters that are allowed in a request header
# Variables that affect where requests are sent or how keys are found, but are not read here.
_ONLY_BOTOCORE_READS = (
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_DATA_PATH",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_USE_FIPS_ENDPOINT",
)
# Variables that are read here, unless they are empty. botocore treats an empty variable as set.
_READ_HERE = (
    "AWS_ACCESS_KEY_ID",
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_PROFILE",
    "AWS_REQUEST_CHECKSUM_CALCULATION",
    "AWS_SHARED_CREDENTIALS_FILE",
)
_ROLE_VARIABLES = ("AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE")
_KEY_SETTINGS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_PLAIN_SETTINGS = frozenset(
    {
        "ca_bundle",
        "cli_pager",
        "output",
        "region",
        "request_checksum_calculation",
        *_KEY_SETTINGS,
    }
)
# Matches sections that botocore may rename. Their names contain quotes, or white space other than
# single spaces.
_RENAMED_BY_BOTOCORE = re.compile(r"^profile default$|[\"'\\]|^ |  | $|[^\S ]")

Profile = dict[str, str]


class AwsSettings(Struct, frozen=True):
    """The settings from environment variables and files. A missing setting is None."""

    region: str | None = None
    endpoint_url: str | None = None  # endpoint of S3
    ca_bundle: str | None = None  # file with trusted certificates
    request_checksum_calculation: str = "when_supported"
    addressing_style: object = None  # from the ``s3`` settings of the profile
    has_special_endpoint: bool = False  # whether only botocore can find the S3 endpoints
    keys: Keys | None = None  # if None, only botocore's chain can find keys


def profile_name(profile: str | None) -> str:
    """Return the name of the profile in use, or "" if none is specified."""
    return profile or os.environ.get("AWS_PROFILE", "")


def read_plain_settings(profile: str | None) -> AwsSettings | None:
    """Return the settings of a profile, or None if only botocore can read them.

    Args:
        profile: name of the profile. None stands for the profile set in a variable, or the default
            profile.
    """
    # botocore treats an empty variable as set.
    if any(name in environ for name in _ONLY_BOTOCORE_READS) or any(
        environ.get(name) == "" for name in _READ_HERE
    ):
        return None
    named = profile or environ.get("AWS_DEFAULT_PROFILE") or environ.get("AWS_PROFILE")
    values = _read_files(named or "default")
    if values is None or (named is not None and not values):  # the named profile may not exist
        return None
    method = SHARED_FILE
    # If the caller names a profile, botocore does not use the keys in environment variables.
    if profile is None and "AWS_ACCESS_KEY_ID" in environ:
        method = ENVIRONMENT
        values |= {
            "aws_access_key_id": environ["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": environ.get("AWS_SECRET_ACCESS_KEY", ""),
            "aws_session_token": environ.get("AWS_SECURITY_TOKEN")
            or environ.get("AWS_SESSION_TOKEN", ""),
        }
    keys = None
    if _has_access_keys(values):
        keys = _make_keys(values, method, named or "")
        if keys is None:  # botocore must read all settings, because it must handle these keys
            return None
    return AwsSettings(
        region=environ.get("AWS_DEFAULT_REGION") or values.get("region"),
        endpoint_url=environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL"),
        ca_bundle=environ.get("AWS_CA_BUNDLE") or values.get("ca_bundle"),
        request_checksum_calculation=environ.get("AWS_REQUEST_CHECKSUM_CALCULATION")
        or values.get("request_checksum_calculation", "when_supported"),
        keys=keys,
    )


def _make_keys(values: Profile, method: str, profile: str) -> Keys | None:
    """Return the keys in `values`, or None if botocore must handle them.

    Keys without a secret, and keys that cannot be sent in a request, are left to botocore.

    Args:
        values: the settings of the profile, with any keys from environment variables.
        method: botocore's name for the source of the keys.
        profile: name of the profile, or "" for the default profile.
    """
    access_key, secret_key, token = (values.get(name, "") for name in _KEY_SETTINGS)
    if (
        not secret_key
        or not SENDABLE.fullmatch(access_key)
        or (token and not SENDABLE.fullmatch(token))
    ):
        return None
    is_fixed = method == ENVIRONMENT  # variables do not change while the process is running
    # botocore prefers the role set in environment variables to the keys of a profile.
    if not is_fixed and any(name in environ for name in _ROLE_VARIABLES):
        return None
    return Keys(
        access_key,
        secret_key,
        token or None,
        advice=advise_renewal(method, profile),
        is_fixed=is_fixed,
    )


def profile_option(profile: str) -> str:
    """Return a space and the ``aws`` option for a profile, or "" if there is no profile."""
    if not profile:
        return ""
    return f" --profile {shlex.quote(profile)}"


def advise_renewal(method: str, profile: str) -> str:
    """Return advice on how to get new keys.

    Args:
        method: botocore's name for the source of the old keys.
        profile: name of the profile with the old keys, or "" for the default profile.
    """
    option = profile_option(profile)
    advice = {
        ENVIRONMENT: "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN again",
        "sso": f"log in again: aws sso login{option}",
        "login": f"log in again: aws login{option}",
    }
    general = f"get new credentials for the profile {profile}" if profile else "get new credentials"
    return advice.get(method, general)


def _read_files(profile: str) -> Profile | None:
    """Return the settings of a profile, or None if only botocore can read them.

    The credentials file takes precedence over the settings file.
    """
    values: Profile = {}
    section = "default" if profile == "default" else f"profile {profile}"
    for variable, default, name in (
        ("AWS_CONFIG_FILE", "~/.aws/config", section),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", profile),
    ):
        sections = _read_sections(environ.get(variable, default))
        if sections is None:
            return None
        settings = sections.get(name, {})
        # botocore takes the access key, secret and token from the same file. The last statement of
        # this loop would mix the values of both files.
        if _has_access_keys(values) and _has_access_keys(settings):
            return None
        values |= settings
    # configparser reads a section nested in the profile as one value with line breaks.
    has_line_breaks = any("\n" in value for value in values.values())
    if has_line_breaks or not values.keys() <= _PLAIN_SETTINGS:
        return None
    return values


def _has_access_keys(values: Profile) -> bool:
    return any(name in values for name in _KEY_SETTINGS)


def _read_sections(path: str) -> dict[str, Profile] | None:
    """Return the sections of a file, or None if botocore may read the file differently."""
    try:
        text = Path(os.path.expandvars(path)).expanduser().read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, RuntimeError, UnicodeError):
        return None
    import configparser  # the import takes 1.3 ms, and Lambda functions have no such files

    parser = configparser.RawConfigParser()  # created in the same way as in botocore
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    sections = {name: dict(parser[name]) for name in parser.sections()}
    if any(map(_RENAMED_BY_BOTOCORE.search, sections)):
        return None
    return sections


def botocore_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions of botocore, or an empty tuple if botocore has not been imported."""
    if "botocore.exceptions" not in sys.modules:
        return ()
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    return BotoCoreError, ClientError, ResponseParserError
