"""``s3unzip submit`` and ``s3unzip backlog``, as somebody types them."""

from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from s3unzip.cli.main import main
from s3unzip.cli.terminal import backlog_output
from s3unzip.errors import ServiceFaultError
from s3unzip.model import decode
from s3unzip.operate.backlog import submitting
from s3unzip.operate.backlog.values import BacklogProblem, BacklogReport, Submission
from tests.docs.test_json import check_lines
from tests.unit.operate.backlog.environment import BUCKET

if TYPE_CHECKING:
    from tests.unit.operate.backlog.environment import Site


class Terminal(io.StringIO):
    """Somebody who answers."""

    def isatty(self) -> bool:
        """Return that it is a terminal."""
        return True


class Shell:
    """Calls commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.out = self.err = ""

    def __call__(self, *words: str, answer: str | None = None) -> int:
        """Call ``s3unzip`` with `words` and an environment; return the exit code."""
        self._capsys.readouterr()  # what the functions logged
        with self._monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO() if answer is None else Terminal(answer))
            with pytest.raises(SystemExit) as ended:
                main([*words, "--env", "dev"])
        self.out, self.err = self._capsys.readouterr()
        return int(ended.value.code or 0)

    def lines(self) -> list[Any]:
        """Return the JSON values of the last command, without what the functions logged."""
        values = [json.loads(line) for line in self.out.splitlines()]
        return [value for value in values if "backlog" in value]


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A shell."""
    return Shell(capsys, monkeypatch)


def test_the_whole_way(site: Site, shell: Shell) -> None:
    """Dry run, submission, report: one forecast, one report, one exit code."""
    site.put("in/a.zip", "in/b.zip")
    assert shell("submit", BUCKET + "in/", "--dry-run") == 0
    assert "2 archives to extract" in shell.out
    assert "ways: 2 direct, 0 inline, 0 distributed" in shell.out
    assert shell.err == "nothing is queued\n"
    assert site.messages() == []
    assert shell("submit", BUCKET + "in/", "--yes", "--max-cost", "1") == 0
    backlog = shell.err.split(":", 1)[0]
    assert shell.err.endswith(f"s3unzip backlog {backlog} --env dev --watch\n")
    assert shell("backlog", backlog) == 1
    assert "archives: 2 queued" in shell.out
    site.extract_queued()
    assert shell("backlog") == 0
    assert f"{backlog}: 2 archives of s3://arrivals/in/: ended" in shell.out
    assert "archives: 2 COMPLETED" in shell.out
    assert shell("submit", BUCKET + "in/", "--yes") == 0
    assert "0 archives to extract, 0 B; left out: 2 ended as COMPLETED" in shell.out


def test_a_budget_of_the_whole(site: Site, shell: Shell) -> None:
    """Above it nothing is queued, whether or not it is a dry run."""
    site.put("a.zip")
    for more in ("--yes", "--dry-run"):
        assert shell("submit", BUCKET, more, "--max-cost", "0.0000001") == 2
        assert "Nothing is queued: raise --max-cost" in shell.err
    assert site.messages() == []
    assert shell("backlog") == 6
    assert "no backlog was submitted yet" in shell.err


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("yes\n", 0), ("n\n", 1), ("", 1)])
def test_somebody_is_asked(site: Site, shell: Shell, answer: str, code: int) -> None:
    """Only a yes queues anything."""
    site.put("a.zip")
    assert shell("submit", BUCKET, answer=answer) == code
    assert "Queue 1 archive? [y/N]" in shell.err
    assert len(site.messages()) == (code == 0)


def test_nobody_can_be_asked(site: Site, shell: Shell) -> None:
    """Before anything is listed."""
    site.put("a.zip")
    assert shell("submit", BUCKET) == 2
    assert "nobody can be asked; look with --dry-run first, then add --yes" in shell.err


def test_options_that_exclude_each_other(site: Site, shell: Shell) -> None:
    """One line names them."""
    del site
    assert shell("submit", BUCKET, "--resume", "latest") == 2
    assert "--resume: give no archives" in shell.err
    assert shell("backlog", "--failures", "--watch") == 2
    assert "--failures: is not for --watch" in shell.err


