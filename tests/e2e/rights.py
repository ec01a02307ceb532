"""What each function's role allows, one action on one kind of thing at a time.

The feature flag minimizePolicies of cdk.json lets CDK merge statements: one may
have several actions on several resources.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

ARCHIVES, MEMBERS, RUNS = "ingest objects", "destination objects", "work objects"
# What no run of the test can show the need of.
NOT_THERE = "on AWS, which answers 403 without it for what is not there; MiniStack answers 404"
LARGE = "after a failed write of more than 16 MiB"
NO_VERSIONS = "where the ingest bucket has no versions"
REPLACED = "where a newer version has replaced the planned one: else the ETag pins it"
RESUMED = "where a run goes on that stopped"


@dataclass(frozen=True, slots=True)
class Right:
    """One action that a function's role allows on one kind of thing."""

    function: str
    action: str
    place: str

    @property
    def key(self) -> tuple[str, str, str]:
        return self.function, self.action, self.place

    def __str__(self) -> str:
        return f"{self.function}: {self.action} on {self.place}"


OF_TASKS = (
    (ARCHIVES, ("s3:GetObject", "s3:GetObjectVersion")),
    (MEMBERS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
    ("destination", ("s3:ListBucket",)),
    (RUNS, ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload")),
    ("work", ("s3:ListBucket",)),
)
OF_RUNS = (
    *OF_TASKS,
    ("ingest", ("s3:ListBucket",)),
    ("destination", ("s3:ListBucketMultipartUploads",)),
)
RIGHTS = [
    Right(function, action, place)
    for function, table in (
        ("intake", OF_RUNS),
        ("plan", (*OF_RUNS, (RUNS, ("s3:DeleteObject",)))),
        ("extract", OF_TASKS),
        ("settle", OF_RUNS),
    )
    for place, actions in table
    for action in actions
]
# A right that the archives of the test do not show the need of, and where it is needed.
RARE = {
    **{
        (name, "s3:AbortMultipartUpload", RUNS): LARGE
        for name in ("intake", "plan", "extract", "settle")
    },
    **{(name, "s3:ListBucket", "ingest"): NOT_THERE for name in ("intake", "plan", "settle")},
    **{(name, "s3:ListBucket", "destination"): NOT_THERE for name in ("intake", "plan", "settle")},
    **{(name, "s3:ListBucket", "work"): NOT_THERE for name in ("intake", "plan", "extract")},
    **{
        (name, "s3:ListBucketMultipartUploads", "destination"): RESUMED
        for name in ("intake", "plan", "settle")
    },
    **{("plan", action, MEMBERS): "where a resumed run ends" for action in OF_TASKS[1][1]},
    ("intake", "s3:AbortMultipartUpload", MEMBERS): "where it plans a copy of several slices",
    ("plan", "s3:DeleteObject", RUNS): RESUMED,
    ("extract", "s3:GetObject", ARCHIVES): f"{NO_VERSIONS}, and by UploadPartCopy on AWS",
    ("settle", "s3:AbortMultipartUpload", MEMBERS): "where the slices of a member do not fit",
    **{
        (name, "s3:GetObjectVersion", ARCHIVES): REPLACED
        for name in ("intake", "plan", "extract", "settle")
    },
    ("settle", "s3:GetObject", ARCHIVES): "where it looks whether the archive was replaced",
    ("settle", "s3:GetObject", MEMBERS): "where a settling is repeated after it ended a member",
}


def rights_of(function: str, statement: dict[str, Any]) -> Iterator[Right]:
    """Yield the rights of the table that a statement gives to a function."""
    for action in as_list(statement["Action"]):
        if action.startswith("s3:"):
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
    for name in ("ingest", "destination", "work"):
        if f"storage{name}" in text.lower():
            return f"{name} objects" if "/*" in text or "/runs" in text else name
    raise AssertionError(text)
