"""The object of a member: its type, metadata, size, CRC-32 and bytes; and the rule on conflicts.

A member is written as it is or as a gzip file. Code that writes objects, or compares them with the
archive, uses this module. What becomes of a member whose key the destination may have already:

================== ==========================================================
``overwrite``      write the member; ask nothing
``skip-unchanged`` keep an object that is the member; overwrite any other
``never``          keep an object that is the member; fail where another one is
================== ==========================================================

Ask before the write, because S3 bills a conditional PUT that it refuses. `find_unchanged` asks for
many small members at once. An object is the member if its size and CRC-32 are the member's.
"""

import mimetypes
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from os.path import commonprefix

from isal.isal_zlib import crc32
from msgspec.structs import replace

from s3unzip.errors import NotFoundError
from s3unzip.globs import compile_glob
from s3unzip.model import GzipForm, OnConflict, Options, Outcome, PlannedMember, Run, Status
from s3unzip.object_properties import ObjectProperties
from s3unzip.runs.step import Step
from s3unzip.stores.calls import Calls, map_ahead
from s3unzip.stores.listing import PAGE_KEYS, list_pages
from s3unzip.stores.ports import RUN_KEY, Buffer, Destination, ObjectFacts, StoredObject
from s3unzip.zip import Member, OpenedMember, Policy
from s3unzip.zip.decode import PIECE_LENGTH, GzipMember, MemberDecoder, decode_whole, gzip_length

CRC_KEY = "zip-crc32"  # 8 hex digits: the member's CRC-32 as the directory has it
MTIME_KEY = "mtime"  # Unix seconds
MODE_KEY = "mode"  # Unix permission bits, octal
OWNER_READS = 0o400  # always: some writers give no permission at all, and nobody could read
DEFAULT_TYPE = "application/octet-stream"
LIST_PRICE = 12  # HEADs that one LIST costs: https://aws.amazon.com/s3/pricing/

# Python's own table, and what it lacks or has not in all versions; not the machine's
# /etc/mime.types: the same archive gets the same types on a laptop and in a Lambda. Sources:
# https://www.iana.org/assignments/media-types/ , and where it has none, what browsers expect.
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


def content_type(key: str) -> str:
    """Return the media type that the key's suffix stands for."""
    stem, dot, suffix = key.rpartition("/")[2].rpartition(".")
    if not stem.strip("."):  # ".profile" has none
        return DEFAULT_TYPE
    return _type_of(dot + suffix.lower())


@lru_cache(maxsize=4096)  # suffixes come from the archive: bound what is remembered
def _type_of(suffix: str) -> str:
    return _TYPES.guess_type("x" + suffix)[0] or DEFAULT_TYPE


def object_metadata(key: str, member: Member, run: Run) -> ObjectFacts:
    """Return what is stored beside the bytes of `member` under `key`."""
    metadata = {RUN_KEY: run.id}
    if member.declares_crc:
        metadata[CRC_KEY] = f"{member.crc32:08x}"
    if member.mtime is not None:
        metadata[MTIME_KEY] = str(member.mtime)
    if member.mode is not None:
        metadata[MODE_KEY] = f"{member.mode & 0o7777 | OWNER_READS:o}"
    encoding = "gzip" if run.options.as_gzip is GzipForm.ENCODING else None
    chosen = run.options.objects
    if chosen is None:
        return ObjectFacts(content_type(key), metadata, encoding)
    kind = _chosen_type(member.path, chosen) or content_type(key)
    return with_properties(ObjectFacts(kind, metadata, encoding), chosen)


def with_properties(facts: ObjectFacts, chosen: ObjectProperties) -> ObjectFacts:
    """Return `facts` with what the caller chose for all objects of the run."""
    return ObjectFacts(
        facts.content_type,
        chosen.metadata | facts.metadata,
        facts.content_encoding,
        chosen.cache_control,
        chosen.storage_class,
        chosen.tags or None,
        chosen.acl,
    )


def _chosen_type(path: str, chosen: ObjectProperties) -> str | None:
    """Return the type of the first glob that fits a member's path."""
    if not chosen.content_types:
        return None
    fitting = (glob for glob in chosen.content_types if compile_glob(glob).match(path))
    return next((chosen.content_types[glob] for glob in fitting), None)


