"""A deployed environment as the checks see it; each fact is read once, when a check needs it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from s3unzip.aws.environment import read_orders, read_scale
from s3unzip.operate.doctor.asking import ask

if TYPE_CHECKING:
    from s3unzip.aws.environment import Capacity, RunDefaults
    from s3unzip.operate.runs import DeployedRuns
    from s3unzip.operate.stack import Stack

ALARM = "AWS::CloudWatch::Alarm"
FUNCTION = "AWS::Lambda::Function"
QUEUE = "AWS::SQS::Queue"
RULE = "AWS::Events::Rule"


class Resource(NamedTuple):
    """One resource of the stack."""

    logical: str  # its name in the template: "FunctionsExtract1A2B3C4D"
    kind: str  # "AWS::Lambda::Function"
    physical: str  # its name in AWS; for a queue its URL


class Deployment:
    """The stack, its resources, the planner's variables, and clients.

    A property that calls AWS raises the errors of `ask`, which the caller of the checks catches.
    """

    def __init__(self, runs: DeployedRuns) -> None:
        self.runs = runs
        self._clients: dict[str, Any] = {}

    @property
    def stack(self) -> Stack:
        """The stack as it was found."""
        return self.runs.stack

    @property
    def account(self) -> str:
        """The id of the stack's account, 12 digits."""
        return self.stack.outputs["StateMachineArn"].split(":")[4]

    @property
    def region(self) -> str:
        """The stack's region."""
        return self.stack.outputs["StateMachineArn"].split(":")[3]

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        """The resources of the stack."""
        pages = self.client("cloudformation").get_paginator("list_stack_resources")

        def read() -> tuple[Resource, ...]:
            return tuple(
                Resource(one["LogicalResourceId"], one["ResourceType"], one["PhysicalResourceId"])
                for page in pages.paginate(StackName=self.stack.name)
                for one in page["StackResourceSummaries"]
                if "PhysicalResourceId" in one  # missing while the resource is being created
            )

        return ask("cloudformation:ListStackResources", read)

    @cached_property
    def variables(self) -> dict[str, str]:
        """The environment variables of the plan function."""
        return self.runs.planner_variables()

    @cached_property
    def orders(self) -> RunDefaults:
        """What all runs of the environment have in common."""
        return read_orders(self.variables)

    @cached_property
    def scale(self) -> Capacity:
        """How large the runs of the environment may be."""
        return read_scale(self.variables)

    def names(self, kind: str) -> list[str]:
        """Return the physical names of the stack's resources of this kind."""
        return [one.physical for one in self.resources if one.kind == kind]

    def client(self, service: str) -> Any:
        """Return the client of a service."""
        if service not in self._clients:
            self._clients[service] = self.runs.client(service)
        return self._clients[service]
