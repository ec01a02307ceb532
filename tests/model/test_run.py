"""The model takes a right run, and says which sentence does not hold of a wrong one."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.model.facts import ArchiveFacts, MemberFacts, ViolationError
from tests.model.run import Model

if TYPE_CHECKING:
    from collections.abc import Callable

GOOD = MemberFacts("out/good", b"good")
BAD = MemberFacts("out/bad", b"bad", right=False)
RUN = "archive-1"
HEAD = {"task": "batch-0"}


def _outcome(key: str, status: str) -> dict[str, str]:
    return {"key": key, "status": status}


def _report(verdict: str, **counts: int) -> dict[str, object]:
    return {"verdict": verdict, **counts}


def _model(*members: MemberFacts, rule: str = "overwrite", broken: bool = False) -> Model:
    model = Model(rule, {})
    model.archive_put("v1", ArchiveFacts(members or (GOOD,), broken=broken))
    model.run_planned(RUN, "v1")
    return model


def _announce(model: Model, verdict: str, extracted: int = 0, failed: int = 0) -> None:
    title = "Archive Extracted" if verdict.startswith("COMPLETED") else "Archive Failed"
    detail = {"run": RUN, "verdict": verdict, "extracted": extracted, "unchanged": 0}
    model.announced(title, {**detail, "failed": failed})


def _extracted(model: Model) -> None:
    """Let the good member be extracted, recorded and reported."""
    model.object_visible(GOOD.key, GOOD.body, RUN, None)
    model.outcomes_recorded(RUN, "batch-0", [HEAD, _outcome(GOOD.key, "extracted")])
    model.report_written(RUN, _report("COMPLETED", extracted=1))


def test_a_right_run_is_taken() -> None:
    """A member that is extracted, recorded, reported and announced is as it should be."""
    model = _model()
    _extracted(model)
    _announce(model, "COMPLETED", extracted=1)
    model.all_quiet({GOOD.key: GOOD.body}, {}, calm=True)
    assert model.violations == []


def _other_bytes(model: Model) -> None:
    model.object_visible(GOOD.key, b"else", RUN, None)


def _no_object(model: Model) -> None:
    model.outcomes_recorded(RUN, "batch-0", [HEAD, _outcome(GOOD.key, "extracted")])


def _failed_without_cause(model: Model) -> None:
    model.outcomes_recorded(RUN, "batch-0", [HEAD, _outcome(GOOD.key, "failed")])


def _twice_in_a_record(model: Model) -> None:
    model.object_visible(GOOD.key, GOOD.body, RUN, None)
    line = _outcome(GOOD.key, "extracted")
    model.outcomes_recorded(RUN, "batch-0", [HEAD, line, line])


def _written_again(model: Model) -> None:
    _extracted(model)
    model.object_visible(GOOD.key, GOOD.body, RUN, model.task_begun(RUN, "batch-0"))


def _early(model: Model) -> None:
    model.report_written(RUN, _report("COMPLETED", missing=1))


def _uncounted(model: Model) -> None:
    model.report_written(RUN, _report("COMPLETED"))


def _changed_by_nobody(model: Model) -> None:
    model.report_written(RUN, _report("SOURCE_CHANGED", missing=1))


def _refused_for_nothing(model: Model) -> None:
    model.report_written(RUN, _report("REJECTED"))


def _said_otherwise(model: Model) -> None:
    _extracted(model)
    _announce(model, "FAILED", extracted=1)


def _announced_between_rounds(model: Model) -> None:
    model.report_written(RUN, _report("FAILED", missing=1, continues=True))
    _announce(model, "FAILED")


def _silent(model: Model) -> None:
    _extracted(model)
    model.all_quiet({GOOD.key: GOOD.body}, {}, calm=True)


def _said_twice(model: Model) -> None:
    _extracted(model)
    for _ in range(2):
        _announce(model, "COMPLETED", extracted=1)
    model.all_quiet({GOOD.key: GOOD.body}, {}, calm=True)


def _upload_left(model: Model) -> None:
    model.upload_begun("upload-1", RUN)
    _extracted(model)
    _announce(model, "COMPLETED", extracted=1)
    model.all_quiet({GOOD.key: GOOD.body}, {"upload-1": RUN}, calm=True)


def _never_done(model: Model) -> None:
    model.all_quiet({}, {}, calm=False)


def _stop_not_told(model: Model) -> None:
    attempt = model.task_begun(RUN, "batch-0")
    model.task_failed(attempt, "ServiceFaultError")  # the task is tried again
    model.task_failed(attempt, "AccessDeniedError")


def _no_progress(model: Model) -> None:
    for _ in range(30):
        model.report_written(RUN, _report("FAILED", missing=1))


def _two_pins(model: Model) -> None:
    model.archive_put("v2", ArchiveFacts((GOOD,)))
    model.run_planned(RUN, "v2")


def _compared_for_nothing(model: Model) -> None:
    model.run_compares(RUN, compares=True)


def _unchanged_without_comparing(model: Model) -> None:
    model.archive_put("v2", ArchiveFacts((GOOD,)))
    model.object_visible(GOOD.key, GOOD.body, RUN, None)
    model.outcomes_recorded(RUN, "batch-0", [HEAD, _outcome(GOOD.key, "unchanged")])


def _older_ended_last(model: Model) -> None:
    newer = MemberFacts(GOOD.key, b"newer")
    model.execution_started(RUN)
    model.archive_put("v2", ArchiveFacts((newer,)))
    model.run_planned("newer", "v2")
    for run, member in (("newer", newer), (RUN, GOOD)):
        model.object_visible(GOOD.key, member.body, run, None)
        model.outcomes_recorded(run, "batch-0", [HEAD, _outcome(GOOD.key, "extracted")])
        model.report_written(run, _report("COMPLETED", extracted=1))
        detail = {"run": run, "verdict": "COMPLETED", "extracted": 1, "unchanged": 0, "failed": 0}
        model.announced("Archive Extracted", detail)
    model.all_quiet({GOOD.key: GOOD.body}, {}, calm=False)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (_other_bytes, "only verified objects become visible"),
        (_no_object, "an object exists if its outcome says so"),
        (_failed_without_cause, "a member fails for a reason of its own"),
        (_twice_in_a_record, "a member once"),
        (_written_again, "not written twice"),
        (_early, "the verdict follows from the outcomes"),
        (_uncounted, "every member has one outcome"),
        (_changed_by_nobody, "the archive is overwritten"),
        (_refused_for_nothing, "ambiguous or broken index"),
        (_said_otherwise, "the event says what the report says"),
        (_announced_between_rounds, "the event says what the report says"),
        (_silent, "one event a run"),
        (_said_twice, "one event a run"),
        (_upload_left, "settling a run aborts every upload on record"),
        (_never_done, "written last"),
        (_stop_not_told, "the task writes stop.json"),
        (_no_progress, "further rounds do the tasks that are left"),
        (_compared_for_nothing, "a recheck of what replaced another archive"),
        (_unchanged_without_comparing, "overwrite writes every member"),
        (_older_ended_last, "the newest archive"),
        (_two_pins, "the same request has the same run id"),
    ],
)
def test_a_wrong_run_is_named(wrong: Callable[[Model], None], sentence: str) -> None:
    """What the documents forbid raises, with the sentence that does not hold."""
    model = _model()
    with pytest.raises(ViolationError, match=sentence):
        wrong(model)
    assert model.violations


def test_never_overwrites_nothing() -> None:
    """With `never` an existing object stays, and its member may fail."""
    model = Model("never", {GOOD.key: b"older"})
    model.archive_put("v1", ArchiveFacts((GOOD,)))
    model.run_planned(RUN, "v1")
    model.outcomes_recorded(RUN, "batch-0", [HEAD, _outcome(GOOD.key, "failed")])
    with pytest.raises(ViolationError, match="writes only new keys"):
        model.object_visible(GOOD.key, GOOD.body, RUN, None)


def test_a_damaged_member_fails() -> None:
    """A damaged member may only have a failed outcome, and the verdict says so."""
    model = _model(GOOD, BAD)
    model.object_visible(GOOD.key, GOOD.body, RUN, None)
    lines = [HEAD, _outcome(GOOD.key, "extracted"), _outcome(BAD.key, "failed")]
    model.outcomes_recorded(RUN, "batch-0", lines)
    with pytest.raises(ViolationError, match="the verdict follows from the outcomes"):
        model.report_written(RUN, _report("COMPLETED", extracted=1, failed=1))
    model.report_written(RUN, _report("COMPLETED_WITH_ERRORS", extracted=1, failed=1))


def _code_lines(path: Path) -> int:
    """Return how many lines have code; docstrings, comments and blank lines are not counted."""
    module = ast.parse(path.read_text())
    for node in ast.walk(module):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:]
    lines: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.expr | ast.stmt | ast.alias | ast.arg):
            lines.update((node.lineno, node.end_lineno or 0))
    return len(lines)


def test_the_model_is_short_enough_to_be_read() -> None:
    """It has at most 300 lines of code."""
    files = [path for path in Path(__file__).parent.glob("*.py") if path != Path(__file__)]
    assert sum(_code_lines(path) for path in files) <= 300
