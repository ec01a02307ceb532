"""The archives that the pages speak of, by their names."""

import random
from collections.abc import Callable

from tests.support.zips import DEFLATE, Entry, build, seal_aes, seal_zipcrypto

PLAIN = (
    Entry("docs/readme.txt", b"Read me.\n" * 40, DEFLATE),
    Entry("data/a.csv", b"1,2\n" * 500, DEFLATE),
    Entry("data/b.csv", b"3,4\n" * 500, DEFLATE),
    Entry("images/logo.png", random.Random(1).randbytes(3_000)),
)


def make_archive(name: str) -> bytes:
    """Return the archive of that name; one that is not special is a plain one."""
    return ARCHIVES.get(name, _plain)()


def _plain() -> bytes:
    return build(*PLAIN)


def _damaged() -> bytes:
    wrong = {"crc32": 1}
    return build(*PLAIN, Entry("data/c.csv", b"5,6\n" * 500, DEFLATE, local=wrong, central=wrong))


def _secret() -> bytes:
    """Members encrypted in both ways, and one that is not."""
    password = b"open sesame"
    return build(*(seal_aes(PLAIN[0], password), seal_zipcrypto(PLAIN[1], password)), *PLAIN[2:])


def _nested() -> bytes:
    return build(PLAIN[0], Entry("inner.zip", _plain()))


def _wheel() -> bytes:
    return build(
        Entry("six.py", b"import sys\n" * 400, DEFLATE),
        Entry("six-1.17.0.dist-info/WHEEL", b"Wheel-Version: 1.0\n", DEFLATE),
    )


ARCHIVES: dict[str, Callable[[], bytes]] = {
    "damaged.zip": _damaged,
    "nested.zip": _nested,
    "secret.zip": _secret,
    "six-1.17.0-py2.py3-none-any.whl": _wheel,
}
