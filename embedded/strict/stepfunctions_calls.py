"""What a state machine does in other services goes through `as_role`, one function for all.

AWS makes these calls as the state machine's role: lambda:InvokeFunction of a task,
s3:GetObject of an ItemReader or a HEAD, s3:PutObject of a ResultWriter, states:StartExecution of
a Distributed Map. A rule on rights replaces `as_role` in this module by a function that
raises `DeniedError` first.
https://docs.aws.amazon.com/step-functions/latest/dg/iam-policies-eg-dist-map.html
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")


class DeniedError(Exception):
    """The role of the state machine does not allow a call; the message is AWS's sentence."""


def as_role(
    execution: dict[str, Any],  # noqa: ARG001 - for the rule that replaces this function
    action: str,  # noqa: ARG001
    resource: str,  # noqa: ARG001
    call: Callable[[], Answer],
) -> Answer:
    """Do `call` as the role of the execution's state machine; `resource` is an ARN.

    Raises:
        DeniedError: the role does not allow `action` on `resource`.
    """
    return call()


def put_object(execution: dict[str, Any], bucket: str, key: str, body: bytes) -> None:
    """Write an object as the state machine's role.

    Raises:
        DeniedError: the role does not allow it.
        OSError: S3 refused; the message is its answer.
    """
    s3: Any = import_module("ministack.services.s3")
    status, _, answer = as_role(
        execution,
        "s3:PutObject",
        f"arn:aws:s3:::{bucket}/{key}",
        lambda: s3._put_object(bucket, key, body, {"content-type": "application/json"}),
    )
    if status >= 300:
        raise OSError(answer.decode("utf-8", "replace"))
