"""The object of a member: its bytes, and the facts that are stored beside them.

The bytes are the content of the member, or a gzip file of it. The facts are the media type, the
metadata and the run's properties.

The media type follows from the suffix of the key. The table is Python's own, and suffixes that it
lacks or does not have in all versions. It is not the machine's /etc/mime.types, so an archive gets
the same types on a laptop and in a Lambda. Sources: https://www.iana.org/assignments/media-types/ ,
and for types without an entry there, the type that browsers expect.
"""

import mimetypes
from functools import lru_cache

from msgspec.structs import replace

from s3unzip.globs import compile_glob
from s3unzip.model import GzipForm, Options, Run
from s3unzip.object_properties import (
    CRC_KEY,
    MODE_KEY,
    MTIME_KEY,
    RUN_KEY,
    ObjectProperties,
)
from s3unzip.stores.ports import ObjectFacts
from s3unzip.zip import Member, OpenedMember, Policy
from s3unzip.zip.as_gzip import GzipMember, gzip_length
from s3unzip.zip.decode import Decoded, MemberDecoder, decode_member

DEFAULT_TYPE = "application/octet-stream"
OWNER_READS = 0o400  # always added: with the mode of some writers, nobody could read the file
# The properties that become facts of the object unchanged.
PASSED_ON = {*ObjectProperties.__struct_fields__} & {*ObjectFacts.__struct_fields__} - {"metadata"}

_SUFFIXES = {
    "application/dicom": "dcm",
    "application/epub+zip": "epub",
    "application/geo+json": "geojson",
    "application/geopackage+sqlite3": "gpkg",
    "application/gml+xml": "gml",
    "application/gpx+xml": "gpx",
    "application/gzip": "gz",
    "application/java-archive": "ear jar war",
    "application/json": "ipynb json json5 map topojson",
    "application/jsonl": "jsonl",
    "application/ld+json": "jsonld",
    "application/n-triples": "nt",
    "application/parquet": "parquet",
    "application/sql": "sql",
    "application/toml": "toml",
    "application/vnd.android.package-archive": "apk",
    "application/vnd.apache.arrow.file": "arrow feather",
    "application/vnd.google-earth.kml+xml": "kml",
    "application/vnd.google-earth.kmz": "kmz",
    "application/vnd.ms-cab-compressed": "cab",
    "application/vnd.ms-excel": "xls",
    "application/vnd.ms-excel.sheet.binary.macroenabled.12": "xlsb",
    "application/vnd.ms-excel.sheet.macroenabled.12": "xlsm",
    "application/vnd.ms-fontobject": "eot",
    "application/vnd.ms-outlook": "msg",
    "application/vnd.ms-powerpoint": "ppt",
    "application/vnd.ms-powerpoint.presentation.macroenabled.12": "pptm",
    "application/vnd.ms-word.document.macroenabled.12": "docm",
    "application/vnd.oasis.opendocument.graphics": "odg",
    "application/vnd.oasis.opendocument.presentation": "odp",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/vnd.openxmlformats-officedocument.presentationml.slideshow": "ppsx",
    "application/vnd.openxmlformats-officedocument.presentationml.template": "potx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.template": "xltx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.template": "dotx",
    "application/vnd.rar": "rar",
    "application/vnd.sqlite3": "sqlite sqlite3",
    "application/vnd.visio": "vsd",
    "application/x-7z-compressed": "7z",
    "application/x-bzip2": "bz2",
    "application/x-ndjson": "ndjson",
    "application/x-xz": "xz",
    "application/xhtml+xml": "xhtml",
    "application/xml": "xsd",
    "application/xml-dtd": "dtd",
    "application/yaml": "yaml yml",
    "application/zstd": "zst",
    "audio/flac": "flac",
    "audio/midi": "mid midi",
    "audio/mp4": "m4a",
    "audio/ogg": "oga ogg opus",
    "font/otf": "otf",
    "font/ttf": "ttf",
    "font/woff": "woff",
    "font/woff2": "woff2",
    "image/avif": "avif",
    "image/bmp": "bmp",
    "image/heic": "heic",
    "image/jp2": "jp2",
    "image/jxl": "jxl",
    "image/vnd.adobe.photoshop": "psd",
    "image/vnd.dxf": "dxf",
    "image/webp": "webp",
    "model/gltf+json": "gltf",
    "model/gltf-binary": "glb",
    "model/obj": "obj",
    "model/stl": "stl",
    "text/calendar": "ics",
    "text/javascript": "cjs js mjs",
    "text/markdown": "markdown md",
    "text/plain": "cfg conf cpp cs go ini java kt log properties ps1 rb rs swift",
    "text/rtf": "rtf",
    "text/turtle": "ttl",
    "text/x-rst": "rst",
    "video/3gpp": "3gp",
    "video/matroska": "mkv",
    "video/mp4": "m4v mp4",
    "video/ogg": "ogv",
    "video/x-flv": "flv",
    "video/x-ms-wmv": "wmv",
}
_TYPES = mimetypes.MimeTypes(filenames=())
for _type, _suffixes in _SUFFIXES.items():
    for _suffix in _suffixes.split():
        _TYPES.add_type(_type, f".{_suffix}")
