"""Member names: bytes to text, text to a safe path, and which keys are one to a file system.

Names become S3 keys. The S3 client refuses no key, so only these checks protect a user who later
downloads the bucket. Keys are compared by hashes, so the memory for a key does not depend on its
length.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from s3unzip.zip.checks import Policy
from s3unzip.zip.values import SHOWN_NAME

# A name that needs no further check: ASCII, no backslash or control character, no empty, "." or
# ".." segment, no drive letter, no space or dot at a segment's edge. A directory has a slash at its
# end.
# Possessive quantifiers: an archive full of near misses costs one pass for each name.
_SEGMENT = rb"[A-Za-z0-9_+@%=,~()\[\]{}!#$&'-](?:[ .]*+[A-Za-z0-9_+@%=,~()\[\]{}!#$&'-]++)*+"
is_plain_name = re.compile(rb"%s(?:/%s)*+/?" % (_SEGMENT, _SEGMENT)).fullmatch

# Control characters, and what XML 1.0 cannot hold (section 2.2). They steer a terminal, or end a
# line of a list. S3 takes such keys, but DeleteObjects cannot name most of them, and ListObjects
# only with encoding-type=url. A carriage return is none of these: S3 has a rule for it in XML, and
# macOS gives each folder with an icon of its own a file "Icon\r".
# https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html
_CONTROL = re.compile("[\x01-\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")
_DRIVE = re.compile(r"[A-Za-z]:")
# In Shift-JIS, GBK and Big5 a backslash's byte after one that is not ASCII may be half of a
# character. After an ASCII byte it is a backslash in each of them.
_HALF_CHARACTER = re.compile(rb"[\x80-\xff]\\")
# UAX #15, "Stream-Safe Text Format": no text of any language has more non-starters in a
# row. Normalisation sorts each such run, at a cost of the square of its length.
MAX_MARKS = 30
_CHUNK = 8192
HASH_COST = 100  # bytes of a hash in a set, with room for growing
# Characters below U+0300 are starters; only longer stretches of others are worth counting.
_MAYBE_MARKS = re.compile(f"[^\x00-\u02ff]{{{MAX_MARKS + 1}}}")


class Name(NamedTuple):
    """A decoded name: `path` is normalised, `failure` the code that forbids it, if any."""

    path: str
    is_directory: bool
    failure: str | None
    warnings: Sequence[str]


def show_name(raw: bytes) -> str:
    """Return a name for messages: it never fails and fits on a line."""
    return cut_name(raw.decode("utf-8", "backslashreplace"))


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
    it without the bit), else cp437. A failure's text is for messages only. A guess does not decide
    whether a backslash's byte is a separator or half of a character.
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
        is_half = _HALF_CHARACTER.search(raw)
        return raw.decode("cp437"), "name-guessed-backslash" if is_half else "name-encoding-guess"


def check_name(text: str, policy: Policy) -> Name:
    """Check and normalise a decoded name: drop `.` and empty segments, and a drive.

    The path of a name that stands for the destination folder itself is empty, with the failure
    `name-empty`: an entry that needs no place may have such a name.
    """
    slashed = text.replace("\\", "/")
    path = slashed.lstrip("/")
    segments = path.removesuffix("/").split("/") if path else []
    named = [segment for segment in segments if segment not in ("", ".")]
    is_directory = slashed.endswith("/")
    warnings: list[str] = []
    if not named:
        return Name("", is_directory, "name-empty", warnings)
    for code, is_found in (
        ("name-nul", "\0" in text),
        ("name-backslash", "\\" in text),
        ("name-control-char", _CONTROL.search(text)),
        ("name-carriage-return", "\r" in text),
        ("name-combining-run", has_long_marks(text)),
        ("name-absolute", path != slashed),
        ("name-drive-letter", _DRIVE.match(named[0])),
        ("name-dotdot", ".." in segments),
        ("name-dot-normalised", "." in segments),
        ("name-empty-component-normalised", "" in segments),
        ("name-trailing-space-dot", any(one[0] == " " or one[-1] in " ." for one in named)),
    ):
        if is_found and not policy.tolerates(code):
            return Name(text, is_directory, code, warnings)
        if is_found:
            warnings.append(code)
    # A drive is dropped as a leading slash is. A colon in a longer segment is part of the name.
    while named and len(named[0]) == len("C:") and _DRIVE.match(named[0]):
        del named[0]
    return Name("/".join(named), is_directory, None if named else "name-empty", warnings)


def utf8_length(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def fold_key(key: str) -> str:
    """Return the form of a key for file systems that ignore case or Unicode form.

    Keys with more combining marks in a row than any language has are not normalised, because that
    takes quadratic time.
    """
    if key.isascii():
        return key.lower()
    if has_long_marks(key):
        return key.casefold()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", key).casefold())


def fold_form(key: str) -> str:
    """Return the form of a key for file systems that ignore only Unicode form."""
    return key if has_long_marks(key) else unicodedata.normalize("NFC", key)


class FoldedKeys:
    """The hashes of all folded keys, and which of them are not unique."""

    def __init__(self) -> None:
        self._hashes: set[int] = set()
        self._repeated: set[int] = set()

    def take(self, keys: Sequence[str]) -> None:
        """Record keys; a collision marks all of them, so that `repeated` compares them."""
        folds = str.lower if all(map(str.isascii, keys)) else fold_key
        hashes = list(map(hash, map(folds, keys)))
        before = len(self._hashes)
        self._hashes.update(hashes)
        if len(self._hashes) - before != len(hashes):
            self._repeated.update(hashes)

    def __contains__(self, key: str) -> bool:
        return hash(fold_key(key)) in self._hashes

    def repeated(self, keys: Iterable[tuple[int, str]]) -> Iterator[array[int]]:
        """Yield the places, ascending, of each group of keys that may be one key when folded.

        `keys` are places and keys, as they were taken.
        """
        if not self._repeated:
            return
        hashes, places = array("q"), array("I")
        for place, key in keys:
            mark = hash(fold_key(key))
            if mark in self._repeated:
                hashes.append(mark)
                places.append(place)
        order = array("I", sorted(range(len(hashes)), key=hashes.__getitem__))
        for _, group in groupby(order, hashes.__getitem__):
            found = array("I", map(places.__getitem__, group))
            if len(found) > 1:
                yield found

    def folders(self, folders: Iterator[str], memory: int) -> Iterator[int]:
        """Yield the hashes of folders, and of those above them, that are also keys: folded."""
        every = hash_folders(folders, memory, fold_key)
        return (mark for mark in every if mark in self._hashes)


def hash_folders(
    folders: Iterator[str], memory: int, fold: Callable[[str], str] = str
) -> Iterator[int]:
    """Yield the hashes of the folders, and of those above them, usually once each.

    They are remembered in up to `memory` bytes; then all are forgotten.
    """
    max_hashes = max(1, memory // HASH_COST)
    seen = set[int]()
    while chunk := set(islice(folders, _CHUNK)):
        for folder in chunk:
            walked = fold(folder)
            while walked and (mark := hash(walked)) not in seen:
                if len(seen) >= max_hashes:
                    seen.clear()
                seen.add(mark)
                yield mark
                walked = walked[: max(0, walked.rfind("/"))]
