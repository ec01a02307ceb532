"""The environment variables of a function (`Variable`), read once per cold start.

Wrong settings stop the function at its first call with one line that names the variable. `infra`
checks the settings at synthesis.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from s3unzip import errors
from s3unzip.context import Context
from s3unzip.model import AfterSuccess, Location, Options, Request, decode
from s3unzip.platforms import Platform, aws
from s3unzip.rates import LAMBDA_VCPU_MB
from s3unzip.settings import Tuning, Variable, make_tuning, spellings
from s3unzip.stores import Stores
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.locations import parse_destination
from s3unzip.stores.open import open_stores
from s3unzip.stores.s3.credentials import AwsSession
from s3unzip.zip import Limits, Policy

if TYPE_CHECKING:  # a stub
    from mypy_boto3_secretsmanager import SecretsManagerClient

SCHEME = "secretsmanager:"

# https://docs.aws.amazon.com/secretsmanager/latest/apireference/API_GetSecretValue.html
_SECRET_FAULTS: dict[str, type[errors.S3UnzipError]] = {
    "AccessDeniedException": errors.AccessDeniedError,
    "DecryptionFailure": errors.AccessDeniedError,
    "ResourceNotFoundException": errors.NotFoundError,
    "InvalidParameterException": errors.UsageError,
    "InvalidRequestException": errors.NotFoundError,  # the secret is being deleted
    "ValidationException": errors.UsageError,
}


class LambdaClock(LocalClock):
    """Real time, and the remaining time of one invocation."""

    def __init__(self, invocation: Any) -> None:  # Powertools' type has a property for the method
        super().__init__()
        self._invocation = invocation

    def remaining(self) -> float:
        """Return the seconds until Lambda ends this invocation."""
        return float(self._invocation.get_remaining_time_in_millis() / 1_000)


class Trigger(Struct, frozen=True):
    """Which keys of which bucket start runs."""

    bucket: str
    prefix: str
    suffix: str

    def covers(self, bucket: str, key: str) -> bool:
        """Return whether an object with this key starts a run."""
        in_scope = key.startswith(self.prefix) and key.endswith(spellings(self.suffix))
        return bucket == self.bucket and in_scope


class LambdaConfig(Struct, frozen=True, kw_only=True, dict=True):
    """What the variables of an environment's functions say: what all its runs have in common."""

    environment: str
    trigger: Trigger
    destination: Location
    work: Location  # the prefix of all runs
    options: Options
    after_success: AfterSuccess | None
    tuning: Tuning
    limits: Limits
    platform: Platform
    max_cost: float | None  # dollars a run
    scan: str  # "guardduty": archives are opened after their malware scan; or empty
    access: StoreConfig
    state_machine: str  # ARN
    event_bus: str
    queue: str  # URL; only the intake function has one

    @cached_property
    def stores(self) -> Stores:
        """The stores of a function, for its whole life."""
        return open_stores(self.access)

    @cached_property
    def policy(self) -> Policy:
        """The rules for archives, with the password, which is read once."""
        options, secret = self.options, None
        if options.password_ref:
            secret = read_secret(options.password_ref, open_client("secretsmanager"))
        return Policy(
            lenient=options.lenient,
            encoding=options.encoding,
            limits=self.limits,
            password=secret,
        )

    def request(self, key: str) -> Request:
        """Return the request for the archive `key` of the trigger's bucket."""
        return Request(
            source=Location("s3", self.trigger.bucket, key),
            destination=self.destination,
            options=self.options,
            after_success=self.after_success,
        )

    def context(self, invocation: Any) -> Context:
        """Return the context of one invocation."""
        return Context(
            stores=self.stores,
            clock=LambdaClock(invocation),
            policy=self.policy,
            tuning=self.tuning,
            max_cost=self.max_cost,
            platform=self.platform,
            environment=self.environment,
        )


@cache
def _session() -> AwsSession:
    return AwsSession()


@cache
def open_client(service: Literal["events", "secretsmanager", "sqs", "stepfunctions"]) -> Any:
    """Return the process's client of `service`, which retries; thread-safe."""
    retries = {"total_max_attempts": 6, "mode": "standard"}
    return _session().client(service, connect_timeout=5, read_timeout=20, retries=retries)


@cache
def open_worker() -> LambdaConfig:
    """Return the configuration from the process's environment; the same object each time."""
    return read_worker(os.environ)


