"""The functions: one asset, one role for each, every right by exact action and ARN."""

import json
from collections.abc import Mapping

import aws_cdk as cdk
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct
from msgspec import to_builtins
from msgspec.structs import asdict

from infra.best_practices import acknowledge
from infra.environment import Environment, EnvironmentFileError, FunctionSection
from infra.rights import Rights, allow, machine_arn
from infra.storage import Storage
from s3unzip.metric_names import NAMESPACE, SERVICE
from s3unzip.settings import PROCESS_VARIABLES, Variable
from s3unzip.zip import Limits

PURPOSES = {
    "intake": "Takes archives: does small ones, plans others and starts their runs",
    "plan": "Plans an archive with a large directory, or goes on with a run that stopped",
    "extract": "Does one task of a run",
    "settle": "Reads what a round came to; lists the next one, or writes the report",
}
READERS = ("intake", "plan", "extract")  # of encrypted members; settle needs no password


class Functions(Construct):
    """The functions by name: intake, plan, extract, settle."""

    def __init__(
        self, scope: Construct, *, environment: Environment, storage: Storage, code: lambda_.Code
    ) -> None:
        super().__init__(scope, "Functions")
        self._environment = environment
        self._code = code
        self._removal = storage.removal
        self._variables = _variables(environment, storage)
        self._variables[Variable.STATE_MACHINE] = machine_arn(environment, cdk.Stack.of(self))
        self._rights = Rights(environment, storage, cdk.Stack.of(self))
        rights = self._rights.by_function()
        secret = environment.password_secret
        if secret is not None:
            for name in READERS:
                arn = secret.partition("#")[0]
                rights[name].append(allow(["secretsmanager:GetSecretValue"], arn))
                if environment.password_kms_key is not None:
                    rights[name].append(allow(["kms:Decrypt"], environment.password_kms_key))
        self.by_name: Mapping[str, lambda_.Function] = {
            name: self._function(name, rights[name]) for name in PURPOSES
        }
        self.intake = self.by_name["intake"]
        self.plan = self.by_name["plan"]
        self.extract = self.by_name["extract"]
        self.settle = self.by_name["settle"]

    @property
    def destination_policy(self) -> str:
        """The policy, as JSON, that a destination bucket of another account needs."""
        roles = [function.role for function in self.by_name.values() if function.role]
        return self._rights.destination_policy(roles)

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
            environment=self._variables | self._secrets(name),
            role=role,
            log_group=log_group,
            logging_format=lambda_.LoggingFormat.JSON,
            application_log_level_v2=_application_level(self._environment),
            # WARN would drop platform.report, the line with an invocation's memory and init time.
            system_log_level_v2=lambda_.SystemLogLevel.INFO,
            tracing=lambda_.Tracing.ACTIVE,
        )
        _join_network(function, self._environment)
        acknowledge(
            function,
            "AwsSolutions-L1",
            "The asset's byte code and its tests are of Python 3.13; a later version is untried.",
        )
        return function

    def _secrets(self, name: str) -> dict[str, str]:
        secret = self._environment.password_secret
        return {Variable.PASSWORD_SECRET: secret} if secret and name in READERS else {}

    def _role(self, name: str, rights: list[iam.PolicyStatement]) -> tuple[iam.Role, logs.LogGroup]:
        """Return a function's role and its log group, made before the function."""
        log_group = logs.LogGroup(
            self,
            f"{name.capitalize()}Logs",
            retention=_retention(self._environment.logs.days),
            removal_policy=self._removal,
        )
        role = iam.Role(
            self,
            f"{name.capitalize()}Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"{SERVICE} {self._environment.name}: the {name} function",
        )
        for statement in rights:
            role.add_to_policy(statement)
        role.add_to_policy(
            allow(["logs:CreateLogStream", "logs:PutLogEvents"], log_group.log_group_arn)
        )
        return role, log_group


