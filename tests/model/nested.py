"""What is right of archives inside archives: docs/howto/nested-archives.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model.facts import ENDED_WELL

if TYPE_CHECKING:
    from tests.model.facts import ArchiveFacts, RunState
    from tests.model.run import Model


def learn_nested(model: Model, run: str, key: str, etag: str) -> None:
    """An object became visible; if it is an archive inside the run's archive, it may have a run."""
    state = model.runs.get(run)
    if state is not None:
        found = [facts for inner, facts in state.facts.nested if inner == key]
        model.versions.update((etag, facts) for facts in found)


def right_nested(model: Model) -> list[ArchiveFacts]:
    """Return the archives inside the current archive that are at the destination."""
    current = model.versions[str(model.current)]
    bodies = {member.key: member.body for member in current.members}
    there = {key: written.body for key, written in model.objects.items()}
    return [facts for key, facts in current.nested if there.get(key) == bodies[key]]


def check_nested(model: Model) -> None:
    """All is quiet: each archive inside the current archive has a run that ended."""
    current = model.versions[str(model.current)]
    if not any(_ended_well(one) for one in model.runs.values() if one.facts is current):
        return
    for facts in right_nested(model):
        ended = any(one.facts is facts and one.reports for one in model.runs.values())
        model.must(ended, "nested-archives.md: each inner archive has a separate run", facts)


def _ended_well(state: RunState) -> bool:
    return bool(state.reports) and state.reports[-1]["verdict"] in ENDED_WELL
