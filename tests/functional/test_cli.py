"""The command line as a user meets it: what it prints, where, and how it exits."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from s3unzip.cli.main import main
from s3unzip.local.locking import lock_run
from tests.patience import HANG_SECONDS
from tests.zips import Entry, build

MEMBERS = {"docs/readme.txt": b"hello\n" * 20, "data/a.json": b"{}", "data/b.json": b"[1]" * 50}


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with an archive, which is also where runs are kept."""
    monkeypatch.setenv("S3UNZIP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    entries = [Entry(name, content, method=8) for name, content in MEMBERS.items()]
    (tmp_path / "a.zip").write_bytes(build(*entries))
    return tmp_path


@pytest.fixture
def s3unzip(home: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """Return a function that runs a command, paths relative to the folder."""

    def run(*arguments: str) -> Ended:
        words = [str(home / word[2:]) if word.startswith("./") else word for word in arguments]
        with pytest.raises(SystemExit) as end:
            main(words)
        captured = capfd.readouterr()
        code = end.value.code
        assert isinstance(code, int)
        assert "Traceback" not in captured.err
        return Ended(code, captured.out, captured.err)

    return run


def test_run_extracts_and_reports(s3unzip: Callable[..., Ended], home: Path) -> None:
    """Exit code 0, files in place, the report on stderr and nothing on stdout."""
    ended = s3unzip("run", "./a.zip", "./out", "--workers", "1")
    assert ended.code == 0
    assert ended.out == ""
    assert "COMPLETED" in ended.err
    assert "3 members: 3 extracted" in ended.err
    found = {
        str(path.relative_to(home / "out" / "a")): path.read_bytes()
        for path in (home / "out").rglob("*")
        if path.is_file()
    }
    assert found == MEMBERS


def test_json_is_on_stdout(s3unzip: Callable[..., Ended]) -> None:
    """With --json and --quiet, stdout is the report and stderr is empty."""
    ended = s3unzip("run", "./a.zip", "./out", "--json", "--quiet", "-w", "1")
    report = json.loads(ended.out)
    assert (report["verdict"], report["extracted"]) == ("COMPLETED", 3)
    assert ended.err == ""


def test_a_rejected_archive_exits_with_3(s3unzip: Callable[..., Ended], home: Path) -> None:
    """One line says which check refused it, and nothing is written."""
    (home / "bad.zip").write_bytes((home / "a.zip").read_bytes() + b"junk")
    ended = s3unzip("run", "./bad.zip", "./out")
    assert ended.code == 3
    assert "trailing-data" in ended.err
    assert not (home / "out").exists()


def test_failed_members_exit_with_1(s3unzip: Callable[..., Ended], home: Path) -> None:
    """The failures are listed with check, offset and fact; the good members exist."""
    poison = Entry("bad\x1b[31m", b"x")
    (home / "b.zip").write_bytes(build(Entry("good", b"1"), poison))
    ended = s3unzip("run", "./b.zip", "./out", "-w", "1")
    assert ended.code == 1
    assert "name-control-char" in ended.err
    assert "\x1b[31m" not in ended.err
    assert (home / "out/b/good").read_bytes() == b"1"


def test_ls_lists_like_unzip(s3unzip: Callable[..., Ended]) -> None:
    """Names, sizes and totals; with --json one object a member."""
    ended = s3unzip("ls", "./a.zip")
    assert ended.code == 0
    assert all(name in ended.out for name in MEMBERS)
    assert "3 files" in ended.out
    lines = s3unzip("ls", "./a.zip", "--json", "--include", "*.json").out.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["data/a.json", "data/b.json"]


def test_cat_writes_one_member(s3unzip: Callable[..., Ended]) -> None:
    """Exactly its bytes."""
    assert s3unzip("cat", "./a.zip", "docs/readme.txt").out.encode() == MEMBERS["docs/readme.txt"]


def test_cat_of_no_member_says_so(s3unzip: Callable[..., Ended]) -> None:
    """One line with the name, near names and where to look."""
    ended = s3unzip("cat", "./a.zip", "docs/readm.txt")
    assert ended.code == 7
    assert ended.err == (
        "s3unzip: no member is called 'docs/readm.txt'; near: 'docs/readme.txt'; "
        "s3unzip ls lists them all\n"
    )


def test_plan_writes_nothing(s3unzip: Callable[..., Ended], home: Path) -> None:
    """It says what would happen, and leaves no run and no file."""
    ended = s3unzip("plan", "./a.zip", "./out", "--on", "aws")
    assert ended.code == 0
    assert "$" in ended.out
    assert not (home / "out").exists()
    assert not (home / "home").exists()


def test_a_budget_refuses_before_the_first_put(s3unzip: Callable[..., Ended], home: Path) -> None:
    """Above --max-cost the plan exits with 2 and says both numbers."""
    ended = s3unzip("plan", "./a.zip", "s3://out/x", "--on", "aws", "--max-cost", "0.000001")
    assert ended.code == 2
    assert "--max-cost" in ended.err


def test_runs_show_and_skip_unchanged(s3unzip: Callable[..., Ended]) -> None:
    """A run is listed and shown; a second one that skips what is right writes nothing."""
    s3unzip("run", "./a.zip", "./out", "-q", "-w", "1")
    assert s3unzip("runs").out.count("COMPLETED") == 1
    shown = s3unzip("show", "latest")
    assert (shown.code, shown.out.splitlines()[0].split()[0]) == (0, "COMPLETED")
    again = s3unzip("run", "./a.zip", "./out", "-w", "1", "--on-conflict", "skip-unchanged")
    assert "3 unchanged" in again.err


def test_one_process_at_a_time_does_a_run(s3unzip: Callable[..., Ended], home: Path) -> None:
    """The second process gets a message and writes nothing; it may run after the first."""
    done = json.loads(s3unzip("run", "./a.zip", "./out", "-w", "1", "--json", "-q").out)
    (home / "out/a/docs/readme.txt").unlink()
    (home / "home/runs" / done["run"] / "report.json").unlink()  # as if it had not ended
    with lock_run(str(home / "home"), done["run"]):
        for words in (("run", "./a.zip", "./out", "-w", "1"), ("resume", "latest")):
            ended = s3unzip(*words)
            assert ended.code == 2
            assert f"{done['run']}: another process is working on this run" in ended.err
    assert not (home / "out/a/docs/readme.txt").exists()
    assert s3unzip("run", "./a.zip", "./out", "-w", "1", "-q").code == 0
    assert (home / "out/a/docs/readme.txt").exists()


def test_the_same_run_twice_at_once(home: Path) -> None:
    """Two processes: one of them does it, and what it leaves is right."""
    entries = [Entry(f"f{n}", b"%d" % n * 1000, method=8) for n in range(2_000)]
    (home / "many.zip").write_bytes(build(*entries))
    command = [sys.executable, "-m", "s3unzip.cli", "run", "many.zip", "out"]
    both = [
        subprocess.Popen(command, cwd=home, stderr=subprocess.PIPE, text=True) for _ in range(2)
    ]
    said = [process.communicate(timeout=HANG_SECONDS)[1] for process in both]
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, 2]), said
    assert len(list((home / "out/many").iterdir())) == 2_000
    assert (home / "out/many/f1999").read_bytes() == b"1999" * 1000


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("run", "./none.zip", "./out"), 6, "none.zip"),
        (("run", "./a.zip", "ftp://x"), 2, "ftp://"),
        (("plan", "s3://bucket", "./out"), 2, "not an archive"),
        (("run", "./a.zip", "./out", "--key-template", "{x}"), 2, "{x}"),
        (("run", "./a.zip", "./out", "--encoding", "klingon"), 2, "klingon"),
        (("run", "./a.zip", "./out", "--password-file", "./none"), 2, "none"),
        (("run", "./a.zip", "./out", "--prefix", "a", "--key-template", "{member}"), 2, "--prefix"),
        (("run", "./a.zip", "./out", "--kms-key", "arn"), 2, "--kms-key is for S3"),
        (("show", "nothing"), 6, "nothing"),
        (("plan", "./a.zip", "--on", "moon"), 2, "moon"),
        (("frobnicate",), 2, "frobnicate"),
        (("run",), 2, "DEST"),
    ],
)
def test_wrong_requests_are_one_line(
    s3unzip: Callable[..., Ended], words: tuple[str, ...], code: int, said: str
) -> None:
    """The thing, what is wrong with it, and an exit code that says whose fault it is."""
    ended = s3unzip(*words)
    assert ended.code == code
    assert said in ended.err
    assert ended.err.count("\n") == 1
    assert ended.out == ""


