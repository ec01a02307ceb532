"""Options of what is set on the objects that a run writes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli.options.messages import OptionGroup
from s3unzip.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip.object_properties import ObjectProperties

# A glob may have "=" in it, as in "year=2026/*.csv=text/csv"; so may what follows the type's ";".
TYPE = re.compile(r"(?P<glob>[^;]*)=(?P<kind>[^/=;]+/[^/=;]+(;.*)?)", re.DOTALL)


@dataclass(frozen=True)
class Objects(OptionGroup):
    """What is set on the objects of a destination in S3."""

    storage_class: Annotated[
        str | None,
        typer.Option(
            "--storage-class", metavar="CLASS", help="Of every object in S3, such as STANDARD_IA."
        ),
    ] = None
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="KEY=VALUE", help="Tag of every object in S3; repeatable."),
    ] = None
    metadata: Annotated[
        list[str] | None,
        typer.Option(
            "--metadata", metavar="NAME=VALUE", help="Metadata of every object in S3; repeatable."
        ),
    ] = None
    cache_control: Annotated[
        str | None,
        typer.Option(
            "--cache-control", metavar="TEXT", help="Cache-Control header of every object in S3."
        ),
    ] = None
    content_type: Annotated[
        list[str] | None,
        typer.Option(
            "--content-type",
            metavar="GLOB=TYPE",
            help="Type of members that match, instead of their suffix's; the first match counts.",
        ),
    ] = None

    def properties(self) -> ObjectProperties | None:
        """Return what is to be set, None if nothing is.

        Raises:
            UsageError: an option is not of its form, a name is given twice, or S3 takes no such
                value.
        """
        lists = self.tag, self.metadata, self.content_type
        if (self.storage_class, self.cache_control) == (None, None) and not any(lists):
            return None
        from s3unzip.object_properties import ObjectProperties

        chosen = ObjectProperties(
            storage_class=self.storage_class,
            cache_control=self.cache_control,
            content_types=_read_types(self.content_type or ()),
            metadata=_read_pairs("--metadata", self.metadata or ()),
            tags=_read_pairs("--tag", self.tag or ()),
        )
        chosen.check()
        return chosen


def _read_pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Return values by name, by the order of the names: another order is the same run.

    Raises:
        UsageError: a text has no "=", or a name is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, mark, value = text.partition("=")
        if not mark:
            raise UsageError(f"{option} {text}: must be NAME=VALUE")
        if name in found:
            raise UsageError(f"{option} {text}: {name!r} is given twice")
        found[name] = value
    return dict(sorted(found.items()))


def _read_types(texts: Iterable[str]) -> dict[str, str]:
    """Return types by glob, in their order: the first that fits counts.

    Raises:
        UsageError: a text is not of the form, or a glob is given twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        read = TYPE.fullmatch(text)
        if read is None:
            raise UsageError(f"--content-type {text}: must be GLOB=TYPE, like '*.csv=text/csv'")
        if read["glob"] in found:
            raise UsageError(f"--content-type {text}: {read['glob']!r} is given twice")
        found[read["glob"]] = read["kind"]
    return found
