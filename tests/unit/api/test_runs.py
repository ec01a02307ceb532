"""`extract` and `verify`: runs on this machine from Python, over folders."""

import io
from pathlib import Path

import pytest

import s3unzip
from s3unzip import Comparison, OnConflict, Options, StoreConfig, Verdict
from s3unzip.errors import UsageError, VerdictError
from s3unzip.model import NestedRun, PlanSummary, Report
from s3unzip.stores.locations import parse_destination
from tests.support.encrypting import seal_aes
from tests.support.runs import Told
from tests.support.zips import DEFLATE, Entry, build

FLAT = Options(key_template="{member}")


@pytest.fixture
def stores(tmp_path: Path) -> StoreConfig:
    return StoreConfig(parse_destination(str(tmp_path / "home")))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "a.zip"
    inner = build(Entry("inside.txt", b"inside"))
    members = [Entry("one.txt", b"1" * 99, DEFLATE), Entry("in/b.zip", inner), Entry("../x", b"x")]
    path.write_bytes(build(*members))
    return path


class Events(Told):
    """Notes what else it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[str] = []

    def planned(self, plan: PlanSummary) -> None:
        self.events.append(f"planned {plan.selected}")

    def reported(self, report: Report) -> None:
        self.events.append(report.verdict.value)

    def nested(self, run: NestedRun) -> None:
        self.events.append(f"nested {run.verdict}")


def test_extracts_and_verifies(archive: Path, tmp_path: Path, stores: StoreConfig) -> None:
    """A run writes the good members, counts the bad one, and verify finds all equal."""
    report = s3unzip.extract(archive, tmp_path / "out", FLAT, stores=stores)
    assert (report.extracted, report.failed) == (2, 1)
    assert (tmp_path / "out/one.txt").read_bytes() == b"1" * 99
    assert not report.ok
    with pytest.raises(VerdictError, match="COMPLETED_WITH_ERRORS: 1 failed"):
        report.raise_for_verdict()
    assert repr(report) == (
        f"<Report {report.run}: COMPLETED_WITH_ERRORS, 2 extracted, 0 unchanged, 1 failed>"
    )
    found = s3unzip.verify(archive, tmp_path / "out", FLAT, stores=stores)
    assert (found.verdict, found.equal, found.refused) == (Comparison.EQUAL, 2, 1)
    (tmp_path / "out/one.txt").write_bytes(b"2" * 99)
    found = s3unzip.verify(archive, tmp_path / "out", FLAT, stores=stores)
    assert found.counts == {"crc": 1}


def test_archives_inside_are_extracted(archive: Path, tmp_path: Path, stores: StoreConfig) -> None:
    """With `nested_depth` they are extracted, and what happens is told."""
    told, options = Events(), Options(key_template="{member}", nested_depth=1)
    s3unzip.extract(archive, tmp_path / "out", options, stores=stores, progress=told)
    assert told.events == ["planned 2", "COMPLETED_WITH_ERRORS", "nested COMPLETED"]
    assert told.counts["extracted"] == 3
    assert [path.read_bytes() for path in tmp_path.glob("out/**/inside.txt")] == [b"inside"]


def test_password_is_used_and_not_recorded(tmp_path: Path, stores: StoreConfig) -> None:
    """Encrypted members are extracted; the records say only that there was a password."""
    path = tmp_path / "secret.zip"
    path.write_bytes(build(seal_aes(Entry("s.txt", b"secret"), b"pa55-never-kept")))
    report = s3unzip.extract(
        path, tmp_path / "out", FLAT, password="pa55-never-kept", stores=stores
    )
    assert report.verdict is Verdict.COMPLETED
    assert report.options.password_ref == "argument"
    kept = [file.read_bytes() for file in tmp_path.glob("home/**/*") if file.is_file()]
    assert kept
    assert not any(b"pa55-never-kept" in data for data in kept)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"include": "readme.txt"}, r"option include: give a list of texts, \('readme.txt',\)"),
        ({"names": "readme.txt"}, "option names: give a list of texts"),
        ({"strip_components": -1}, "option strip_components=-1"),
        ({"on_conflict": "nver"}, "option on_conflict='nver': Invalid enum value"),
        ({"limit": "3"}, "option limit='3'"),
    ],
)
def test_options_are_checked_when_they_are_made(wrong: dict[str, object], words: str) -> None:
    """A wrong option is named before anything else happens."""
    with pytest.raises(UsageError, match=words):
        Options(**wrong)  # type: ignore[arg-type]  # as said


def test_options_take_lists_and_texts() -> None:
    """A list is a tuple, and a text is the member of an enumeration."""
    made = Options(include=["*.txt"], on_conflict="never")  # type: ignore[arg-type]  # as said
    assert made == Options(include=("*.txt",), on_conflict=OnConflict.NEVER)


def test_wrong_requests_are_refused_before_work(
    archive: Path, tmp_path: Path, stores: StoreConfig
) -> None:
    """A reader as source, no workers and a negative cost limit write nothing."""
    out = tmp_path / "out"
    with pytest.raises(UsageError, match="not a BytesIO: workers cannot share it"):
        s3unzip.extract(io.BytesIO(b""), out)  # type: ignore[arg-type]  # as said
    with pytest.raises(UsageError, match="at least 1"):
        s3unzip.extract(archive, out, stores=stores, workers=0)
    with pytest.raises(UsageError, match="not an archive"):
        s3unzip.extract("s3://bucket/", out, stores=stores)
    with pytest.raises(UsageError, match="members that are not extracted would be lost"):
        s3unzip.extract(archive, out, Options(limit=1), after_success="delete", stores=stores)
    with pytest.raises(UsageError, match="cost limit"):
        s3unzip.extract(archive, out, FLAT, stores=stores, max_cost=-1.0)
    assert [path for path in out.rglob("*") if path.is_file()] == []
