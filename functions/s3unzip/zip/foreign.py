"""What a file that has no end record may be instead, by its first bytes."""

from __future__ import annotations

from s3unzip.zip.directory.records import LOCAL_SIGNATURE

FOREIGN_HEAD = 264  # bytes that tell the formats below; tar's mark is at 257
_TAR_MARK = 257

# First bytes of what people take for a ZIP archive:
# https://www.garykessler.net/library/file_sigs.html and each format's specification.
_SIGNATURES = (
    (b"\x1f\x8b", "gzip"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"7z\xbc\xaf\x27\x1c", "7-Zip"),
    (b"Rar!\x1a\x07", "RAR"),
    (b"%PDF-", "PDF"),
    (b"\x7fELF", "a program (ELF)"),
    (b"MZ", "a Windows program"),
    (b"\x89PNG", "PNG"),
    (b"PAR1", "Parquet"),
)
# In lower case, and after spaces.
_TEXT_SIGNATURES = (
    (b"<!doctype html", "a web page (HTML)"),
    (b"<html", "a web page (HTML)"),
    (b"<?xml", "XML"),
    (b"{", "JSON"),
    (b"[", "JSON"),
)


def describe_foreign(head: bytes, size: int, searched: int) -> str:
    """Return in words why a file is no whole ZIP archive.

    Args:
        head: its first `FOREIGN_HEAD` bytes, or all of a smaller file.
        size: of the file, bytes.
        searched: bytes at its end that hold no end record.
    """
    if size == 0:
        return "the file is empty"
    place = "it holds" if searched == size else f"its last {searched:,} bytes hold"
    kind = _guess(head)
    return f"{place} no end record; the first bytes look like {kind}"


def _guess(head: bytes) -> str:
    if head.startswith(LOCAL_SIGNATURE):
        return "a ZIP archive, so its end is missing"
    if head[_TAR_MARK:].startswith(b"ustar"):
        return "tar"
    text = head.lstrip()[:15].lower()
    for signature, name in (*_SIGNATURES, *_TEXT_SIGNATURES):
        if head.startswith(signature) or text.startswith(signature):
            return name
    return "text" if _is_text(head) else "no format that s3unzip knows"


def _is_text(head: bytes) -> bool:
    try:
        text = head[:-4].decode() if len(head) == FOREIGN_HEAD else head.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in "\t\r\n" for character in text)
