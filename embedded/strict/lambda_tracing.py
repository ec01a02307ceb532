"""X-Ray samples the first invocation of each second, and one in twenty of the others.

Lambda says with each invocation whether it is sampled. "The sampling rate is 1 request per second
and 5 percent of additional requests", and a function cannot change it:
docs.aws.amazon.com/lambda/latest/dg/services-xray.html. The second is shared by all functions, as
the default rule of X-Ray is by all services: docs.aws.amazon.com/xray/latest/devguide,
"xray-console-sampling". MiniStack says of every invocation that it is sampled, so each cold start
would import the X-Ray SDK.

The variable ``EMBEDDED_SAMPLE_ALL`` keeps MiniStack's behaviour.
"""

from __future__ import annotations

import os
import threading
from importlib import import_module
from typing import Any

_lambda: Any = import_module("ministack.services.lambda_svc")

SAMPLED, NOT_SAMPLED = ";Sampled=1", ";Sampled=0"
ONE_IN = 20


class Sampler:
    """Counts the invocations of this AWS; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._second = ""
        self._others = 0

    def sample(self, second: str) -> bool:
        """Return whether an invocation in this second is sampled."""
        with self._lock:
            if second != self._second:
                self._second = second
                return True
            self._others += 1
            return self._others % ONE_IN == 0


def install() -> None:
    """Say of most invocations that they are not sampled; keep a header that a caller gave."""
    if os.environ.get("EMBEDDED_SAMPLE_ALL"):
        return
    names, sampler = vars(_lambda), Sampler()
    stock = names["_xray_trace_id_for_invocation"]

    def header_of(config: dict[str, Any], given: str | None = None) -> str | None:
        header: str | None = stock(config, given)
        if header is None or given or sampler.sample(header.split("-")[1]):
            return header
        return header.replace(SAMPLED, NOT_SAMPLED)

    names["_xray_trace_id_for_invocation"] = header_of
