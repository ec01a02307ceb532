"""The corpus: every labelled archive, through the core, the public API and the whole pipeline."""

import hashlib

import pytest

from s3unzip.model import Options, Status, Verdict
from tests.corpus import core
from tests.corpus.core import Cut
from tests.corpus.runner import (
    CORPUS,
    LabelledArchive,
    MemberResult,
    Result,
    compare,
    extract,
    read_differences,
    read_labels,
)
from tests.runs import World

pytestmark = pytest.mark.skipif(
    not CORPUS.exists(), reason="the corpus of labelled archives is not beside the project"
)

LABELS = read_labels() if CORPUS.exists() else []
SMALL = 20_000


def by_path(label: LabelledArchive) -> str:
    """Name a test by its archive."""
    return label.path


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("label", LABELS, ids=by_path)
def test_as_labelled(label: LabelledArchive, *, alone: bool) -> None:
    """Outcome, keys, sizes and contents are the labelled ones, or the difference is listed.

    Through the core, and members one by one through `open_archive`.
    """
    lines = compare(label, (extract if alone else core.extract)(label.read()))
    assert bool(lines) == (label.path in read_differences(alone=alone)), lines


@pytest.mark.parametrize("length", [1, 13])
@pytest.mark.parametrize("label", LABELS, ids=by_path)
def test_cut(label: LabelledArchive, length: int) -> None:
    """Read in small pieces, every archive gives the same."""
    raw = label.read()
    if len(raw) > SMALL:
        raw = raw[-SMALL:]
    assert core.extract(raw, cut=Cut(length)) == core.extract(raw)


def run_pipeline(raw: bytes) -> Result:
    """Run one archive as a user would, at the root of the destination."""
    world = World()
    report = world.run(raw, Options(key_template="{member}"))
    if report.verdict is Verdict.REJECTED:
        assert not world.out.objects
        assert not world.out.pending
        return Result(report.reason)
    assert report.missing == 0
    members: dict[int, MemberResult] = {}
    written: set[str] = set()
    for _, outcome in world.records(report.run).each_outcome():
        if outcome.status is Status.FAILED:
            members[outcome.index] = MemberResult(outcome.reason, outcome.key)
            continue
        body = world.out.objects[outcome.key].body
        written.add(outcome.key)
        members[outcome.index] = MemberResult(
            None, outcome.key, len(body), hashlib.sha256(body).hexdigest()
        )
    assert written == set(world.out.objects)
    return Result(None, members, frozenset(report.warnings))


def test_the_pipeline_gives_the_labels() -> None:
    """Every archive's outcome, members, keys and bytes through plan, extract and report."""
    known = read_differences()
    different = {}
    for label in LABELS:
        found = compare(label, run_pipeline(label.read()))
        if found and label.path not in known:
            different[label.path] = found
    assert different == {}