@pytest.mark.parametrize(
    ("tuning", "said"),
    [
        ('{"nope": 1}', "tuning 'nope' is unknown"),
        ('{"puts_in_flight": "many"}', "must be a positive number, not 'many'"),
        ("puts_in_flight=8", "S3UNZIP_TUNING=puts_in_flight=8: no JSON object"),
    ],
)
def test_tuning_is_a_variable(
    s3unzip: Callable[..., Ended], monkeypatch: pytest.MonkeyPatch, tuning: str, said: str
) -> None:
    """A wrong setting is one line; a right one is taken."""
    monkeypatch.setenv("S3UNZIP_TUNING", tuning)
    ended = s3unzip("run", "./a.zip", "./out", "-w", "1")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert said in ended.err
    monkeypatch.setenv("S3UNZIP_TUNING", '{"puts_in_flight": 8}')
    assert s3unzip("run", "./a.zip", "./out", "-w", "1").code == 0


def test_members_are_where_the_report_says(s3unzip: Callable[..., Ended], home: Path) -> None:
    """The folder of the members, not the one that it is in; named by the stem of any suffix."""
    (home / "a.zip").rename(home / "app.jar")
    ended = s3unzip("run", "./app.jar", "./out", "-w", "1")
    assert ended.err.splitlines()[0].endswith(f"-> {home}/out/app/")
    assert (home / "out/app/docs/readme.txt").exists()


