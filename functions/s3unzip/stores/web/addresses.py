"""Which addresses an HTTP source may connect to.

A name or a redirect could lead to hosts that only this machine or its network can reach: another
program on it, a router, the credentials of a cloud machine at 169.254.169.254. So a name is
resolved here, each address is checked, and the connection goes to the address that was checked.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING

from urllib3.exceptions import HTTPError
from urllib3.util.connection import create_connection

if TYPE_CHECKING:
    from urllib3.util.connection import _TYPE_SOCKET_OPTIONS

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: an IPv4 address in its last 32 bits


class PrivateAddressError(HTTPError):
    """A host is at an address that is not public."""


class UnknownHostError(HTTPError):
    """The host name cannot be resolved."""


def is_public(text: str) -> bool:
    """Return whether an address is public.

    Not public: loopback, private, link-local, shared (RFC 6598), multicast and reserved ones
    (the IANA special-purpose address registries), and IPv6 forms of such IPv4 addresses.
    """
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        address = inner or address
    return address.is_global and not address.is_multicast


def names_an_address(host: str) -> bool:
    """Return whether a host is written as an address, or as this machine."""
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return host.lower() == "localhost"
    return True


def connect(
    host: str,
    port: int,
    seconds: float,
    options: _TYPE_SOCKET_OPTIONS | None,
    *,
    private: bool,
) -> socket.socket:
    """Return a socket that is connected to the first address of `host` that answers.

    Args:
        host: a name or an address.
        port: of TCP.
        seconds: for each address.
        options: of the socket.
        private: whether addresses that are not public are allowed.

    Raises:
        PrivateAddressError: it has no address that is allowed.
        UnknownHostError: there is no such name.
        OSError: no address answers.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        if error.errno in {socket.EAI_AGAIN, socket.EAI_SYSTEM}:
            raise
        raise UnknownHostError(host) from error
    except UnicodeError as error:  # a label that is too long
        raise UnknownHostError(host) from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    allowed = [address for address in addresses if private or is_public(address)]
    if not allowed:
        raise PrivateAddressError(addresses[0])
    for address in allowed[:-1]:
        try:
            return create_connection((address, port), seconds, socket_options=options)
        except OSError:
            continue
    return create_connection((allowed[-1], port), seconds, socket_options=options)
