"""The corpus: every labelled archive, whole and cut."""

import pytest

from tests.corpus import core
from tests.corpus.core import Cut
from tests.corpus.runner import (
    CORPUS,
    LabelledArchive,
    compare,
    extract,
    read_differences,
    read_labels,
)

pytestmark = pytest.mark.skipif(
    not CORPUS.exists(), reason="the corpus of labelled archives is not beside the project"
)

LABELS = read_labels() if CORPUS.exists() else []
SMALL = 20_000


def by_path(label: LabelledArchive) -> str:
    """Name a test by its archive."""
    return label.path


@pytest.mark.parametrize("label", LABELS, ids=by_path)
def test_as_labelled(label: LabelledArchive) -> None:
    """Outcome, keys, sizes and contents are the labelled ones, or the difference is listed."""
    lines = compare(label, core.extract(label.read()))
    assert bool(lines) == (label.path in read_differences()), lines


@pytest.mark.parametrize("label", LABELS, ids=by_path)
def test_public_api_as_labelled(label: LabelledArchive) -> None:
    """Members read one by one through `open_archive` are the labelled ones, too."""
    lines = compare(label, extract(label.read()))
    assert bool(lines) == (label.path in read_differences(alone=True)), lines


@pytest.mark.parametrize("length", [1, 13])
@pytest.mark.parametrize("label", LABELS, ids=by_path)
def test_cut(label: LabelledArchive, length: int) -> None:
    """Read in small pieces, every archive gives the same."""
    raw = label.read()
    if len(raw) > SMALL:
        raw = raw[-SMALL:]
    assert core.extract(raw, cut=Cut(length)) == core.extract(raw)
