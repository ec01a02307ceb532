"""The settings of a Lambda function, from its environment variables, and the archives' password.

The settings are read once per cold start. If a setting is wrong, the first invocation fails with a
one-line error that names the environment variable. `infra` checks the settings at synthesis.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from s3unzip import errors
from s3unzip.context import Context
from s3unzip.model import (
    AfterSuccess,
    Location,
    Options,
    Report,
    Request,
    Route,
    Run,
    decode,
)
from s3unzip.pricing import Platform, aws
from s3unzip.rates import LAMBDA_VCPU_MB
from s3unzip.settings import STACK_PREFIX, Tuning, Variable, make_tuning, spellings
from s3unzip.stores.config import StoreConfig, parse_destination
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import Clock
from s3unzip.stores.s3.aws_session import AwsSession
from s3unzip.zip import Limits, Policy

if TYPE_CHECKING:  # the stubs are not deployed
    from mypy_boto3_secretsmanager import SecretsManagerClient

T = TypeVar("T")

CLIENT_OPTIONS: dict[str, Any] = {  # options for the clients of AWS's control plane
    "connect_timeout": 5,
    "read_timeout": 20,
    "retries": {"total_max_attempts": 6, "mode": "standard"},
}
PASSWORD_SECONDS = 300  # a changed secret takes effect after at most this time
SECRET_SCHEME = "secretsmanager:"  # noqa: S105 - the prefix of a password reference
# docs.aws.amazon.com/secretsmanager/latest/apireference/API_GetSecretValue.html
SECRET_ERRORS: dict[str, type[errors.S3UnzipError]] = {
    "AccessDeniedException": errors.AccessDeniedError,
    "DecryptionFailure": errors.AccessDeniedError,
    "ResourceNotFoundException": errors.NotFoundError,
    "InvalidParameterException": errors.UsageError,
    "InvalidRequestException": errors.NotFoundError,  # the secret is being deleted
    "ValidationException": errors.UsageError,
}


class RunDefaults(msgspec.Struct, frozen=True):
    """The settings shared by all runs of one route, or by all runs without a route."""

    ingest_bucket: str
    ingest_prefix: str  # prefix and suffix of the keys of the archives that start runs
    ingest_suffix: str
    destination: Location
    options: Options
    route: Route | None = None

    def covers(self, source: Location) -> bool:
        """Return whether an object at this location starts a run."""
        return (
            source.bucket == self.ingest_bucket
            and source.key.startswith(self.ingest_prefix)
            # The EventBridge rule accepts the same spellings, such as .zip, .ZIP and .Zip.
            and source.key.endswith(spellings(self.ingest_suffix))
        )

    @property
    def scope(self) -> str:
        """A glob for the archives that start runs, used in messages."""
        return f"s3://{self.ingest_bucket}/{self.ingest_prefix}*{self.ingest_suffix}"


class RouteVariable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One route from the JSON array in `Variable.ROUTES`."""

    name: str
    prefix: str = ""  # key prefix of the route's archives
    suffix: str = ""  # key suffix of the route's archives
    bucket: str = ""  # bucket for the members; if empty, that of the environment's destination
    destination: str = ""  # key prefix for the members
    owner: str | None = None  # account that owns the bucket
    kms_key: str | None = None  # KMS key that encrypts the members
    options: dict[str, Any] = {}  # only the options that differ from those of the environment
    password_secret: str = ""  # set only for the functions that read members


