"""The templates of the variants in `tests.support.assemblies`, asked the way tests ask."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from infra import environment_file, reasons
from infra.environment import Environment
from tests.support.assemblies import VARIANTS, synthesize_once


@dataclass(frozen=True, slots=True)
class Synthesized:
    """One environment's template, and where it was written."""

    environment: Environment
    path: Path
    template: dict[str, Any]

    def resources(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the properties of the resources of one type, by logical id."""
        return {
            name: resource.get("Properties", {})
            for name, resource in self.template["Resources"].items()
            if resource["Type"] == kind
        }

    def only(self, kind: str) -> dict[str, Any]:
        (properties,) = self.resources(kind).values()
        return properties

    def properties(self, name: str) -> dict[str, Any]:
        """Return the properties of a resource by its logical id without the hash of 8 digits."""
        (properties,) = (
            resource["Properties"]
            for logical, resource in self.template["Resources"].items()
            if re.fullmatch(f"{name}[0-9A-F]{{8}}", logical)
        )
        return dict(properties)

    def part(self, name: str, wanted: dict[str, Any]) -> Any:
        """Return what a resource has of the properties that are wanted."""
        return _part_of(_plain(self.properties(name)), wanted)

    def function(self, name: str) -> dict[str, Any]:
        return self.properties(f"Functions{name.capitalize()}")

    def variables(self, function: str) -> dict[str, Any]:
        return dict(self.function(function)["Environment"]["Variables"])

    def policy(self, name: str) -> set[tuple[str, str]]:
        """Return (action, resource) of a policy; resources without CDK's hashes."""
        return {
            (action, re.sub(r"<(\w+)[0-9A-F]{8}\.", r"<\1.", resource))
            for statement in self.properties(name)["PolicyDocument"]["Statement"]
            for action in reasons.listed(statement["Action"])
            for resource in map(reasons.text_of, reasons.listed(statement["Resource"]))
        }

    def rights(self, function: str) -> set[tuple[str, str]]:
        return self.policy(f"Functions{function.capitalize()}RoleDefaultPolicy")

    def allowed(self, function: str, action: str) -> set[str]:
        return {resource for allowed, resource in self.rights(function) if allowed == action}

    def definition(self) -> Any:
        text = reasons.text_of(self.only("AWS::StepFunctions::StateMachine")["DefinitionString"])
        plain = re.sub(r"<(\w+?)(?:[0-9A-F]{8}(\.Arn))?>", r"\1\2", text)
        return json.loads(plain.replace("<AWS::Partition>", "aws"))


def _plain(value: Any) -> Any:
    """Return a value of a template with logical ids, without their hashes, for references."""
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict) and not {"Ref", "Fn::GetAtt", "Fn::Join"} & value.keys():
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, dict):
        return re.sub(r"<(\w+?)[0-9A-F]{8}(\.\w+)?>", r"\1", reasons.text_of(value))
    return value


def _part_of(value: Any, wanted: Any) -> Any:
    if not isinstance(value, dict) or not isinstance(wanted, dict):
        return value
    return {name: _part_of(value.get(name), one) for name, one in wanted.items()}


def wildcards(prefix: str = "") -> list[Any]:
    """Return what a rule says of the keys that start runs."""
    return [{"wildcard": f"{prefix}*{suffix}"} for suffix in (".zip", ".ZIP", ".Zip")]


@pytest.fixture(scope="session")
def synthesized(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Synthesized]:
    def read(variant: str) -> Synthesized:
        path = synthesize_once(tmp_path_factory, variant).template
        name, settings = VARIANTS[variant]
        return Synthesized(
            environment_file.load_environment(name, settings=settings),
            path,
            json.loads(path.read_text()),
        )

    return read


@pytest.fixture
def made(synthesized: Callable[[str], Synthesized], variant: str) -> Synthesized:
    """The stack of the variant that the test names."""
    return synthesized(variant)


def _make_fixture(variant: str) -> Callable[..., Synthesized]:
    @pytest.fixture(scope="session", name=variant)
    def fixture(synthesized: Callable[[str], Synthesized]) -> Synthesized:
        return synthesized(variant)

    return fixture


globals().update({variant: _make_fixture(variant) for variant in VARIANTS})
