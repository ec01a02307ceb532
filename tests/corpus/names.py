"""Names in every encoding and of every kind: what is a key, what is only odd, what is refused.

Names follow APPNOTE 4.4.17 and appendix D, and the Info-ZIP Unicode path field (4.6.9). No
reader may write above or beside the destination.
"""

from dataclasses import replace

from s3unzip.zip import Policy
from tests.corpus.labels import (
    ALL_READERS,
    TEXT,
    A,
    Archive,
    Member,
    archive,
    fails,
    unread,
)
from tests.support.zips import DEFLATE, unicode_path

# What no reader but the shell misreads.
PLAIN_NAMES = (
    "-rf",
    "$HOME/a",
    "`id`.txt",
    "a b/c d.txt",
    "invoice [2024].txt",
    "star*.txt",
    "what?.txt",
    "100%.txt",
    "%2e%2e/evil.txt",
    "a+b&c=d.txt",
    "#1;2.txt",
    "'quoted' \"twice\".txt",
    "a|b<c>d.txt",
    ".hidden/.profile",
    "a/..b/c",
    "..a",
    "CON",
    "aux.txt",
    "lpt1/nul.tar.gz",
    "notes 1:2.txt",
    "12:34",
    "~/a",
    "__MACOSX/._a",
    "_SUCCESS",
    "a" * 255,
    "/".join(["d"] * 120) + "/deep.txt",
    "x" * 200 + "/" + "y" * 200 + ".txt",
)
UNICODE_NAMES = (
    "caf\u00e9.txt",
    "\u65e5\u672c\u8a9e/\u30d5\u30a1\u30a4\u30eb.txt",
    "\u0444\u0430\u0439\u043b.txt",
    "\u05e9\u05dc\u05d5\u05dd.txt",
    "\U0001f4e6/\U0001f600.txt",
    "\u1100\u1161\u11a8.txt",
    "e\u0301.txt",
    "\u202etxt.exe",
    "\uff0e\uff0e/a",
    "\u2025/a",
    "a\u2215b",
    "zero\u200bwidth",
    "\ufeffbom.txt",
    "stra\u00dfe",
)
ENCODED = {
    "cp437": "\u00e4\u00f6\u00fc.txt",
    "cp850": "\u00e3o.txt",
    "cp852": "\u0142\u00f3d\u017a.txt",
    "cp866": "\u0444\u0430\u0439\u043b.txt",
    "cp1251": "\u0444\u0430\u0439\u043b.txt",
    "cp1252": "\u20ac5.txt",
    "koi8-r": "\u0444\u0430\u0439\u043b.txt",
    "latin-1": "na\u00efve.txt",
    "shift_jis": "\u65b0/SJIS_835C_\u30bd.txt",
    "cp932": "\u8868\u793a/\u80fd\u529b.txt",
    "euc_jp": "\u65e5\u672c.txt",
    "gbk": "mod/\u7684\u9670\u8b00v1.0.txt",
    "gb18030": "\u4e2d\u6587.txt",
    "big5": "\u8a31\u529f\u84cb.txt",
    "cp949": "\ud55c\uae00.txt",
    "cp1255": "\u05e9\u05dc\u05d5\u05dd.txt",
    "cp874": "\u0e44\u0e17\u0e22.txt",
}
REFUSED = {
    "name-dotdot": ("../x", "a/../../x", "..", "a/..", "./../x", "a/b/../../../x"),
    "name-absolute": ("/x", "//server/share", "/../x"),
    "name-drive-letter": ("C:/x", "C:x", "c:", "Z:/a/b"),
    "name-backslash": ("a\\b", "..\\x", "\\x", "\\\\server\\share", "C:\\x"),
    "name-nul": ("a\0b", "a.txt\0.exe", "\0"),
    "name-control-char": ("a\x01b", "a\tb", "a\nb", "a\x7fb", "a\ufffeb", "\x1b[31mred"),
    "name-bad-utf8": (b"\xff.txt", b"..\xc0\xaf", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"),
}


def _one(name: str | bytes, **label: object) -> Archive:
    return archive(Member(name, TEXT, DEFLATE, **label), A)  # type: ignore[arg-type]  # fields of Member


def _encoded(encoding: str, *, path: bool = False) -> Archive:
    name = ENCODED[encoding]
    raw = name.encode(encoding)
    field = unicode_path(raw, name) if path else b""
    made = _one(raw, key=name, extra=field)
    if path:
        return replace(made, warnings="unicode-path-used")
    return replace(made, policy=Policy(encoding=encoding))


SOUND = {
    "longer than a file system takes": unread(
        ALL_READERS, _one("n" * 256, in_folder="name-refused")
    ),
    "three dots": replace(_one(".../a.txt"), warnings="name-trailing-space-dot"),
    **{f"plain {number}": _one(name) for number, name in enumerate(PLAIN_NAMES)},
    **{f"UTF-8 {number}": _one(name) for number, name in enumerate(UNICODE_NAMES)},
    **{
        f"UTF-8 {number}, without bit 11": replace(
            _one(name.encode(), key=name), warnings="name-encoding-guess"
        )
        for number, name in enumerate(UNICODE_NAMES)
    },
    **{f"{encoding} is told": _encoded(encoding) for encoding in ENCODED},
    **{f"{encoding}, Unicode path": _encoded(encoding, path=True) for encoding in ENCODED},
}
ROWS = [
    fails(code, _one(name, flags=0 if isinstance(name, str) else 0x800))
    for code, names in REFUSED.items()
    for name in names
] + [
    fails("name-dotdot", archive(Member("../"), A)),
    fails("name-absolute", archive(Member("/a/"), A)),
]
