"""What `zipfile` writes is read, in any cuts, as `zipfile` reads it."""

import io
import zipfile
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from s3unzip.zip import Index, Policy
from tests.corpus.core import Cut, extract, extract_member, read_index
from tests.zips import DESCRIPTORS, METHODS, Entry, Shape, build

NAMES = st.from_regex(r"[a-z\u00e9\u4e00]{1,8}(/[a-zA-Z0-9_.-]{0,7}[a-z0-9]){0,3}", fullmatch=True)
# A stored member may hold what could be an end record of the archive: that is refused.
CONTENTS = st.one_of(
    st.binary(max_size=300), st.binary(min_size=1, max_size=9).map(lambda piece: piece * 3000)
).filter(lambda content: b"PK\5\6" not in content)
CODED = st.sampled_from(
    [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
)


def write(members: dict[str, tuple[bytes, int]], *, streamed: bool, prefix: bytes) -> bytes:
    """Write members with `zipfile`; only forward, hence with data descriptors, if `streamed`."""
    written = io.BytesIO()
    written.write(prefix)
    target: Any = SimpleNamespace(write=written.write, flush=written.flush) if streamed else written
    with zipfile.ZipFile(target, "w") as archive:
        for name, (content, method) in members.items():
            archive.writestr(zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 10)), content, method)
    return written.getvalue()


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(NAMES, st.tuples(CONTENTS, CODED), max_size=8),
    st.booleans(),
    st.sampled_from([b"", b"stub"]),
    st.integers(1, 400),
)
def test_same_as_zipfile(
    members: dict[str, tuple[bytes, int]],
    streamed: bool,  # noqa: FBT001 (hypothesis gives arguments by position)
    prefix: bytes,
    step: int,
) -> None:
    """Names, contents, times and order are those that went in, whole and cut."""
    raw = write(members, streamed=streamed, prefix=prefix)
    for cut in (Cut(), Cut(step)):
        index = read_index(raw, Policy(), cut)
        assert not index.failures
        assert index.entries == len(members)
        got = {m.path: extract_member(raw, m, Policy(), cut)[0] for m in index.members}
        assert got == {name: content for name, (content, _) in members.items()}
        when = int(datetime(2024, 5, 6, 7, 8, 10, tzinfo=UTC).timestamp())
        assert {member.mtime for member in index.members} <= {when}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            CONTENTS, st.sampled_from(METHODS), st.sampled_from([None, *DESCRIPTORS]), st.booleans()
        ),
        max_size=6,
    ),
    st.booleans(),
    st.integers(1, 300),
)
def test_round_trip(
    members: list[tuple[bytes, int, str | None, bool]],
    zip64: bool,  # noqa: FBT001 (hypothesis gives arguments by position)
    step: int,
) -> None:
    """Whatever the method and the descriptor, what went in comes out, whole and cut."""
    entries = [
        Entry(f"m{number}", content, method, descriptor=descriptor, after=b"gap" * gap)
        for number, (content, method, descriptor, gap) in enumerate(members)
    ]
    raw = build(*entries, shape=Shape(zip64=zip64))
    index: Index = read_index(raw, Policy(), Cut())
    assert [m.path for m in index.members] == [f"m{number}" for number in range(len(members))]
    for member, (content, *_) in zip(index.members, members, strict=True):
        assert extract_member(raw, member, Policy(), Cut())[0] == content
    assert extract(raw, cut=Cut(step)) == extract(raw)
