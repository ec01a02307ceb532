"""AWS settings, where environment variables alone decide them.

In a Lambda function, and in many CI jobs, the variables name the credentials and the region, and
there are no files in ``~/.aws``. botocore would find the same settings, but its import and its
first client take 0.3 s of CPU in each cold start.

https://docs.aws.amazon.com/sdkref/latest/guide/settings-reference.html
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

FILES = {
    "AWS_CONFIG_FILE": "~/.aws/config",
    "AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials",
}
# Variables that only botocore interprets.
OTHERS = (
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_CREDENTIAL_EXPIRATION",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_USE_DUALSTACK_ENDPOINT",
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_DATA_PATH",
)
# Regions of the partitions aws, aws-us-gov and aws-cn. Others have domains of their own:
# https://docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries/partitions.html
_REGION = re.compile(r"(cn|af|ap|ca|eu|il|me|mx|sa|us|us-gov)-[a-z]+-\d+")


class Credentials(NamedTuple):
    """An access key, with the field names of botocore's ReadOnlyCredentials."""

    access_key: str
    secret_key: str
    token: str | None


class AwsVariables(NamedTuple):
    """What the variables say; None is the default of AWS."""

    credentials: Credentials
    region: str | None
    s3_endpoint: str | None  # a URL
    ca_bundle: str | None  # a file


def read_variables(variables: Mapping[str, str]) -> AwsVariables | None:
    """Return what `variables` say, or None if botocore must decide, also if something is wrong."""
    if any(variables.get(name) for name in OTHERS):
        return None
    if any(_exists(variables.get(name, usual)) for name, usual in FILES.items()):
        return None
    key, secret = variables.get("AWS_ACCESS_KEY_ID"), variables.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        return None
    endpoint = variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL")
    if endpoint and not endpoint.startswith(("http://", "https://")):
        return None
    token = variables.get("AWS_SECURITY_TOKEN") or variables.get("AWS_SESSION_TOKEN")
    return AwsVariables(
        Credentials(key, secret, token or None),
        variables.get("AWS_DEFAULT_REGION") or None,
        endpoint or None,
        variables.get("AWS_CA_BUNDLE") or None,
    )


def s3_endpoint(region: str) -> str | None:
    """Return the URL of S3 in `region`; None if the region's domain is not known here."""
    if _REGION.fullmatch(region) is None:
        return None
    return f"https://s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")


def _exists(name: str) -> bool:
    try:
        return Path(name).expanduser().exists()
    except (OSError, RuntimeError):  # no right to look, or no home
        return True
