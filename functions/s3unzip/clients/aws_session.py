"""Sessions and clients of AWS services: boto3 over a botocore session.

boto3 and botocore are imported when a session first needs them: settings that environment variables
decide need neither.
"""

from __future__ import annotations

import os
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

from s3unzip.clients.variables import read_variables, s3_endpoint
from s3unzip.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    import boto3
    from botocore.credentials import ReadOnlyCredentials
    from botocore.session import Session as Core

    from s3unzip.clients.variables import AwsVariables, Credentials

    Frozen = ReadOnlyCredentials | Credentials


def preload() -> None:
    """Import boto3 now, for a function that surely makes a client.

    The import belongs into the cold start, which has more CPU than an invocation of a small
    function.
    """
    import boto3  # noqa: F401, PLC0415 - see above


class AwsSession:
    """One profile and region of an account; None uses ``AWS_PROFILE`` and the other AWS variables.

    Threads may share it and its clients. A profile that does not exist is an error of the first
    client.
    """

    def __init__(self, profile: str | None = None, region: str | None = None) -> None:
        self._profile = profile
        self._region = region
        self._lock = Lock()  # botocore's sessions are for one thread

    @cached_property
    def _variables(self) -> AwsVariables | None:
        return read_variables(os.environ) if self._profile is None else None

    @cached_property
    def _core(self) -> Core:
        import botocore.session  # noqa: PLC0415 - 0.2 s of CPU

        core = botocore.session.get_session()
        if self._profile is not None:
            core.set_config_variable("profile", self._profile)
        if self._region is not None:
            core.set_config_variable("region", self._region)
        return core

    @cached_property
    def _factory(self) -> boto3.session.Session:
        import boto3  # noqa: PLC0415 - 0.2 s of CPU

        return boto3.session.Session(botocore_session=self._core)

    @property
    def region(self) -> str | None:
        """The region of the session; None: it has none."""
        if self._variables is not None:
            return self._region or self._variables.region
        found: str | None = self._core.get_config_variable("region")
        return found

    @property
    def ca_bundle(self) -> str | None:
        """The file of certificates to trust; None: the default ones."""
        if self._variables is not None:
            return self._variables.ca_bundle
        bundle = self._core.get_config_variable("ca_bundle")
        return bundle if isinstance(bundle, str) and bundle else None

    def credentials(self) -> Callable[[], Frozen] | None:
        """Return a function that returns the current credentials; None: there are none."""
        if self._variables is not None:
            known = self._variables.credentials
            return lambda: known
        found = self._core.get_credentials()
        return None if found is None else found.get_frozen_credentials

    def s3_endpoint(self, region: str) -> str | None:
        """Return the URL of S3 in `region`; None: only a client of S3 knows it."""
        if self._variables is None:
            return None
        return self._variables.s3_endpoint or s3_endpoint(region)

    def client(
        self,
        service: str,
        *,
        region: str | None = None,
        endpoint_url: str | None = None,
        **settings: object,
    ) -> Any:
        """Return a new client of `service`; None leaves region and endpoint to the session.

        Args:
            service: boto3's name of the service.
            region: of the client.
            endpoint_url: of the service.
            settings: arguments of `botocore.config.Config`.

        Raises:
            BotoCoreError: the profile does not exist, or no region is set.
            UsageError: the endpoint is no URL.
        """
        from botocore.config import Config  # noqa: PLC0415 - as above

        config: Any = Config(**settings)  # type: ignore[arg-type]  # each of its own type
        try:
            with self._lock:
                make: Any = self._factory.client  # its overloads need literal names
                return make(service, region_name=region, endpoint_url=endpoint_url, config=config)
        except ValueError as error:  # an endpoint from ~/.aws/config or a variable
            raise UsageError(f"{error}: it must begin with http:// or https://") from None
