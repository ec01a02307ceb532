"""What each function's role allows, one action on one kind of thing at a time.

The feature flag minimizePolicies of cdk.json lets CDK merge statements: one may
have several actions on several resources.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ARCHIVES, MEMBERS, RUNS = "ingest objects", "destination objects", "work objects"
EXECUTIONS = "executions"
NOT_THERE = "on AWS, which answers 403 without it for what is not there; MiniStack answers 404"
# What no run on an emulator can show the need of.
LARGE = "after a failed write of more than 16 MiB"
NO_VERSIONS = "where the ingest bucket has no versions"
KILLED = "where an earlier planner of a refused archive was killed"
REPLACED = "where an archive is replaced before its run has ended: test_replaced.py"
AGAIN = "where the planner is tried again"
RARE = {
    ("plan", "s3:ListBucket", "work"): NOT_THERE,
    ("planner", "s3:ListBucket", "work"): NOT_THERE,
    ("plan", "s3:ListBucketMultipartUploads", "destination"): KILLED,
    ("planner", "s3:ListBucketMultipartUploads", "destination"): KILLED,
    ("planner", "s3:ListBucket", "ingest"): NOT_THERE,
    ("planner", "s3:AbortMultipartUpload", RUNS): LARGE,
    ("plan", "s3:AbortMultipartUpload", RUNS): LARGE,
    ("link", "s3:AbortMultipartUpload", RUNS): LARGE,
    ("extract", "s3:AbortMultipartUpload", RUNS): LARGE,
    ("report", "s3:AbortMultipartUpload", RUNS): LARGE,
    ("link", "s3:GetObject", ARCHIVES): NO_VERSIONS,
    ("extract", "s3:GetObject", ARCHIVES): f"{NO_VERSIONS}, and by UploadPartCopy on AWS",
    ("plan", "s3:ListBucket", "ingest"): NOT_THERE,
    ("link", "s3:ListBucket", "destination"): NOT_THERE,
    ("link", "s3:ListBucket", "work"): NOT_THERE,
    ("extract", "s3:ListBucket", "work"): NOT_THERE,
    ("report", "s3:ListBucket", "destination"): NOT_THERE,
    ("report", "s3:GetObject", ARCHIVES): REPLACED,
    ("report", "s3:ListBucket", "ingest"): NOT_THERE,
    ("report", "s3:GetObject", MEMBERS): "where a settling is repeated after it completed a member",
}


@dataclass(frozen=True, slots=True)
class Right:
    """One action that a function's role allows on one kind of thing."""

    function: str
    action: str
    place: str

    def __str__(self) -> str:
        return f"{self.function}: {self.action} on {self.place}"


RIGHTS = [
    Right(function, action, place)
    for function, place, actions in (
        ("plan", ARCHIVES, ("s3:GetObject", "s3:GetObjectVersion")),
        ("plan", "ingest", ("s3:ListBucket",)),
        ("plan", MEMBERS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("plan", "destination", ("s3:ListBucket", "s3:ListBucketMultipartUploads")),
        ("plan", RUNS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("plan", RUNS, ("s3:DeleteObject",)),
        ("plan", "work", ("s3:ListBucket",)),
        ("planner", ARCHIVES, ("s3:GetObject", "s3:GetObjectVersion")),
        ("planner", "ingest", ("s3:ListBucket",)),
        ("planner", MEMBERS, ("s3:PutObject", "s3:AbortMultipartUpload")),
        ("planner", "destination", ("s3:ListBucketMultipartUploads",)),
        ("planner", RUNS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("planner", RUNS, ("s3:DeleteObject",)),
        ("planner", "work", ("s3:ListBucket",)),
        ("link", ARCHIVES, ("s3:GetObject", "s3:GetObjectVersion")),
        ("link", MEMBERS, ("s3:GetObject", "s3:PutObject")),
        ("link", "destination", ("s3:ListBucket",)),
        ("link", RUNS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("link", "work", ("s3:ListBucket",)),
        ("extract", ARCHIVES, ("s3:GetObject", "s3:GetObjectVersion")),
        ("extract", MEMBERS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("extract", "destination", ("s3:ListBucket",)),
        ("extract", RUNS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("extract", "work", ("s3:ListBucket",)),
        ("report", ARCHIVES, ("s3:GetObject",)),
        ("report", "ingest", ("s3:ListBucket",)),
        ("report", MEMBERS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("report", "destination", ("s3:ListBucket", "s3:ListBucketMultipartUploads")),
        ("report", RUNS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
        ("report", RUNS, ("s3:DeleteObject",)),
        ("report", "work", ("s3:ListBucket",)),
    )
    for action in actions
]


# What only direct runs need; test_direct.py takes each of them away.
OF_DIRECT_RUNS = [
    Right("plan", "s3:GetObject", MEMBERS),
    Right("plan", "s3:ListBucket", "destination"),
    Right("plan", "s3:GetObjectVersion", ARCHIVES),
]

# What only the ledger of shares needs; test_service_rights.py takes each of them away.
OF_ADMISSION = [
    Right(function, "s3:DeleteObject", RUNS) for function in ("plan", "planner", "report")
]


def rights_of(function: str, statement: dict[str, Any]) -> Iterator[Right]:
    """Yield the rights of the table that a statement gives to a function."""
    for action in as_list(statement["Action"]):
        if action.startswith(("s3:", "states:Describe")):
            for resource in as_list(statement["Resource"]):
                yield Right(function, action, place_of(resource))


def without_right(statement: dict[str, Any], right: Right) -> list[dict[str, Any]]:
    """Return a statement without one right, as two where it gives others on other resources."""
    actions, resources = as_list(statement["Action"]), as_list(statement["Resource"])
    if right not in rights_of(right.function, statement):
        return [statement]
    there = [resource for resource in resources if place_of(resource) == right.place]
    parts = (
        (actions, [resource for resource in resources if resource not in there]),
        ([action for action in actions if action != right.action], there),
    )
    return [
        {**statement, "Action": some, "Resource": where} for some, where in parts if some and where
    ]


def as_list(value: Any) -> list[Any]:
    """Return the actions or resources of a statement, which may be one without a list."""
    return value if isinstance(value, list) else [value]


def place_of(resource: Any) -> str:
    """Return what kind of thing a resource is; the template has an expression for its ARN."""
    text = json.dumps(resource)
    if ":execution:" in text:
        return EXECUTIONS
    for name in ("ingest", "destination", "work"):
        if f"storage{name}" in text.lower():
            return f"{name} objects" if "/*" in text or "/runs" in text else name
    raise AssertionError(text)
