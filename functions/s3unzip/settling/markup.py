"""HTML as values: escaped text, elements and tables.

Rules:

- `trusted`, `untrusted` and `element` create markup and escape their input. A name from an archive
  can therefore never become markup. All text of unknown origin is passed to `untrusted`.
- Hidden characters are spelled out, so that a name cannot look like another name.
- `clip` bounds the length of a text; `folded` hides the middle of a long text.
"""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NewType, TypeAlias

Markup = NewType("Markup", str)
# The columns of a table: the CSS classes of the cells, by title. The cells of the first column are
# the headers of their rows.
Columns: TypeAlias = Mapping[str, str]

NOTHING = Markup("")
MAX_UNFOLDED = 200  # maximum length, in characters, of text that is shown in full
FOLDED_END = 40  # number of characters at the end of a folded text that stay visible
NO_BREAK_SPACE = "\u00a0"  # used between a figure and its unit

# Characters that are invisible or that reorder the characters next to them.
_HIDDEN = re.compile(
    "[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufe00-\ufe0f\ufeff\ufff9-\ufffb]"
)


def untrusted(value: str) -> Markup:
    """Return the escaped text.

    Invisible characters are spelled out. ``bdi`` keeps a right-to-left name from reordering the
    text around it.
    """

    def wrap_escape(character: re.Match[str]) -> str:
        return element("span", {"class": "escape"}, Markup(_escape(character)))

    return element("bdi", {}, Markup(_HIDDEN.sub(wrap_escape, trusted(value))))


def title_text(value: str) -> Markup:
    """Return text of unknown origin as markup without elements, for places that allow none."""
    return trusted(_HIDDEN.sub(_escape, value))


def _escape(character: re.Match[str]) -> str:
    return f"\\u{ord(character[0]):04x}"


def folded(value: str) -> Markup:
    """Return text of unknown origin as markup, with the middle of a long text folded away."""
    if len(value) <= MAX_UNFOLDED:
        return untrusted(value)
    start = value[: MAX_UNFOLDED - FOLDED_END]
    end = value[-FOLDED_END:]
    return element(
        "details",
        {"class": "folded"},
        element("summary", {}, Markup(f"{untrusted(start)} … {untrusted(end)}")),
        untrusted(value),
    )


def figure(value: str) -> Markup:
    """Return a figure that stays on the same line as its unit."""
    return trusted(value.replace(" ", NO_BREAK_SPACE))


def trusted(value: str) -> Markup:
    """Return the escaped text; `untrusted` also spells out hidden characters."""
    return Markup(html.escape(value))


def element(tag: str, attributes: Mapping[str, str], *children: Markup) -> Markup:
    """Return an element, without the attributes that have no value."""
    shown = "".join(
        f' {name}="{html.escape(value)}"' for name, value in attributes.items() if value
    )
    return Markup(f"<{tag}{shown}>{''.join(children)}</{tag}>")


def table(
    caption: str,
    columns: Columns,
    rows: Iterable[Markup],
    *,
    note: str = "",
    foot: Markup = NOTHING,
) -> Markup:
    """Return a table of rows that `row` created.

    On a phone, a failure is displayed as a card. Its roles tell screen readers that the card is a
    row.
    """
    titles = [
        element(
            "th",
            # A title is not displayed in the monospaced font.
            {"scope": "col", "role": "columnheader", "class": style.replace("mono", "")},
            trusted(title),
        )
        for title, style in columns.items()
    ]
    subtitle = NOTHING
    if note:
        subtitle = element("small", {}, trusted(note))
    row_group = {"role": "rowgroup"}
    sections = [
        element("caption", {}, trusted(caption), subtitle),
        element("thead", row_group, element("tr", {"role": "row"}, *titles)),
        element("tbody", row_group, *rows),
    ]
    if foot:
        sections.append(element("tfoot", row_group, foot))
    return element("table", {"role": "table"}, *sections)


def row(columns: Columns, cells: Sequence[Markup], *, reason: str = "") -> Markup:
    """Return a row of a table.

    Args:
        columns: the table's columns.
        cells: one cell for each column.
        reason: why a member failed, used by the filter of the page; empty in other tables.
    """
    first_style, *_ = columns.values()
    header = element("th", {"scope": "row", "role": "rowheader", "class": first_style}, cells[0])
    data_cells = [
        element(
            "td", {"role": "cell", "class": style, "data-label": title if content else ""}, content
        )
        for (title, style), content in zip(list(columns.items())[1:], cells[1:], strict=True)
    ]
    return element("tr", {"role": "row", "data-reason": reason}, header, *data_cells)


def bar(part: float, whole: float, tone: str) -> Markup:
    """Return a bar whose length shows the share of a part in the whole; `tone` is a CSS class.

    A style attribute would require a weaker Content-Security-Policy; an SVG attribute does not.
    """
    share = 100 * part / (whole or 1)  # if the whole is 0, the part is also 0
    return element(
        "svg",
        {"class": f"bar {tone}", "aria-hidden": "true"},
        element("rect", {"width": f"{share:.2f}%", "height": "100%"}),
    )


def aside(note: str) -> Markup:
    """Return a line in muted style, to be placed below a text."""
    return element("span", {"class": "quiet below"}, untrusted(note))


def clip(value: str, limit: int) -> str:
    """Return `value` as valid UTF-8 of at most `limit` characters, shortened in the middle."""
    valid = value.encode("utf-8", "replace").decode("utf-8")
    if len(valid) <= limit:
        return valid
    start_length = limit // 2
    end_length = limit - start_length - 1  # without the ellipsis
    return f"{valid[:start_length]}…{valid[-end_length:]}"
