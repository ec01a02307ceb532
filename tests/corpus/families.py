"""All archives of the project's own corpus, by name."""

from tests.corpus import checks, codecs, producers, splits
from tests.corpus.labels import Archive, Case

CASES: list[Case] = [*checks.CASES, *codecs.CASES, *splits.CASES]
SOUND: list[Archive] = [*producers.ARCHIVES, *codecs.ARCHIVES, *splits.ARCHIVES]
LABELLED = [*SOUND, *(archive for case in CASES for archive in case.archives)]
ARCHIVES: dict[str, Archive] = {archive.name: archive for archive in LABELLED}
