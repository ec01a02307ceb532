"""The rights of each function: exact actions on exact ARNs, in one table.

The suite with ``AUTH=true`` runs the pipeline with these roles. It removes one S3 action at a time
and shows that each one is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aws_cdk import aws_iam as iam

from infra.after_success import is_versioned

if TYPE_CHECKING:
    import aws_cdk as cdk

    from infra.environment import Environment
    from infra.storage import Storage


# Functions that write members or begin their uploads.
WRITERS = ("plan", "planner", "link", "extract", "report")


class _Statements:
    """The statements that several functions share."""

    def __init__(self, environment: Environment, storage: Storage, stack: cdk.Stack) -> None:
        archive = storage.ingest.arn_for_objects(f"{environment.ingest.prefix}*")
        runs = storage.work.arn_for_objects(f"{environment.work.prefix}runs/*")
        # The entries of `s3unzip.aws.admission.ledger`.
        entries = storage.work.arn_for_objects(f"{environment.work.prefix}runs/-shares/*")
        bus = stack.format_arn(
            service="events", resource="event-bus", resource_name=environment.event_bus
        )
        self._members = storage.destination.arn_for_objects(f"{environment.destination.prefix}*")
        # Both actions, with any versioning of the bucket: a GET that names a version needs only
        # GetObjectVersion (API_GetObject), but UploadPartCopy "must have" GetObject on the source,
        # with or without a version (API_UploadPartCopy). Both read the same archive.
        self.read_archive = allow(["s3:GetObject", "s3:GetObjectVersion"], archive)
        self.look_at_archive = allow(["s3:GetObject"], archive)  # HEAD
        # Records of a run above 16 MiB are written in parts, and a failed write aborts its upload.
        self.records = allow(["s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"], runs)
        self.drop_records = allow(["s3:DeleteObject"], runs)
        self.drop_entries = allow(["s3:DeleteObject"], entries)
        # Without the right to list, S3 returns 403 for a missing object, not 404. The call
        # has no prefix, so a condition on the prefix would refuse it.
        self.list_archives = allow(["s3:ListBucket"], storage.ingest.bucket_arn)
        self.list_runs = allow(["s3:ListBucket"], storage.work.bucket_arn)
        self.list_members = allow(["s3:ListBucket"], storage.destination.bucket_arn)
        self.list_uploads = allow(["s3:ListBucketMultipartUploads"], storage.destination.bucket_arn)
        self.announce = iam.PolicyStatement(
            actions=["events:PutEvents"],
            resources=[bus],
            conditions={"StringEqualsIfExists": {"events:source": "s3unzip"}},
        )

    def members(self, *actions: str) -> iam.PolicyStatement:
        """Allow actions of S3 on the objects of members."""
        return allow([f"s3:{action}" for action in actions], self._members)

    def by_function(self) -> dict[str, list[iam.PolicyStatement]]:
        """Return the statements of each function that no setting changes."""
        records = self.records, self.list_runs
        plan = self.read_archive, self.list_archives, *records, self.drop_entries, self.announce
        extract = self.members("GetObject", "PutObject", "AbortMultipartUpload"), self.list_members
        link = self.members("GetObject", "PutObject"), self.list_members
        return {
            # It extracts small archives itself; it needs GetObject for existing members.
            "plan": [*plan, *extract, self.list_uploads],
            "planner": [
                *plan,
                self.members("PutObject", "AbortMultipartUpload"),
                self.list_uploads,  # of a planner that was killed while it tried the destination
            ],
            "link": [self.read_archive, *records, *link],
            "extract": [self.read_archive, *records, *extract],
            "report": [
                *(self.look_at_archive, self.list_archives),  # has it been replaced?
                *(*records, *extract, self.list_uploads, self.drop_records, self.announce),
            ],
        }


def function_rights(
    environment: Environment, storage: Storage, stack: cdk.Stack
) -> dict[str, list[iam.PolicyStatement]]:
    """Return the statements of each function's role by the function's name."""
    statements = _Statements(environment, storage, stack)
    rights = statements.by_function()
    if environment.options.nested_depth:  # nested archives are read from the destination
        nested = statements.members("GetObject", "GetObjectVersion")
        for name in ("plan", "planner", "link", "extract"):
            rights[name].append(nested)
        rights["planner"].append(statements.list_members)
    if environment.options.objects.tags:  # asked for with the PUT that sets them (API_PutObject)
        tagging = statements.members("PutObjectTagging")
        for name in WRITERS:
            rights[name].append(tagging)
    after = _after_success(environment, storage, stack)
    for name in ("plan", "report"):  # each ends runs
        rights[name] += after
    if environment.kms_key is not None:
        key = allow(["kms:Decrypt", "kms:GenerateDataKey"], environment.kms_key)
        for allowed in rights.values():
            allowed.append(key)
    return rights


def _after_success(
    environment: Environment, storage: Storage, stack: cdk.Stack
) -> list[iam.PolicyStatement]:
    """Return the rights that the rule needs, for each function that ends runs; none without it."""
    rule, ingest = environment.after_success, environment.ingest
    if rule.action is None:
        return []
    versioned = is_versioned(ingest)
    archive = storage.ingest.arn_for_objects(f"{ingest.prefix}*")
    # For HEAD and CopyObject; also a DELETE with If-Match needs GetObject (conditional-deletes in
    # the user guide of S3).
    actions = ["s3:GetObject", "s3:GetObjectVersion"]
    # With the right to list, S3 answers 404 and not 403 for an archive that is gone.
    rights = [allow(["s3:ListBucket"], storage.ingest.bucket_arn)]
    if rule.action == "tag":
        actions += ["s3:GetObjectVersionTagging", "s3:PutObjectVersionTagging"]
        return [*rights, allow(actions, archive)]
    actions.append("s3:DeleteObjectVersion" if versioned else "s3:DeleteObject")
    if rule.action == "delete":
        return [*rights, allow(actions, archive)]
    # CopyObject copies the archive's tags, and needs these rights where it has some.
    actions.append("s3:GetObjectVersionTagging" if versioned else "s3:GetObjectTagging")
    bucket = storage.ingest.bucket_arn
    if rule.bucket is not None:
        bucket = stack.format_arn(service="s3", region="", account="", resource=rule.bucket)
        rights.append(allow(["s3:ListBucket"], bucket))
    target = ["s3:GetObject", "s3:PutObject", "s3:PutObjectTagging"]
    return [*rights, allow(actions, archive), allow(target, f"{bucket}/{rule.prefix}*")]


def allow(actions: list[str], *resources: str) -> iam.PolicyStatement:
    """Return the statement that allows `actions` on `resources`."""
    return iam.PolicyStatement(actions=actions, resources=list(resources))
