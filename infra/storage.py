"""The three buckets: for archives, for members, and for the records of runs.

For each bucket, the environment's file decides whether it is created or already exists. An existing
bucket is never configured: docs/deploy.md says what it needs.
"""

import aws_cdk as cdk
from aws_cdk import aws_kms as kms, aws_s3 as s3
from constructs import Construct

from infra.best_practices import acknowledge
from infra.environment import Environment
from infra.sections import BucketSection

# Days after which incomplete uploads of members are aborted. A run may take 7 days. If it is
# resumed or redriven (Step Functions permits this for 14 days), it may need its first parts.
ABANDONED_DAYS = 28
# The same for archives, whose upload may take days, and for the records of runs: during a Map,
# which may take a whole run, Step Functions may have an upload of its result.
UPLOAD_DAYS = 7


class Storage(Construct):
    """The buckets; `key` encrypts those that the stack creates; None: SSE-S3."""

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(scope, "Storage")
        self.removal = cdk.RemovalPolicy.DESTROY
        if environment.stack.retain:
            # Plain RETAIN would also keep resources of a failed creation, which block the next one.
            self.removal = cdk.RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
        self.key = (
            kms.Key.from_key_arn(self, "Key", environment.kms_key) if environment.kms_key else None
        )
        self.ingest = self._bucket(
            "Ingest",
            environment.ingest,
            versioned=True,
            lifecycle_rules=_ingest_rules(environment.ingest.expire_days),
        )
        self.destination = self._bucket(
            "Destination",
            environment.destination,
            versioned=environment.destination.versioned,
            lifecycle_rules=[_abort_uploads(days=ABANDONED_DAYS)],
        )
        # Destination buckets by the name of the existing bucket; None: the environment's own.
        self._destinations = {
            None: self.destination,
            environment.destination.existing: self.destination,
        }
        self.work = self._bucket(
            "Work",
            environment.work,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="forget-runs", expiration=cdk.Duration.days(environment.work.expire_days)
                ),
                _abort_uploads(days=UPLOAD_DAYS),
            ],
        )
        if isinstance(self.ingest, s3.Bucket):
            _send_events(self.ingest)
        # A bucket that outlives the stack keeps the policy that refuses requests without TLS.
        cdk.RemovalPolicies.of(self).apply(
            self.removal, apply_to_resource_types=["AWS::S3::BucketPolicy"]
        )

    def destination_of(self, section: BucketSection) -> s3.IBucket:
        """Return the bucket of a destination, which belongs to the environment or to a route."""
        name = section.existing
        if name is not None and name not in self._destinations:
            self._destinations[name] = s3.Bucket.from_bucket_name(self, f"Destination-{name}", name)
        return self._destinations[name]

    def _bucket(
        self,
        name: str,
        section: BucketSection,
        *,
        lifecycle_rules: list[s3.LifecycleRule],
        versioned: bool = False,
    ) -> s3.IBucket:
        if section.existing is not None:
            return s3.Bucket.from_bucket_name(self, name, section.existing)
        bucket = s3.Bucket(
            self,
            name,
            versioned=versioned,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            encryption=s3.BucketEncryption.KMS if self.key else s3.BucketEncryption.S3_MANAGED,
            encryption_key=self.key,
            bucket_key_enabled=bool(self.key) or None,
            lifecycle_rules=lifecycle_rules,
            removal_policy=self.removal,
        )
        acknowledge(
            bucket,
            "AwsSolutions-S1",
            "The work bucket contains the outcome of every member. To record other access to a "
            "bucket, turn on server access logs or CloudTrail data events in the account.",
        )
        return bucket


def _send_events(bucket: s3.Bucket) -> None:
    """Let the bucket send its events to EventBridge.

    The CloudFormation property is set directly. CDK's `event_bridge_enabled` would add a custom
    resource with a function, which only an existing bucket needs.
    """
    resource = bucket.node.default_child
    assert isinstance(resource, s3.CfnBucket)  # noqa: S101 - narrows a type that CDK leaves open
    resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(
            event_bridge_enabled=True
        )
    )


def _ingest_rules(expire_days: int | None) -> list[s3.LifecycleRule]:
    rules = [_abort_uploads(days=UPLOAD_DAYS)]
    if expire_days is not None:
        rules.append(
            s3.LifecycleRule(
                id="forget-archives",
                expiration=cdk.Duration.days(expire_days),
                noncurrent_version_expiration=cdk.Duration.days(expire_days),
            )
        )
    return rules


def _abort_uploads(days: int) -> s3.LifecycleRule:
    return s3.LifecycleRule(
        id="abort-incomplete-uploads",
        abort_incomplete_multipart_upload_after=cdk.Duration.days(days),
    )