def _join_network(function: lambda_.Function, environment: Environment) -> None:
    """Put a function into the environment's subnets.

    This sets the function's own property. CDK's `vpc` would look the VPC up in an account.
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
    """Return the level of Lambda's own filter; Powertools filters the lines of the logger.

    Lambda drops lines below its level. A line of metrics has no level and counts as INFO, so a
    higher level would drop all metrics: docs.aws.amazon.com/lambda, monitoring-cloudwatchlogs-
    log-level.
    """
    if environment.logs.level == "DEBUG":
        return lambda_.ApplicationLogLevel.DEBUG
    return lambda_.ApplicationLogLevel.INFO


def _retention(days: int) -> logs.RetentionDays:
    """Return CDK's name for this number of days."""
    names = {30: "ONE_MONTH", 60: "TWO_MONTHS", 90: "THREE_MONTHS", 120: "FOUR_MONTHS"}
    names |= {150: "FIVE_MONTHS", 180: "SIX_MONTHS", 365: "ONE_YEAR", 400: "THIRTEEN_MONTHS"}
    names |= {545: "EIGHTEEN_MONTHS", 731: "TWO_YEARS", 1: "ONE_DAY", 3: "THREE_DAYS"}
    names |= {5: "FIVE_DAYS", 7: "ONE_WEEK", 14: "TWO_WEEKS"}
    return logs.RetentionDays[names[days]]


def _variables(environment: Environment, storage: Storage) -> dict[str, str]:
    """Return the variables of every function."""
    destination, rule = environment.destination, environment.after_success
    defaults = asdict(Limits())
    limits = dict(asdict(environment.limits).items() - defaults.items())
    if environment.ingest.scan:
        limits["parts"] = 1  # nobody has scanned the members of a split archive
    tuning = environment.tuning | {"max_workers": environment.max_workers}
    maximum = environment.runs.max_cost
    variables = {
        Variable.ENVIRONMENT: environment.name,
        Variable.WORK_BUCKET: storage.work.bucket_name,
        Variable.WORK_PREFIX: environment.work.prefix,
        Variable.DESTINATION: f"s3://{storage.destination.bucket_name}/{destination.prefix}",
        Variable.DESTINATION_OWNER: destination.owner or "",
        Variable.DESTINATION_KMS_KEY: environment.written_key or "",
        Variable.TRIGGER_BUCKET: storage.ingest.bucket_name,
        Variable.TRIGGER_PREFIX: environment.ingest.prefix,
        Variable.TRIGGER_SUFFIX: environment.ingest.suffix,
        Variable.REQUEST_PAYER: "requester" if environment.ingest.request_payer else "",
        Variable.SCAN: environment.ingest.scan or "",
        Variable.EVENT_BUS: environment.event_bus,
        Variable.AFTER_SUCCESS: json.dumps(rule.model_dump(exclude_defaults=True))
        if rule.action
        else "",
        Variable.OPTIONS: json.dumps(to_builtins(environment.options)),
        Variable.TUNING: json.dumps(tuning, sort_keys=True),
        Variable.LIMITS: json.dumps(limits, sort_keys=True),
        Variable.WORKER_MEMORY: str(environment.functions.extract.memory),
        Variable.MAX_COST: "" if maximum is None else str(maximum),
        "POWERTOOLS_SERVICE_NAME": SERVICE,
        "POWERTOOLS_METRICS_NAMESPACE": NAMESPACE,
        "POWERTOOLS_LOG_LEVEL": environment.logs.level,
        **PROCESS_VARIABLES,
    }
    _check_size(variables)
    return variables


MAX_VARIABLES = 4_096  # bytes of all names and values of a function (quotas of Lambda)
LATER_VARIABLES = 700  # of them, kept for names of buckets, ARNs and the queue's URL


def _check_size(variables: Mapping[str, str]) -> None:
    """Refuse settings that do not fit into the variables of a function."""
    size = sum(len(f"{name}{value}".encode()) for name, value in variables.items())
    if size > MAX_VARIABLES - LATER_VARIABLES:
        raise EnvironmentFileError(
            f"options, limits and tuning take {size:,} bytes of the functions' variables, of which "
            f"Lambda allows {MAX_VARIABLES:,} in all: shorten options.include and options.exclude"
        )
