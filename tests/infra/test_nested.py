"""Nested archives on AWS: who may queue them, and who may read them where they were written."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from infra.environment import Environment, load_environment
from infra.sections import OptionsSection

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.infra.templates import Synthesized

MEMBERS = "<StorageDestination.Arn>/*"


def test_rights_follow_the_option(
    dev: Synthesized, synthesize: Callable[[Environment], Synthesized]
) -> None:
    """Only with the option all functions that read archives read members."""
    values = load_environment("dev").model_dump()
    values["options"]["nested_depth"] = 2
    made = synthesize(Environment.model_validate(values))
    read = ("s3:GetObjectVersion", MEMBERS)
    for name in ("plan", "link", "extract"):
        assert {read, ("s3:GetObject", MEMBERS)} <= made.rights(name)
        assert read not in dev.rights(name)


def test_not_with_gzip() -> None:
    """What is kept as gzip cannot be read as an archive: the two are refused together."""
    with pytest.raises(ValidationError, match="nested_depth"):
        OptionsSection(nested_depth=1, as_gzip="suffix")
