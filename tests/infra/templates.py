"""A synthesized template, asked the way tests ask."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infra.environment import Environment
from infra.reasons import listed, resources_of


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

    def properties(self, kind: str, name: str) -> dict[str, Any]:
        """Return the properties of the one resource of a type whose logical id begins so."""
        resources = self.resources(kind)
        begin_so = [logical for logical in resources if logical.startswith(name)]
        # A hash of 8 digits ends the logical id: "FunctionsPlan" is not the planner.
        whole = [one for one in begin_so if re.fullmatch(f"{name}[0-9A-F]{{8}}", one)]
        (found,) = whole or begin_so
        return resources[found]

    def policy(self, role: str) -> set[tuple[str, str]]:
        """Return (action, resource) of a role's policy; resources without CDK's hashes."""
        statements = self.properties("AWS::IAM::Policy", role)["PolicyDocument"]["Statement"]
        return {
            (action, self._short(resource))
            for statement in statements
            for action in listed(statement["Action"])
            for resource in resources_of(statement)
        }

    def rights(self, function: str) -> set[tuple[str, str]]:
        return self.policy(f"Functions{function.capitalize()}Role")

    def definition(self) -> dict[str, Any]:
        (machine,) = self.resources("AWS::StepFunctions::StateMachine").values()
        parts = machine["DefinitionString"]["Fn::Join"][1]
        text = "".join(part if isinstance(part, str) else _reference(part) for part in parts)
        found: dict[str, Any] = json.loads(text)
        return found

    def _short(self, resource: str) -> str:
        for name in self.template["Resources"]:
            if name in resource:
                return resource.replace(name, name[:-8])
        return resource


def _reference(part: dict[str, Any]) -> str:
    if "Ref" in part:
        return "aws" if part["Ref"] == "AWS::Partition" else str(part["Ref"])
    logical, attribute = part["Fn::GetAtt"]
    return f"{logical[:-8]}.{attribute}"
