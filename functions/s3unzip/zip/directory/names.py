"""Member names: bytes to text, text to a safe path.

Names become S3 keys. The S3 client refuses no key, so only these checks protect a user who later
downloads the bucket. `index` checks that keys are unique.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from s3unzip.zip.policy import Policy

# A name that needs no further check: ASCII, no backslash or control character, no empty, "." or
# ".." segment, no drive letter, no space or dot at a segment's edge, no trailing slash.
# Possessive quantifiers: an archive full of near misses costs one pass for each name.
_SEGMENT = rb"[A-Za-z0-9_+@%=,~()\[\]{}!#$&'-](?:[ .]*+[A-Za-z0-9_+@%=,~()\[\]{}!#$&'-]++)*+"
PLAIN_NAME = rb"%s(?:/%s)*+" % (_SEGMENT, _SEGMENT)
is_plain_name = re.compile(PLAIN_NAME).fullmatch

# What XML 1.0 cannot hold (section 2.2), and DEL.
_CONTROL = re.compile("[\x01-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
_DRIVE = re.compile(r"[A-Za-z]:")
SHOWN_NAME = 200
# UAX #15, "Stream-Safe Text Format": no text of any language has more non-starters in a
# row. Normalisation sorts each such run, at a cost of the square of its length.
MAX_MARKS = 30
# Characters below U+0300 are starters; only longer stretches of others are worth counting.
_MAYBE_MARKS = re.compile(f"[^\x00-\u02ff]{{{MAX_MARKS + 1}}}")


class Name(NamedTuple):
    """A decoded name: `path` is normalised, `failure` the code that forbids it, if any."""

    path: str
    is_directory: bool
    failure: str | None
    warnings: tuple[str, ...]


def show_name(raw: bytes) -> str:
    """Return a name for messages: it never fails and fits on a line."""
    shown = raw[:SHOWN_NAME].decode("utf-8", "backslashreplace")
    return shown if len(raw) <= SHOWN_NAME else f"{shown}..."


def cut_name(text: str) -> str:
    """Return a name's beginning for messages, records and reports: never longer than a line."""
    return text if len(text) <= SHOWN_NAME else f"{text[:SHOWN_NAME]}..."


def has_long_marks(text: str) -> bool:
    """Return whether `text` has more than `MAX_MARKS` combining marks in a row."""
    if text.isascii() or not _MAYBE_MARKS.search(text):
        return False
    run = 0
    for is_mark in map(unicodedata.combining, text):
        run = run + 1 if is_mark else 0
        if run > MAX_MARKS:
            return True
    return False


def decode_name(raw: bytes, *, is_utf8: bool, policy: Policy) -> tuple[str, str | None]:
    """Return the text of a raw name, and the code of a finding about it.

    Flag bit 11 means UTF-8 (APPNOTE appendix D); ASCII is itself. Else the
    policy's encoding; without one, UTF-8 if valid (macOS and many others write
    it without the bit), else cp437. A failure's text is for messages only.
    """
    if raw.isascii():
        return raw.decode("ascii"), None
    try:
        if is_utf8 or not policy.encoding:
            return raw.decode("utf-8"), None if is_utf8 else "name-encoding-guess"
        return raw.decode(policy.encoding), None
    except UnicodeDecodeError:
        if is_utf8:
            return show_name(raw), "name-bad-utf8"
        if policy.encoding:
            return show_name(raw), "name-undecodable"
        return raw.decode("cp437"), "name-encoding-guess"


def check_name(text: str, policy: Policy) -> Name:
    """Check and normalise a decoded name: drop `.` and empty segments."""
    warnings: list[str] = []
    if "\0" in text:
        return Name(text, text.endswith("/"), "name-nul", ())
    if "\\" in text:
        if not policy.tolerates("name-backslash"):
            return Name(text, text.endswith("/"), "name-backslash", ())
        warnings.append("name-backslash")
        text = text.replace("\\", "/")
    if _CONTROL.search(text):
        if not policy.tolerates("name-control-char"):
            return Name(text, text.endswith("/"), "name-control-char", ())
        warnings.append("name-control-char")
    if has_long_marks(text):
        if not policy.tolerates("name-combining-run"):
            return Name(text, text.endswith("/"), "name-combining-run", ())
        warnings.append("name-combining-run")
    return _check_segments(text, warnings)


def _check_segments(text: str, warnings: list[str]) -> Name:
    is_directory = text.endswith("/")
    if text.startswith("/"):
        return Name(text, is_directory, "name-absolute", tuple(warnings))
    if _DRIVE.match(text):
        return Name(text, is_directory, "name-drive-letter", tuple(warnings))
    segments = text.removesuffix("/").split("/") if text else []
    if ".." in segments:
        return Name(text, is_directory, "name-dotdot", tuple(warnings))
    kept = [segment for segment in segments if segment not in ("", ".")]
    if "." in segments:
        warnings.append("name-dot-normalised")
    if "" in segments:
        warnings.append("name-empty-component-normalised")
    if any(segment[0] == " " or segment[-1] in " ." for segment in kept):
        warnings.append("name-trailing-space-dot")
    if not kept and not is_directory:
        return Name(text, is_directory, "name-empty", tuple(warnings))
    return Name("/".join(kept), is_directory, None, tuple(warnings))
