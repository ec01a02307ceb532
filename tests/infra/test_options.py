"""What environments say about their runs: checked, told to the functions, and allowed to them."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from infra.environment import Environment, EnvironmentFileError, OptionsSection, load_environment
from s3unzip.aws.environment import read_worker
from s3unzip.model import AfterSuccess, Options, SourceAction, decode
from s3unzip.object_properties import ObjectProperties
from s3unzip.settings import Variable
from tests.infra.templates import Synthesized

ARN = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:archives/zip-AbCdEf"
FUNCTIONS = ("intake", "plan", "extract", "settle")
INGEST, MEMBERS = "<StorageIngest.Arn>", "<StorageDestination.Arn>/*"
NEEDED = {
    Variable.TRIGGER_BUCKET.value: "in",
    Variable.DESTINATION.value: "s3://out/",
    Variable.WORK_BUCKET.value: "work",
}
Synthesize = Callable[[Environment], Synthesized]


def variables_of(made: Synthesized, function: str = "Intake") -> dict[str, str]:
    """Return the environment variables of a function."""
    properties = made.properties("AWS::Lambda::Function", f"Functions{function}")
    return dict(properties["Environment"]["Variables"])


def after_success(after: dict[str, Any], **ingest: object) -> Environment:
    """Return dev with a rule of what is done after success."""
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
    ],
    ids=lambda value: str(value.get("action")) if isinstance(value, dict) else "",
)
def test_after_success(
    dev: Synthesized, synthesize: Synthesize, after: dict[str, Any], actions: set[str]
) -> None:
    """The functions that end runs have the rights on the archives, and no other has."""
    made = synthesize(after_success(after))
    wanted = {(action, f"{INGEST}/in/*") for action in actions}
    for name in ("intake", "plan", "settle"):
        assert wanted <= made.rights(name)
        assert not {action for action, _ in dev.rights(name)} & actions
    assert not wanted & made.rights("extract")
    text = variables_of(made, "Settle")[Variable.AFTER_SUCCESS]
    rule = read_worker({**NEEDED, Variable.AFTER_SUCCESS.value: text}).after_success
    assert rule == AfterSuccess(SourceAction(after["action"]), tags=after.get("tags", {}))


@pytest.mark.parametrize(
    ("after", "ingest", "words"),
    [
        ({"action": "burn"}, {}, "after_success.action"),
        ({"action": "tag"}, {}, "needs at least one"),
        ({"action": "delete", "tags": {"a": "b"}}, {}, "others have none"),
        (
            {"action": "tag", "tags": {"a": "b"}},
            {"existing": "my-archives", "versioned": False},
            "bucket without versioning",
        ),
    ],
)
def test_a_wrong_rule_is_refused(
    after: dict[str, Any], ingest: dict[str, object], words: str
) -> None:
    """The words say what is wrong with which setting."""
    with pytest.raises(ValidationError, match=words):
        after_success(after, **ingest)


def test_an_archive_is_not_deleted_after_a_selection() -> None:
    """Members that no run extracts would be lost with it."""
    values = after_success({"action": "delete"}).model_dump()
    values["options"]["include"] = ["*.csv"]
    with pytest.raises(ValidationError, match="members that are not extracted would be lost"):
        Environment.model_validate(values)


def test_nested_archives(dev: Synthesized, synthesize: Synthesize) -> None:
    """Only with the option functions may read versions of members; gzip excludes it."""
    made = synthesize(load_environment("dev", settings={"options.nested_depth": 2}))
    read = ("s3:GetObjectVersion", MEMBERS)
    for name in FUNCTIONS:
        assert {read, ("s3:GetObject", MEMBERS)} <= made.rights(name)
        assert read not in dev.rights(name)
    with pytest.raises(ValidationError, match="nested_depth"):
        OptionsSection(nested_depth=1, as_gzip="suffix")


@pytest.mark.parametrize("field", ["", "#password"])
def test_password(dev: Synthesized, synthesize: Synthesize, field: str) -> None:
    """Who reads members gets the secret's ARN and may read exactly it; others may not."""
    made = synthesize(load_environment("dev", settings={"password_secret": ARN + field}))
    told = {name for name in FUNCTIONS if ARN in str(variables_of(made, name.capitalize()))}
    right = ("secretsmanager:GetSecretValue", ARN)
    assert told == {name for name in FUNCTIONS if right in made.rights(name)}
    assert told == {"intake", "plan", "extract"}
    assert variables_of(made)[Variable.PASSWORD_SECRET] == ARN + field
    assert "secretsmanager" not in json.dumps(dev.template)


@pytest.mark.parametrize("wrong", ["hunter2", ARN[:-7], ARN + "#", ARN + "#a#b"])
def test_a_password_is_no_setting(wrong: str) -> None:
    """Only a full ARN is accepted, so the right is exact and no password is in a file."""
    with pytest.raises(EnvironmentFileError, match="password_secret"):
        load_environment("dev", settings={"password_secret": wrong})


def test_object_properties(dev: Synthesized, synthesize: Synthesize) -> None:
    """The functions get the properties; with tags, who writes members may set them."""
    settings = {"options.objects.storage_class": "GLACIER_IR", "options.objects.tags.team": "data"}
    made = synthesize(load_environment("dev", settings=settings))
    options = decode(variables_of(made)[Variable.OPTIONS], Options)
    assert options.objects == ObjectProperties(storage_class="GLACIER_IR", tags={"team": "data"})
    for name in FUNCTIONS:
        assert ("s3:PutObjectTagging", MEMBERS) in made.rights(name)
        assert ("s3:PutObjectTagging", MEMBERS) not in dev.rights(name)
    assert "objects" not in json.loads(variables_of(dev)[Variable.OPTIONS])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"options.objects.storage_class": "COLD"}, "storage class 'COLD': unknown"),
        ({"options.objects.tags.team": "R&D"}, "S3 takes no '&' in a tag"),
        ({"options.objects.metadata.mode": "1"}, "s3unzip writes it itself"),
        (
            {"options.objects.storage_class": "GLACIER", "options.nested_depth": 1},
            "objects.storage_class cannot be GLACIER",
        ),
        ({"options.objects.colour": "red"}, "there is no such setting"),
    ],
)
def test_what_s3_does_not_take_is_a_wrong_setting(settings: dict[str, object], said: str) -> None:
    """The synthesis ends with one line."""
    with pytest.raises(EnvironmentFileError) as caught:
        load_environment("dev", settings=settings)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("pays", "told"), [("true", "requester"), ("false", "")])
def test_who_pays_for_reading(synthesize: Synthesize, pays: str, told: str) -> None:
    """`ingest.request_payer` is in the variables of the functions."""
    made = synthesize(load_environment("dev", settings={"ingest.request_payer": pays}))
    for name in ("Intake", "Extract"):
        assert variables_of(made, name)[Variable.REQUEST_PAYER] == told


def test_options_that_are_too_long(synthesize: Synthesize) -> None:
    """Lambda takes 4 KB of variables: the synthesis says so, not the deployment."""
    values = load_environment("dev").model_dump()
    values["options"]["include"] = [f"folder-{number:04}/*.csv" for number in range(300)]
    with pytest.raises(EnvironmentFileError, match="of which Lambda allows 4,096 in all: shorten"):
        synthesize(Environment.model_validate(values))
