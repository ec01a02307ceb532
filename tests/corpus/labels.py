"""Archives with labels: what must become of each of them and of its members.

A label stands beside the bytes that it is about. It says what APPNOTE demands and what the field's
readers do. It is never a recorded result, which could not fail. What must come out of a member is
what the builder has put into it.
"""

import hashlib
from collections.abc import Callable, Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from msgspec import Struct

from s3unzip.model import Options
from s3unzip.zip import Policy
from tests.support.zips import DEFLATE, Entry, Shape, build, build_split, cut_pieces


class MemberResult(NamedTuple):
    """What becomes of a member: `code` is why it fails, None where it is written."""

    code: str | None
    key: str = ""
    size: int = 0
    sha256: str = ""


class Result(Struct, frozen=True):
    """What becomes of an archive: `code` is why it is rejected; members by number."""

    code: str | None
    members: dict[int, MemberResult] = {}
    warnings: AbstractSet[str] = frozenset()

    @property
    def outcome(self) -> str:
        if self.code is not None:
            return "reject"
        failed = sum(member.code is not None for member in self.members.values())
        if not failed:
            return "extract-all"
        return "extract-none" if failed == len(self.members) else "extract-some"


def extracted(key: str, content: bytes) -> MemberResult:
    """Return the result of a member that is written."""
    return MemberResult(None, key, len(content), hashlib.sha256(content).hexdigest())


@dataclass(frozen=True, slots=True)
class Member(Entry):
    """A member with its label: its content comes out under `key`, or it fails with a code.

    By default the key is the name. The key "" means that nothing is written, as for a directory.
    `in_folder` is what a folder makes of it, where it differs from S3: a code, or "" for nothing.
    """

    key: str | None = None
    failed: str = ""
    in_folder: str | None = None

    @property
    def result(self) -> MemberResult | None:
        if self.failed:
            return MemberResult(self.failed)
        key = self.raw_name.decode() if self.key is None else self.key
        return None if key.endswith("/") or not key else extracted(key, self.content)


@dataclass(frozen=True)
class Archive:
    """An archive with its label: all warnings that it causes, or the code that rejects it.

    `raw` replaces the bytes that `members` and `shape` make. The archive is split into parts of
    `sizes`, which `spoil` changes, or cut into pieces of `piece` bytes. Only whole runs know
    `options`. `unread` names the independent readers that do not read it, or read it in another
    way. One that `is_large` goes through the core alone, because it takes long.
    """

    members: tuple[Member, ...] = ()
    shape: Shape = field(default_factory=Shape)
    rejected: str = ""
    warnings: str = ""
    policy: Policy = field(default_factory=Policy)
    options: Options = field(default_factory=Options)
    raw: bytes | Callable[[], bytes] | None = None
    sizes: tuple[int, ...] = ()
    piece: int = 0
    spoil: Callable[[list[bytes]], list[bytes]] | None = None
    unread: str = ""
    is_large: bool = False

    @cached_property
    def parts(self) -> list[bytes]:
        if self.sizes:
            parts = build_split(*self.members, sizes=self.sizes, shape=self.shape)
            return self.spoil(parts) if self.spoil else parts
        raw = build(*self.members, shape=self.shape) if self.raw is None else self.raw
        whole = raw if isinstance(raw, bytes) else raw()
        return cut_pieces(whole, self.piece) if self.piece else [whole]

    @property
    def whole(self) -> bytes:
        return b"".join(self.parts)

    @property
    def expected(self) -> Result:
        if self.rejected:
            return Result(self.rejected)
        listed = (member.result for member in self.members if member.listed)
        results = {number: result for number, result in enumerate(listed) if result is not None}
        return Result(None, results, frozenset(self.warnings.split()))

    @property
    def in_folder(self) -> Result:
        members = tuple(
            member if member.in_folder is None else replace(member, key="", failed=member.in_folder)
            for member in self.members
        )
        return replace(
            self, members=members, warnings=self.warnings.replace("name-s3-special", "")
        ).expected

    @property
    def is_sound(self) -> bool:
        return self.expected.outcome == "extract-all"


class Case(NamedTuple):
    """An archive that trips `code`, and its twin, which is as alike as can be and does not."""

    code: str
    bad: Archive
    good: Archive


def archive(*members: Member, **label: object) -> Archive:
    """Make an archive of members."""
    return Archive(members, **label)  # type: ignore[arg-type]  # fields of Archive


def unread(readers: str, archive: Archive) -> Archive:
    """Label an archive that these independent readers do not read, or in another way."""
    return replace(archive, unread=readers)


TEXT = b"hello, hello, hello, hello, archive"
A = Member("a.txt", TEXT)
B = Member("b.txt", TEXT, DEFLATE)
PLAIN = archive(A, B)
SECRET = b"open sesame"
OPENING = Policy(password=SECRET)
LENIENT = Policy(lenient=True)
ALL_READERS = "zipfile unzip bsdtar 7zz"


def _case(code: str, bad: Archive, good: Archive, policy: Policy | None) -> Case:
    if policy is None:
        return Case(code, bad, good)
    return Case(code, replace(bad, policy=policy), replace(good, policy=policy))


def rejects(code: str, bad: Archive, good: Archive = PLAIN, policy: Policy | None = None) -> Case:
    """Label an archive of which nothing is written."""
    return _case(code, replace(bad, rejected=code), good, policy)


def fails(code: str, bad: Archive, good: Archive = PLAIN, policy: Policy | None = None) -> Case:
    """Label an archive whose member fails: the first one, unless members say which."""
    if not any(member.failed for member in bad.members):
        bad = replace(bad, members=(replace(bad.members[0], failed=code), *bad.members[1:]))
    return _case(code, bad, good, policy)


def warns(code: str, bad: Archive, good: Archive = PLAIN, policy: Policy | None = None) -> Case:
    """Label an archive that is extracted with a warning."""
    return _case(code, replace(bad, warnings=f"{code} {bad.warnings}"), good, policy)
