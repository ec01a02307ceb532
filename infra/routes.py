"""The routes of an environment: which archives belong to which sender, and where their members go.

The rules:

- The first route in the file whose prefix and suffix match a key takes the archive. All other
  archives take the last route, the environment's own: `[ingest]`, `[destination]`, `[options]`.
- If two routes match the same key, every key of the earlier route must match the later one, so that
  a reader of the file sees which route takes an archive. Other overlaps are refused.
- No run may write to a prefix where an object could start a run, by any route.
- Before the routes are checked, `inherit_settings` adds the settings that their tables leave out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from s3unzip.settings import spellings

if TYPE_CHECKING:
    from infra.sections import BucketSection, RouteSection

MAX_PATTERN = 2_048  # maximum number of characters of a rule's pattern (quotas of EventBridge)
OTHER_FIELDS = 250  # characters of the pattern for source, type and the name of the bucket
# A route without a bucket inherits these settings of the environment's destination.
INHERITED = ("existing", "prefix", "owner", "kms_key")


def inherit_settings(route: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table of a route, with the environment's settings for those that it leaves out.

    Args:
        route: the table of the route, as in the file.
        values: all values of the file.
    """
    whole = {**route, "options": {**values.get("options", {}), **route.get("options", {})}}
    destination = route.get("destination", {})
    if "existing" not in destination:
        own = values.get("destination", {})
        inherited = {name: own[name] for name in INHERITED if name in own}
        destination = {**inherited, **destination}
    whole["destination"] = destination
    if "password_secret" not in route:
        whole |= {
            name: values[name] for name in ("password_secret", "password_kms_key") if name in values
        }
    return whole


def is_inside(narrow: RouteSection, wide: RouteSection) -> bool:
    """Return whether every key that matches the narrow route also matches the wide one."""
    return narrow.prefix.startswith(wide.prefix) and _ends_with(narrow.suffix, wide.suffix)


def overlap(first: RouteSection, second: RouteSection) -> bool:
    """Return whether a key can match both routes."""
    prefixes = first.prefix.startswith(second.prefix) or second.prefix.startswith(first.prefix)
    suffixes = _ends_with(first.suffix, second.suffix) or _ends_with(second.suffix, first.suffix)
    return prefixes and suffixes


def _ends_with(suffix: str, end: str) -> bool:
    """Return whether a suffix ends with `end`; the case of letters is ignored."""
    return suffix.lower().endswith(end.lower())


def widest(routes: Sequence[RouteSection]) -> list[RouteSection]:
    """Return the routes that no other route contains; they match the same keys as all routes.

    If routes match the same keys, only the first one is returned.
    """
    return [
        route
        for number, route in enumerate(routes)
        if not any(
            # The other route matches more keys, or the same keys and comes earlier.
            is_inside(route, wide) and (position < number or not is_inside(wide, route))
            for position, wide in enumerate(routes)
            if position != number
        )
    ]


def widest_prefixes(routes: Sequence[RouteSection]) -> list[str]:
    """Return the prefixes of routes that are not below the prefix of another route, sorted."""
    prefixes = sorted({route.prefix for route in routes})
    return [
        prefix
        for prefix in prefixes
        if not any(prefix != wide and prefix.startswith(wide) for wide in prefixes)
    ]


def key_patterns(routes: Sequence[RouteSection]) -> list[dict[str, str]]:
    """Return EventBridge's patterns for the keys that start a run by any route; one must match.

    A single route has a pattern of its prefix and suffix for each spelling of the suffix. For
    several routes this can be too much: EventBridge refuses a rule as too complex if more than ten
    parts of wildcards can match one value (eb-create-pattern-operators), and four routes with three
    spellings have twelve. So their patterns are prefixes alone, or suffixes for routes without a
    prefix, and `intake` leaves out the keys that no route takes.
    """
    wide = widest(routes)
    if len(wide) == 1:
        return [{"wildcard": f"{wide[0].prefix}*{end}"} for end in spellings(wide[0].suffix)]
    return [
        *(
            {"prefix": start}
            for start in widest_prefixes([route for route in wide if route.prefix])
        ),
        *({"suffix": end} for route in wide if not route.prefix for end in spellings(route.suffix)),
    ]


def explain_patterns(routes: Sequence[RouteSection]) -> Iterator[str]:
    """Yield a message if the pattern for the keys of all routes is too long for a rule."""
    size = len(json.dumps(key_patterns(routes))) + OTHER_FIELDS
    if size > MAX_PATTERN:
        yield (
            f"routes: their prefixes and suffixes make a pattern of about {size:,} characters, and "
            f"EventBridge allows {MAX_PATTERN:,}: shorten them, or choose an ingest.prefix "
            "with which all keys begin"
        )


def are_below(first: BucketSection, second: BucketSection) -> bool:
    """Return whether a key can be below both prefixes: never, if the stack creates a bucket."""
    if first.existing is None or first.existing != second.existing:
        return False
    return first.prefix.startswith(second.prefix) or second.prefix.startswith(first.prefix)


def explain_order(routes: Sequence[RouteSection]) -> Iterator[str]:
    """Yield a message for each pair of routes with one name, or with an overlap that is refused.

    The last route is the environment's own.
    """
    names = [route.name for route in routes]
    for number, name in enumerate(names):
        if name in names[:number]:
            yield f"routes.{number}.name: two routes have the name {name}: give each its own"
    for (_, earlier), (number, later) in combinations(enumerate(routes), 2):
        if not overlap(earlier, later):
            continue
        setting = f"routes.{number}.prefix" if later.name else "ingest.prefix"
        if is_inside(later, earlier):
            yield (
                f"{setting}: no archive takes this route, because the route {earlier.name} before "
                f"it takes all of {earlier.prefix}*{earlier.suffix}: put the narrower one first"
            )
        elif not is_inside(earlier, later):
            yield (
                f"{setting}: some archives fit this route and the route {earlier.name} before it "
                f"({earlier.prefix}*{earlier.suffix}), and neither route includes the other: "
                "change a prefix or a suffix"
            )


def explain_writes(
    buckets: Mapping[str, BucketSection], routes: Sequence[RouteSection]
) -> Iterator[str]:
    """Yield a message for each prefix below which a run could start runs or replace plans.

    Args:
        buckets: the buckets of the environment and of its routes, by their settings.
        routes: all routes; the last one is the environment's own.
    """
    ingest = buckets["ingest"]
    for setting, written in buckets.items():
        if setting == "ingest":
            continue
        for route in routes:
            if are_below(ingest.model_copy(update={"prefix": route.prefix}), written):
                whose = (
                    f"the scope of the route {route.name}" if route.name else "the trigger's scope"
                )
                yield (
                    f"{setting}.prefix: s3://{written.existing}/{written.prefix} is inside {whose} "
                    f"(s3://{ingest.existing}/{route.prefix}*{route.suffix}), so what a run writes "
                    "could start runs: choose another bucket or prefix"
                )
    work = buckets["work"]
    for setting, written in buckets.items():
        if setting not in {"ingest", "work"} and are_below(written, work):
            yield (
                f"work.prefix: s3://{work.existing}/{work.prefix} and {setting}.prefix overlap, so "
                "a member could replace a plan: choose another bucket or prefix"
            )
