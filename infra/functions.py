"""The Lambda functions: all have the same asset, and each has a role with only its own rights."""

import json
from collections.abc import Mapping
from typing import Any

import aws_cdk as cdk
from aws_cdk import aws_iam as iam, aws_lambda as lambda_, aws_logs as logs
from constructs import Construct
from msgspec import to_builtins
from msgspec.structs import asdict

from infra import RefusedError
from infra.best_practices import acknowledge
from infra.environment import Environment
from infra.rights import READERS, Rights, allow, states_arn
from infra.sections import BucketSection, FunctionSection, RouteSection
from infra.storage import Storage
from s3unzip.model import Options
from s3unzip.settings import NAMESPACE, PROCESS_VARIABLES, SERVICE, Variable
from s3unzip.zip import Limits

# CDK's names for the numbers of days that `LogsSection` accepts.
RETENTION = {
    1: logs.RetentionDays.ONE_DAY,
    3: logs.RetentionDays.THREE_DAYS,
    5: logs.RetentionDays.FIVE_DAYS,
    7: logs.RetentionDays.ONE_WEEK,
    14: logs.RetentionDays.TWO_WEEKS,
    30: logs.RetentionDays.ONE_MONTH,
    60: logs.RetentionDays.TWO_MONTHS,
    90: logs.RetentionDays.THREE_MONTHS,
    120: logs.RetentionDays.FOUR_MONTHS,
    150: logs.RetentionDays.FIVE_MONTHS,
    180: logs.RetentionDays.SIX_MONTHS,
    365: logs.RetentionDays.ONE_YEAR,
    400: logs.RetentionDays.THIRTEEN_MONTHS,
    545: logs.RetentionDays.EIGHTEEN_MONTHS,
    731: logs.RetentionDays.TWO_YEARS,
    1_096: logs.RetentionDays.THREE_YEARS,
    1_827: logs.RetentionDays.FIVE_YEARS,
    2_192: logs.RetentionDays.SIX_YEARS,
    2_557: logs.RetentionDays.SEVEN_YEARS,
    2_922: logs.RetentionDays.EIGHT_YEARS,
    3_288: logs.RetentionDays.NINE_YEARS,
    3_653: logs.RetentionDays.TEN_YEARS,
}
PURPOSES = {
    "intake": "Extracts small archives; plans other archives and starts their executions",
    "plan": "Plans an archive with a large directory, or continues a run that stopped",
    "extract": "Does one task of a run",
    "settle": "Reads the results of a round; writes the next round or the report",
}


class Functions(Construct):
    """The functions, `by_name`: intake, plan, extract, settle."""

    def __init__(
        self, scope: Construct, *, environment: Environment, storage: Storage, code: lambda_.Code
    ) -> None:
        super().__init__(scope, "Functions")
        self._environment = environment
        self._code = code
        self._removal = storage.removal
        self._variables = _variables(environment, storage)
        stack = cdk.Stack.of(self)
        # From its name: the state machine is created later, because it refers to the functions.
        self._variables[Variable.STATE_MACHINE] = states_arn(
            stack, "stateMachine", environment.stack.name
        )
        self._rights = Rights(environment, storage, stack)
        rights = self._rights.by_function()
        self.by_name: Mapping[str, lambda_.Function] = {
            name: self._function(name, rights[name]) for name in PURPOSES
        }
        self.intake = self.by_name["intake"]
        self.plan = self.by_name["plan"]
        self.extract = self.by_name["extract"]
        self.settle = self.by_name["settle"]

    def destination_policy(self, section: BucketSection) -> str:
        """Return the bucket policy, as JSON, for a destination bucket of another account."""
        roles = [function.role for function in self.by_name.values() if function.role]
        return self._rights.destination_policy(section, roles)

    def _function(self, name: str, rights: list[iam.PolicyStatement]) -> lambda_.Function:
        section: FunctionSection = getattr(self._environment.functions, name)
        role, log_group = self._role(name, rights)
        function = lambda_.Function(
            self,
            name.capitalize(),
            description=PURPOSES[name],
            code=self._code,
            handler=f"s3unzip.aws.{name}.handler",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            memory_size=section.memory,
            timeout=cdk.Duration.seconds(section.timeout),
            reserved_concurrent_executions=section.reserved_concurrency or None,
            environment=self._variables | self._route_variables(name),
            role=role,
            log_group=log_group,
            logging_format=lambda_.LoggingFormat.JSON,
            application_log_level_v2=_application_level(self._environment),
            # WARN would drop the line platform.report, with an invocation's memory and init time.
            system_log_level_v2=lambda_.SystemLogLevel.INFO,
            tracing=lambda_.Tracing.ACTIVE,
        )
        _join_network(function, self._environment)
        acknowledge(
            function,
            "AwsSolutions-L1",
            "The asset's byte code is for Python 3.13, and no later version has been tested.",
        )
        return function

    def _route_variables(self, name: str) -> dict[str, str]:
        """Return the variables for routes and, if the function reads members, for passwords."""
        secret = self._environment.password_secret
        is_reader = name in READERS
        routes = [
            _route_value(self._environment, route, with_secret=is_reader)
            for route in self._environment.routes
        ]
        variables: dict[str, str] = {Variable.ROUTES: _json_of(routes)}
        if secret and is_reader:
            variables[Variable.PASSWORD_SECRET] = secret
        _check_size(self._variables | variables)
        return variables

    def _role(self, name: str, rights: list[iam.PolicyStatement]) -> tuple[iam.Role, logs.LogGroup]:
        """Create a function's role and its log group, before the function; return them."""
        log_group = logs.LogGroup(
            self,
            f"{name.capitalize()}Logs",
            retention=RETENTION[self._environment.logs.days],
            removal_policy=self._removal,
        )
        role = iam.Role(
            self,
            f"{name.capitalize()}Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"{SERVICE} {self._environment.name}: the {name} function",
        )
        for statement in [
            *rights,
            allow(["logs:CreateLogStream", "logs:PutLogEvents"], log_group.log_group_arn),
        ]:
            role.add_to_policy(statement)
        return role, log_group


