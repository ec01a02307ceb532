"""The object of a member: its bytes, and the facts that are stored with them.

The bytes are the content of the member, or a gzip file of the content. The facts are the media
type, the metadata and the properties of the run.

The media type is derived from the suffix of the key. The table contains the suffixes of Python's
`mimetypes` and some others. `mimetypes` itself is not used, because its types depend on the version
of Python and on /etc/mime.types of the machine: an archive must get the same types on a laptop and
in a Lambda function. The types are those of https://www.iana.org/assignments/media-types/ or, if
that list has no entry, those that browsers expect.
"""

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
from s3unzip.zip.decode import (
    Decoded,
    GzipMember,
    MemberDecoder,
    decode_member,
    gzip_length,
)

DEFAULT_TYPE = "application/octet-stream"
OWNER_READS = 0o400
# The properties that are used unchanged as facts of the object.
PASSED_ON = {*ObjectProperties.__struct_fields__} & {*ObjectFacts.__struct_fields__} - {"metadata"}

_SUFFIXES = {
    "application/dicom": "dcm",
    "application/epub+zip": "epub",
    "application/geo+json": "geojson",
    "application/geopackage+sqlite3": "gpkg",
    "application/gml+xml": "gml",
    "application/gpx+xml": "gpx",
    "application/gzip": "gz svgz taz tgz tz",
    "application/java-archive": "ear jar war",
    "application/json": "ipynb json json5 map topojson",
    "application/jsonl": "jsonl",
    "application/ld+json": "jsonld",
    "application/manifest+json": "webmanifest",
    "application/msword": "doc dot wiz",
    "application/n-quads": "nq",
    "application/n-triples": "nt",
    "application/oda": "oda",
    "application/parquet": "parquet",
    "application/pdf": "pdf",
    "application/pkcs7-mime": "p7c",
    "application/postscript": "ai eps ps",
    "application/sql": "sql",
    "application/toml": "toml",
    "application/trig": "trig",
    "application/vnd.android.package-archive": "apk",
    "application/vnd.apache.arrow.file": "arrow feather",
    "application/vnd.apple.mpegurl": "m3u m3u8",
    "application/vnd.google-earth.kml+xml": "kml",
    "application/vnd.google-earth.kmz": "kmz",
    "application/vnd.ms-cab-compressed": "cab",
    "application/vnd.ms-excel": "xlb xls",
    "application/vnd.ms-excel.sheet.binary.macroenabled.12": "xlsb",
    "application/vnd.ms-excel.sheet.macroenabled.12": "xlsm",
    "application/vnd.ms-fontobject": "eot",
    "application/vnd.ms-outlook": "msg",
    "application/vnd.ms-powerpoint": "pot ppa pps ppt pwz",
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
    "application/wasm": "wasm",
    "application/x-7z-compressed": "7z",
    "application/x-bcpio": "bcpio",
    "application/x-bzip2": "bz2 tbz2",
    "application/x-cpio": "cpio",
    "application/x-csh": "csh",
    "application/x-dvi": "dvi",
    "application/x-gtar": "gtar",
    "application/x-hdf": "hdf",
    "application/x-hdf5": "h5",
    "application/x-latex": "latex",
    "application/x-mif": "mif",
    "application/x-ndjson": "ndjson",
    "application/x-netcdf": "cdf nc",
    "application/x-pkcs12": "p12 pfx",
    "application/x-pn-realaudio": "ram",
    "application/x-python-code": "pyc pyo",
    "application/x-sh": "sh",
    "application/x-shar": "shar",
    "application/x-shockwave-flash": "swf",
    "application/x-sv4cpio": "sv4cpio",
    "application/x-sv4crc": "sv4crc",
    "application/x-tar": "tar",
    "application/x-tcl": "tcl",
    "application/x-tex": "tex",
    "application/x-texinfo": "texi texinfo",
    "application/x-troff": "roff t tr",
    "application/x-troff-man": "man",
    "application/x-troff-me": "me",
    "application/x-troff-ms": "ms",
    "application/x-ustar": "ustar",
    "application/x-wais-source": "src",
    "application/x-xz": "txz xz",
    "application/xhtml+xml": "xhtml",
    "application/xml": "rdf wsdl xpdl xsd xsl",
    "application/xml-dtd": "dtd",
    "application/yaml": "yaml yml",
    "application/zip": "zip",
    "application/zstd": "zst",
    "audio/3gpp": "3gpp",
    "audio/3gpp2": "3g2 3gpp2",
    "audio/aac": "aac adts ass loas",
    "audio/basic": "au snd",
    "audio/flac": "flac",
    "audio/midi": "mid midi",
    "audio/mp4": "m4a",
    "audio/mpeg": "mp2 mp3",
    "audio/ogg": "oga ogg opus",
    "audio/x-aiff": "aif aifc aiff",
    "audio/x-pn-realaudio": "ra",
    "audio/x-wav": "wav",
    "font/otf": "otf",
    "font/ttf": "ttf",
    "font/woff": "woff",
    "font/woff2": "woff2",
    "image/avif": "avif",
    "image/bmp": "bmp",
    "image/gif": "gif",
    "image/heic": "heic",
    "image/heif": "heif",
    "image/ief": "ief",
    "image/jp2": "jp2",
    "image/jpeg": "jpe jpeg jpg",
    "image/jxl": "jxl",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/tiff": "tif tiff",
    "image/vnd.adobe.photoshop": "psd",
    "image/vnd.dxf": "dxf",
    "image/vnd.microsoft.icon": "ico",
    "image/webp": "webp",
    "image/x-cmu-raster": "ras",
    "image/x-portable-anymap": "pnm",
    "image/x-portable-bitmap": "pbm",
    "image/x-portable-graymap": "pgm",
    "image/x-portable-pixmap": "ppm",
    "image/x-rgb": "rgb",
    "image/x-xbitmap": "xbm",
    "image/x-xpixmap": "xpm",
    "image/x-xwindowdump": "xwd",
    "message/rfc822": "eml mht mhtml nws",
    "model/gltf+json": "gltf",
    "model/gltf-binary": "glb",
    "model/obj": "obj",
    "model/stl": "stl",
    "text/calendar": "ics",
    "text/css": "css",
    "text/csv": "csv",
    "text/html": "htm html",
    "text/javascript": "cjs js mjs",
    "text/markdown": "markdown md",
    "text/n3": "n3",
    "text/plain": (
        "bat c cfg conf cpp cs go h ini java ksh kt log pl properties ps1 rb rs srt swift txt"
    ),
    "text/richtext": "rtx",
    "text/rtf": "rtf",
    "text/tab-separated-values": "tsv",
    "text/turtle": "ttl",
    "text/vtt": "vtt",
    "text/x-python": "py",
    "text/x-rst": "rst",
    "text/x-setext": "etx",
    "text/x-sgml": "sgm sgml",
    "text/x-vcard": "vcf",
    "text/xml": "xml",
    "video/3gpp": "3gp",
    "video/matroska": "mkv",
    "video/mp4": "m4v mp4",
    "video/mpeg": "m1v mpa mpe mpeg mpg",
    "video/ogg": "ogv",
    "video/quicktime": "mov qt",
    "video/webm": "webm",
    "video/x-flv": "flv",
    "video/x-ms-wmv": "wmv",
    "video/x-msvideo": "avi",
    "video/x-sgi-movie": "movie",
}
_TYPES = {
    suffix: media_type for media_type, suffixes in _SUFFIXES.items() for suffix in suffixes.split()
}


