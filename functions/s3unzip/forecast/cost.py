"""The cost of a run by service, from the requests and seconds of a simulation.

Not included (see docs/cost.md): storage, KMS, transfer between Regions, free tiers, and the cost of
the idle stack.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip import rates

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip.model import Requests
    from s3unzip.platforms import Platform


class CostLine(Struct, frozen=True):
    """One line of the bill; `dollars` is `quantity` times the price of a `unit`."""

    service: str
    item: str
    quantity: float
    unit: str
    dollars: float


class Cost(Struct, frozen=True):
    """The bill of one run, in dollars."""

    lines: tuple[CostLine, ...]
    total: float
    unavoidable: float  # one PUT for each member, which any tool must pay
    unavoidable_share: float  # of the total; 0 if the total is 0

    def by_service(self) -> dict[str, float]:
        """Return dollars by service, in the order of the lines."""
        sums: dict[str, float] = {}
        for line in self.lines:
            sums[line.service] = sums.get(line.service, 0.0) + line.dollars
        return sums


class Usage(Struct, frozen=True):
    """The billed usage of a run."""

    members: int
    requests: Requests
    invocations: int
    lambda_seconds: float
    children: int  # of the Maps
    express_seconds: float  # rounded up for each child
    transitions: int  # of the Standard execution


def express_seconds(seconds: Iterable[float]) -> float:
    """Return the billed sum of Express durations: each is rounded up to 100 ms."""
    return rates.EXPRESS_TICK * sum(math.ceil(one / rates.EXPRESS_TICK - 1e-9) for one in seconds)


def price(usage: Usage, platform: Platform) -> Cost:
    """Return the bill for `usage`."""
    lines = [*_requests(usage, platform), *(_services(usage, platform))]
    total = sum(line.dollars for line in lines)
    each = rates.PRICES_S3_WRITE[platform.storage_class]
    unavoidable = usage.members * each if platform.priced_requests else 0.0
    share = unavoidable / total if total else 0.0
    return Cost(tuple(lines), total, unavoidable, share)


def _requests(usage: Usage, platform: Platform) -> list[CostLine]:
    if not platform.priced_requests:
        return []
    calls = usage.requests
    lines = [
        _line("S3", "PUT, COPY, POST, LIST", calls.writes, "request", rates.PRICE_S3_WRITE),
        _line("S3", "GET, HEAD", calls.reads, "request", rates.PRICE_S3_READ),
    ]
    known = platform.storage_class
    more = rates.PRICES_S3_WRITE[known] - rates.PRICE_S3_WRITE
    if more > 0:
        lines.append(_line("S3", f"more for {known}", _dear_writes(usage, known), "request", more))
    return lines


def _dear_writes(usage: Usage, storage_class: str) -> int:
    """Return the requests that are billed at the price of the members' storage class.

    The records of a run are STANDARD, so at most one PUT a member counts.
    """
    calls = usage.requests
    count = min(calls.put, usage.members) + calls.complete
    if storage_class in rates.PARTS_AS_STANDARD:
        return count
    return count + calls.create + calls.part + calls.copy


def _services(usage: Usage, platform: Platform) -> list[CostLine]:
    if not platform.memory_gb:
        return []
    used = usage.lambda_seconds * platform.memory_gb
    children, standard = usage.children, rates.PRICE_STANDARD_TRANSITION
    memory = usage.express_seconds * rates.EXPRESS_CHUNK_GB
    logs = usage.invocations * rates.LOG_BYTES
    return [
        _line("Lambda", "duration", used, "GB-s", rates.PRICE_LAMBDA_GB_SECOND),
        _line("Lambda", "requests", usage.invocations, "request", rates.PRICE_LAMBDA_REQUEST),
        _line("Step Functions", "Express", children, "request", rates.PRICE_EXPRESS_REQUEST),
        _line("Step Functions", "Express duration", memory, "GB-s", rates.PRICE_EXPRESS_GB_SECOND),
        _line("Step Functions", "Standard", usage.transitions, "transition", standard),
        _line("SQS", "requests", rates.SQS_REQUESTS, "request", rates.PRICE_SQS_REQUEST),
        _line("EventBridge", "custom events", rates.EVENTS, "event", rates.PRICE_EVENT),
        _line("CloudWatch", "logs", logs, "byte", rates.PRICE_LOG_BYTE),
    ]


def _line(service: str, item: str, quantity: float, unit: str, each: float) -> CostLine:
    return CostLine(service, item, quantity, unit, quantity * each)
