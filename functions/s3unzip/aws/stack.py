"""A deployed stack: found by its name, it tells the rest in its outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
)

from s3unzip.errors import (
    AccessDeniedError,
    NotFoundError,
    ServiceFaultError,
    StorageError,
    ThrottledError,
)

if TYPE_CHECKING:
    from mypy_boto3_cloudformation import CloudFormationClient

    from s3unzip.errors import S3UnzipError

STACK = "s3unzip-{}"  # as the files in infra/environments name it
_CREDENTIALS = frozenset(
    {"ExpiredToken", "ExpiredTokenException", "InvalidClientTokenId", "UnrecognizedClientException"}
)


def find_outputs(stacks: CloudFormationClient, environment: str) -> dict[str, str]:
    """Return what the stack of `environment` tells: by our name for it, or by its own.

    Raises:
        NotFoundError: there is no such stack, or it is not s3unzip's.
        AccessDeniedError: a right is missing.
    """
    for name in (STACK.format(environment), environment):
        try:
            found = stacks.describe_stacks(StackName=name)["Stacks"][0]
        except (BotoCoreError, ClientError) as error:
            if isinstance(error, ClientError) and "does not exist" in str(error):
                continue
            raise read_fault(error, "cloudformation:DescribeStacks") from None
        outputs = {one["OutputKey"]: one["OutputValue"] for one in found.get("Outputs", ())}
        if {"StateMachineArn", "WorkBucket"} <= outputs.keys():
            return outputs
        raise NotFoundError(f"stack {name}: has not the outputs of s3unzip; is it deployed?")
    raise NotFoundError(
        f"environment {environment}: no stack {STACK.format(environment)} here; "
        "check --env, --profile and --region"
    )


def read_fault(error: Exception, action: str) -> S3UnzipError:
    """Return what an answer of CloudFormation, Step Functions or S3 means to an operator."""
    if isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError):
        return AccessDeniedError(f"{action}: {error}; set AWS_PROFILE or AWS_ACCESS_KEY_ID")
    if not isinstance(error, ClientError):
        return ServiceFaultError(f"{action}: {error}")
    told = error.response.get("Error", {})
    code, message = told.get("Code", ""), told.get("Message", "")
    text = f"{action}: {code}: {message}"
    if "AccessDenied" in code or "Unauthorized" in code or code in _CREDENTIALS:
        return AccessDeniedError(text)
    if "Throttl" in code or code == "TooManyRequestsException":
        return ThrottledError(text)
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return ServiceFaultError(text) if status >= 500 else StorageError(text)
