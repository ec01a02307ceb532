"""What environments say about their runs is told to the functions, and allowed to them."""

import json
from collections.abc import Callable

import pytest

from s3unzip.aws.environment import read_worker
from s3unzip.model import AfterSuccess, Options, SourceAction, decode
from s3unzip.object_properties import ObjectProperties
from s3unzip.settings import Variable
from tests.infra.templates import Synthesized
from tests.support.assemblies import SECRET

FUNCTIONS = ("intake", "plan", "extract", "settle")
INGEST, MEMBERS = "<StorageIngest.Arn>", "<StorageDestination.Arn>/*"
NEEDED = {
    Variable.TRIGGER_BUCKET.value: "in",
    Variable.DESTINATION.value: "s3://out/",
    Variable.WORK_BUCKET.value: "work",
}


def _variables_of(made: Synthesized, function: str = "intake") -> dict[str, str]:
    properties = made.properties("AWS::Lambda::Function", f"Functions{function.capitalize()}")
    return dict(properties["Environment"]["Variables"])


@pytest.mark.parametrize(
    ("variant", "prefix", "rule", "actions"),
    [
        ("options", "in/", AfterSuccess(SourceAction.DELETE), {"s3:DeleteObjectVersion"}),
        (
            "nested",
            "",
            AfterSuccess(SourceAction.TAG, tags={"state": "extracted"}),
            {"s3:GetObjectVersionTagging", "s3:PutObjectVersionTagging"},
        ),
    ],
)
def test_after_success(
    dev: Synthesized,
    synthesized: Callable[[str], Synthesized],
    variant: str,
    prefix: str,
    rule: AfterSuccess,
    actions: set[str],
) -> None:
    """The functions that end runs have the rights on the archives, and no other has."""
    made = synthesized(variant)
    wanted = {(action, f"{INGEST}/{prefix}*") for action in actions}
    for name in ("intake", "plan", "settle"):
        assert wanted <= made.rights(name)
        assert not {action for action, _ in dev.rights(name)} & actions
    assert not wanted & made.rights("extract")
    text = _variables_of(made, "settle")[Variable.AFTER_SUCCESS]
    assert read_worker({**NEEDED, Variable.AFTER_SUCCESS.value: text}).after_success == rule


def test_nested_archives(dev: Synthesized, nested: Synthesized) -> None:
    """Only with the option functions may read versions of members."""
    read = ("s3:GetObjectVersion", MEMBERS)
    for name in FUNCTIONS:
        assert {read, ("s3:GetObject", MEMBERS)} <= nested.rights(name)
        assert read not in dev.rights(name)


@pytest.mark.parametrize(("variant", "field"), [("acceptance", ""), ("nested", "#zip")])
def test_password(
    dev: Synthesized, synthesized: Callable[[str], Synthesized], variant: str, field: str
) -> None:
    """Who reads members gets the secret's ARN and may read exactly it; others may not."""
    made = synthesized(variant)
    told = {name for name in FUNCTIONS if SECRET in str(_variables_of(made, name))}
    right = ("secretsmanager:GetSecretValue", SECRET)
    assert told == {name for name in FUNCTIONS if right in made.rights(name)}
    assert told == {"intake", "plan", "extract"}
    assert _variables_of(made)[Variable.PASSWORD_SECRET] == SECRET + field
    assert "secretsmanager" not in json.dumps(dev.template)


def test_object_properties(dev: Synthesized, options: Synthesized) -> None:
    """The functions get the properties; who writes members may set tags and an ACL, if asked to."""
    told = decode(_variables_of(options)[Variable.OPTIONS], Options).objects
    assert told == ObjectProperties(
        "GLACIER_IR", tags={"team": "data"}, acl="bucket-owner-full-control"
    )
    for name in FUNCTIONS:
        for action in ("s3:PutObjectAcl", "s3:PutObjectTagging"):
            assert (action, MEMBERS) in options.rights(name)
            assert (action, MEMBERS) not in dev.rights(name)
    assert "objects" not in json.loads(_variables_of(dev)[Variable.OPTIONS])


def test_the_request_payer_is_a_variable(dev: Synthesized, options: Synthesized) -> None:
    """`ingest.request_payer` is in the variables of the functions."""
    for name in ("intake", "extract"):
        assert _variables_of(options, name)[Variable.REQUEST_PAYER] == "requester"
        assert _variables_of(dev, name)[Variable.REQUEST_PAYER] == ""