def stored_size(member: Member, options: Options) -> int:
    """Return the size of the object of `member`, in bytes.

    The size of a gzip file follows from the directory, because the file contains the compressed
    data of the archive unchanged.
    """
    if options.as_gzip is None:
        return member.size
    return gzip_length(member)


def has_stored_size(size: int, member: Member, options: Options) -> bool:
    """Return whether the object of `member` can have a size of `size` bytes."""
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

    Once all output has been yielded, the bytes are verified, and `crc32` and `warnings` are set.
    """
    if options.as_gzip is None:
        return MemberDecoder(member, policy, opened, max_size)
    return GzipMember(member, policy, opened, max_size, trust_crc=options.trust_crc)


def make_object(
    member: Member, data: memoryview, policy: Policy, opened: OpenedMember, options: Options
) -> Decoded:
    """Return the object of a small member; `data` contains its compressed bytes.

    With `as_gzip`, the object is a gzip file, but the CRC-32 is still that of the content.
    """
    if options.as_gzip is None:
        return decode_member(member, data, policy, opened)
    decoder = open_content(member, policy, opened, options)
    content = b"".join(decoder.decode([data]))  # also sets the CRC-32 and the warnings
    return Decoded(content, decoder.crc32, decoder.warnings)


def object_facts(key: str, member: Member, run: Run) -> ObjectFacts:
    """Return the facts that are stored with the bytes of `member` under `key`."""
    metadata = {RUN_KEY: run.id}
    if member.declares_crc:
        metadata[CRC_KEY] = f"{member.crc32:08x}"
    if member.mtime is not None:
        metadata[MTIME_KEY] = str(member.mtime)
    if member.mode is not None:
        # The mode is stored without the file type, and always with the owner's permission to read,
        # because some archive writers do not set that bit.
        metadata[MODE_KEY] = f"{member.mode & 0o7777 | OWNER_READS:o}"
    encoding = "gzip" if run.options.as_gzip is GzipForm.ENCODING else None
    properties = run.options.objects
    if properties is None:
        return ObjectFacts(content_type(key), metadata, encoding)
    declared_types = (
        media_type
        for glob, media_type in properties.content_types.items()
        if compile_glob(glob)(member.path)
    )
    media_type = next(declared_types, None) or content_type(key)
    return with_properties(ObjectFacts(media_type, metadata, encoding), properties)


def with_properties(facts: ObjectFacts, properties: ObjectProperties) -> ObjectFacts:
    """Return `facts` with the properties that all objects of the run share."""
    # None leaves the property out of the object, so an empty value becomes None.
    unchanged = {name: getattr(properties, name) or None for name in PASSED_ON}
    return replace(facts, metadata=properties.metadata | facts.metadata, **unchanged)


def content_type(key: str) -> str:
    """Return the media type for the suffix of a key."""
    file_name = key.rpartition("/")[2]
    stem, _, suffix = file_name.rpartition(".")
    if not stem.strip("."):  # "README" and ".profile" have no suffix
        return DEFAULT_TYPE
    return _TYPES.get(suffix.lower(), DEFAULT_TYPE)
