"""The only place that makes sessions and clients of AWS services: boto3 over a botocore session."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import boto3
import botocore.session

from s3unzip.errors import UsageError

if TYPE_CHECKING:
    from botocore.config import Config


class AwsSession:
    """One profile and region of an account; None uses ``AWS_PROFILE`` and the other AWS variables.

    Threads may share its clients, but only one at a time may make them. A profile that does not
    exist is an error of the first client.
    """

    def __init__(self, profile: str | None = None, region: str | None = None) -> None:
        self.core = botocore.session.get_session()  # settings and credentials
        if profile is not None:
            self.core.set_config_variable("profile", profile)
        if region is not None:
            self.core.set_config_variable("region", region)

    @cached_property
    def _factory(self) -> boto3.session.Session:
        return boto3.session.Session(botocore_session=self.core)

    def client(
        self,
        service: str,
        config: Config,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
    ) -> Any:
        """Return a new client of `service`; None leaves region and endpoint to the session.

        Raises:
            BotoCoreError: the profile does not exist, or no region is set.
            UsageError: the endpoint is no URL.
        """
        make: Any = self._factory.client  # its overloads need literal names
        try:
            return make(service, region_name=region, endpoint_url=endpoint_url, config=config)
        except ValueError as error:  # an endpoint from ~/.aws/config or a variable
            raise UsageError(f"{error}: it must begin with http:// or https://") from None
