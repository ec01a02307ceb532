"""The project's own corpus: what it must contain, and each archive in every way.

Independent readers extract the sound archives, to compare the labels with what they extract.
"""

import os
import shutil
import zipfile
from collections import defaultdict
from pathlib import Path

import pytest
from msgspec import structs

from s3unzip.model import Options
from s3unzip.zip import CHECKS, Limits, Policy
from tests.corpus.families import ARCHIVES, CASES
from tests.corpus.labels import Archive, Result
from tests.corpus.ways import (
    BY_PLANNER,
    differing_ways,
    has_large_member,
    read_in_core,
    run_command,
)
from tests.support.processes import run_process
from tests.support.zips import AES_METHOD, BZIP2, DEFLATE, DEFLATE64, LZMA, STORED, XZ, ZSTD

COMMANDS = {
    "unzip": "unzip -qq -o -P {password} {file} -d {folder}",
    "bsdtar": "bsdtar -x -f {file} -C {folder} --passphrase {password}",
    "7zz": "7zz x -tzip -y -bd -p{password} -o{folder} {file}",
}
# The methods that each of them reads; 99 is AES.
METHODS = {
    "zipfile": {STORED, DEFLATE, BZIP2, LZMA},
    "unzip": {STORED, DEFLATE, DEFLATE64, BZIP2},
    "bsdtar": {STORED, DEFLATE, BZIP2, LZMA, XZ, ZSTD, AES_METHOD},
    "7zz": {STORED, DEFLATE, DEFLATE64, BZIP2, LZMA, XZ, ZSTD, AES_METHOD},
}
# The suite asks the reader that is always there, the long form each one that is installed.
READERS = ["zipfile", *filter(shutil.which, COMMANDS if os.environ.get("CORPUS") == "long" else ())]


def can_read(reader: str, archive: Archive) -> bool:
    """Return whether a reader must agree with the label of an archive."""
    return (
        archive.is_sound
        and not archive.is_large
        and not archive.policy.lenient
        and not (archive.sizes or archive.piece)
        and reader not in archive.unread.split()
        and {member.method for member in archive.members} <= METHODS[reader]
    )


def compare(archive: Archive, reader: str, folder: Path) -> str:
    """Return how a reader differs from the label of a sound archive; empty if it does not.

    Names are compared where all of them are ASCII: readers decode others in their own ways.
    """
    file = folder / "archive.zip"
    file.write_bytes(archive.whole)
    out = folder / "out"
    out.mkdir()
    try:
        _extract(reader, file, out, archive.policy.password or b"none")
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, OSError) as error:
        return repr(error)
    paths = [path for path in out.rglob("*") if path.is_file()]
    files = {str(path.relative_to(out)): path.read_bytes() for path in paths}
    expected = {m.result.key: m.content for m in archive.members if m.listed and m.result}
    is_equal = files == expected
    if not "".join(expected).isascii():
        is_equal = sorted(files.values()) == sorted(expected.values())
    return "" if is_equal else f"{files}"


def _extract(reader: str, file: Path, folder: Path, password: bytes) -> None:
    if reader == "zipfile":
        with zipfile.ZipFile(file) as opened:
            opened.extractall(folder, pwd=password)
        return
    values = {"password": password.decode(), "file": file, "folder": folder}
    words = [word.format(**values) for word in COMMANDS[reader].split()]
    ended = run_process(words, folder, {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"})
    if ended.returncode > 1:  # 1: with warnings
        raise ValueError(f"{words[0]}: {ended.returncode}: {ended.stdout!r} {ended.stderr!r}")


# No archive makes the planner open a member without room, or changes while it is read.
ELSEWHERE = {"lfh-truncated", "source-changed"}
# Of the codes that no check gives, those that an archive causes.
OTHER = {"nested-no-stem", "nested-prefix-taken"}
# Their archives are above 4 GiB, or inflate to as much: tests/unit/zip/test_wrapped.py.
ELSEWHERE |= {"offsets-wrapped", "offsets-unproven", "size-wrapped", "bomb-wrapped-size"}
ELSEWHERE |= {"size-unproven"}
SOFT = {code for code, check in CHECKS.items() if check.is_policy}


@pytest.mark.parametrize("family", sorted({name.partition("/")[0] for name in ARCHIVES}))
def test_every_way_gives_the_label(family: str) -> None:
    """Outcome, warnings, keys, contents: whole, cut, member by member, in batches and streams."""
    different = {
        name: differing_ways(archive)
        for name, archive in ARCHIVES.items()
        if name.partition("/")[0] == family
    }
    assert {name: ways for name, ways in different.items() if ways} == {}


@pytest.mark.parametrize(
    "tuning",
    ["{}", '{"small_member": 4096, "split_from": 32768, "segment_bytes": 32768}'],
    ids=["usual", "small"],
)
def test_the_command_gives_the_labels(tuning: str, tmp_path: Path) -> None:
    """The command extracts archives into a folder as labelled; small limits stream and split.

    Of the many archives of `codecs` it reads the large ones.
    """
    groups = defaultdict[Policy, list[str]](list)
    for name, archive in ARCHIVES.items():
        is_small = tuning == "{}" and not name.startswith("codecs")
        if (
            not archive.is_large
            and archive.policy.limits == Limits()
            and archive.options == Options()
            and (is_small or has_large_member(archive))
        ):
            groups[archive.policy].append(name)
    different = dict[str, Result]()
    for number, group in enumerate(groups.values()):
        names = [*group, "plain/twin of many"]  # several, even if the group has one
        folder = tmp_path / str(number)
        folder.mkdir()
        ends = run_command([ARCHIVES[name] for name in names], folder, tuning)
        different |= {
            name: end
            for name, end in zip(names, ends, strict=True)
            if end != ARCHIVES[name].in_folder
        }
    assert different == {}


@pytest.mark.parametrize("reader", READERS)
def test_an_independent_reader_agrees(reader: str, tmp_path: Path) -> None:
    """It extracts every sound archive as the label says, but for those that it is known not to."""
    different = {}
    for number, (name, archive) in enumerate(ARCHIVES.items()):
        if can_read(reader, archive):
            folder = tmp_path / str(number)
            folder.mkdir()
            different[name] = compare(archive, reader, folder)
    assert {name: words for name, words in different.items() if words} == {}


def test_every_code_has_an_archive_and_a_twin() -> None:
    """No check is without a case, and each faulty archive has a sound neighbour."""
    assert {case.code for case in CASES.values()} == CHECKS.keys() - ELSEWHERE | OTHER
    assert len(ARCHIVES) >= 400
    assert [name for name, case in CASES.items() if not case.good.is_sound] == []


def test_only_matters_of_choice_are_softened() -> None:
    """A lenient policy has its own archives for these codes, and changes no other archive."""
    assert {case.code for case in CASES.values() if case.bad.policy.lenient} >= SOFT
    for name, case in CASES.items():
        policy = structs.replace(case.bad.policy, lenient=True)
        if case.code not in SOFT | BY_PLANNER | OTHER | {"name-reserved"}:
            assert read_in_core(case.bad, policy=policy) == case.bad.expected, name


def test_every_check_has_a_code() -> None:
    """The numbers of the checks are 1 to 55, without a hole."""
    assert {check.number for check in CHECKS.values()} == set(range(1, 56))
