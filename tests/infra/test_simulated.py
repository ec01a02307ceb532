"""The simulation of runs walks the definition that is deployed."""

import json
import os

from tests.infra.templates import Synthesized
from tests.simulation.machine import DEFINITION


def test_the_simulation_has_the_definition(dev: Synthesized) -> None:
    """A change of the state machine shows in its snapshot (UPDATE_SNAPSHOTS=1 writes it)."""
    text = json.dumps(dev.definition(), indent=1) + "\n"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        DEFINITION.write_text(text)
    assert DEFINITION.read_text() == text
