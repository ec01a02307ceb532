"""Whether an environment pays for reading its archives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.environment import Environment, load_environment
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.infra.templates import Synthesized


@pytest.mark.parametrize(("pays", "told"), [(True, "requester"), (False, "")])
def test_every_function_knows_who_pays(
    synthesize: Callable[[Environment], Synthesized],
    pays: bool,  # noqa: FBT001 - a parameter of the test
    told: str,
) -> None:
    """`ingest.request_payer` is in the variables of the functions."""
    environment = load_environment("dev", settings={"ingest.request_payer": pays})
    made = synthesize(environment)
    for name in ("FunctionsPlan", "FunctionsExtract"):
        variables = made.properties("AWS::Lambda::Function", name)["Environment"]["Variables"]
        assert variables[Variable.REQUEST_PAYER] == told
