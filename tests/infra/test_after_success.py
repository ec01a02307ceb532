"""After success in the stack: the setting, the functions' variable, and rights only with it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from infra.environment import Environment, load_environment
from s3unzip.aws.environment import read_orders
from s3unzip.model import AfterSuccess, Location, SourceAction
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.infra.templates import Synthesized

INGEST = "<StorageIngest.Arn>"
NEEDED = {
    Variable.TRIGGER_BUCKET.value: "in",
    Variable.TRIGGER_PREFIX.value: "in/",
    Variable.DESTINATION.value: "s3://out/",
}


def environment(after: dict[str, Any], **ingest: object) -> Environment:
    """Return dev with a rule."""
    values = load_environment("dev").model_dump()
    values["after_success"] = after
    values["ingest"] |= {"prefix": "in/", **ingest}
    return Environment.model_validate(values)


@pytest.mark.parametrize(
    ("after", "actions"),
    [
        ({"action": "delete"}, {"s3:DeleteObjectVersion"}),
        (
            {"action": "tag", "tags": {"state": "extracted"}},
            {"s3:GetObjectVersionTagging", "s3:PutObjectVersionTagging"},
        ),
        (
            {"action": "move", "prefix": "done/"},
            {"s3:DeleteObjectVersion", "s3:GetObjectVersionTagging"},
        ),
    ],
    ids=lambda value: str(value.get("action")) if isinstance(value, dict) else "",
)
def test_rights_follow_the_setting(
    dev: Synthesized,
    synthesize: Callable[[Environment], Synthesized],
    after: dict[str, Any],
    actions: set[str],
) -> None:
    """The two functions that end runs have the rights on the archives, and no other has."""
    made = synthesize(environment(after))
    wanted = {(action, f"{INGEST}/in/*") for action in actions | {"s3:GetObjectVersion"}}
    for name in ("plan", "report"):
        assert wanted | {("s3:ListBucket", INGEST)} <= made.rights(name)
    for name in ("planner", "link", "extract"):
        assert not {right for right in wanted if right[0][3:] != "GetObjectVersion"} & made.rights(
            name
        )
    for name in ("plan", "report"):
        assert not {action for action, _ in dev.rights(name)} & actions
    target = {(f"s3:{verb}", f"{INGEST}/done/*") for verb in ("GetObject", "PutObject")}
    assert (target <= made.rights("report")) is (after["action"] == "move")


def test_a_move_to_another_bucket(synthesize: Callable[[Environment], Synthesized]) -> None:
    """The rights to write are on that bucket's prefix, and without versions If-Match is used."""
    after = {"action": "move", "bucket": "old-archives", "prefix": "done/"}
    made = synthesize(environment(after, existing="my-archives", versioned=False))
    rights = made.rights("report")
    assert any(
        action == "s3:PutObject" and arn.endswith(":s3:::old-archives/done/*")
        for action, arn in rights
    )
    actions = {action for action, _ in rights}
    assert "s3:GetObjectTagging" in actions
    assert "s3:DeleteObjectVersion" not in actions


def test_the_functions_read_what_the_stack_writes(
    synthesize: Callable[[Environment], Synthesized],
) -> None:
    """The variable is a rule of the package."""
    after = {"action": "move", "bucket": "old-archives", "prefix": "done/"}
    made = synthesize(environment(after))
    function = made.properties("AWS::Lambda::Function", "FunctionsReport")
    text = function["Environment"]["Variables"][Variable.AFTER_SUCCESS]
    rule = read_orders({**NEEDED, Variable.AFTER_SUCCESS.value: text}).after_success
    target = Location("s3", "old-archives", "done/")
    assert rule == AfterSuccess(SourceAction.MOVE, target)
    assert json.loads(text)["action"] == "move"


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"action": "burn"}, "after_success.action"),
        ({"action": "move"}, "a move needs the prefix"),
        ({"action": "delete", "prefix": "done/"}, 'it is for action = "move"'),
        ({"prefix": "done/"}, 'it is for action = "move"'),
        ({"action": "tag"}, "needs at least one"),
        ({"action": "delete", "tags": {"a": "b"}}, "others have none"),
        ({"action": "move", "prefix": "in/done/"}, "inside the trigger's scope"),
    ],
)
def test_a_wrong_rule_is_refused(after: dict[str, Any], words: str) -> None:
    """The words say what is wrong with which setting."""
    with pytest.raises(ValidationError, match=words):
        environment(after)


def test_a_bucket_without_versions_is_not_tagged() -> None:
    """S3 cannot tag one version there."""
    after = {"action": "tag", "tags": {"a": "b"}}
    with pytest.raises(ValidationError, match="bucket without versioning"):
        environment(after, existing="my-archives", versioned=False)
    assert environment(after, existing="my-archives").after_success.tags == {"a": "b"}
