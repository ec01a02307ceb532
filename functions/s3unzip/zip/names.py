"""Decode member names, turn them into safe paths, and fold them as file systems do.

Names become S3 keys. The S3 client refuses no key, so only these checks protect a user who later
downloads the bucket.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.zip.checks import Policy
from s3unzip.zip.values import SHOWN_NAME

# Matches a name that needs no further check: ASCII, no backslash or control character, no empty,
# "." or ".." segment, no drive letter, no space or dot at a segment's edge. The name of a directory
# ends with a slash. The quantifiers are possessive: a name that does not match costs one pass.
_SEGMENT = rb"[A-Za-z0-9_+@%=,~()\[\]{}!#$&'-](?:[ .]*+[A-Za-z0-9_+@%=,~()\[\]{}!#$&'-]++)*+"
is_plain_name = re.compile(rb"%s(?:/%s)*+/?" % (_SEGMENT, _SEGMENT)).fullmatch

# Control characters, and characters that XML 1.0 excludes (section 2.2). Some control a terminal
# or end a line of a list. S3 accepts such keys, but DeleteObjects cannot name most of them, and
# ListObjects only with encoding-type=url. A carriage return has a check of its own: S3 has a rule
# for it in XML, and macOS gives each folder with a custom icon a file "Icon\r".
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
_CONTROL = re.compile("[\x01-\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
_DRIVE = re.compile(r"[A-Za-z]:")
# Windows or a shell would drop such a first or last character of a segment.
_TRIMMED = re.compile(r"(?:\A|/) |[ .](?:/|\Z)")
# In Shift-JIS, GBK and Big5 the byte 0x5C after a non-ASCII byte may be half of a character. After
# an ASCII byte it is always a backslash.
_HALF_CHARACTER = re.compile(rb"[\x80-\xff]\\")
# UAX #15, "Stream-Safe Text Format": no text of any language has more combining marks in a row.
# Normalisation sorts each run of them, in a time that grows with the square of its length.
MAX_MARKS = 30
# Characters below U+0300 are not combining marks, so only a long run of others must be checked.
_MAYBE_MARKS = re.compile(f"[^\x00-\u02ff]{{{MAX_MARKS + 1}}}")


class Name(Struct, frozen=True, gc=False):
    """A decoded name; `path` is normalised, `failure` is the code of the check that forbids it."""

    path: str
    is_directory: bool = False
    failure: str | None = None
    warnings: Sequence[str] = ()
    raw_name: bytes | None = None  # the declared name; None: `path` in ASCII, or unknown


def show_name(raw: bytes) -> str:
    """Return the text of any raw name for messages, cut to `SHOWN_NAME` characters."""
    return cut_name(raw.decode("utf-8", "backslashreplace"))


def cut_name(text: str) -> str:
    """Return a name for messages, records and reports, cut to `SHOWN_NAME` characters."""
    if len(text) <= SHOWN_NAME:
        return text
    return f"{text[:SHOWN_NAME]}..."


def has_long_marks(text: str) -> bool:
    """Return whether `text` has more than `MAX_MARKS` combining marks in a row."""
    if text.isascii() or not _MAYBE_MARKS.search(text):
        return False
    # The combining class of a character is 0 if it is not a mark.
    runs = groupby(map(unicodedata.combining, text), bool)
    return any(is_mark and len(list(run)) > MAX_MARKS for is_mark, run in runs)


def read_name(raw: bytes, *, is_utf8: bool, policy: Policy) -> Name:
    """Decode and check a raw name; see `_decode_name` and `check_name`.

    A finding about the encoding is the name's failure, or its first warning if the policy tolerates
    it. After such a failure, `path` is for messages only.
    """
    text, code = _decode_name(raw, is_utf8=is_utf8, policy=policy)
    if code is None:
        return check_name(text, policy)
    if not policy.tolerates(code):
        return Name(text, is_directory=text.endswith("/"), failure=code)
    name = check_name(text, policy)
    return replace(name, warnings=[code, *name.warnings])


def _decode_name(raw: bytes, *, is_utf8: bool, policy: Policy) -> tuple[str, str | None]:
    """Return the text of a raw name, and the code of a finding about it, or None.

    `is_utf8` is flag bit 11 (APPNOTE appendix D). An ASCII name is ASCII in every encoding. Other
    names have the policy's encoding; without one they are UTF-8 if valid (macOS and many others
    write UTF-8 without the bit), else cp437. If the name cannot be decoded, the text is for
    messages only.
    """
    if raw.isascii():
        return raw.decode("ascii"), None
    encoding = "utf-8" if is_utf8 else policy.encoding
    if encoding:
        try:
            return raw.decode(encoding), None
        except UnicodeDecodeError:
            code = "name-bad-utf8" if is_utf8 else "name-undecodable"
            return show_name(raw), code
    try:
        return raw.decode("utf-8"), "name-encoding-guess"
    except UnicodeDecodeError:
        # cp437 is only a guess: a byte 0x5C may be a separator or half of a character.
        if _HALF_CHARACTER.search(raw):
            return raw.decode("cp437"), "name-guessed-backslash"
        return raw.decode("cp437"), "name-encoding-guess"


def check_name(text: str, policy: Policy) -> Name:
    """Check and normalise a decoded name: drop `.` and empty segments, and a drive.

    A name such as ``./`` is the destination folder itself. Its path is empty, and its failure is
    `name-empty`; a directory may have such a name.
    """
    slashed = text.replace("\\", "/")
    relative = slashed.lstrip("/")
    segments = relative.removesuffix("/").split("/")
    path_segments = [segment for segment in segments if segment not in ("", ".")]
    is_directory = slashed.endswith("/")
    warnings: list[str] = []
    if not path_segments:
        return Name("", is_directory, "name-empty", warnings)
    # The first fault that the policy does not tolerate is the failure; the others are warnings.
    for code, is_faulty in (
        ("name-nul", "\0" in text),
        ("name-backslash", "\\" in text),
        ("name-control-char", _CONTROL.search(text)),
        ("name-carriage-return", "\r" in text),
        ("name-combining-run", has_long_marks(text)),
        ("name-absolute", relative != slashed),
        ("name-drive-letter", _DRIVE.match(path_segments[0])),
        ("name-dotdot", ".." in segments),
        ("name-dot-normalised", "." in segments),
        ("name-empty-component-normalised", "" in segments),
        ("name-trailing-space-dot", _TRIMMED.search("/".join(path_segments))),
    ):
        if is_faulty and not policy.tolerates(code):
            return Name(text, is_directory, code, warnings)
        if is_faulty:
            warnings.append(code)
    # Drop the drive, like a leading slash. A colon in a longer segment is part of the name.
    while path_segments and len(path_segments[0]) == len("C:") and _DRIVE.match(path_segments[0]):
        del path_segments[0]
    if not path_segments:
        return Name("", is_directory, "name-empty", warnings)
    return Name("/".join(path_segments), is_directory, failure=None, warnings=warnings)


def utf8_length(text: str) -> int:
    """Return the number of bytes of a text in UTF-8."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))


def fold_key(key: str) -> str:
    """Return the form of a key for file systems that ignore case or Unicode form.

    Keys with long runs of combining marks are not normalised, because that takes quadratic time.
    """
    if key.isascii():
        return key.lower()
    if has_long_marks(key):
        return key.casefold()
    # Twice, because a folded text may no longer be normalised.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold())


def fold_form(key: str) -> str:
    """Return the form of a key for file systems that ignore only Unicode form."""
    if has_long_marks(key):
        return key
    return unicodedata.normalize("NFC", key)