def stored_size(member: Member, options: Options) -> int:
    """Return the length of the object of `member`."""
    return member.size if options.as_gzip is None else gzip_length(member)


def has_stored_size(size: int, member: Member, options: Options) -> bool:
    """Return whether the object of `member` can have `size` bytes."""
    return member.has_size(size) if options.as_gzip is None else size == gzip_length(member)


def open_content(
    member: Member,
    policy: Policy,
    opened: OpenedMember,
    options: Options,
    *,
    max_size: int | None = None,
) -> MemberDecoder:
    """Return what turns the member's data into its object, of at most `max_size` bytes.

    Its `crc32` and its `warnings` are known, and its bytes are known to be right, once all of them
    were yielded.
    """
    if options.as_gzip is None:
        return MemberDecoder(member, policy, opened, max_size)
    return GzipMember(member, policy, opened, max_size, trust_crc=options.trust_crc)


def decode_small(
    member: Member,
    data: memoryview,
    policy: Policy,
    opened: OpenedMember,
    options: Options,
    warnings: list[str],
) -> tuple[Buffer, int]:
    """Return a small member's object and the CRC-32 of its content; add to `warnings`."""
    if options.as_gzip is None:
        body = decode_whole(member, data, policy, opened, warnings)
        return body, member.crc32 if member.declares_crc else crc32(body)
    content = open_content(member, policy, opened, options)
    body = b"".join(content.decode([data]))
    warnings += content.warnings
    return body, content.crc32


def read_stored(destination: Destination, key: str, *, is_gzip: bool) -> StoredObject | None:
    """Read an object; return it with the CRC-32 of its content, None if it does not exist.

    The CRC-32 is None if the object should be a gzip file and is none.
    """
    size = crc = 0
    stream, is_broken = zlib.decompressobj(wbits=31), False  # its memory is bounded
    try:
        for piece in destination.read(key):
            size += len(piece)
            data: Buffer = piece
            while data and not is_broken:
                output = data
                if is_gzip:
                    try:
                        output = stream.decompress(data, PIECE_LENGTH)
                    except zlib.error:
                        is_broken = True
                        break
                    is_broken = bool(stream.unused_data)
                crc = crc32(output, crc)
                data = stream.unconsumed_tail if is_gzip else b""
    except NotFoundError:
        return None
    is_right = not is_gzip or (stream.eof and not is_broken)
    return StoredObject(key, size, crc if is_right else None)


def with_crc(row: PlannedMember, crc: int) -> PlannedMember:
    """Return `row` with the CRC-32 of its content, now that it is known."""
    member = row.member
    return row if member.declares_crc else replace(row, member=member.with_crc(crc))


# Conflicts


def resolve_conflict(
    row: PlannedMember, step: Step, read_crc: Callable[[], int] | None = None
) -> Outcome | None:
    """Return the outcome of a member that is not to be written; None: write it.

    Args:
        row: the member.
        step: its destination may have the key.
        read_crc: computes the CRC-32 of the content. It is called if the archive does not declare
            it, and the object has the member's size. `MemberError`: the content is bad.
    """
    options = step.run.options
    if options.on_conflict is OnConflict.OVERWRITE:
        return None
    stored = step.calls.paced("head", partial(find_object, row.key, options, step.destination))
    if stored is None:
        return None
    is_alike = has_stored_size(stored.size, row.member, options)
    if is_alike and not row.member.declares_crc and read_crc is not None:
        row = with_crc(row, read_crc())
    if is_alike and row.member.cipher is not None and stored.crc32 is None:
        # A large AE-2 member was written before its CRC-32 was known.
        is_gzip = options.as_gzip is not None
        read = partial(read_stored, step.destination, row.key, is_gzip=is_gzip)
        stored = step.calls.paced("get", read) or stored
    if has_content(stored, row.member, options):
        return row.outcome(Status.UNCHANGED, stored.size)
    return _exists(row) if options.on_conflict is OnConflict.NEVER else None


