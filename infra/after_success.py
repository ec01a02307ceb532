"""After success: the setting, and what the functions read of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.environment import Environment
    from infra.sections import AfterSuccessSection, IngestSection
    from infra.storage import Storage


def explain_problem(rule: AfterSuccessSection, ingest: IngestSection) -> str | None:
    """Return what is wrong with the rule, or between it and the ingest bucket; None: nothing."""
    if rule.action == "move" and not (rule.bucket or rule.prefix):
        return "after_success.prefix: a move needs the prefix that archives go to, or the bucket"
    if rule.action != "move" and (rule.bucket or rule.prefix):
        return 'after_success.prefix: it is for action = "move"'
    if (rule.action == "tag") != bool(rule.tags):
        return 'after_success.tags: action = "tag" needs at least one, and others have none'
    if rule.action == "tag" and not is_versioned(ingest):
        return (
            "after_success.action: S3 cannot tag one version in a bucket without versioning: "
            "delete or move the archives, or turn versioning on and set ingest.versioned"
        )
    if rule.action == "move" and rule.bucket in {None, ingest.existing}:
        theirs, ours = ingest.prefix, rule.prefix
        if theirs.startswith(ours) or ours.startswith(theirs):
            return (
                f"after_success.prefix: {ours!r} is inside the trigger's scope "
                f"({theirs!r}*{ingest.suffix}), so a moved archive could start a run: choose "
                "another prefix and an ingest.prefix that is not empty, or another bucket"
            )
    return None


def after_success_variable(environment: Environment, storage: Storage) -> str:
    """Return the rule as the functions read it (`s3unzip.model.AfterSuccess`); empty: none."""
    rule = environment.after_success
    if rule.action is None:
        return ""
    value: dict[str, object] = {"action": rule.action}
    if rule.action == "move":
        bucket = rule.bucket or storage.ingest.bucket_name
        value["target"] = {"scheme": "s3", "bucket": bucket, "key": rule.prefix}
    if rule.tags:
        value["tags"] = rule.tags
    return json.dumps(value, sort_keys=True)


def is_versioned(ingest: IngestSection) -> bool:
    """Return whether the ingest bucket keeps versions: one that the stack creates does."""
    return ingest.existing is None or ingest.versioned
