"""Answers of LIST: the fast reader of uniform pages says what the XML parser says."""

from __future__ import annotations

import random
from urllib.parse import quote
from xml.sax.saxutils import escape

import pytest

from s3unzip.stores.ports import ListedObject
from s3unzip.stores.s3.answers import RefusedError
from s3unzip.stores.s3.lean import list_page
from s3unzip.stores.s3.lean.list_page import Page, read_page

NAMES = ("a", "a b", "a+b", "a/ä", "100%", "line\nend", "<&>", "\x01", "\U0001f4e6", "%0A")
SPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
KEY, SIZE, ETAG = "<Key>{key}</Key>", "<Size>{size}</Size>", "<ETag>&quot;{etag}&quot;</ETag>"
TIME = "<LastModified>2026-11-22T00:00:00.000Z</LastModified>"
AWS = KEY + TIME + ETAG + SIZE + "<StorageClass>STANDARD</StorageClass>"
OTHERS = ETAG.replace("&quot;", "&#34;") + KEY + TIME + SIZE


def _answer(contents: str, *, more: str = "", encoded: bool = True, space: str = SPACE) -> bytes:
    encoding = "<EncodingType>url</EncodingType>" if encoded else ""
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult{space}><Name>b</Name>'
    return f"{text}{encoding}{more}{contents}<KeyCount>1</KeyCount></ListBucketResult>".encode()


def _entries(form: str, names: tuple[str, ...] = NAMES) -> str:
    return "".join(
        f"<Contents>{form}</Contents>".format(
            key=quote(name, safe="/"), size=number, etag=f"{number:032x}-3"
        )
        for number, name in enumerate(names)
    )


EXPECTED = [ListedObject(name, number, f"{number:032x}-3") for number, name in enumerate(NAMES)]


@pytest.mark.parametrize("form", [AWS, OTHERS, KEY + SIZE + ETAG, TIME + SIZE + ETAG + KEY])
@pytest.mark.parametrize("space", [SPACE, ""])
def test_a_uniform_page_needs_no_xml_parser(form: str, space: str) -> None:
    """Each order of fields is read by the expression, and gives what the XML parser gives."""
    body = _answer(_entries(form), space=space)
    assert list_page._read_uniform(body) == Page(EXPECTED, None) == list_page._read_any(body)
    assert read_page(body) == Page(EXPECTED, None)


@pytest.mark.parametrize(
    ("contents", "times"),
    [
        ("", 0),
        (_entries(KEY + SIZE + TIME), 1),  # without an ETag
        (_entries(AWS) + _entries(OTHERS), 2),  # two orders
        (_entries(AWS).replace("</Contents>", "</Contents>\n"), 1),
        (_entries(AWS).replace("<Contents>", "<Contents><!-- one -->"), 1),
        (_entries(AWS + "<Owner><ID>me</ID></Owner>"), 1),
        (_entries(AWS).replace("<Key>a<", "<Key><![CDATA[a]]><"), 1),
    ],
)
def test_another_page_is_read_by_the_xml_parser(contents: str, times: int) -> None:
    """A page of another form is read whole by the XML parser."""
    body = _answer(contents)
    assert list_page._read_uniform(body) is None
    assert [entry.key for entry in read_page(body).objects] == [*NAMES] * times


def test_keys_that_are_not_encoded() -> None:
    """Without an encoding, keys are XML text; one with an entity leaves the page to the parser."""
    form = "<Contents>" + AWS.format(key=escape("100%25 <+>"), size=1, etag="e") + "</Contents>"
    body = _answer(form, encoded=False)
    assert list_page._read_uniform(body) is None
    assert read_page(body).objects == [ListedObject("100%25 <+>", 1, "e")]
    plain = _answer(form.replace("&lt;+&gt;", "+"), encoded=False)
    assert list_page._read_uniform(plain) == Page([ListedObject("100%25 +", 1, "e")], None)


@pytest.mark.parametrize("encoding", ["UTF-16", "ISO-8859-1"])
def test_another_charset(encoding: str) -> None:
    """A page in another charset is left to the XML parser."""
    text = _answer(_entries(AWS)).decode().replace('"UTF-8"', f'"{encoding}"')
    assert read_page(text.encode(encoding)).objects == EXPECTED


def test_the_next_page() -> None:
    """The token of the next page stands after or before the objects."""
    more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1</NextContinuationToken>"
    assert read_page(_answer(_entries(AWS), more=more)).next_token == "t&1"
    assert read_page(_answer(_entries(AWS) + more)).next_token == "t&1"
    with pytest.raises(RefusedError, match="names no next"):
        read_page(_answer(_entries(AWS), more="<IsTruncated>true</IsTruncated>"))


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"no XML", "not an answer of LIST"),
        (_answer(_entries(AWS))[:-9], "not an answer of LIST"),
        (_answer(_entries(AWS)).replace(b"<Size>3", b"<Size>x"), "an entry of LIST without"),
        (_answer(_entries(TIME)), "an entry of LIST without"),
    ],
)
def test_what_is_no_answer(body: bytes, why: str) -> None:
    """A body that is no answer of LIST is refused."""
    with pytest.raises(RefusedError) as refused:
        read_page(body)
    assert why in str(refused.value.answer)


def test_damaged_pages_are_read_alike() -> None:
    """Whatever is changed in a page, the fast reader never contradicts the XML parser."""
    rng = random.Random(7)
    whole = _answer(_entries(AWS))
    read = 0
    for _ in range(3_000):
        body = bytearray(whole)
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(body))
            body[at : at + rng.randint(0, 2)] = rng.choice((b"", b"<", b"&", b"0", b"/", b"\xc3"))
        try:
            right = list_page._read_any(bytes(body))
        except RefusedError:
            continue
        found = list_page._read_uniform(bytes(body))
        assert found in (None, right)
        read += found is not None
    assert read > 100
