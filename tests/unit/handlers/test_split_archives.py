"""Split archives in the pipeline: their event is that of the last part."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from s3unzip.settings import Variable
from tests.split_zips import build_split, part_names
from tests.unit.aws.contexts import Invocation
from tests.unit.handlers.pipeline import Functions, object_created
from tests.zips import DEFLATE, Entry

if TYPE_CHECKING:
    from tests.account import Account

MEMBERS = {f"d/f{n}.txt": b"%d" % n * 100 for n in range(20)}
PARTS = build_split(
    *(Entry(name, body, DEFLATE) for name, body in MEMBERS.items()), sizes=[600, 600]
)
NAMES = part_names("a", len(PARTS))
TUNINGS = [{}, {"tail_bytes": 300}, {"max_direct_members": 1_000}]


@pytest.fixture(params=TUNINGS, ids=["at once", "by the planner", "direct"])
def functions(
    account: Account, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Functions:
    """The functions of an account, for each way in which an archive is taken."""
    account.deploy(
        **{Variable.TUNING.value: json.dumps({"max_direct_members": 0, **request.param})}
    )
    for name, value in account.variables.items():
        monkeypatch.setenv(name, value)
    return Functions(account, Invocation())


def test_a_split_archive_is_extracted(functions: Functions) -> None:
    """With all parts there, the event of the last one starts a run like any other."""
    account = functions.account
    for name, part in zip(NAMES, PARTS, strict=True):
        account.put(name, part)
    assert functions.plan(object_created("a.zip")) == []
    for run in account.executions():
        told = functions.told(run)
        if not told["planned"]:
            assert not functions.plan_run(run)["refused"]
        assert all(answer["failed"] == 0 for answer in functions.extract(run))
        assert functions.report(run)["verdict"] == "COMPLETED"
    members = account.objects("members")
    assert members == {f"out/a/{name}": body for name, body in MEMBERS.items()}


def test_the_last_part_alone_is_rejected(functions: Functions) -> None:
    """The event names the missing part; put again after the parts, the archive is extracted."""
    account = functions.account
    heard = account.listen()
    account.put("a.zip", PARTS[-1])
    assert functions.plan(object_created("a.zip")) == []
    for run in account.executions():
        assert functions.plan_run(run) == {"refused": True}
    (event,) = account.receive(heard)
    assert event["detail"]["verdict"] == "REJECTED"
    assert event["detail"]["reason"] == "part-missing"
    before = set(account.executions())
    for name, part in zip(NAMES, PARTS, strict=True):
        account.put(name, part)
    assert functions.plan(object_created("a.zip")) == []
    started = set(account.executions()) - before
    assert started or account.objects("members")
