"""Decode member names, turn them into safe paths, and fold them as file systems do.

Names become S3 keys. The S3 client does not refuse any key, so a user who later downloads the
bucket is protected only by these checks.
"""

import re
import unicodedata
from collections.abc import Sequence
from itertools import dropwhile, groupby

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.zip.checks import Policy
from s3unzip.zip.values import SHOWN_NAME

# Matches a name that needs no further check: it is ASCII, and has no backslash or control
# character, no empty, "." or ".." segment, no drive letter, and no space or dot at the edge of a
# segment. The name of a directory ends with a slash. The quantifiers are possessive, so a name that
# does not match requires only one pass.
_SEGMENT = rb"[A-Za-z0-9_+@%=,~()\[\]{}!#$&'-](?:[ .]*+[A-Za-z0-9_+@%=,~()\[\]{}!#$&'-]++)*+"
is_plain_name = re.compile(rb"%s(?:/%s)*+/?" % (_SEGMENT, _SEGMENT)).fullmatch

# Control characters, and characters that XML 1.0 excludes (section 2.2). Some control characters
# move the cursor of a terminal or end a line in a list. S3 accepts keys with these characters, but
# most of these keys cannot be in a request of DeleteObjects, and a response of ListObjects can
# contain these keys only with encoding-type=url. The carriage return has a separate check, because
# S3 has a rule for carriage returns in XML, and macOS stores a file "Icon\r" in each folder with a
# custom icon.
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
_CONTROL = re.compile("[\x01-\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
_DRIVE = re.compile(r"[A-Za-z]:")
# Windows or a shell would drop a space at the start of a segment, and a space or dot at the end.
_TRIMMED = re.compile(r"(?:\A|/) |[ .](?:/|\Z)")
# In Shift-JIS, GBK and Big5, the byte 0x5C after a non-ASCII byte can be half of a character. After
# an ASCII byte, 0x5C is always a backslash.
_HALF_CHARACTER = re.compile(rb"[\x80-\xff]\\")
# No text in any language has more consecutive combining marks than this (UAX #15, "Stream-Safe Text
# Format"). Normalisation sorts each run of marks, in time quadratic in the length of the run.
MAX_MARKS = 30
# Characters below U+0300 are not combining marks, so only long runs of higher characters count.
_MAYBE_MARKS = re.compile(f"[^\x00-\u02ff]{{{MAX_MARKS + 1}}}")


class Name(Struct, frozen=True, gc=False):
    """A decoded name; `path` is normalised, and `failure` is the code of the check that failed."""

    path: str
    is_directory: bool = False
    failure: str | None = None
    warnings: Sequence[str] = ()
    # The declared name; None if it is unknown, or if it is ASCII and equal to `path`.
    raw_name: bytes | None = None


def show_name(raw: bytes) -> str:
    """Return a raw name as text for messages, cut to `SHOWN_NAME` characters."""
    return cut_name(raw.decode("utf-8", "backslashreplace"))


def cut_name(text: str) -> str:
    """Return a name for messages, records and reports, cut to `SHOWN_NAME` characters."""
    if len(text) <= SHOWN_NAME:
        return text
    return f"{text[:SHOWN_NAME]}..."


def has_long_marks(text: str) -> bool:
    """Return whether `text` contains more than `MAX_MARKS` consecutive combining marks."""
    if text.isascii() or not _MAYBE_MARKS.search(text):
        return False
    # Each run consists either of marks or of other characters, whose combining class is 0.
    return any(
        is_mark and len(list(run)) > MAX_MARKS
        for is_mark, run in groupby(map(unicodedata.combining, text), bool)
    )


def read_name(raw: bytes, *, is_utf8: bool, policy: Policy) -> Name:
    """Decode and check a raw name; see `_decode_name` and `check_name`.

    A finding about the encoding becomes the failure of the name, or its first warning if the policy
    tolerates the finding. After such a failure, use `path` only in messages.
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

    `is_utf8` is the value of flag bit 11 (APPNOTE appendix D). An ASCII name is ASCII in every
    encoding. If the bit is set, any other name is UTF-8; if not, the policy's encoding applies.
    If the policy has no encoding, a name is decoded as UTF-8 if it is valid UTF-8 (macOS and many
    other writers do not set the bit), and otherwise as cp437. If a name cannot be decoded, use the
    returned text only in messages.
    """
    if raw.isascii():
        return raw.decode("ascii"), None
    encoding = "utf-8" if is_utf8 else policy.encoding
    if encoding:
        try:
            return raw.decode(encoding), None
        except UnicodeDecodeError:
            return show_name(raw), ("name-bad-utf8" if is_utf8 else "name-undecodable")
    try:
        return raw.decode("utf-8"), "name-encoding-guess"
    except UnicodeDecodeError:
        # cp437 is only a guess, so a byte 0x5C could be a separator or half of a character.
        if _HALF_CHARACTER.search(raw):
            return raw.decode("cp437"), "name-guessed-backslash"
        return raw.decode("cp437"), "name-encoding-guess"


def check_name(text: str, policy: Policy) -> Name:
    """Check and normalise a decoded name: remove `.`, leading drives and empty segments.

    A name such as ``./`` denotes the destination folder itself. The path of such a name is empty,
    and the failure is `name-empty`. `central` reports this failure only for a file: a directory may
    have such a name.
    """
    slashed = text.replace("\\", "/")
    relative = slashed.lstrip("/")
    segments = relative.removesuffix("/").split("/")
    path_segments = [segment for segment in segments if segment not in ("", ".")]
    is_directory = slashed.endswith("/")
    warnings: list[str] = []
    if not path_segments:
        return Name("", is_directory, "name-empty", warnings)
    # The first fault that the policy does not tolerate is the failure; tolerated faults only cause
    # warnings.
    for code, is_faulty in (
        ("name-nul", "\0" in text),
        ("name-backslash", "\\" in text),
        ("name-control-char", _CONTROL.search(text)),
        ("name-carriage-return", "\r" in text),
        ("name-combining-run", has_long_marks(text)),
        ("name-absolute", relative != slashed),
        ("name-drive-letter", _DRIVE.match(path_segments[0])),  # also for `C:name`
        ("name-dotdot", ".." in segments),  # no policy tolerates this
        ("name-dot-normalised", "." in segments),
        ("name-empty-component-normalised", "" in segments),
        ("name-trailing-space-dot", _TRIMMED.search("/".join(path_segments))),
    ):
        if is_faulty and not policy.tolerates(code):
            return Name(text, is_directory, code, warnings)
        if is_faulty:
            warnings.append(code)
    # Drop all leading drives: `C:/D:/x` becomes `x`. In a segment such as `C:name`, the colon is
    # part of the name.
    path = "/".join(dropwhile(_DRIVE.fullmatch, path_segments))
    if not path:
        return Name("", is_directory, "name-empty", warnings)
    return Name(path, is_directory, failure=None, warnings=warnings)


def utf8_length(text: str) -> int:
    """Return the length of a text in UTF-8, in bytes."""
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "surrogatepass"))


def fold_key(key: str) -> str:
    """Return the form of a key in file systems that ignore case and Unicode normalisation.

    Keys with long runs of combining marks are not normalised, because that takes quadratic time.
    """
    if key.isascii():
        return key.lower()
    if has_long_marks(key):
        return key.casefold()
    # Normalise twice, because folding can undo the normalisation.
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold())


def fold_form(key: str) -> str:
    """Return the form of a key in file systems that ignore Unicode normalisation, but not case."""
    if has_long_marks(key):
        return key
    return unicodedata.normalize("NFC", key)
