"""The rights of each function: exact actions on exact ARNs.

With ``AUTH=true``, the tests run the pipeline with these roles. They remove one S3 action at a time
and show that each action is needed.
"""

import aws_cdk as cdk
from aws_cdk import aws_iam as iam

from infra.environment import Environment
from infra.routes import widest_prefixes
from infra.sections import BucketSection, RouteSection
from infra.storage import Storage
from s3unzip.model import Options
from s3unzip.object_properties import ObjectProperties

# Functions that plan, settle and end runs; extract only does tasks.
ENDERS = ("intake", "plan", "settle")
READERS = ("intake", "plan", "extract")  # functions that read encrypted members
# The EC2 actions that a function in a VPC needs: docs.aws.amazon.com/lambda, configuration-vpc.
INTERFACES = [
    "ec2:CreateNetworkInterface",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:DeleteNetworkInterface",
    "ec2:AssignPrivateIpAddresses",
    "ec2:UnassignPrivateIpAddresses",
]
# S3 actions on members. GetObject is needed to compare existing members.
MEMBERS = ("GetObject", "PutObject", "AbortMultipartUpload")


class Rights:
    """Makes the policy statements of each function's role."""

    def __init__(self, environment: Environment, storage: Storage, stack: cdk.Stack) -> None:
        self._environment = environment
        self._stack = stack
        self._storage = storage
        self._archives = [
            storage.ingest.arn_for_objects(f"{prefix}*")
            for prefix in widest_prefixes(environment.all_routes)
        ]
        self._runs_arn = storage.work.arn_for_objects(f"{environment.work.prefix}runs/*")

    def by_function(self) -> dict[str, list[iam.PolicyStatement]]:
        """Return the statements of each function, by its name."""
        rights = {"extract": self._tasks(), **{name: self._runs() for name in ENDERS}}
        # A resumed run deletes its `stop.json` and the outcomes of failed members.
        rights["plan"].append(allow(["s3:DeleteObject"], self._runs_arn))
        for name in READERS:
            rights[name] += self._secrets()
        keys = sorted(
            filter(
                None,
                {
                    self._environment.kms_key,
                    *(bucket.kms_key for _, bucket in self._environment.buckets()),
                },
            )
        )
        for allowed in rights.values():
            if keys:
                allowed.append(allow(["kms:Decrypt", "kms:GenerateDataKey"], *keys))
            if self._environment.network.subnets:
                allowed += [
                    allow(INTERFACES, "*"),
                    # Lambda itself uses these rights. Requests of the function's code have this
                    # key (docs.aws.amazon.com/lambda, permissions-source-function-arn).
                    iam.PolicyStatement(
                        effect=iam.Effect.DENY,
                        actions=INTERFACES,
                        resources=["*"],
                        conditions={"Null": {"lambda:SourceFunctionArn": "false"}},
                    ),
                ]
        return rights

    def _secrets(self) -> list[iam.PolicyStatement]:
        """Return the rights to read each secret with a password, and to decrypt it with its key."""
        routes = self._environment.all_routes
        secrets = sorted(
            {route.password_secret.partition("#")[0] for route in routes if route.password_secret}
        )
        keys = sorted({route.password_kms_key for route in routes if route.password_kms_key})
        rights = {"secretsmanager:GetSecretValue": secrets, "kms:Decrypt": keys}
        return [allow([action], *arns) for action, arns in rights.items() if arns]

    def destination_policy(self, section: BucketSection, roles: list[iam.IRole]) -> str:
        """Return the policy, as JSON, with which another account's bucket lets `roles` write."""
        principal = {"AWS": [role.role_arn for role in roles]}
        bucket = self._storage.destination_of(section)
        routes = [
            route
            for route in self._environment.all_routes
            if self._storage.destination_of(route.destination) is bucket
        ]
        rights = [(member_actions(route.options), self._members(route)) for route in routes]
        rights.append((["s3:ListBucket", "s3:ListBucketMultipartUploads"], bucket.bucket_arn))
        return self._stack.to_json_string(
            {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": principal,
                        "Action": actions,
                        "Resource": resource,
                    }
                    for actions, resource in rights
                ],
            }
        )

    def _members(self, route: RouteSection) -> str:
        return self._storage.destination_of(route.destination).arn_for_objects(
            f"{route.destination.prefix}*"
        )

    def _destinations(self) -> list[str]:
        """Return the ARNs of the destination buckets of all routes, without duplicates."""
        return list(
            dict.fromkeys(
                self._storage.destination_of(route.destination).bucket_arn
                for route in reversed(self._environment.all_routes)
            )
        )

    def _tasks(self) -> list[iam.PolicyStatement]:
        """Return the rights to read archives, to write members and to keep records."""
        return [
            # Both actions are needed: a GET of a version needs only GetObjectVersion
            # (API_GetObject), but UploadPartCopy "must have" GetObject on the source, with or
            # without a version (API_UploadPartCopy).
            allow(["s3:GetObject", "s3:GetObjectVersion"], *self._archives),
            # Records above 16 MiB are written in parts, and a failed write aborts its upload.
            allow(["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"], self._runs_arn),
            *(
                allow(member_actions(route.options), self._members(route))
                for route in self._environment.all_routes
            ),
            # Without the right to list, S3 returns 403 for a missing object, not 404. The call
            # has no prefix, so a condition on the prefix would refuse it.
            allow(
                ["s3:ListBucket"],
                self._storage.ingest.bucket_arn,
                self._storage.work.bucket_arn,
                *self._destinations(),
            ),
        ]

    def _runs(self) -> list[iam.PolicyStatement]:
        """Return the rights of a function that can end a run, which include those of tasks."""
        machine = self._environment.stack.name
        bus = self._stack.format_arn(
            service="events", resource="event-bus", resource_name=self._environment.event_bus
        )
        return [
            *self._tasks(),
            allow(["s3:ListBucketMultipartUploads"], *self._destinations()),
            # Nested archives, and archives that were replaced while their run was at work.
            allow(["states:StartExecution"], states_arn(self._stack, "stateMachine", machine)),
            # If an execution with the name exists: whether it is at work, and for which archive.
            allow(
                ["states:DescribeExecution"], states_arn(self._stack, "execution", f"{machine}:*")
            ),
            iam.PolicyStatement(
                actions=["events:PutEvents"],
                resources=[bus],
                # IfExists, because the embedded AWS does not set this key.
                conditions={"StringEqualsIfExists": {"events:source": "s3unzip"}},
            ),
            *self._archive_actions(),
        ]

    def _archive_actions(self) -> list[iam.PolicyStatement]:
        """Return the rights to read the scan tag of an archive, and to delete or tag it."""
        actions = {
            None: [],
            "tag": ["s3:GetObjectVersionTagging", "s3:PutObjectVersionTagging"],
            "delete": ["s3:DeleteObjectVersion"],
        }[self._environment.after_success.action]
        if "s3:DeleteObjectVersion" in actions and self._environment.ingest.existing is not None:
            # An archive that was put before versioning was turned on has no version id to delete.
            actions.append("s3:DeleteObject")
        if self._environment.ingest.scan is not None:
            actions.append("s3:GetObjectVersionTagging")
        if not actions:
            return []
        return [allow(sorted(set(actions)), *self._archives)]


def member_actions(options: Options) -> list[str]:
    """Return the S3 actions that every function needs on members of runs with these options."""
    actions = [f"s3:{action}" for action in MEMBERS]
    properties = options.objects or ObjectProperties()
    if options.nested_depth:  # nested archives are read from the destination
        actions.append("s3:GetObjectVersion")
    if properties.tags:  # a PUT with tags also needs this right
        actions.append("s3:PutObjectTagging")
    if properties.acl:
        actions.append("s3:PutObjectAcl")
    return actions


def states_arn(stack: cdk.Stack, resource: str, name: str) -> str:
    """Return the ARN of the state machine, or of its executions, from its name.

    The definition of the state machine refers to the functions. If their roles and variables
    referred to the machine, CloudFormation would refuse the circular reference.
    """
    return stack.format_arn(
        service="states",
        resource=resource,
        resource_name=name,
        arn_format=cdk.ArnFormat.COLON_RESOURCE_NAME,
    )


def allow(actions: list[str], *resources: str) -> iam.PolicyStatement:
    """Return a policy statement that allows `actions` on `resources`."""
    return iam.PolicyStatement(actions=actions, resources=list(resources))
