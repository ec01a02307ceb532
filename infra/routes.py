"""The routes of an environment: which archives are whose, and where their members go.

The rules:

- The first route of the file whose prefix and suffix fit a key takes the archive. What none takes
  goes the environment's own way, `[ingest]`, `[destination]` and `[options]`, which is the last
  route.
- Of two routes that fit one key the earlier one is a part of the later one, so that a reader sees
  which one takes it. All else is refused.
- No run writes where an object could start a run, whichever route takes it.
- A route that is checked is whole: `complete` puts in what its table leaves out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from s3unzip.settings import spellings

if TYPE_CHECKING:
    from infra.sections import BucketSection, RouteSection

MAX_PATTERN = 2_048  # characters of a rule's pattern: quotas of EventBridge
OTHER_FIELDS = 250  # of them, for source, type and the name of the bucket
INHERITED = ("existing", "prefix", "owner", "kms_key")  # of the environment's destination


def complete(route: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a route; what it leaves out is taken from the environment's settings."""
    whole = {**route, "options": {**values.get("options", {}), **route.get("options", {})}}
    destination = route.get("destination", {})
    if "existing" not in destination:
        own = values.get("destination", {})
        inherited = {name: own[name] for name in INHERITED if name in own}
        destination = {**inherited, **destination}
    whole["destination"] = destination
    if "password_secret" not in route:
        secrets = ("password_secret", "password_kms_key")
        whole |= {name: values[name] for name in secrets if name in values}
    return whole


def is_inside(narrow: RouteSection, wide: RouteSection) -> bool:
    """Return whether every key that fits the narrow route fits the wide one."""
    return narrow.prefix.startswith(wide.prefix) and _ends_with(narrow.suffix, wide.suffix)


def overlap(first: RouteSection, second: RouteSection) -> bool:
    """Return whether a key can fit both."""
    prefixes = first.prefix.startswith(second.prefix) or second.prefix.startswith(first.prefix)
    suffixes = _ends_with(first.suffix, second.suffix) or _ends_with(second.suffix, first.suffix)
    return prefixes and suffixes


def _ends_with(suffix: str, end: str) -> bool:
    """Return whether a suffix ends in `end`; the case of letters does not matter."""
    return suffix.lower().endswith(end.lower())


def widest(routes: Sequence[RouteSection]) -> list[RouteSection]:
    """Return the routes that no other route contains: every key that fits a route fits one of them.

    If routes are equal, the first one is returned.
    """
    return [
        route
        for number, route in enumerate(routes)
        if not any(
            is_inside(route, wide) and (position < number or not is_inside(wide, route))
            for position, wide in enumerate(routes)
            if position != number
        )
    ]


def widest_prefixes(routes: Sequence[RouteSection]) -> list[str]:
    """Return the prefixes that are not below another one: each key of a route begins with one."""
    prefixes = sorted({route.prefix for route in routes})
    return [
        prefix
        for prefix in prefixes
        if not any(prefix != wide and prefix.startswith(wide) for wide in prefixes)
    ]


def key_patterns(routes: Sequence[RouteSection]) -> list[dict[str, str]]:
    """Return the patterns of EventBridge for keys that start a run, by any route.

    Each has prefix and suffix, because separate patterns would mean "or".
    """
    return [
        {"wildcard": f"{route.prefix}*{suffix}"}
        for route in widest(routes)
        for suffix in spellings(route.suffix)
    ]


def explain_patterns(routes: Sequence[RouteSection]) -> Iterator[str]:
    """Yield that the pattern of all routes is too long for a rule, if it is."""
    size = len(json.dumps(key_patterns(routes))) + OTHER_FIELDS
    if size > MAX_PATTERN:
        yield (
            f"routes: their prefixes and suffixes make a pattern of about {size:,} characters, and "
            f"EventBridge allows {MAX_PATTERN:,}: shorten them, or let ingest.prefix contain them"
        )


def are_below(first: BucketSection, second: BucketSection) -> bool:
    """Return whether a key can be below both prefixes; created buckets always differ."""
    if first.existing is None or first.existing != second.existing:
        return False
    return first.prefix.startswith(second.prefix) or second.prefix.startswith(first.prefix)


def explain_order(routes: Sequence[RouteSection]) -> Iterator[str]:
    """Yield which routes have the same name, or overlap so that their order is in doubt.

    The last route is the environment's own.
    """
    names = [route.name for route in routes]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield f"routes.{number}.name: there are two routes {name}: name each in its own way"
    for (_, earlier), (number, later) in combinations(enumerate(routes), 2):
        if not overlap(earlier, later):
            continue
        setting = f"routes.{number}.prefix" if later.name else "ingest.prefix"
        if is_inside(later, earlier):
            yield (
                f"{setting}: no archive comes here, because the route {earlier.name} before it "
                f"takes all of {earlier.prefix}*{earlier.suffix}: put the narrower one first"
            )
        if not is_inside(earlier, later):
            yield (
                f"{setting}: some archives fit this route and the route {earlier.name} before it "
                f"({earlier.prefix}*{earlier.suffix}), and neither is a part of the other: change "
                "a prefix or a suffix"
            )


def explain_writes(
    buckets: Mapping[str, BucketSection], routes: Sequence[RouteSection]
) -> Iterator[str]:
    """Yield which bucket's prefix lets a run write keys that start runs or replace plans.

    Args:
        buckets: of the environment and of its routes, by their settings.
        routes: all of them, that of the environment last.
    """
    ingest = buckets["ingest"]
    for setting, written in buckets.items():
        if setting == "ingest":
            continue
        for route in routes:
            scope = ingest.model_copy(update={"prefix": route.prefix})
            if are_below(scope, written):
                whose = "the trigger's scope"
                if route.name:
                    whose = f"the scope of the route {route.name}"
                yield (
                    f"{setting}.prefix: s3://{written.existing}/{written.prefix} is inside {whose} "
                    f"(s3://{ingest.existing}/{route.prefix}*{route.suffix}), so what a run writes "
                    "could start runs: choose another bucket or prefix"
                )
    work = buckets["work"]
    for setting, written in buckets.items():
        if setting not in {"ingest", "work"} and are_below(written, work):
            owner = re.sub("^destination", "the destination", setting)
            yield (
                f"work.prefix: s3://{work.existing}/{work.prefix} and {owner} overlap, so a "
                "member could replace a plan: choose another bucket or prefix"
            )
