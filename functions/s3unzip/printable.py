r"""Text for people to read: sizes, durations, times, counts, dollars and untrusted text.

Text from archives, keys and servers may contain terminal escape sequences. Each character of
such text that is not printable is therefore replaced with its Python escape: U+001B is ``\x1b``,
U+202E is ``\u202e``.
"""

import math
import re
from datetime import UTC, datetime

MANY_DOLLARS = 10.0  # from this amount on, cents are precise enough
FEW_DOLLARS = 0.001  # below this amount, four decimals show at most one significant digit
MAX_DECIMALS = 12  # maximum number of decimal places in a dollar amount

_IN_LINES = re.compile(r"[^\n\t]+")


def printable(text: str) -> str:
    """Return one line of text that is safe in a terminal."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text
    )


def printable_name(name: str) -> str:
    r"""Return a form of a name that is safe in a terminal; different names have different forms.

    A backslash is doubled. Otherwise a name with the six characters ``\u202e`` would have the same
    form as a name with U+202E.
    """
    return printable(name.replace("\\", "\\\\"))


def printable_lines(text: str) -> str:
    """Return lines of text that are safe in a terminal; tabs are kept."""
    if text[:-1].isprintable() and text[-1:] in {"\n", ""}:  # an ordinary line: nothing to escape
        return text
    return _IN_LINES.sub(lambda match: printable(match[0]), text)


def printable_json(text: str) -> str:
    """Return JSON for the same value, with strings that are safe in a terminal.

    The JSON in `text` must be on one line: then only its strings can contain characters to escape.
    """
    if text.isprintable():
        return text
    import json  # noqa: PLC0415 - rarely needed

    # `[1:-1]` removes the quotes.
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)


def show_bytes(count: float) -> str:
    """Return a size as text: ``1.5 MiB``, ``64 KiB``."""
    if count < 1024:
        return f"{count:.0f} B"
    power = min(4, int(math.log(count, 1024)))  # the largest unit is TiB
    amount = f"{count / 1024**power:,.1f}".removesuffix(".0")
    return f"{amount} {'BKMGT'[power]}iB"


def show_seconds(seconds: float) -> str:
    """Return a duration as text: ``12.3 s``, ``4 min 05 s``, ``1 h 02 min``."""
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {seconds_left:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"


def show_time(seconds: float) -> str:
    """Return a time as text, in UTC: ``2026-11-23 20:15``."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}"


def show_count(count: int, noun: str) -> str:
    """Return a count and its noun: ``1 member``, ``2,000 members``."""
    return f"{count:,} {choose_form(count, noun, f'{noun}s')}"


def show_quantity(quantity: float, unit: str) -> str:
    """Return the quantity shown on one line of a bill: ``3 requests``, ``0.68 GB-s``."""
    if unit != "GB-s":
        return show_count(round(quantity), unit)
    if quantity < 10:
        return f"{quantity:.2g} {unit}"
    return f"{quantity:,.0f} {unit}"


def choose_form(count: int, singular: str, plural: str) -> str:
    """Return the form of a word or of a phrase that agrees with a count."""
    if count == 1:
        return singular
    return plural


def show_share(part: float, whole: float) -> str:
    """Return a share as a percentage with two digits, or with four if it is just below 100%."""
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "under 0.1 %"
    if 99 < percent < 100:
        return f"{percent:.2f} %"
    if percent >= 10:
        return f"{percent:.0f} %"
    return f"{percent:.2g} %"


def show_dollars(dollars: float, beside: float | None = None) -> str:
    """Return an amount in dollars with enough digits to be precise: ``$50.45``, ``$0.00003``.

    Args:
        dollars: the amount.
        beside: another amount in the same sentence. If the two amounts differ but would look the
            same, more digits are shown.
    """
    decimals = _choose_decimals(dollars)
    if beside is not None and beside != dollars:
        while decimals < MAX_DECIMALS and f"{dollars:.{decimals}f}" == f"{beside:.{decimals}f}":
            decimals += 1
    amount = f"${dollars:,.{decimals}f}"
    if dollars < FEW_DOLLARS:  # the amount has many decimals: drop the zeros at the end
        return amount.rstrip("0").removesuffix(".")
    return amount


def _choose_decimals(dollars: float) -> int:
    if dollars >= MANY_DOLLARS:
        return 2
    if dollars >= FEW_DOLLARS or dollars <= 0:
        return 4
    return 1 - math.floor(math.log10(dollars))  # two significant digits
