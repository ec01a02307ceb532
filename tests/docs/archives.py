"""The archives that the pages speak of, by their names."""

import random

from tests.support.zips import DEFLATE, Entry, build, seal_aes, seal_zipcrypto

PLAIN = (
    Entry("docs/readme.txt", b"Read me.\n" * 40, DEFLATE),
    Entry("data/a.csv", b"1,2\n" * 500, DEFLATE),
    Entry("data/b.csv", b"3,4\n" * 500, DEFLATE),
    Entry("images/logo.png", random.Random(1).randbytes(3_000)),
)


WRONG = {"crc32": 1}
PASSWORD = b"open sesame"
ARCHIVE = build(*PLAIN)
SPECIAL = {
    "damaged.zip": build(
        *PLAIN, Entry("data/c.csv", b"5,6\n" * 500, DEFLATE, local=WRONG, central=WRONG)
    ),
    "nested.zip": build(PLAIN[0], Entry("inner.zip", ARCHIVE)),
    # Members encrypted in both ways, and one that is not.
    "secret.zip": build(
        seal_aes(PLAIN[0], PASSWORD), seal_zipcrypto(PLAIN[1], PASSWORD), *PLAIN[2:]
    ),
    "six-1.17.0-py2.py3-none-any.whl": build(
        Entry("six.py", b"import sys\n" * 400, DEFLATE),
        Entry("six-1.17.0.dist-info/WHEEL", b"Wheel-Version: 1.0\n", DEFLATE),
    ),
}


def make_archive(name: str) -> bytes:
    """Return the archive of that name; one that is not special is a plain one."""
    return SPECIAL.get(name, ARCHIVE)