_TYPES.encodings_map.clear()  # "a.json.gz" is gzip, not JSON with an encoding


def stored_size(member: Member, options: Options) -> int:
    """Return the length of the object of `member`."""
    if options.as_gzip is None:
        return member.size
    return gzip_length(member)


def has_stored_size(size: int, member: Member, options: Options) -> bool:
    """Return whether the object of `member` can have `size` bytes."""
    if options.as_gzip is None:
        return member.has_size(size)
    return size == gzip_length(member)


def open_content(
    member: Member,
    policy: Policy,
    opened: OpenedMember,
    options: Options,
    *,
    max_size: int | None = None,
) -> MemberDecoder:
    """Return the decoder that turns the member's data into its object, of at most `max_size` bytes.

    The bytes are verified, and `crc32` and `warnings` are set, once all output has been yielded.
    """
    if options.as_gzip is None:
        return MemberDecoder(member, policy, opened, max_size)
    return GzipMember(member, policy, opened, max_size, trust_crc=options.trust_crc)


def make_object(
    member: Member, data: memoryview, policy: Policy, opened: OpenedMember, options: Options
) -> Decoded:
    """Return the object of a small member, whose compressed bytes are `data`.

    With `as_gzip` the object is a gzip file; the CRC-32 is still that of the content.
    """
    if options.as_gzip is None:
        return decode_member(member, data, policy, opened)
    decoder = open_content(member, policy, opened, options)
    file = b"".join(decoder.decode([data]))  # this also sets the CRC-32 and the warnings
    return Decoded(file, decoder.crc32, decoder.warnings)


def object_facts(key: str, member: Member, run: Run) -> ObjectFacts:
    """Return the facts that are stored beside the bytes of `member` under `key`."""
    metadata = {RUN_KEY: run.id}
    if member.declares_crc:
        metadata[CRC_KEY] = f"{member.crc32:08x}"
    if member.mtime is not None:
        metadata[MTIME_KEY] = str(member.mtime)
    if member.mode is not None:
        permissions = member.mode & 0o7777  # without the type of the file
        metadata[MODE_KEY] = f"{permissions | OWNER_READS:o}"
    encoding = "gzip" if run.options.as_gzip is GzipForm.ENCODING else None
    properties = run.options.objects
    if properties is None:
        return ObjectFacts(content_type(key), metadata, encoding)
    declared_types = (
        media_type
        for glob, media_type in properties.content_types.items()
        if compile_glob(glob).match(member.path)
    )
    media_type = next(declared_types, None) or content_type(key)
    return with_properties(ObjectFacts(media_type, metadata, encoding), properties)


def with_properties(facts: ObjectFacts, properties: ObjectProperties) -> ObjectFacts:
    """Return `facts` with the properties of all objects of the run."""
    # An empty property becomes None: the object does not have it.
    unchanged = {name: getattr(properties, name) or None for name in PASSED_ON}
    return replace(facts, metadata=properties.metadata | facts.metadata, **unchanged)


def content_type(key: str) -> str:
    """Return the media type for the suffix of a key."""
    name = key.rpartition("/")[2]
    stem, dot, suffix = name.rpartition(".")
    if not stem.strip("."):  # ".profile" has no suffix
        return DEFAULT_TYPE
    return _find_type(dot + suffix.lower())


@lru_cache(maxsize=4096)  # suffixes come from the archive: bound the memory
def _find_type(suffix: str) -> str:
    return _TYPES.guess_type("x" + suffix)[0] or DEFAULT_TYPE
