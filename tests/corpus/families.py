"""All archives of the project's own corpus, by name."""

from itertools import chain

from tests.corpus import adversarial, checks, codecs, names, producers, splits
from tests.corpus.labels import Archive, Case

CASES: list[Case] = [
    *checks.CASES,
    *adversarial.CASES,
    *codecs.CASES,
    *names.CASES,
    *producers.CASES,
    *splits.CASES,
]
LABELLED = chain(
    adversarial.ARCHIVES,
    codecs.ARCHIVES,
    names.ARCHIVES,
    producers.ARCHIVES,
    splits.ARCHIVES,
    chain.from_iterable(case.archives for case in CASES),
)
ARCHIVES: dict[str, Archive] = {archive.name: archive for archive in LABELLED}
