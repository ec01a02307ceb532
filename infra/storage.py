"""The three buckets: archives, members, and the runs' own objects.

The environment's file decides whether a bucket is created or exists. An existing bucket is read and
written, never configured: docs/deploy.md says what it needs.
"""

import aws_cdk as cdk
from aws_cdk import aws_kms as kms, aws_s3 as s3
from constructs import Construct

from infra.best_practices import acknowledge
from infra.environment import Environment
from infra.sections import BucketSection

# Until incomplete uploads are aborted: a run of 7 days that is resumed within 14 days, or redriven
# (Step Functions allows it so long), may still need parts of its first day.
ABANDONED_DAYS = 28
UPLOAD_DAYS = 7  # the same for archives: a large one on a slow line takes days


class Storage(Construct):
    """The buckets; `key` encrypts the created ones, None is SSE-S3."""

    def __init__(self, scope: Construct, *, environment: Environment) -> None:
        super().__init__(scope, "Storage")
        self.removal = cdk.RemovalPolicy.DESTROY
        if environment.stack.retain:
            # A failed creation would leave resources whose names block the next one.
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
            lifecycle_rules=[_abandoned(days=ABANDONED_DAYS)],
        )
        # Destinations by the names of existing buckets; None: the environment's own.
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
                _abandoned(days=1),
            ],
        )
        if isinstance(self.ingest, s3.Bucket):
            _send_events(self.ingest)

    def destination_of(self, section: BucketSection) -> s3.IBucket:
        """Return the bucket of a destination: that of the environment, or one of a route."""
        name = section.existing
        if name is not None and name not in self._destinations:
            bucket = s3.Bucket.from_bucket_name(self, f"Destination-{name}", name)
            self._destinations[name] = bucket
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
            "The work bucket holds the outcome of every member. Who else reads a bucket is a "
            "question of the account: switch on server access logs or CloudTrail data events for "
            "the buckets where you need the answer.",
        )
        return bucket


def _send_events(bucket: s3.Bucket) -> None:
    """Enable the bucket's EventBridge events.

    This sets the bucket's own property. CDK's `event_bridge_enabled` would add a custom resource
    with a function, which only an existing bucket needs.
    """
    resource = bucket.node.default_child
    assert isinstance(resource, s3.CfnBucket)  # noqa: S101 - narrows a type that CDK leaves open
    resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
        event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(
            event_bridge_enabled=True
        )
    )


def _ingest_rules(expire_days: int | None) -> list[s3.LifecycleRule]:
    rules = [_abandoned(days=UPLOAD_DAYS)]
    if expire_days is not None:
        rules.append(
            s3.LifecycleRule(
                id="forget-archives",
                expiration=cdk.Duration.days(expire_days),
                noncurrent_version_expiration=cdk.Duration.days(expire_days),
            )
        )
    return rules


def _abandoned(days: int) -> s3.LifecycleRule:
    return s3.LifecycleRule(
        id="abort-incomplete-uploads",
        abort_incomplete_multipart_upload_after=cdk.Duration.days(days),
    )
