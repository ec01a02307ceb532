"""The only place that makes sessions and clients of AWS services, by botocore.

boto3 is not needed for them: ``boto3.client`` calls the same
``Session.create_client`` of botocore. Credentials, profile, region, endpoint and
retries are found in the same order, and the clients have the same methods and the
types of boto3-stubs. Without boto3 a function starts sooner: boto3 imports
s3transfer and multiprocessing, which nothing here uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import botocore.session

if TYPE_CHECKING:
    from botocore.config import Config


def open_session(profile: str | None = None, region: str | None = None) -> botocore.session.Session:
    """Return a new session; None leaves a setting to ``AWS_PROFILE``, ``AWS_DEFAULT_REGION``, etc.

    Threads may share its clients, but only one at a time may make them. A
    profile that does not exist is an error of the first client.
    """
    session = botocore.session.get_session()
    if profile is not None:
        session.set_config_variable("profile", profile)
    if region is not None:
        session.set_config_variable("region", region)
    return session


def make_client(
    session: botocore.session.Session,
    service: str,
    config: Config,
    *,
    region: str | None = None,
    endpoint_url: str | None = None,
) -> Any:
    """Return a new client of `service`; None leaves region and endpoint to the session.

    Raises:
        BotoCoreError: the profile does not exist, or no region is set.
    """
    return session.create_client(
        service, region_name=region, endpoint_url=endpoint_url, config=config
    )
