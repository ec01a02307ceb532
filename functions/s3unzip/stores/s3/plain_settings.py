"""Settings and keys of AWS that can be read without botocore, whose import takes 0.1 s of CPU.

Rules:

* This module reads variables, and profiles that hold plain values. It returns what botocore would
  return.
* `read_plain_settings` returns None for a variable, a profile or a line that it does not know.
  botocore then reads everything.
* Keys are read here only where botocore's chain would take them: from variables, or from a profile
  that names no other source of keys.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

from msgspec import Struct

from s3unzip.stores.ports import Keys

DEFAULT_REGION = "us-east-1"
ENVIRONMENT = "env"  # botocore's word for variables, which do not change in a process
SHARED_FILE = "shared-credentials-file"
SENDABLE = re.compile(r"[!-~]+")  # the characters that a header of a request can have
# Variables that change where requests go or how keys are found, and are not read here.
_UNREAD = (
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_DATA_PATH",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_USE_FIPS_ENDPOINT",
)
# Variables that are read here. An empty one is a value for botocore, so it is left to botocore.
_READ = (
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
# Sections to which botocore may give another name: those with quotes, or with white space other
# than single spaces.
_ALIAS = re.compile(r"^profile default$|[\"'\\]|^ |  | $|[^\S ]")
_URL = re.compile(r"https?://[^/?#\s]+/?")

Profile = dict[str, str]


class AwsSettings(Struct, frozen=True):
    """The settings in variables and files. A setting that is not there is None."""

    region: str | None = None
    endpoint_url: str | None = None  # of S3
    ca_bundle: str | None = None  # the file of certificates to trust
    request_checksum_calculation: str = "when_supported"
    addressing_style: object = None  # of the profile's ``s3`` settings
    has_special_endpoint: bool = False  # only a client of botocore knows the endpoints of S3
    keys: Keys | None = None  # None if only botocore's chain can find keys


def profile_name(profile: str | None) -> str:
    """Return the name of the profile in use, or "" if none is named."""
    return profile or os.environ.get("AWS_PROFILE", "")


def read_plain_settings(profile: str | None) -> AwsSettings | None:
    """Return the settings of a profile, or None if only botocore can read them.

    Args:
        profile: None stands for the profile of a variable, or the default one.
    """
    variables = os.environ
    if any(name in variables for name in _UNREAD):
        return None
    if any(variables.get(name) == "" for name in _READ):
        return None
    named = profile or variables.get("AWS_DEFAULT_PROFILE") or variables.get("AWS_PROFILE")
    values = _read_files(named or "default")
    if values is None or (named is not None and not values):  # the profile may not exist
        return None
    endpoint_url = variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL")
    if endpoint_url and not _URL.fullmatch(endpoint_url):
        return None
    method = SHARED_FILE
    key_values = values
    if profile is None and "AWS_ACCESS_KEY_ID" in variables:  # an option wins over variables
        method = ENVIRONMENT
        key_values = {
            "aws_access_key_id": variables["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": variables.get("AWS_SECRET_ACCESS_KEY", ""),
            "aws_session_token": variables.get("AWS_SECURITY_TOKEN")
            or variables.get("AWS_SESSION_TOKEN", ""),
        }
    keys = None  # only botocore's chain can find any
    if _has_keys(key_values):
        keys = _make_keys(key_values, method, named or "")
        if keys is None:
            return None
    return AwsSettings(
        region=variables.get("AWS_DEFAULT_REGION") or values.get("region"),
        endpoint_url=endpoint_url,
        ca_bundle=variables.get("AWS_CA_BUNDLE") or values.get("ca_bundle"),
        request_checksum_calculation=variables.get("AWS_REQUEST_CHECKSUM_CALCULATION")
        or values.get("request_checksum_calculation", "when_supported"),
        keys=keys,
    )


def _make_keys(values: Profile, method: str, profile: str) -> Keys | None:
    """Return the keys of variables or of a profile, or None if botocore must handle them.

    botocore handles keys without a secret, and keys that no request can carry.
    """
    access_key, secret_key, token = (values.get(name, "") for name in _KEY_SETTINGS)
    if not secret_key or not SENDABLE.fullmatch(access_key):
        return None
    if token and not SENDABLE.fullmatch(token):
        return None
    variables = os.environ
    is_fixed = method == ENVIRONMENT
    account = None
    if is_fixed:
        account = variables.get("AWS_ACCOUNT_ID")
    elif any(name in variables for name in _ROLE_VARIABLES):
        return None  # botocore prefers the role that variables name to the keys of a profile
    return Keys(
        access_key,
        secret_key,
        token or None,
        account,
        advice=advise(method, profile),
        is_fixed=is_fixed,
    )


def profile_option(profile: str) -> str:
    """Return the option of ``aws`` that names a profile, after a space, or "" without a profile."""
    if not profile:
        return ""
    return f" --profile {shlex.quote(profile)}"


def advise(method: str, profile: str) -> str:
    """Return how a person gets new keys.

    Args:
        method: botocore's name for the source of the old keys.
        profile: the name of the profile that has them, or "" for the default one.
    """
    option = profile_option(profile)
    advice = {
        ENVIRONMENT: "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN anew",
        "sso": f"log in again: aws sso login{option}",
        "login": f"log in again: aws login{option}",
    }
    default = f"get new credentials for the profile {profile}" if profile else "get new credentials"
    return advice.get(method, default)


def _read_files(profile: str) -> Profile | None:
    """Return the settings of a profile, or None if only botocore can read them.

    The file of credentials wins over the file of settings.
    """
    variables = os.environ
    values: Profile = {}
    section = "default" if profile == "default" else f"profile {profile}"
    for variable, default, name in (
        ("AWS_CONFIG_FILE", "~/.aws/config", section),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials", profile),
    ):
        sections = _read_sections(variables.get(variable, default))
        if sections is None:
            return None
        settings = sections.get(name, {})
        if _has_keys(values) and _has_keys(settings):  # botocore takes all keys from one file
            return None
        values |= settings
    # A section within the profile has line breaks. configparser takes it for one value.
    has_line_breaks = any("\n" in value for value in values.values())
    if has_line_breaks or not values.keys() <= _PLAIN_SETTINGS:
        return None
    return values


def _has_keys(values: Profile) -> bool:
    return any(name in values for name in _KEY_SETTINGS)


def _read_sections(path: str) -> dict[str, Profile] | None:
    """Return the sections of a file, or None if botocore may read the file differently."""
    try:
        text = Path(os.path.expandvars(path)).expanduser().read_text("utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, RuntimeError, UnicodeError):
        return None
    import configparser  # the import takes 1.3 ms, and functions on AWS have no files

    parser = configparser.RawConfigParser()  # as botocore makes it
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    sections = {name: dict(parser[name]) for name in parser.sections()}
    if any(map(_ALIAS.search, sections)):
        return None
    return sections