def test_json_of_a_submission(site: Site, shell: Shell) -> None:
    """One value, which holds to its schema, with and without a backlog."""
    site.put("a.zip")
    assert shell("submit", BUCKET, "--dry-run", "--json") == 0
    (dry,) = check_lines("submit", shell.out)
    assert (dry["backlog"], dry["queued"], dry["archives"]) == (None, 0, 1)
    assert shell("submit", BUCKET, "--yes", "--json") == 0
    (value,) = check_lines("submit", shell.out)
    assert decode(shell.out, Submission).queued == 1
    assert shell("submit", "--resume", value["backlog"], "--json") == 0
    (resumed,) = check_lines("submit", shell.out)
    assert (resumed["backlog"], resumed["queued"]) == (value["backlog"], 1)


def test_json_of_a_backlog(site: Site, shell: Shell) -> None:
    """The report and its problems hold to their schemas."""
    site.put("a.zip")
    site.put("bad.zip", body=b"no archive")
    site.submit(BUCKET)
    site.extract_queued()
    assert shell("backlog", "--json") == 3
    check_lines("backlog", shell.out)
    assert decode(shell.out, BacklogReport).verdicts == {"COMPLETED": 1, "REJECTED": 1}
    assert shell("backlog", "--failures") == 3
    check_lines("problems", shell.out)
    assert decode(shell.out, BacklogProblem).source == "s3://arrivals/bad.zip"


def test_a_backlog_is_watched(site: Site, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures until the end, then the report."""
    site.put("a.zip")
    monkeypatch.setattr("time.sleep", lambda _: site.extract_queued())
    assert shell("submit", BUCKET, "--yes", "--watch", "--every", "0.1", "--json") == 0
    submission, *figures, last = shell.lines()
    assert submission["queued"] == 1
    assert [one["queued"] for one in figures] == [1]
    assert (last["ended"], last["verdicts"]) == (True, {"COMPLETED": 1})
    assert shell("backlog", "--watch") == 0
    assert "1 COMPLETED" in shell.out


def test_the_progress_of_a_watch(site: Site, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for each change is on stderr."""
    site.put("a.zip")
    site.put("bad.zip", body=b"no archive")
    site.submit(BUCKET)
    monkeypatch.setattr("time.sleep", lambda _: site.extract_queued())
    assert shell("backlog", "--watch", "--every", "0.1") == 3
    assert shell.err == "2 archives: 2 queued\n"
    assert "1 COMPLETED, 1 REJECTED" in shell.out
    assert "s3://arrivals/bad.zip" in shell.out


def test_ctrl_c_while_it_queues(site: Site, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that continues is printed, and it queues the rest."""
    site.put("a.zip")

    def stop(*_: object) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(submitting, "queue_backlog", stop)
        assert shell("submit", BUCKET, "--yes") == 130
    words = shell.err.split("s3unzip submit --resume ")[1].split()
    assert words[1:] == ["--env", "dev"]
    assert shell("backlog") == 1
    assert (
        f"not queued: 1 archive; queue the rest with s3unzip submit --resume {words[0]}"
        in shell.err
    )
    assert shell("submit", "--resume", words[0]) == 0
    assert len(site.messages()) == 1


def test_a_queue_that_does_not_answer(
    site: Site, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault is told with the command that continues."""
    site.put("a.zip")

    def fail(*_: object) -> int:
        raise ServiceFaultError("the queue did not take 1 messages")

    monkeypatch.setattr(submitting, "queue_backlog", fail)
    assert shell("submit", BUCKET, "--yes") == 5
    assert "did not take 1 messages; continue with: s3unzip submit --resume" in shell.err


def test_what_is_left_out_is_told(
    site: Site, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Archives that are outside, not there, refused, or above the environment's limit."""
    monkeypatch.setattr(backlog_output, "TOLD_EVERY", 1)
    site.put("a.zip", "x.jar")
    site.put("bad.zip", body=b"no archive")
    account = site.functions.account
    variables = account.variables | {"S3UNZIP_MAX_COST": "0.000001"}
    account.client("lambda").update_function_configuration(
        FunctionName="plan", Environment={"Variables": variables}
    )
    words = [BUCKET + "*", BUCKET + "nothing.zip"]
    assert shell("submit", *words, "--skip-outside", "--dry-run", "--sample", "3") == 0
    assert "left out: 1 not there, 1 outside" in shell.out
    assert "refused: 1 of the archives whose directories were read" in shell.out
    assert "above runs.max_cost: 1 archive, which the environment will reject" in shell.out
    assert "looked at 3 archives" in shell.err
    assert shell("submit", BUCKET + "*.zip", "--sample", "1", "--dry-run") == 0
    assert "assumed: the directories of 1 of 2 archives were read" in shell.out
