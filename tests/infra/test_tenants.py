"""Archives of several tenants: a rule and a message group for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from infra.environment import load_environment

if TYPE_CHECKING:
    from collections.abc import Callable

    from infra.environment import Environment
    from tests.infra.templates import Synthesized

RULE = "AWS::Events::Rule"


def archive_targets(made: Synthesized) -> dict[str, object]:
    """Return the SQS parameters of each rule that queues archives, by the keys it takes."""
    found: dict[str, object] = {}
    for rule in made.resources(RULE).values():
        pattern = rule["Properties"]["EventPattern"]
        if pattern["detail-type"] == ["Object Created"]:
            (target,) = rule["Properties"]["Targets"]
            key = pattern["detail"]["object"]["key"][0]["wildcard"]
            found[key] = target.get("SqsParameters")
    return found


@pytest.fixture(scope="module")
def shared(synthesize: Callable[[Environment], Synthesized]) -> Synthesized:
    """The environment dev for two tenants."""
    return synthesize(load_environment("dev", settings={"ingest.tenants": ["acme/", "globex/"]}))


def test_each_tenant_is_a_message_group(shared: Synthesized) -> None:
    """So the queue is fair between them."""
    assert archive_targets(shared) == {
        "acme/*.zip": {"MessageGroupId": "acme/"},
        "globex/*.zip": {"MessageGroupId": "globex/"},
    }


def test_without_tenants_there_are_no_groups(dev: Synthesized) -> None:
    """Every message is a tenant of its own."""
    assert archive_targets(dev) == {"*.zip": None}
