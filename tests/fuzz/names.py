"""Target `names`: archives whose members have hostile names.

The oracle is what docs/security.md promises of every accepted member: one key each, which no other
member has, below the prefix, short enough for S3, and no step upwards.
"""

import unicodedata
from random import Random

from s3unzip.errors import RejectedError, UsageError
from s3unzip.model import Location, Options, Request
from s3unzip.planning.select import parse_template
from s3unzip.zip import Index, Policy, fold_key
from tests.corpus.core import Cut, read_index
from tests.support.zips import Entry, build

PIECES = (
    "a", "A", "b", "/", "/", "//", ".", "..", "\\", ":", "C:", "\0", "\x1f", "\x7f", " ",
    "%2e%2e", "soap", "\u00e9", "e\u0301", "E\u0301", "\u00c9", "\u00df", "ss", "SS", "\u1e9e",
    "\u0130", "i\u0307", "\u03c3", "\u03c2", "\u212b", "\u00c5", "\ufb01", "\u202e", "\ufeff",
    "\U0001f4e6", "\u0345", "\u0301" * 29, "\u0301" * 40, "\u0f73\u0f71", "\uac00",
    "\u1100\u1161", "x" * 300,
)  # fmt: skip
TEMPLATES = (
    "{member}", "{archive_stem}/{member}", "{name}", "{dir}/{stem}{suffix}", "x/{dir}//{name}",
    "{archive_key}/{member}", "../{member}", "{stem}", "a{archive_dir}/{bucket}-{member}",
    "{dir}/../{name}", "{nothing}", "{member",
)  # fmt: skip
MAX_KEY = 1024  # bytes, by S3


def run_names(data: bytes, chance: Random) -> bool:
    """Read a directory of hostile names; return whether anything was refused.

    Args:
        data: raw bytes of some names.
        chance: makes the others.
    """
    names: list[str | bytes] = [_odd_name(chance) for _ in range(chance.randint(1, 12))]
    names.append(data[: chance.choice((0, 5, 60))])
    if chance.random() < 0.5:  # the same again, in another form
        again = chance.choice([name for name in names if isinstance(name, str)])
        names.append(unicodedata.normalize(chance.choice(("NFC", "NFD", "NFKD")), again).upper())
    policy = Policy(lenient=chance.random() < 0.5)
    try:
        index = read_index(build(*(Entry(name, b"x") for name in names)), policy, Cut())
    except RejectedError:
        return True
    _check_index(index)
    return _check_keys(index, chance) or bool(index.failures)


def _odd_name(chance: Random) -> str:
    return "".join(chance.choices(PIECES, k=chance.randint(1, 6)))


def _check_index(index: Index) -> None:
    """Check what is promised of the accepted members, whose keys are their paths."""
    paths = [member.path for member in index.members]
    assert len(set(paths)) == len(paths), "two members with one key"
    for path in paths:
        assert path
        assert not {"", ".", ".."}.intersection(path.rstrip("/").split("/")), path
        assert "\0" not in path
        assert len(path.encode()) <= MAX_KEY
    folded = {fold_key(path) for path in paths}
    collided = set(index.warnings) & {"case-collision", "unicode-collision"}
    assert len(folded) == len(paths) or collided, "a collision without a warning"


def _check_keys(index: Index, chance: Random) -> bool:
    """Make keys by a template; each is below the prefix. Return whether the template is refused."""
    text, strip = chance.choice(TEMPLATES), chance.choice((0, 0, 1, 2))
    source = Location("s3", "in", chance.choice(("a.zip", "d/e/a.zip", "a", "//a..zip")))
    try:
        options = Options(key_template=text, strip_components=strip)
        template = parse_template(Request(source, Location("s3", "out", "base/"), options))
    except UsageError:
        return True
    key_of = template.key_of()
    for member in index.members:
        key = key_of(member.path)
        assert key.startswith("base/"), key
        assert ".." not in key.removeprefix(template.prefix).split("/"), key
    return False
