"""The properties that a run sets on its objects besides their content, and the rules of S3.

Sources: https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-tagging.html ,
https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingMetadata.html and
https://docs.aws.amazon.com/AmazonS3/latest/userguide/storage-class-intro.html
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Struct

from s3unzip.errors import UsageError
from s3unzip.globs import compile_glob
from s3unzip.options import HelpSection, RunOption

# The storage classes in which an object can be written to a general purpose bucket.
STORAGE_CLASSES = (
    "STANDARD",
    "STANDARD_IA",
    "ONEZONE_IA",
    "INTELLIGENT_TIERING",
    "GLACIER_IR",
    "GLACIER",
    "DEEP_ARCHIVE",
    "REDUCED_REDUNDANCY",
)
# Objects of these classes must be restored before they can be read.
ARCHIVED_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})

# https://docs.aws.amazon.com/AmazonS3/latest/userguide/acl-overview.html#canned-acl
CANNED_ACLS = (
    "private",
    "public-read",
    "public-read-write",
    "authenticated-read",
    "aws-exec-read",
    "bucket-owner-read",
    "bucket-owner-full-control",
)

MAX_TAGS = 10  # per object (object-tagging in the user guide)
MAX_TAG_KEY = 128  # characters
MAX_TAG_VALUE = 256
TAG_PUNCTUATION = " +-=._:/@"
MAX_METADATA_BYTES = 2_048  # maximum size of all names and values together, in UTF-8
# The metadata that every run writes.
RUN_KEY = "s3unzip-run"  # the id of the last run that wrote the object
CRC_KEY = "zip-crc32"  # 8 hex digits: the member's CRC-32 in the directory
MTIME_KEY = "mtime"  # Unix seconds
MODE_KEY = "mode"  # Unix permission bits, octal
RESERVED_METADATA = frozenset({RUN_KEY, CRC_KEY, MTIME_KEY, MODE_KEY})
OWN_METADATA_BYTES = 128  # size of the reserved names with their longest values
# HTTP headers, which S3 clients do not accept as metadata.
HTTP_HEADERS = frozenset(
    {
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-type",
        "storage-class",
    }
)
MAX_HEADER_VALUE = 1_024  # maximum number of characters of Cache-Control, and of Content-Type

_METADATA_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")
_PRINTABLE = re.compile(r"[!-~](?:[ -~]*[!-~])?")  # ASCII; spaces at the ends would be lost
_TYPE = re.compile(
    r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?:\s*;\s*[\w!#$&^.+-]+=(?:[\w!#$&^.+/-]+|\"[^\"]*\"))*",
    re.ASCII,
)


class ObjectProperties(Struct, frozen=True, omit_defaults=True):
    """The properties of every object that a run writes to S3, besides its content."""

    storage_class: Annotated[
        str | None,
        RunOption(
            "--storage-class CLASS",
            "Storage class of every object in S3, such as STANDARD_IA.",
            HelpSection.OBJECTS,
            known_values=STORAGE_CLASSES,
        ),
    ] = None  # None means STANDARD
    cache_control: Annotated[
        str | None,
        RunOption(
            "--cache-control TEXT",
            "Cache-Control header of every object in S3.",
            HelpSection.OBJECTS,
        ),
    ] = None  # the header that S3 sends with the object
    content_types: Annotated[
        dict[str, str],
        RunOption(
            "--content-type GLOB=TYPE",
            "Content type of matching members, whatever their suffix; the first match counts.",
            HelpSection.OBJECTS,
        ),
    ] = {}  # types, keyed by globs of member paths; the first match is used
    metadata: Annotated[
        dict[str, str],
        RunOption(
            "--metadata NAME=VALUE",
            "Metadata of every object in S3; repeatable.",
            HelpSection.OBJECTS,
        ),
    ] = {}  # values, keyed by name without x-amz-meta-
    tags: Annotated[
        dict[str, str],
        RunOption("--tag KEY=VALUE", "Tag of every object in S3; repeatable.", HelpSection.OBJECTS),
    ] = {}
    acl: Annotated[
        str | None,
        RunOption(
            "--acl NAME",
            "Canned ACL of every object in S3, such as bucket-owner-full-control.",
            HelpSection.OBJECTS,
            known_values=CANNED_ACLS,
        ),
    ] = None  # a canned ACL; None means the bucket's default

    def check(self) -> None:
        """Raise `UsageError` if S3 would refuse the properties."""
        _check_name("storage class", self.storage_class, STORAGE_CLASSES)
        _check_name("acl", self.acl, CANNED_ACLS)
        if self.cache_control is not None:
            _check_header("cache control", self.cache_control)
        for glob, kind in self.content_types.items():
            _check_header(f"content type of {glob!r}:", kind)
            _refuse_if_any(
                f"content type {kind!r}",
                [
                    (not glob, "its glob is empty; '**' matches all members"),
                    (not _TYPE.fullmatch(kind), "not a media type, such as text/csv"),
                ],
            )
            compile_glob(glob)  # raises `UsageError` if the glob is invalid
        _check_metadata(self.metadata)
        check_tags(self.tags)


def _refuse_if_any(subject: str, faults: Sequence[tuple[bool, str]]) -> None:
    """Raise `UsageError` with the reason of the first fault whose condition is True."""
    for is_true, reason in faults:
        if is_true:
            raise UsageError(f"{subject}: {reason}")


def _check_name(noun: str, name: str | None, names: Sequence[str]) -> None:
    if name is not None and name not in names:
        raise UsageError(f"{noun} {name!r}: unknown; known: {', '.join(names)}")


def _check_header(noun: str, value: str) -> None:
    if not _PRINTABLE.fullmatch(value) or len(value) > MAX_HEADER_VALUE:
        raise UsageError(
            f"{noun} {value[:80]!r}: must be 1 to {MAX_HEADER_VALUE:,} printable ASCII characters, "
            "without spaces at its ends"
        )


def _check_metadata(metadata: Mapping[str, str]) -> None:
    """Check names, values and the total size, which includes s3unzip's own metadata."""
    for name, value in metadata.items():
        _refuse_if_any(
            f"metadata {name!r}",
            [
                (
                    name.lower() in RESERVED_METADATA,
                    "s3unzip writes it itself; choose another name",
                ),
                (
                    name.lower() in HTTP_HEADERS,
                    (
                        "is an HTTP header; cache control, content types and the storage class "
                        "have options of their own"
                    ),
                ),
                (
                    not _METADATA_NAME.fullmatch(name),
                    "a name consists of a-z, 0-9, '.', '_' and '-'; S3 keeps names in lower case",
                ),
                (
                    bool(value) and not _PRINTABLE.fullmatch(value),
                    "the value must be printable ASCII, without spaces at its ends",
                ),
            ],
        )
    size = sum(len(name) + len(value) for name, value in metadata.items())
    max_size = MAX_METADATA_BYTES - OWN_METADATA_BYTES
    if size > max_size:
        raise UsageError(
            f"metadata: {size:,} bytes of names and values; S3 allows {MAX_METADATA_BYTES:,}, of "
            f"which s3unzip needs {OWN_METADATA_BYTES}: use at most {max_size:,}"
        )


def check_tags(tags: Mapping[str, str]) -> None:
    """Raise `UsageError` if S3 would refuse these tags for an object."""
    if len(tags) > MAX_TAGS:
        raise UsageError(f"tags: {len(tags)} are given; an object can have at most {MAX_TAGS}")
    for key, value in tags.items():
        refused = "".join(c for c in key + value if not c.isalnum() and c not in TAG_PUNCTUATION)
        _refuse_if_any(
            f"tag {key[:MAX_TAG_KEY]!r}",
            [
                (
                    not 0 < len(key) <= MAX_TAG_KEY,
                    f"its key must have 1 to {MAX_TAG_KEY} characters",
                ),
                (
                    len(value) > MAX_TAG_VALUE,
                    f"its value has {len(value)} characters; S3 allows {MAX_TAG_VALUE}",
                ),
                (
                    key.lower().startswith("aws:"),
                    "keys that begin with aws: are reserved for AWS",
                ),
                (
                    bool(refused),
                    (
                        f"S3 takes no {refused[:1]!r} in a tag; it takes letters, digits, spaces "
                        "and + - = . _ : / @"
                    ),
                ),
            ],
        )