def read_worker(variables: Mapping[str, str]) -> LambdaConfig:
    """Return the configuration from `variables`; nothing is asked of AWS."""
    options = decode(variables.get(Variable.OPTIONS) or "{}", Options)
    secret, rule = variables.get(Variable.PASSWORD_SECRET), variables.get(Variable.AFTER_SUCCESS)
    if secret:
        options = msgspec.structs.replace(options, password_ref=SCHEME + secret)
    tuning = make_tuning(_table(variables, Variable.TUNING))
    memory = int(_number(variables, Variable.WORKER_MEMORY) or LAMBDA_VCPU_MB)
    trigger = Trigger(
        _needed(variables, Variable.TRIGGER_BUCKET),
        variables.get(Variable.TRIGGER_PREFIX, ""),
        variables.get(Variable.TRIGGER_SUFFIX, ""),
    )
    destination = parse_destination(_needed(variables, Variable.DESTINATION))
    ours, theirs = trigger.prefix, destination.key
    overlaps = ours.startswith(theirs) or theirs.startswith(ours)
    if destination.bucket == trigger.bucket and overlaps:
        raise errors.UsageError(
            f"the destination {destination} is inside the trigger's scope "
            f"(s3://{trigger.bucket}/{ours}*{trigger.suffix}), so its members could start runs: "
            "deploy with another bucket or prefix"
        )
    work = Location(
        "s3", _needed(variables, Variable.WORK_BUCKET), variables.get(Variable.WORK_PREFIX, "")
    )
    try:
        limits = Limits(**_table(variables, Variable.LIMITS))
    except TypeError as error:
        raise errors.UsageError(f"the environment variable {Variable.LIMITS}: {error}") from error
    return LambdaConfig(
        environment=variables.get(Variable.ENVIRONMENT, ""),
        trigger=trigger,
        destination=destination,
        work=work,
        options=options,
        after_success=decode(rule, AfterSuccess) if rule else None,
        tuning=tuning,
        limits=limits,
        platform=aws(workers=tuning.max_workers, memory_mb=memory),
        max_cost=_number(variables, Variable.MAX_COST),
        scan=variables.get(Variable.SCAN, ""),
        access=StoreConfig(
            work,
            request_payer=bool(variables.get(Variable.REQUEST_PAYER)),
            destination_owner=variables.get(Variable.DESTINATION_OWNER) or None,
            destination_kms_key=variables.get(Variable.DESTINATION_KMS_KEY) or None,
        ),
        state_machine=variables.get(Variable.STATE_MACHINE, ""),
        event_bus=variables.get(Variable.EVENT_BUS) or "default",
        queue=variables.get(Variable.QUEUE, ""),
    )


def _needed(variables: Mapping[str, str], name: Variable) -> str:
    value = variables.get(name, "")
    if not value:
        raise errors.UsageError(
            f"the environment variable {name} is not set: deploy with the stack"
        )
    return value


def _number(variables: Mapping[str, str], name: Variable) -> float | None:
    value = variables.get(name)
    if not value:
        return None
    try:
        return float(value)
    except ValueError:
        raise errors.UsageError(
            f"the environment variable {name} is no number: {value!r}"
        ) from None


def _table(variables: Mapping[str, str], name: Variable) -> dict[str, Any]:
    try:
        value = json.loads(variables.get(name) or "{}")
    except ValueError as error:
        raise errors.UsageError(f"the environment variable {name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise errors.UsageError(
            f"the environment variable {name} must be a JSON object, not {value!r}"
        )
    return value


# The password of archives, in AWS Secrets Manager


def read_secret(ref: str, client: SecretsManagerClient) -> bytes:
    """Return the password that `ref` names; it is never logged and never part of an error.

    ``secretsmanager:NAME`` or ``secretsmanager:ARN`` is the secret's whole value; ``...#field`` one
    field of a secret that is a JSON object, as the console makes them.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - few need it

    name, _, field = ref.removeprefix(SCHEME).partition("#")
    if not ref.startswith(SCHEME) or not name:
        raise errors.UsageError(f"password reference {ref!r}: only {SCHEME}NAME is known here")
    try:
        answer = client.get_secret_value(SecretId=name)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        kind, advice = _SECRET_FAULTS.get(code, errors.ServiceFaultError), ""
        if kind is errors.AccessDeniedError:
            needs = "secretsmanager:GetSecretValue, and kms:Decrypt of its key"
            advice = f"; the function needs {needs}"
        raise kind(f"secret {name}: {code}{advice}") from error
    except BotoCoreError as error:
        raise errors.ServiceFaultError(f"secret {name}: {type(error).__name__}") from error
    is_text = "SecretString" in answer
    value = answer["SecretString"].encode() if is_text else answer["SecretBinary"]
    if field:
        try:
            fields = json.loads(value)
        except ValueError:
            fields = None  # the error would quote the value
        found = fields.get(field) if isinstance(fields, dict) else None
        if not isinstance(found, str):
            raise errors.UsageError(f"secret {name}: is no JSON object with a text field {field!r}")
        value = found.encode()
    if not value:
        raise errors.UsageError(f"secret {name}: is empty")
    return value
