"""Encodes any text and JSON so that it is safe inside an HTML script element."""

from __future__ import annotations

import msgspec

# An HTML parser leaves a script element at "</script" and changes its state at "<!--"
# (HTML Standard, 13.1.2.1 and 13.2.5.4): without "<" neither can occur. "&" and ">" matter only if
# somebody pastes the page into XML, U+2028 and U+2029 only if somebody pastes it into a script.
_ESCAPES = {
    b"<": b"\\u003c",
    b">": b"\\u003e",
    b"&": b"\\u0026",
    "\u2028".encode(): b"\\u2028",
    "\u2029".encode(): b"\\u2029",
}


def encode_safely(value: object) -> bytes:
    """Return `value` as JSON without characters that mean something in HTML."""
    text = msgspec.json.encode(value)
    for raw, escaped in _ESCAPES.items():
        text = text.replace(raw, escaped)
    return text


def clip(text: str, limit: int) -> str:
    """Return `text` as valid UTF-8 of at most `limit` characters, cut in the middle."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) <= limit:
        return text
    head = limit // 2
    return f"{text[:head]}…{text[head + 1 - limit :]}"
