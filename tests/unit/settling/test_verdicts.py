"""Who may write the report of a run, and over what."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from s3unzip.errors import ConflictError, ServiceFaultError
from s3unzip.model import Report, Verdict
from s3unzip.runs.records import PAGE, REPORT, RunRecords
from s3unzip.settling.report_page.page import render_page
from s3unzip.settling.verdicts import amend_report, write_verdict
from s3unzip.stores.memory import MemoryRunStore
from tests.support.runs import World
from tests.unit.aws.samples import REPORT as SAMPLE

DONE, ERRORS, REJECTED, CHANGED, FAILED = Verdict
ORDER = {DONE: 3, ERRORS: 2, REJECTED: 1, CHANGED: 0, FAILED: 0}


def _report_of(verdict: Verdict, finished: float = 100.0) -> Report:
    return replace(SAMPLE, verdict=verdict, finished=finished)


def _write(
    records: RunRecords, report: Report, since: float = 0.0, *, reopened: bool = False
) -> Report:
    context = World().context
    written = write_verdict(lambda _: report, records, since, page_for=context, reopened=reopened)
    assert records.find_report() == written.report
    assert records.read_page() == render_page(written.report, context)
    return written.report


@pytest.mark.parametrize("earlier", Verdict)
@pytest.mark.parametrize("later", Verdict)
def test_a_better_verdict_stays_and_of_equal_ones_the_newer(
    earlier: Verdict, later: Verdict
) -> None:
    """A step that began before the report on record was written is late."""
    for since in (99.0, 101.0):
        records = RunRecords(MemoryRunStore())
        before = _write(records, _report_of(earlier))
        after = _write(records, _report_of(later, 200.0), since)
        is_newer = ORDER[later] == ORDER[earlier] and since > 100
        is_written = ORDER[later] > ORDER[earlier] or is_newer
        assert after == (_report_of(later, 200.0) if is_written else before)


@pytest.mark.parametrize(("since", "verdict"), [(99.0, ERRORS), (101.0, FAILED)])
def test_a_person_reopens_members_that_failed(since: float, verdict: Verdict) -> None:
    """Then a newer verdict takes the place of COMPLETED_WITH_ERRORS, and of no better one."""
    for earlier, ended in ((ERRORS, verdict), (DONE, DONE)):
        records = RunRecords(MemoryRunStore())
        _write(records, _report_of(earlier))
        assert _write(records, _report_of(FAILED, 200.0), since, reopened=True).verdict is ended


class Interleaved(MemoryRunStore):
    """A store in which another writer comes between the look at a report and its writing."""

    def __init__(self, other: Callable[[MemoryRunStore], object], *, lost: bool = False) -> None:
        super().__init__()
        self.other = [other]
        self.lost = lost  # whether the write is done, but looks like a conflict

    def create(self, name: str, body: bytes) -> None:
        self._interleave(name)
        super().create(name, body)
        self._lose(name)

    def replace(self, name: str, old: bytes, new: bytes) -> None:
        self._interleave(name)
        super().replace(name, old, new)

    def _interleave(self, name: str) -> None:
        if name == REPORT and self.other:
            self.other.pop()(MemoryRunStore(self.objects))

    def _lose(self, name: str) -> None:
        if name == REPORT and self.lost:
            raise ConflictError("the first answer was lost, and the second try finds the report")


@pytest.mark.parametrize("on_record", [None, FAILED])
def test_a_report_that_comes_in_between_counts(on_record: Verdict | None) -> None:
    """Whoever looks before and writes after a better verdict does not replace it, nor its page."""

    def complete(store: MemoryRunStore) -> None:
        _write(RunRecords(store), _report_of(DONE, 150.0))

    store = Interleaved(complete)
    if on_record is not None:
        _write(RunRecords(MemoryRunStore(store.objects)), _report_of(on_record))
    assert _write(RunRecords(store), _report_of(FAILED, 200.0), 120.0) == _report_of(DONE, 150.0)


def test_a_lost_answer_is_found_again() -> None:
    """The second try meets the report of the first one, and is the first to write."""
    store = Interleaved(lambda _: None, lost=True)
    report = _report_of(DONE)
    assert write_verdict(lambda _: report, RunRecords(store), 0.0) == (report, True)


def test_a_later_action_amends_the_newest_report() -> None:
    """A newer report is amended, not replaced by the one that the caller knew."""
    store = Interleaved(lambda other: _write(RunRecords(other), _report_of(DONE, 150.0), 120.0))
    records = RunRecords(store)
    known = _write(RunRecords(MemoryRunStore(store.objects)), _report_of(DONE))
    amended = amend_report(known, lambda report: replace(report, cost=1.0), records)
    assert amended == replace(_report_of(DONE, 150.0), cost=1.0) == records.find_report()


def test_a_store_that_is_never_the_same_ends_the_step() -> None:
    """A server that refuses each write is a fault, not an endless loop."""

    class Restless(MemoryRunStore):
        def create(self, name: str, body: bytes) -> None:
            raise ConflictError(name)

    with pytest.raises(ServiceFaultError, match="its report is another one at each of 20 looks"):
        write_verdict(lambda _: _report_of(DONE), RunRecords(Restless()), 0.0)


def test_a_report_that_cannot_be_read_counts_as_none() -> None:
    """Any verdict takes its place."""
    store = MemoryRunStore({REPORT: b"{", PAGE: b""})
    assert _write(RunRecords(store), _report_of(FAILED)).verdict is FAILED
