"""Which buckets and prefixes may not overlap, so that what a run writes starts no run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.sections import BucketSection, DestinationSection, IngestSection, WorkSection


def explain_overlap(
    ingest: IngestSection, destination: DestinationSection, work: WorkSection
) -> str | None:
    """Return which two overlap and what to do; None if all are apart."""
    for name, written in (("destination", destination), ("work", work)):
        if _overlap(ingest, written):
            return (
                f"{name}.prefix: s3://{written.existing}/{written.prefix} is inside the "
                f"trigger's scope (s3://{ingest.existing}/{ingest.prefix}*{ingest.suffix}), so "
                "what a run writes could start runs: choose another bucket or prefix"
            )
    if _overlap(destination, work):
        return (
            f"work.prefix: s3://{work.existing}/{work.prefix} and the destination overlap, so "
            "a member could replace a plan: choose another bucket or prefix"
        )
    return None


def _overlap(one: BucketSection, other: BucketSection) -> bool:
    """Return whether a key can be below both prefixes; created buckets always differ."""
    if one.existing is None or one.existing != other.existing:
        return False
    return one.prefix.startswith(other.prefix) or other.prefix.startswith(one.prefix)
