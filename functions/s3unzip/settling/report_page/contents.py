"""The contents of a page, and the limits that bound it for every archive."""

from collections.abc import Mapping
from operator import itemgetter
from typing import NamedTuple

from s3unzip.explanations import advise, explain
from s3unzip.model import Report
from s3unzip.pricing import Cost
from s3unzip.settling.report_page.markup import clip

MAX_CODES = 50  # reasons and warnings listed
MAX_NAME = 1_024  # characters of a key: S3's own limit
MAX_TEXT = 400  # characters of a message or an option


class Shown(NamedTuple):
    """What a page shows."""

    report: Report
    cost: Cost | None  # None: the run cost nothing, or its cost is not known
    next_command: str | None  # None: nothing is left to do
    environment_options: str  # with a space before them; empty for a run on this machine


class Ranked(NamedTuple):
    """A code of a failure or a warning, with the number of its members."""

    code: str
    members: int
    sentence: str
    advice: str


def rank(counts: Mapping[str, int], shown: Shown) -> list[Ranked]:
    """Return the most frequent codes, and all others as one line; equal counts by their codes."""
    order = sorted(sorted(counts.items()), key=itemgetter(1), reverse=True)
    ranked = [
        Ranked(
            clip(code, MAX_TEXT),
            count,
            clip(explain(code).sentence, MAX_TEXT),
            clip(advise(code, shown.report.run, shown.environment_options), MAX_TEXT),
        )
        for code, count in order[:MAX_CODES]
    ]
    unlisted = sum(count for _, count in order[MAX_CODES:])
    if unlisted:
        ranked.append(
            Ranked(f"{len(order) - MAX_CODES} other codes", unlisted, sentence="", advice="")
        )
    return ranked
