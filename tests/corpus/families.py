"""All archives of the project's own corpus, by name."""

from collections.abc import Mapping, Sequence

from tests.corpus import adversarial, checks, codecs, names, producers, splits
from tests.corpus.labels import PLAIN, Archive, Case

SOUND: Mapping[str, Mapping[str, Archive]] = {
    "adversarial": adversarial.SOUND,
    "codecs": codecs.SOUND,
    "names": names.SOUND,
    "splits": splits.SOUND,
    **producers.FAMILIES,
}
ROWS: Mapping[str, Sequence[Case]] = {
    "adversarial": adversarial.ROWS,
    "checks": checks.ROWS,
    "codecs": codecs.ROWS,
    "encoded": checks.ENCODED_ROWS,
    "lenient": checks.LENIENT_ROWS,
    "names": names.ROWS,
    "splits": splits.ROWS,
    "writers": producers.ROWS,
}
CASES = {
    f"{family}/{number:03}-{case.code}": case
    for family, rows in ROWS.items()
    for number, case in enumerate(rows, 1)
}
ARCHIVES = {
    "plain/twin of many": PLAIN,
    **{f"{family}/{name}": one for family, them in SOUND.items() for name, one in them.items()},
    **{name: case.bad for name, case in CASES.items()},
    **{
        f"{name}-twin": case.good
        for name, case in CASES.items()
        if case.good.members != PLAIN.members or case.good.shape != PLAIN.shape
    },
}
