"""Properties of the objects that an environment's runs write: checked, told, and allowed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from infra.environment import Environment, EnvironmentFileError, load_environment
from s3unzip.model import Options, decode
from s3unzip.object_properties import ObjectProperties
from s3unzip.settings import Variable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.infra.templates import Synthesized

MEMBERS = "<StorageDestination.Arn>/*"
TAGGING = ("s3:PutObjectTagging", MEMBERS)
SETTINGS = {"options.objects.storage_class": "GLACIER_IR", "options.objects.tags.team": "data"}


def test_runs_are_told_and_writers_may_tag(
    synthesize: Callable[[Environment], Synthesized], dev: Synthesized
) -> None:
    """The functions get the properties; only with tags, only who writes members may set them."""
    made = synthesize(load_environment("dev", settings=SETTINGS))
    variables = made.properties("AWS::Lambda::Function", "FunctionsPlan")["Environment"]
    options = decode(variables["Variables"][Variable.OPTIONS], Options)
    assert options.objects == ObjectProperties(storage_class="GLACIER_IR", tags={"team": "data"})
    writers = {"plan", "planner", "link", "extract", "report"}
    for name in ("plan", "planner", "link", "extract", "report"):
        assert (TAGGING in made.rights(name)) == (name in writers)
        assert TAGGING not in dev.rights(name)
    told = dev.properties("AWS::Lambda::Function", "FunctionsPlan")["Environment"]["Variables"]
    assert "objects" not in json.loads(told[Variable.OPTIONS])


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
