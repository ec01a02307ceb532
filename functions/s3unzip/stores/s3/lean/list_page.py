"""Parse the answers of ListObjectsV2.

https://docs.aws.amazon.com/AmazonS3/latest/API/API_ListObjectsV2.html
An XML parser takes 15 us of CPU for each object. Almost all pages are uniform: each object has the
fields `Key`, `Size` and `ETag` in the same order. One regular expression reads all objects of such
a page, and the XML parser reads the rest of the page. It reads the whole of any other page.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from s3unzip.stores.ports import ListedObject
from s3unzip.stores.s3.answers import Answer, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

_FIELDS = {
    "Key": r"<Key>(?P<Key>[^<&\r\n]+)</Key>",
    "Size": "<Size>(?P<Size>[0-9]{1,19})</Size>",
    "ETag": '<ETag>(?:"|&quot;|&#34;)?(?P<ETag>[^<&"]*)(?:"|&quot;|&#34;)?</ETag>',
}
_OTHER = r"(?:<(?!Key>|Size>|ETag>)\w+>[^<]*</\w+>)*"
_NAMED = re.compile(r"<(Key|Size|ETag)>")
_NOT_UTF8 = re.compile(r'<\?xml[^>]*encoding=["\'](?!utf-8)', re.IGNORECASE)


class Page(NamedTuple):
    """One answer of LIST."""

    objects: list[ListedObject]
    next_token: str | None  # None: it was the last


class _Form(NamedTuple):
    """How a uniform page is read."""

    whole: re.Pattern[str]  # all objects, with nothing between them
    one: re.Pattern[str]  # one object
    key: int  # number of the group
    size: int
    etag: int


def read_page(body: bytes) -> Page:
    """Return what an answer of LIST says.

    Raises:
        RefusedError: it is no such answer.
    """
    page = _read_uniform(body)
    return _read_any(body) if page is None else page


def _read_uniform(body: bytes) -> Page | None:
    """Return what a uniform page says, None if the page is another one."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    start = text.find("<Contents>")
    stop = text.rfind("</Contents>") + len("</Contents>")
    if start < 0 or stop < start or _NOT_UTF8.match(text):
        return None
    first = text[start : text.find("</Contents>", start)]
    form = _form_of(tuple(_NAMED.findall(first)))
    if form is None or form.whole.fullmatch(text, start, stop) is None:
        return None
    root = _parse((text[:start] + text[stop:]).encode())
    space = _namespace(root)
    rows = form.one.findall(text, start, stop)
    keys: Iterable[str] = [row[form.key] for row in rows]
    if root.findtext(f"{space}EncodingType") == "url":
        keys = _unquote(keys)
    sizes = [int(row[form.size]) for row in rows]
    etags = [row[form.etag] or None for row in rows]
    objects = list(map(ListedObject, keys, sizes, etags))
    return Page(objects, _next_token(root, space))


@lru_cache(maxsize=8)
def _form_of(names: tuple[str, ...]) -> _Form | None:
    """Return how to read a page whose first object has these fields, None if it lacks one."""
    if sorted(names) != sorted(_FIELDS):
        return None
    fields = _OTHER.join(_FIELDS[name] for name in names)
    one = re.compile(f"<Contents>{_OTHER}{fields}{_OTHER}</Contents>")
    without_groups = re.sub(r"\(\?P<\w+>", "(?:", one.pattern)
    groups = (one.groupindex[name] - 1 for name in ("Key", "Size", "ETag"))
    return _Form(re.compile(f"(?:{without_groups})*+"), one, *groups)


def _unquote(keys: Iterable[str]) -> list[str]:
    """Return percent-encoded keys decoded; all at once, which is five times as fast."""
    joined = "\n".join(keys)
    if "%0A" in joined or "%0a" in joined:  # a key has a line end
        return [unquote_plus(key) for key in joined.split("\n")]
    return unquote_plus(joined).split("\n")


def _read_any(body: bytes) -> Page:
    """Return what a page in any form says.

    Raises:
        RefusedError: it is no answer of LIST.
    """
    root = _parse(body)
    space = _namespace(root)
    encoded = root.findtext(f"{space}EncodingType") == "url"
    found: list[ListedObject] = []
    for entry in root.iterfind(f"{space}Contents"):
        fields = {field.tag: field.text or "" for field in entry}
        try:
            key, size = fields[f"{space}Key"], int(fields[f"{space}Size"])
        except (KeyError, ValueError) as error:
            raise RefusedError(Answer(None, "", f"an entry of LIST without {error}")) from error
        etag = fields.get(f"{space}ETag", "").strip('"')
        found.append(ListedObject(unquote_plus(key) if encoded else key, size, etag or None))
    return Page(found, _next_token(root, space))


def _parse(body: bytes) -> ET.Element:
    try:
        # botocore reads the same answers with the same parser; expat bounds what entities do.
        return ET.fromstring(body)  # noqa: S314
    except (ET.ParseError, LookupError, ValueError) as error:  # the last two: of an encoding
        raise RefusedError(Answer(None, "", f"not an answer of LIST: {error}")) from error


def _namespace(root: ET.Element) -> str:
    """Return the prefix of all tags: ``{http://s3.amazonaws.com/doc/2006-03-01/}``, or nothing."""
    space = root.tag.rpartition("}")[0]
    return space + "}" if space else ""


def _next_token(root: ET.Element, space: str) -> str | None:
    truncated = root.findtext(f"{space}IsTruncated") == "true"
    token = root.findtext(f"{space}NextContinuationToken") if truncated else None
    if truncated and not token:
        raise RefusedError(Answer(None, "", "a page of LIST that is not the last names no next"))
    return token
