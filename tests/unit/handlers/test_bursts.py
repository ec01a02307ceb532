"""More runs than workers, through the functions: they wait, and are started one after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.aws.admission.opening import REMINDER

from s3unzip.settings import Variable
from tests.unit.handlers.pipeline import Functions, object_created
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.account import Account


def put_archives(functions: Functions, count: int) -> None:
    """Put archives of one small member each, and plan them."""
    for number in range(count):
        key = f"{number}.zip"
        functions.account.put(key, build(Entry("m.txt", key.encode() * 9, DEFLATE)))
        assert functions.plan(object_created(key)) == []


def test_the_functions_admit_and_release(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """With one worker, the last of short runs wait until others are reported, or have failed."""
    functions = deploy(**{Variable.WORKERS: "1"})
    put_archives(functions, 6)
    started = account.executions()
    assert len(started) == 4
    functions.extract(started[0])
    machine = account.outputs["StateMachineArn"]
    functions.report(started[0], execution=started[0], machine=machine)
    assert len(account.executions()) == 5
    functions.report_failure(started[1], "ABORTED")
    assert functions.plan(REMINDER) == []
    assert len(account.executions()) == 6
    assert len(account.objects("work", "runs/-shares/held/")) == 4
    assert account.objects("work", "runs/-shares/waiting/") == {}


def test_a_report_is_written_whatever_the_ledger_says(
    deploy: Callable[..., Functions], account: Account
) -> None:
    """A fault while others are started does not fail the report; a reminder starts them later."""
    functions = deploy(**{Variable.WORKERS: "1"})
    put_archives(functions, 5)
    first = account.executions()[0]
    functions.extract(first)
    machine = "arn:aws:states:us-east-1:123456789012:stateMachine:unknown"
    told = functions.report(first, execution=first, machine=machine)
    assert told["verdict"] == "COMPLETED"
    assert len(account.executions()) == 4
    functions.plan(REMINDER)
    assert len(account.executions()) == 5
