"""The corpus through the whole pipeline: the labels, and nothing written that should not be."""

import hashlib

import pytest

from s3unzip.model import Options, Status, Verdict
from tests.corpus.runner import CORPUS, MemberResult, Result, compare, read_differences, read_labels
from tests.runs import World


def extract(raw: bytes) -> Result:
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


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus is not beside the checkout")
def test_the_pipeline_gives_the_labels() -> None:
    """Every archive's outcome, members, keys and bytes through plan, extract and report."""
    known = read_differences()
    different = {}
    for label in read_labels():
        found = compare(label, extract(label.read()))
        if found and label.path not in known:
            different[label.path] = found
    assert different == {}
