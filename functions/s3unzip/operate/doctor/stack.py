"""Checks of the stack: is its last deployment complete, and does it run this package's code?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.fingerprint import package_version, source_fingerprint
from s3unzip.operate.doctor.results import Answer

if TYPE_CHECKING:
    from s3unzip.operate.doctor.deployment import Deployment

DEPLOY = "deploy again: make deploy ENV={}"


def check_stack(deployment: Deployment) -> Answer:
    """Is the last deployment complete?

    https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/view-stack-events.html
    """
    stack = deployment.stack
    said = f"{stack.name} is {stack.status} in {deployment.region}, account {deployment.account}"
    if stack.status in {"CREATE_COMPLETE", "UPDATE_COMPLETE", "IMPORT_COMPLETE"}:
        return Answer.ok(said)
    if stack.status.endswith("IN_PROGRESS"):
        return Answer.warning(said, "wait until the deployment ends, then run this command again")
    if stack.status == "UPDATE_ROLLBACK_COMPLETE":  # the state before the update is complete
        return Answer.warning(
            said, "the last update was rolled back: read the stack's events, then deploy again"
        )
    return Answer.failure(said, "read the stack's events, fix the cause, deploy")


def check_version(deployment: Deployment) -> Answer:
    """Do the functions run the code of this package?"""
    outputs = deployment.stack.outputs
    deploy = DEPLOY.format(deployment.runs.environment)
    there, here = outputs.get("Version"), package_version()
    if there is None:
        return Answer.warning(
            "the stack has no version output: it is older than this command", deploy
        )
    if there != here:
        message = f"version {there} is deployed, this is {here}"
        return Answer.warning(message, deploy)
    if outputs.get("Fingerprint") != source_fingerprint():
        message = f"version {there} is deployed from source files that differ from this package's"
        return Answer.warning(message, f"{deploy}; or check out the deployed version")
    return Answer.ok(f"version {there}, the same source files as here")