def explain_refusal(row: PlannedMember, step: Step) -> Outcome:
    """Return the outcome of a member whose write was refused because the key exists."""
    return resolve_conflict(row, step) or _exists(row)


def _exists(row: PlannedMember) -> Outcome:
    message = "the key exists with other content; --on-conflict never keeps it"
    return Outcome.failed(row.member.index, row.key, row.finding("exists", message))


def find_object(key: str, options: Options, destination: Destination) -> StoredObject | None:
    """Return what is under the key of a member, None if nothing is.

    Its `crc32` is that of the content: the store's own if the object is the content itself, else
    the one in the metadata. If the store keeps no metadata, a gzip file is read.
    """
    is_gzip = options.as_gzip is not None
    if is_gzip and not destination.keeps_metadata:
        return read_stored(destination, key, is_gzip=True)
    stored = destination.head(key)
    if stored is None or stored.checksum is None or is_gzip:
        return stored
    return stored._replace(crc32=stored.checksum)


def is_member(row: PlannedMember, options: Options, destination: Destination, calls: Calls) -> bool:
    """Return whether the object under the member's key has its size and its CRC-32."""
    stored = calls.paced("head", partial(find_object, row.key, options, destination))
    return stored is not None and has_content(stored, row.member, options)


def has_content(stored: StoredObject, member: Member, options: Options) -> bool:
    """Compare the size of an object, and the CRC-32 of its content, with those of a member.

    The archive declares no CRC-32 of members with AES of version AE-2.
    """
    is_equal = member.declares_crc and stored.crc32 == member.crc32
    return is_equal and has_stored_size(stored.size, member, options)


def is_same_object(
    outcome: Outcome, options: Options, destination: Destination, calls: Calls
) -> bool:
    """Return whether the object is still the one that a run wrote or found unchanged."""
    stored = calls.paced("head", partial(find_object, outcome.key, options, destination))
    if stored is None or stored.size != outcome.size:
        return False
    is_unknown = stored.crc32 is None and destination.keeps_metadata  # a streamed AE-2 member
    return is_unknown or stored.crc32 == outcome.crc32


def find_unchanged(
    rows: Sequence[PlannedMember],
    options: Options,
    destination: Destination,
    calls: Calls,
    threads: int,
) -> set[int]:
    """Return the indexes of members that the destination has; none if all are overwritten.

    LIST tells sizes, a thousand keys a request; HEAD is asked only where the sizes agree. If many
    other keys lie between the members' keys, the LIST stops after a few pages, before it costs more
    than it saves, and HEAD decides for all members that later pages may have.
    """
    if not rows or options.on_conflict is OnConflict.OVERWRITE:
        return set()
    suspects = _find_suspects(rows, options, destination, calls)

    def ask(row: PlannedMember) -> bool:
        return is_member(row, options, destination, calls)

    same = map_ahead(ask, suspects, threads, 4 * threads)
    return {row.member.index for row, found in zip(suspects, same, strict=True) if found}


def _find_suspects(
    rows: Sequence[PlannedMember], options: Options, destination: Destination, calls: Calls
) -> list[PlannedMember]:
    """Return the rows whose objects may be there with the same size."""
    by_key = sorted(rows, key=lambda row: row.key)  # code points have the order of their UTF-8
    unseen = {row.key: row for row in by_key}
    first, last = by_key[0].key, by_key[-1].key
    max_pages = min(2 + 2 * len(rows) // PAGE_KEYS, len(rows) // LIST_PRICE)
    if not max_pages:
        return by_key
    suspects: list[PlannedMember] = []
    prefix = commonprefix([first, last])  # noqa: RUF071 - of characters: keys have no folders
    list_page = partial(calls.paced, "list")
    for number, page in enumerate(list_pages(destination, prefix, list_page, first, last), 1):
        for listed in page.objects:
            row = unseen.pop(listed.key, None)
            if row is not None and has_stored_size(listed.size, row.member, options):
                suspects.append(row)
        if number == max_pages and not page.is_last:
            if not page.in_order:
                return suspects + list(unseen.values())
            beyond = page.objects[-1].key if page.objects else ""
            return suspects + [row for row in unseen.values() if row.key > beyond]
    return suspects
