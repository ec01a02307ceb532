"""The facts stored beside a member's bytes: its media type, its metadata, the run's properties."""

from msgspec.structs import replace

from s3unzip.extraction.media_types import content_type
from s3unzip.globs import compile_glob
from s3unzip.model import GzipForm, Run
from s3unzip.object_properties import (
    CRC_KEY,
    MODE_KEY,
    MTIME_KEY,
    RUN_KEY,
    ObjectProperties,
)
from s3unzip.stores.ports import ObjectFacts
from s3unzip.zip import Member

OWNER_READS = 0o400  # always set: some writers set no permission, and nobody could read
# The properties that are stored as they are.
PASSED_ON = {*ObjectProperties.__struct_fields__} & {*ObjectFacts.__struct_fields__} - {"metadata"}


def object_metadata(key: str, member: Member, run: Run) -> ObjectFacts:
    """Return the facts that are stored beside the bytes of `member` under `key`."""
    metadata = {RUN_KEY: run.id}
    if member.declares_crc:
        metadata[CRC_KEY] = f"{member.crc32:08x}"
    if member.mtime is not None:
        metadata[MTIME_KEY] = str(member.mtime)
    if member.mode is not None:
        metadata[MODE_KEY] = f"{member.mode & 0o7777 | OWNER_READS:o}"
    encoding = "gzip" if run.options.as_gzip is GzipForm.ENCODING else None
    properties = run.options.objects
    if properties is None:
        return ObjectFacts(content_type(key), metadata, encoding)
    media_type = _declared_type(member.path, properties) or content_type(key)
    return with_properties(ObjectFacts(media_type, metadata, encoding), properties)


def with_properties(facts: ObjectFacts, properties: ObjectProperties) -> ObjectFacts:
    """Return `facts` with the properties of all objects of the run."""
    values = {name: getattr(properties, name) or None for name in PASSED_ON}
    return replace(facts, metadata=properties.metadata | facts.metadata, **values)


def _declared_type(path: str, properties: ObjectProperties) -> str | None:
    """Return the type of the first glob that matches a member's path."""
    for glob, media_type in properties.content_types.items():
        if compile_glob(glob).match(path):
            return media_type
    return None
