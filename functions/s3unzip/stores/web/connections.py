"""HTTP connections of urllib3 that check their address and limit their waiting time."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, cast

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from s3unzip.stores.web import addresses
from s3unzip.stores.web.metering import Meter, MeteredSocket

if TYPE_CHECKING:
    import socket

    from urllib3.response import HTTPResponse

    from s3unzip.stores.web.access import WebAccess

CONNECTIONS = 64  # kept open to one host


class _CheckedConnection(HTTPConnection):
    """A plain connection; `private` says whether it may go to an address that is not public."""

    def __init__(self, *args: Any, access: WebAccess, private: bool, **settings: Any) -> None:
        self._access = access
        self._private = private
        self._meter = Meter(access)
        super().__init__(*args, **settings)

    def _new_conn(self) -> socket.socket:
        seconds = self._access.connect_seconds
        try:
            opened = addresses.connect(
                self._dns_host, self.port, seconds, self.socket_options, private=self._private
            )
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no answer within {seconds:g} s") from error
        except OSError as error:
            raise NewConnectionError(self, error.strerror or str(error)) from error
        sys.audit("http.client.connect", self, self.host, self.port)
        return opened

    def connect(self) -> None:
        super().connect()
        self.sock = cast("socket.socket", MeteredSocket(self.sock, self._meter))

    def request(self, *args: Any, **settings: Any) -> None:
        self._meter.begin_head()
        super().request(*args, **settings)

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]  # as in urllib3
        answer = super().getresponse()
        self._meter.begin_body()
        return answer


class _CheckedSecureConnection(_CheckedConnection, HTTPSConnection):
    """The same with TLS."""


class _Pool(HTTPConnectionPool):
    ConnectionCls = _CheckedConnection


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _CheckedSecureConnection


def make_pool(
    scheme: str, host: str, port: int, access: WebAccess, *, private: bool
) -> HTTPConnectionPool:
    """Return the connections to one server; threads may share it."""
    kind = _SecurePool if scheme == "https" else _Pool
    return kind(
        host,
        port,
        maxsize=CONNECTIONS,
        timeout=access.connect_seconds,
        access=access,
        private=private,
    )
