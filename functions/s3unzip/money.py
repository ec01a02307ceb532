"""Money as people read it: the one place that formats dollars."""

from __future__ import annotations

import math

MANY = 10.0  # dollars from which on cents are enough
FEW = 0.001  # dollars below which four decimals would be one digit


def show_dollars(dollars: float, beside: float | None = None) -> str:
    """Return dollars with as many digits as say something: ``$50.45``, ``$0.00003``.

    Args:
        dollars: to show.
        beside: another amount in the same sentence; where the two differ and would look the
            same, it gets more digits.
    """
    decimals = _decimals(dollars)
    if beside is not None and beside != dollars:
        while decimals < 12 and f"{dollars:.{decimals}f}" == f"{beside:.{decimals}f}":
            decimals += 1
    shown = f"${dollars:,.{decimals}f}"
    return shown.rstrip("0").removesuffix(".") if dollars < FEW else shown


def _decimals(dollars: float) -> int:
    """Return how many decimals say something: 2, 4, or two digits of a tiny amount."""
    if dollars >= MANY:
        return 2
    return 4 if dollars >= FEW or dollars <= 0 else 1 - math.floor(math.log10(dollars))
