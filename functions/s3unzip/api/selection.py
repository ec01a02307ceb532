"""What happens when the options select nothing, or less than they ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.planning.selection import check_selection

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.model import Options
    from s3unzip.planning.reading import Reading


def judge_selection(
    options: Options, warn: Callable[[str], object] | None
) -> Callable[[Reading], None]:
    """Return a function that checks what was selected, and passes sentences to `warn`.

    The function raises `NothingSelectedError` if a name is no member's or nothing is selected.
    """

    def judge(reading: Reading) -> None:
        selected = len(reading.selected) + len(reading.failures)
        for sentence in check_selection(reading.unmatched, options, selected, reading.excluded):
            if warn is not None:
                warn(sentence)

    return judge
