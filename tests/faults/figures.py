"""A measured figure, and the line it is printed on."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


class Figure(NamedTuple):
    """``BENCH faults.<name> <value> <unit>``."""

    name: str
    value: float
    unit: str

    def __str__(self) -> str:
        value = f"{self.value:.6f}".rstrip("0").rstrip(".")
        return f"BENCH faults.{self.name} {value} {self.unit}"


def spread(name: str, values: Sequence[float], unit: str) -> Iterator[Figure]:
    """Yield median, 95th percentile and largest of `values`."""
    if not values:
        return
    ordered = sorted(values)
    yield Figure(f"{name}.p50", statistics.median(ordered), unit)
    yield Figure(f"{name}.p95", ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))], unit)
    yield Figure(f"{name}.max", ordered[-1], unit)


def report(figures: Iterable[Figure]) -> list[Figure]:
    """Print figures as they come; return them."""
    known = []
    for figure in figures:
        print(figure, flush=True)  # noqa: T201 - this is the harness's output
        known.append(figure)
    return known
