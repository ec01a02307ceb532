"""The command line as a process: its standard streams, signals, and limits of the system."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from s3unzip.stores.folder import OWN
from tests.patience import HANG_SECONDS
from tests.servers import Asked, HttpServer, Reply, WebFiles
from tests.zips import Entry, build

COMMAND = [sys.executable, "-m", "s3unzip.cli"]
MEMBERS = 20
LINUX = sys.platform == "linux"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with an archive, which is also where runs are kept."""
    monkeypatch.setenv("S3UNZIP_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    entries = [Entry(f"f{number}", os.urandom(50_000)) for number in range(MEMBERS)]
    (tmp_path / "a.zip").write_bytes(build(*entries))  # too large to be read whole with its end
    return tmp_path


def shell(command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of a shell, in which ``s3unzip`` is the command line."""
    script = f's3unzip() {{ "{sys.executable}" -m s3unzip.cli "$@"; }}; {command}'
    return subprocess.run(
        ["sh", "-c", script], capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )


@pytest.mark.parametrize("streams", ["2>&-", ">&-", "<&-", ">&- 2>&- <&-", "2>/dev/full"])
def test_closed_and_full_streams_do_no_harm(home: Path, streams: str) -> None:
    """A run does what it does, all of it, and ends with the verdict's code."""
    done = shell(f"s3unzip run a.zip out -w 1 {streams}")
    assert done.returncode == 0
    assert len(list((home / "out/a").iterdir())) == MEMBERS
    if "2>" not in streams:
        assert done.stderr.startswith("COMPLETED")


@pytest.mark.parametrize("command", ["ls a.zip", "cat a.zip f1", "run a.zip out -q --json -w 1"])
def test_a_full_output_is_told(home: Path, command: str) -> None:
    """The program prints one line and has a separate exit code."""
    done = shell(f"s3unzip {command} >/dev/full")
    assert (done.returncode, done.stderr) == (
        74,
        "s3unzip: standard output: No space left on device; not all of it is written\n",
    )


@pytest.mark.parametrize("command", ["ls a.zip", "cat a.zip f1", "run a.zip out -q --json -w 1"])
def test_a_closed_output_is_told(home: Path, command: str) -> None:
    """What should have been written is lost, so the exit code is that of a full one."""
    done = shell(f"s3unzip {command} >&-")
    assert done.returncode == 74
    assert done.stderr == (
        "s3unzip: standard output: Bad file descriptor; not all of it is written\n"
    )


def test_an_output_that_nobody_reads_any_more(home: Path) -> None:
    """`ls | head` is no error."""
    done = shell("(s3unzip ls a.zip; echo $? >code) | true")
    assert done.stderr == ""
    assert (home / "code").read_text() == "0\n"


@pytest.mark.skipif(not LINUX, reason="only Linux limits the memory of a process")
def test_a_process_without_memory_is_told_in_plain_words(home: Path) -> None:
    """Out of memory in any process is never called an internal error."""
    done = shell("ulimit -v 600000; s3unzip run a.zip out -w 1")
    assert "internal error" not in done.stderr
    assert "Traceback" not in done.stderr
    if done.returncode:
        assert "memory" in done.stderr


@pytest.fixture
def default_hangup() -> Iterator[None]:
    """Undo `nohup` around the tests: their programs inherit what this process ignores."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


class SlowRun:
    """A run whose archive comes from a server that stops sending in the midst of members."""

    def __init__(self, home: Path) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self._files = WebFiles({"a.zip": (home / "a.zip").read_bytes()})
        self._home = home

    def answer(self, asked: Asked) -> Reply:
        """Give the directory at once, members only when the test allows it."""
        if asked.method == "GET" and asked.headers["range"].startswith("bytes=0-"):
            self.reached.set()
            self.go_on.wait(100)
        return self._files(asked)

    def start(self, url: str) -> subprocess.Popen[str]:
        """Start the program, in a group of its own."""
        words = ["run", f"{url}/a.zip", "out", "-w", "2"]
        variables = {**os.environ, "S3UNZIP_TUNING": '{"batch_members": 5}'}  # tasks for both
        return subprocess.Popen(
            [*COMMAND, *words], stderr=subprocess.PIPE, text=True, process_group=0, env=variables
        )


def group_of(process: subprocess.Popen[str]) -> list[int]:
    """Return the ids of the processes of a group that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, group = entry.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(group) == process.pid and state != "Z":
            found.append(int(entry.parent.name))
    return found


def await_true(ask: Callable[[], bool], seconds: float = HANG_SECONDS) -> bool:
    """Ask until it is so; return False if it never is."""
    deadline = time.monotonic() + seconds
    while not ask():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.mark.skipif(not LINUX, reason="/proc tells which processes are left")
def test_no_worker_outlives_a_killed_program(home: Path) -> None:
    """The worker waits for a server that sends nothing; it ends as soon as the program does."""
    slow = SlowRun(home)
    with HttpServer(slow.answer) as server:
        process = slow.start(server.url)
        assert slow.reached.wait(HANG_SECONDS)
        assert len(group_of(process)) == 3  # program, workers
        process.kill()
        process.communicate()
        assert await_true(lambda: not group_of(process), 20.0)  # far below the stall limit
        slow.go_on.set()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
@pytest.mark.parametrize("whole_group", [False, True], ids=["program", "group"])
@pytest.mark.usefixtures("default_hangup")
def test_sigterm_and_sighup_are_as_ctrl_c(
    home: Path, number: signal.Signals, code: int, *, whole_group: bool
) -> None:
    """The run is settled, its advice has the run's id, and `resume` completes it."""
    slow = SlowRun(home)
    with HttpServer(slow.answer) as server:
        process = slow.start(server.url)
        assert slow.reached.wait(HANG_SECONDS)
        (os.killpg if whole_group else os.kill)(process.pid, number)
        time.sleep(0.5)  # the worker has heard of it before it is answered
        slow.go_on.set()
        _, told = process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == code
        run = str(next((home / "home/runs").glob("*/*")).relative_to(home / "home/runs"))
        assert f"continue with: s3unzip resume {run}" in told
        assert (home / "home/runs" / run / "report.json").exists()
        again = shell(f"s3unzip resume {run} -w 1")
        assert again.returncode == 0
    assert len(list((home / "out/a").iterdir())) == MEMBERS


@pytest.mark.skipif(not LINUX, reason="/proc tells which processes work")
def test_a_killed_worker_costs_one_attempt(home: Path) -> None:
    """Another worker does its task, and the run completes."""
    slow = SlowRun(home)
    with HttpServer(slow.answer) as server:
        process = slow.start(server.url)
        assert slow.reached.wait(HANG_SECONDS)
        worker = next(pid for pid in group_of(process) if pid != process.pid)
        os.kill(worker, signal.SIGKILL)
        slow.go_on.set()
        _, told = process.communicate(timeout=HANG_SECONDS)
        assert (process.returncode, told[:9]) == (0, "COMPLETED")
    written = [path for path in (home / "out/a").iterdir() if not path.name.startswith(OWN)]
    assert len(written) == MEMBERS  # beside them, the file that it did not end