class LambdaConfig(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Settings shared by all runs of an environment, from a function's environment variables."""

    environment: str
    stack: str  # name of the stack
    environment_defaults: RunDefaults  # for archives that match no route
    routes: tuple[RunDefaults, ...]  # the first route that covers an archive applies
    work: Location  # the prefix for the records of all runs
    after_success: AfterSuccess | None  # None if archives are left unchanged
    tuning: Tuning
    limits: Limits
    platform: Platform
    max_cost: float | None  # maximum cost of a run in dollars; None if there is no limit
    scan: str  # "guardduty" if archives wait for their malware scan; otherwise empty
    access: StoreConfig
    state_machine: str  # ARN of the state machine
    event_bus: str
    queue: str  # URL; set only for the intake function

    @property
    def all_defaults(self) -> tuple[RunDefaults, ...]:
        """The defaults of the routes, in order, followed by those of the environment itself."""
        return (*self.routes, self.environment_defaults)

    @property
    def command_name(self) -> str:
        """The name that commands use for the environment: its stack without `STACK_PREFIX`."""
        return self.stack.removeprefix(STACK_PREFIX) or self.environment

    def covers(self, source: Location) -> bool:
        """Return whether an object at this location starts a run."""
        return any(defaults.covers(source) for defaults in self.all_defaults)

    def defaults_of(self, source: Location) -> RunDefaults:
        """Return the defaults of the first route that covers an archive.

        If no route covers the archive, the defaults of the environment are returned.
        """
        return next(
            (route for route in self.routes if route.covers(source)), self.environment_defaults
        )

    def request(self, key: str, event_time: float | None = None) -> Request:
        """Return the request for the archive `key` in the ingest bucket.

        Args:
            key: the key of the archive.
            event_time: when the archive was uploaded, in Unix seconds; None if not known.
        """
        source = Location("s3", self.environment_defaults.ingest_bucket, key)
        defaults = self.defaults_of(source)
        return Request(
            source=source,
            destination=defaults.destination,
            options=defaults.options,
            event_time=event_time,
            after_success=self.after_success,
            route=defaults.route,
        )

    @cached_property
    def stores(self) -> OpenedStores:
        """The stores of a function, opened once and then reused."""
        return OpenedStores(self.access)

    def context(self, invocation: Any, run: Run | Request | Report | None = None) -> Context:
        """Return the context of one invocation.

        Args:
            invocation: the context that Lambda passes to the handler.
            run: the run whose route and options apply. None selects the options of the
                environment, without a route.
        """
        settings = run or self.environment_defaults
        route = settings.route
        stores = self.stores
        if route is not None:
            access = msgspec.structs.replace(
                self.access,
                destination_owner=route.destination_owner,
                destination_kms_key=route.destination_kms_key,
            )
            # Each request names the owner and the KMS key, so all routes can share one session.
            shared_session = self.stores.session(self.access.at_destination())
            stores = OpenedStores(access, shared_session)
        return Context(
            stores=stores,
            clock=Clock(remaining=lambda: invocation.get_remaining_time_in_millis() / 1_000),
            policy=self._policy(settings.options),
            tuning=self.tuning,
            max_cost=self.max_cost,
            platform=self.platform,
            environment=self.command_name,
        )

    def _policy(self, options: Options) -> Policy:
        """Return the rules for archives, with the password that the options of a run refer to.

        The function is allowed to read only the secrets of its environment. The secret of the
        environment itself is read if the options refer to no secret, or if the route and its secret
        were removed after the run began.
        """
        readable_secrets = {defaults.options.password_ref for defaults in self.all_defaults}
        secret = options.password_ref
        if secret is None or secret not in readable_secrets:
            secret = self.environment_defaults.options.password_ref
        # The cached password is used until the period ends; then the secret is read again.
        return Policy(
            lenient=options.lenient,
            encoding=options.encoding,
            limits=self.limits,
            password=_read_password(secret, period=int(time.time() // PASSWORD_SECONDS)),
        )


def convert_input(data: Mapping[str, Any], kind: type[T]) -> T:
    """Return the input of a function as a value of `kind`; unknown fields of the input are ignored.

    Raises:
        UsageError: a field is missing or has the wrong type.
    """
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        raise errors.UsageError(f"the input is not a {kind.__name__}: {error}") from error


# `period` changes every `PASSWORD_SECONDS`, so that the secret is read again.
@lru_cache(maxsize=64)
def _read_password(secret: str | None, period: int) -> bytes | None:  # noqa: ARG001 - for the cache
    if secret is None:
        return None
    return read_secret(secret, open_client("secretsmanager"))


@cache
def _open_session() -> AwsSession:
    return AwsSession(StoreConfig())


@cache
def open_client(service: Literal["events", "secretsmanager", "sqs", "stepfunctions"]) -> Any:
    """Return this process's client for `service`; it is thread-safe and retries requests."""
    return _open_session().client(service, **CLIENT_OPTIONS)


@cache
def load_config() -> LambdaConfig:
    """Return the settings from this process's environment variables, which are read only once."""
    return read_config(os.environ)


def read_config(variables: Mapping[str, str]) -> LambdaConfig:
    """Return the settings in `variables` without sending requests to AWS."""
    tuning = make_tuning(_read_json(variables, Variable.TUNING, dict[str, Any]) or {})
    environment_defaults = _read_environment_defaults(variables)
    work = Location(
        "s3",
        _read_required(variables, Variable.WORK_BUCKET),
        variables.get(Variable.WORK_PREFIX, ""),
    )
    return LambdaConfig(
        environment=variables.get(Variable.ENVIRONMENT, ""),
        stack=variables.get(Variable.STACK, ""),
        environment_defaults=environment_defaults,
        routes=_read_routes(variables, environment_defaults),
        work=work,
        after_success=_read_json(variables, Variable.AFTER_SUCCESS, AfterSuccess),
        tuning=tuning,
        limits=_read_json(variables, Variable.LIMITS, Limits) or Limits(),
        platform=aws(
            workers=tuning.max_workers,
            memory_mb=_read_json(variables, Variable.WORKER_MEMORY, int) or LAMBDA_VCPU_MB,
        ),
        max_cost=_read_json(variables, Variable.MAX_COST, float),
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


def _read_environment_defaults(variables: Mapping[str, str]) -> RunDefaults:
    defaults = RunDefaults(
        _read_required(variables, Variable.TRIGGER_BUCKET),
        variables.get(Variable.TRIGGER_PREFIX, ""),
        variables.get(Variable.TRIGGER_SUFFIX, ""),
        parse_destination(_read_required(variables, Variable.DESTINATION)),
        options=_with_password(
            _read_json(variables, Variable.OPTIONS, Options) or Options(),
            variables.get(Variable.PASSWORD_SECRET),
        ),
    )
    destination = defaults.destination
    # If either prefix begins with the other, members may have keys that start runs.
    is_below = destination.key.startswith(defaults.ingest_prefix)
    is_above = defaults.ingest_prefix.startswith(destination.key)
    if destination.bucket == defaults.ingest_bucket and (is_below or is_above):
        raise errors.UsageError(
            f"the destination {destination} overlaps the trigger's scope ({defaults.scope}), so "
            "extracted members could start runs: deploy with another bucket or prefix"
        )
    return defaults


def _read_routes(
    variables: Mapping[str, str], environment_defaults: RunDefaults
) -> tuple[RunDefaults, ...]:
    """Return the defaults of each route, in order.

    Values that a route leaves out come from `environment_defaults`.
    """
    # The secret of a route takes precedence over the secret of the environment. A route without a
    # secret has options without a reference, because `Variable.OPTIONS` refers to no secret.
    # Therefore, `_policy` reads the secret of the environment.
    environment_options = _read_json(variables, Variable.OPTIONS, Options) or Options()
    return tuple(
        RunDefaults(
            ingest_bucket=environment_defaults.ingest_bucket,
            ingest_prefix=route.prefix,
            ingest_suffix=route.suffix,
            destination=Location(
                "s3", route.bucket or environment_defaults.destination.bucket, route.destination
            ),
            options=_with_password(
                msgspec.convert(msgspec.to_builtins(environment_options) | route.options, Options),
                route.password_secret,
            ),
            route=Route(route.name, route.owner, route.kms_key),
        )
        for route in _read_json(variables, Variable.ROUTES, list[RouteVariable]) or ()
    )


def _with_password(options: Options, secret: str | None) -> Options:
    if not secret:
        return options
    return msgspec.structs.replace(options, password_ref=SECRET_SCHEME + secret)


def _read_required(variables: Mapping[str, str], name: Variable) -> str:
    """Return the value of an environment variable; raise `UsageError` if it is empty or not set."""
    value = variables.get(name, "")
    if not value:
        raise errors.UsageError(f"the environment variable {name} is not set: deploy the stack")
    return value


def _read_json(variables: Mapping[str, str], name: Variable, kind: type[T]) -> T | None:
    value = variables.get(name)
    if not value:
        return None
    try:
        return decode(value, kind)
    except errors.UsageError as error:
        raise errors.UsageError(
            f"the environment variable {name}: {error}: {value[:100]!r}"
        ) from error


def read_secret(ref: str, client: SecretsManagerClient) -> bytes:
    """Return the password that `ref` refers to; no log line or error message contains it.

    ``secretsmanager:NAME`` and ``secretsmanager:ARN`` refer to the whole value of the secret. A
    reference that ends in ``#FIELD`` refers to one field of the value, which must be a JSON object.
    The console creates secrets in this form.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - rarely needed

    name, _, field = ref.removeprefix(SECRET_SCHEME).partition("#")
    try:
        response = client.get_secret_value(SecretId=name)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        error_type = SECRET_ERRORS.get(code, errors.ServiceFaultError)
        message = f"secret {name}: {code}"
        if error_type is errors.AccessDeniedError:
            message += "; allow secretsmanager:GetSecretValue, and kms:Decrypt for the secret's key"
        raise error_type(message) from error
    except BotoCoreError as error:
        raise errors.ServiceFaultError(f"secret {name}: {type(error).__name__}") from error
    # A secret is either text or binary; the response contains only one of the two.
    value = response.get("SecretString", "").encode() or response.get("SecretBinary", b"")
    if field:
        value = _read_field(name, value, field)
    if not value:
        raise errors.UsageError(f"secret {name} is empty")
    return value


def _read_field(name: str, value: bytes, field: str) -> bytes:
    """Return one field of the secret `name`, whose value is a JSON object."""
    text = None
    with suppress(ValueError):  # an error message would contain the secret
        # Files from Windows may begin with a byte order mark, which msgspec does not decode.
        text = msgspec.convert(json.loads(value), dict[str, Any]).get(field)
    if not isinstance(text, str):
        raise errors.UsageError(f"secret {name} is not a JSON object with a text field {field!r}")
    return text.encode()