@pytest.mark.parametrize(
    "content", [b'{"run": "x"', b"[]", b'{"options": {"on_conflict": "nver"}}']
)
def test_an_unreadable_record_does_not_end_the_list(
    s3unzip: Callable[..., Ended], home: Path, content: bytes
) -> None:
    """The run is listed as UNREADABLE with its place, and the others as they are."""
    s3unzip("run", "./a.zip", "./out", "-q", "-w", "1")
    foreign = home / "home/runs/2026-11-23/201532-foreign-00000000"
    foreign.mkdir(parents=True)
    (foreign / "report.json").write_bytes(content)
    ended = s3unzip("runs")
    assert ended.code == 0
    assert "COMPLETED" in ended.out
    assert "UNREADABLE" in ended.out
    assert str(foreign) in ended.out


def test_failed_members_are_listed_in_words(s3unzip: Callable[..., Ended], home: Path) -> None:
    """A line for each member: its name, what is wrong, the code; JSON if asked."""
    (home / "up.zip").write_bytes(build(Entry("../up", b"x"), Entry("ok", b"1")))
    s3unzip("run", "./up.zip", "./out", "-q", "-w", "1")
    (line,) = s3unzip("show", "--failures").out.splitlines()
    assert "../up: " in line
    assert line.endswith("(name-dotdot)")
    listed = json.loads(s3unzip("show", "--failures", "--json").out)
    assert listed["outcome"]["reason"] == "name-dotdot"


def test_help_imports_nothing_heavy() -> None:
    """`s3unzip --help` imports no stores, codecs or displays."""
    code = (
        "import sys, s3unzip.cli.main; "
        "heavy = {'boto3', 'obstore', 'numpy', 'rich', 's3unzip.zip.decode'}; "
        "print(*heavy & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_workers_import_nothing_that_few_need() -> None:
    """A worker process imports only what most workers need."""
    code = (
        "import sys\n"
        "import s3unzip.local.workers, s3unzip.stores.s3.run_store\n"
        "print(*{'click', 'rich', 'pydantic', 'numpy', 'inflate64'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_where_a_folder_is_does_not_count_in_the_length_of_keys(
    s3unzip: Callable[..., Ended], home: Path
) -> None:
    """A member of 991 bytes fits into any folder; one of 1,025 into none."""
    long, too_long = "d/" * 495 + "f", "e/" * 512 + "f"
    (home / "b.zip").write_bytes(build(Entry(long, b"1")))
    (home / "c.zip").write_bytes(build(Entry(too_long, b"1")))
    out = "/".join(["./out", *["n" * 200] * 5])
    assert s3unzip("run", "./b.zip", out, "--prefix", "", "-w", "1").code == 0
    assert (home / out / long).read_bytes() == b"1"
    assert s3unzip("verify", "./b.zip", out, "--prefix", "").code == 0
    ended = s3unzip("run", "./c.zip", out, "--prefix", "", "-w", "1")
    assert ended.code == 1
    assert "key-too-long" in ended.err
