"""Find out why an S3 endpoint does not answer, by connecting to it once more."""

from __future__ import annotations

import socket
import ssl
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

if TYPE_CHECKING:
    from urllib.parse import SplitResult

PORTS = {"http": 80, "https": 443}


def is_proxied(url: str) -> bool:
    """Return whether the environment names a proxy for `url`."""
    parts = urlsplit(url)
    return parts.scheme in getproxies() and not proxy_bypass(parts.netloc)


def why_unreachable(url: str, seconds: float, ca_bundle: str | None = None) -> str | None:
    """Return why `url` cannot be connected to; None: it can, or a proxy stands before it.

    Args:
        url: of the endpoint.
        seconds: for looking up the name, connecting and TLS together.
        ca_bundle: file of certificates that are trusted; None: the system's.
    """
    if is_proxied(url):
        return None
    parts = urlsplit(url)
    found: list[str | None] = []
    # The lookup of a name has no timeout of its own.
    asker = threading.Thread(
        target=lambda: found.append(_try(parts, seconds, ca_bundle)), daemon=True
    )
    asker.start()
    asker.join(seconds)
    return found[0] if found else f"no answer within {seconds:g} s"


def _try(parts: SplitResult, seconds: float, ca_bundle: str | None) -> str | None:
    host, port = parts.hostname or "", parts.port or PORTS.get(parts.scheme, 443)
    try:
        with socket.create_connection((host, port), seconds) as opened:
            if parts.scheme == "https":
                context = ssl.create_default_context(cafile=ca_bundle)
                context.wrap_socket(opened, server_hostname=host).close()
    except socket.gaierror:
        return "there is no host of this name"
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except ssl.SSLCertVerificationError as error:
        return f"its certificate is not trusted: {error.verify_message}"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None