def _join_network(function: lambda_.Function, environment: Environment) -> None:
    """Put a function into the environment's subnets, if there are any.

    The CloudFormation property is set directly, because CDK's `vpc` would look up the VPC in an
    account.
    """
    network = environment.network
    if not network.subnets:
        return
    resource = function.node.default_child
    assert isinstance(resource, lambda_.CfnFunction)  # noqa: S101 - narrows a type that CDK leaves open
    resource.vpc_config = lambda_.CfnFunction.VpcConfigProperty(
        subnet_ids=network.subnets, security_group_ids=network.security_groups
    )


def _application_level(environment: Environment) -> lambda_.ApplicationLogLevel:
    """Return the level below which Lambda drops lines; Powertools has a level of its own.

    A line with metrics has no level and counts as INFO, so a higher level would drop all metrics
    (docs.aws.amazon.com/lambda, monitoring-cloudwatchlogs-log-level).
    """
    if environment.logs.level == "DEBUG":
        return lambda_.ApplicationLogLevel.DEBUG
    return lambda_.ApplicationLogLevel.INFO


def _variables(environment: Environment, storage: Storage) -> dict[str, str]:
    """Return the environment variables that all functions have."""
    destination = environment.destination
    limits = dict(asdict(environment.limits).items() - asdict(Limits()).items())
    if environment.ingest.scan:
        limits["parts"] = 1  # the scan of a part does not cover the members of a split archive
    return {
        Variable.ENVIRONMENT: environment.name,
        Variable.STACK: cdk.Aws.STACK_NAME,  # a StackSet chooses the names of its stacks
        Variable.WORK_BUCKET: storage.work.bucket_name,
        Variable.WORK_PREFIX: environment.work.prefix,
        Variable.DESTINATION: f"s3://{storage.destination.bucket_name}/{destination.prefix}",
        Variable.DESTINATION_OWNER: destination.owner or "",
        Variable.DESTINATION_KMS_KEY: environment.written_key(destination) or "",
        Variable.TRIGGER_BUCKET: storage.ingest.bucket_name,
        Variable.TRIGGER_PREFIX: environment.ingest.prefix,
        Variable.TRIGGER_SUFFIX: environment.ingest.suffix,
        Variable.REQUEST_PAYER: "requester" if environment.ingest.request_payer else "",
        Variable.SCAN: environment.ingest.scan or "",
        Variable.EVENT_BUS: environment.event_bus,
        Variable.AFTER_SUCCESS: _json_of(
            environment.after_success.model_dump(exclude_defaults=True)
        ),
        Variable.OPTIONS: json.dumps(to_builtins(environment.options)),
        Variable.TUNING: json.dumps(
            environment.tuning | {"max_workers": environment.max_workers}, sort_keys=True
        ),
        Variable.LIMITS: json.dumps(limits, sort_keys=True),
        Variable.WORKER_MEMORY: str(environment.functions.extract.memory),
        Variable.MAX_COST: str(environment.runs.max_cost or ""),
        "POWERTOOLS_SERVICE_NAME": SERVICE,
        "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
        "POWERTOOLS_LOG_LEVEL": environment.logs.level,
        **PROCESS_VARIABLES,
    }


def _json_of(value: object) -> str:
    """Return a value as JSON; for an empty table or list, an empty text, as if it were not set."""
    if not value:
        return ""
    return json.dumps(value)


def _route_value(
    environment: Environment, route: RouteSection, *, with_secret: bool
) -> dict[str, Any]:
    """Return a route in the form that `s3unzip.aws.environment` reads, without empty settings."""
    destination = route.destination
    value = {
        "name": route.name,
        "prefix": route.prefix,
        "suffix": route.suffix,
        "bucket": destination.existing,
        "destination": destination.prefix,
        "owner": destination.owner,
        "kms_key": environment.written_key(destination),
        "options": _differences(route.options, environment.options),
        "password_secret": with_secret and route.password_secret,
    }
    return {name: setting for name, setting in value.items() if setting}


def _differences(options: Options, own: Options) -> dict[str, Any]:
    """Return the options of a route that differ from those of the environment (`own`)."""
    return {
        name: to_builtins(getattr(options, name))
        for name in Options.__struct_fields__
        if getattr(options, name) != getattr(own, name)
    }


MAX_VARIABLES = 4_096  # maximum size of all variables, in bytes (quotas of Lambda)
RESERVED_BYTES = 500  # for values that are not known yet: bucket names, ARNs, a URL


def _check_size(variables: Mapping[str, str]) -> None:
    """Refuse settings that do not fit into the environment variables of a function.

    Lambda measures the variables as one JSON object: the error of CreateFunction has it after
    "String measured". So each quotation mark in a value counts twice.
    """
    size = RESERVED_BYTES + len(json.dumps(variables, separators=(",", ":")))
    if size <= MAX_VARIABLES:
        return
    routes = len(json.dumps(variables[Variable.ROUTES]))
    problem = f"options, limits and tuning take {size:,} bytes"
    advice = "shorten options.include and options.exclude"
    if routes > size // 2:
        problem = f"routes: they take {routes:,} of the {size:,} bytes"
        advice = "use fewer routes, or set in [options] what they share"
    raise RefusedError(
        f"{problem} of the functions' environment variables; Lambda allows "
        f"{MAX_VARIABLES:,} in total: {advice}"
    )
