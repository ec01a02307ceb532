"""Tiny archives with every kind of member and task, and what is right of each."""

from __future__ import annotations

import io
import random
import zipfile
import zlib
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tests.support.zips import Entry, Shape, build

STEM = "an-archive-of-thirty-two-letters"  # the longest that a run's id has of it
KEY = f"{STEM}.zip"
PREFIX = f"out/{STEM}/"  # of every key at the destination
SAME_STEM = tuple(f"{folder}/{KEY}" for folder in "abcd")  # keys whose runs may have equal ids

# Sizes at which a few KB are batches, streams, copies and members over several tasks.
TUNING: dict[str, float] = {
    "small_member": 1_500,
    "copy_from": 2_000,
    "copy_task_bytes": 2_600,
    "copy_part_bytes": 1_100,
    "split_from": 8_000,
    "segment_bytes": 2_600,
    "batch_members": 6,
    "read_piece": 900,
    "reads_ahead": 2,
    "part_bytes": 1_024,
    "parts_in_flight": 2,
    "puts_in_flight": 2,
    "batch_min_seconds": 0.001,
    "max_workers": 4,
    "max_direct_members": 9,
    "max_direct_bytes": 4_000,
}


class MemberFacts(NamedTuple):
    """One member as it truly is."""

    key: str
    body: bytes
    right: bool = True  # False: its data or its name is refused


class ArchiveFacts(NamedTuple):
    """One version of an archive as it truly is."""

    members: tuple[MemberFacts, ...]
    broken: bool = False  # the index is refused
    nested: tuple[tuple[str, ArchiveFacts], ...] = ()  # archives inside, by key
    version: int = 0  # no two are equal


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an archive is made of."""

    version: int  # other bytes under the same names
    small: int = 3
    streams: int = 0
    copies: int = 0
    split_copies: int = 0
    split_streams: int = 0  # deflated members that are scanned, linked and cut into segments
    damaged: str = ""  # the member, small or large, whose data is not what the directory says
    refused: bool = False  # one member's name cannot be a key
    broken: bool = False  # the index cannot be read
    nested: int = 0  # members that are archives, the second of them damaged


def choose_recipe(rng: random.Random, version: int, depth: int = 0) -> Recipe:
    """Return a recipe by the rng; with archives inside where they are extracted, too."""
    return Recipe(
        version,
        small=rng.choice((0, 1, 3, 8, 14)),
        streams=rng.choice((0, 0, 1)),
        copies=rng.choice((0, 0, 1)),
        split_copies=rng.choice((0, 0, 1)),
        split_streams=rng.choice((0, 0, 0, 1)),
        damaged=rng.choice(("small", "stream", "copy")) if rng.random() < 0.25 else "",
        refused=rng.random() < 0.1,
        broken=rng.random() < 0.03,
        nested=rng.randint(1, 2) if depth else 0,
    )


def older_objects(rng: random.Random, facts: ArchiveFacts) -> dict[str, bytes]:
    """Return objects that lie at the destination before any run.

    Some have other bytes than the member, of the same size or not; some have the very same bytes.
    """
    return {
        member.key: rng.choice((member.body, bytes(byte ^ 1 for byte in member.body), b"older"))
        for member in facts.members
        if member.right and rng.random() < 0.3
    }


def _inner(recipe: Recipe, number: int) -> Recipe:
    return Recipe(10 * recipe.version + number, small=2 + number, damaged="small" * number)


@lru_cache(maxsize=512)
def make_archive(recipe: Recipe, prefix: str = PREFIX) -> tuple[bytes, ArchiveFacts]:
    """Return the bytes of an archive, and what is to become of its members below `prefix`."""
    listed = _members(recipe)
    members = tuple(
        MemberFacts(prefix + name, body, right=not name.startswith(("damaged", "..")))
        for name, body, _ in listed
    )
    entries = [
        Entry(name, body, method, data=_many_blocks(body) if name.startswith("defl") else None)
        for name, body, method in listed
    ]
    data = bytearray(build(*entries, shape=Shape(comment=f"version {recipe.version}".encode())))
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            if info.filename.startswith("damaged"):
                start = info.header_offset + 30 + len(info.filename)
                data[start + info.compress_size // 2] ^= 0xFF
    if recipe.broken:
        del data[-30:]
    inside = [
        (f"{prefix}inner-{n}.zip", make_archive(_inner(recipe, n), f"{prefix}inner-{n}/")[1])
        for n in range(recipe.nested)
    ]
    return bytes(data), ArchiveFacts(members, recipe.broken, tuple(inside), recipe.version)


def _members(recipe: Recipe) -> list[tuple[str, bytes, int]]:
    stored, deflated = zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED
    rng = random.Random(recipe.version)
    members = [
        (f"small-{n}", f"{recipe.version} {n} ".encode() * (10 + 3 * n), (stored, deflated)[n % 2])
        for n in range(recipe.small)
    ]
    sizes = {"small": 40, "stream": 1_900, "copy": 2_100}
    if recipe.damaged:
        name = f"damaged-{recipe.damaged}"
        members.insert(len(members) // 2, (name, rng.randbytes(sizes[recipe.damaged]), stored))
    if recipe.refused:
        members.append(("../refused", b"refused", stored))
    members += [(f"stream-{n}", rng.randbytes(5_300), deflated) for n in range(recipe.streams)]
    members += [(f"copy-{n}", rng.randbytes(2_300), stored) for n in range(recipe.copies)]
    members += [(f"split-{n}", rng.randbytes(6_000), stored) for n in range(recipe.split_copies)]
    members += [
        (f"inner-{n}.zip", make_archive(_inner(recipe, n))[0], stored) for n in range(recipe.nested)
    ]
    for n in range(recipe.split_streams):
        words = [f"{rng.getrandbits(32):x}" for _ in range(300)]
        members.append((f"deflated-{n}", " ".join(rng.choices(words, k=4_000)).encode(), deflated))
    return members


@lru_cache(maxsize=16)
def _many_blocks(body: bytes) -> bytes:
    """Return a deflate stream whose blocks are so short that each segment begins with one."""
    packer = zlib.compressobj(6, zlib.DEFLATED, -15, 1)
    return packer.compress(body) + packer.flush()
