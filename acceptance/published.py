"""The published archives of other tools' measurements, in full size or scaled down."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from acceptance.cases import one_member, small_archive
from acceptance.checks import Case, Done, complete
from acceptance.contents import large_member
from s3unzip.forecast import find_fixture, make_fixture, make_forecast
from s3unzip.settings import MIB

if TYPE_CHECKING:
    from acceptance.archives import Archive
    from acceptance.site import Site
    from s3unzip.forecast import Forecast


@dataclass(frozen=True, slots=True)
class Scaled:
    """A published archive and its divisor at the small scale."""

    name: str  # in s3unzip.forecast.FIXTURES
    divisor: int


PUBLISHED = (Scaled("49k", 512), Scaled("1k", 250), Scaled("400k", 1_000), Scaled("100gb", 10_000))


def make_archive(one: Scaled, *, full: bool) -> Archive:
    """Return the archive: with fewer members at the small scale, or a smaller one."""
    fixture = find_fixture(one.name)
    divisor = 1 if full else one.divisor
    share = fixture.compressed / fixture.size
    if fixture.members == 1:
        return one_member(large_member("huge.txt", fixture.size // divisor, share))
    return small_archive(fixture.members // divisor, fixture.size, share)


def forecast(site: Site, one: Scaled) -> Forecast:
    """Return the forecast of the archive in its full size in this environment."""
    tuning, platform = site.scale.tuning, site.scale.platform
    return make_forecast(make_fixture(find_fixture(one.name), tuning), platform, tuning)


def do_published(site: Site, *, one: Scaled, full: bool) -> Done:
    """Extract a published archive."""
    archive = make_archive(one, full=full)
    put = site.put(f"published-{one.name}", archive)
    report = complete(site, put)
    got = f"{report.verdict}, {archive.count:,} equal, {put.pin.size / MIB:,.1f} MiB"
    if report.event_time is None:
        return Done(got, (report,))
    return Done(
        f"{got}, {report.finished - report.event_time:,.1f} s from put to report", (report,)
    )


def published_cases(*, full: bool) -> list[Case]:
    """Return the cases of the published archives."""
    return [
        Case(
            one.name,
            "COMPLETED, "
            + ("as published" if full else f"1/{one.divisor:,} of the published size"),
            partial(do_published, one=one, full=full),
        )
        for one in PUBLISHED
    ]
