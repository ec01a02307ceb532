"""The command line as a process: its standard streams, signals, and limits of the system.

Then programs that fork after they have opened an archive.
"""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.bundle import ROOT
from tests.support.memory_server import MemoryS3
from tests.support.processes import Ended, Program, descendants, is_running
from tests.support.servers import HANG_SECONDS, Asked, HttpServer, Reply, WebFiles, looks
from tests.support.zips import Entry, build

MEMBERS = 20
LINUX = sys.platform == "linux"
LIMITS_MEMORY = pytest.mark.skipif(not LINUX, reason="only Linux limits the memory of a process")


@pytest.fixture
def program(program: Program) -> Program:
    program.add("a.zip", *(Entry(f"f{number}", os.urandom(50_000)) for number in range(MEMBERS)))
    return program


def _shell(program: Program, command: str) -> Ended:
    script = f's3unzip() {{ "{sys.executable}" -m s3unzip "$@"; }}; {command}'
    return program.start_as(["sh", "-c", script])


@pytest.mark.parametrize("streams", ["2>&-", ">&- 2>&- <&-", "2>/dev/full"])
def test_closed_and_full_streams_do_no_harm(program: Program, streams: str) -> None:
    """A run does what it does, all of it, and ends with the verdict's code."""
    assert _shell(program, f"s3unzip run a.zip out -w 1 {streams}") == (0, "", "")
    assert len(program.files("out/a")) == MEMBERS


@pytest.mark.parametrize(
    "command", ["ls a.zip", "cat a.zip f1", "run a.zip out -q --json -w 1", "--version"]
)
@pytest.mark.parametrize(
    ("stream", "reason"),
    [(">/dev/full", "No space left on device"), (">&-", "Bad file descriptor")],
)
def test_a_lost_output_is_told(program: Program, command: str, stream: str, reason: str) -> None:
    """The program prints one line and has a separate exit code."""
    assert _shell(program, f"s3unzip {command} {stream}") == (
        74,
        "",
        f"s3unzip: standard output: {reason}; the output is incomplete\n",
    )


@pytest.mark.parametrize(
    ("command", "code"),
    [("ls bad.zip", 0), ("test bad.zip", 1), ("verify bad.zip . --json --list 999", 1)],
)
def test_an_output_that_nobody_reads_any_more(program: Program, command: str, code: int) -> None:
    """`ls | head` is no error, and a verdict keeps its exit code."""
    program.add("bad.zip", *(Entry(f"f{n}", central={"crc32": 1}) for n in range(999)))
    assert _shell(program, f"(s3unzip {command} 2>&1; echo $? >code) | true") == (0, "", "")
    assert (program.folder / "code").read_text() == f"{code}\n"


@LIMITS_MEMORY
@pytest.mark.parametrize("limit", [300_000, 600_000])
def test_a_process_without_memory_is_told_in_plain_words(program: Program, limit: int) -> None:
    """Out of memory in any process is never called an internal error."""
    ended = _shell(program, f"ulimit -v {limit}; s3unzip run a.zip out -w 1")
    assert ended.code == 0 or "out of memory" in ended.err, ended.err


@pytest.mark.parametrize(
    ("command", "said"), [("test a.zip", "TMPDIR"), ("run a.zip out", "limit (ulimit -f)")]
)
def test_files_that_cannot_be_written_are_named(program: Program, command: str, said: str) -> None:
    """The message names the variable or the limit that helps."""
    _shell(program, f"ulimit -f 0; s3unzip {command}").ends(6, said)


@pytest.mark.parametrize("words", ["archives out", "outer.zip out --nested 1"])
def test_many_archives_need_few_descriptors(program: Program, words: str) -> None:
    """A run is unlocked when the next one begins."""
    archives = {f"{number}.zip": build(Entry("f")) for number in range(70)}
    program.add("outer.zip", *(Entry(name, archive) for name, archive in archives.items()))
    for name in archives:
        program.add(f"archives/{name}", Entry("f"))
    assert _shell(program, f"ulimit -n 64; s3unzip run {words} -w 1 -q") == (0, "", "")


@pytest.mark.parametrize(
    ("limit", "destination", "at_once", "write"),
    [
        ("-n 64", "s3://out/ --endpoint-url {}", 128, "os.pwrite"),
        pytest.param(
            "-v 1000000", "s3://out/ --endpoint-url {}", 4, "os.pwrite", marks=LIMITS_MEMORY
        ),
        (
            "-n 64",
            "out",
            128,
            "lambda *words, write=os.pwrite: (time.sleep(0.01), write(*words))[1]",
        ),
    ],
    ids=["few files", "little memory", "a disk that takes 10 ms for each write"],
)
def test_a_run_and_its_verification_have_fewer_requests_than_the_limits_allow(
    program: Program, s3: MemoryS3, limit: str, destination: str, at_once: int, write: str
) -> None:
    """4,000 members are written and verified, otherwise by over 100 connections at once."""
    (program.folder / "sitecustomize.py").write_text(f"import os, time\nos.pwrite = {write}\n")
    program.add("many.zip", *(Entry(f"d{number}/f", b"1") for number in range(4_000)))
    assert _shell(
        program,
        f"ulimit {limit}; export PYTHONPATH=.:$PYTHONPATH; "
        f"s3unzip run many.zip {destination.format(s3.url)} -w 1 -q && "
        f"s3unzip verify many.zip {destination.format(s3.url)} --no-records "
        f"--at-once {at_once} >/dev/null",
    ) == (0, "", "")


def test_refused_files_need_few_descriptors(program: Program) -> None:
    """The folder of a refused file does not stay open until the task ends."""
    written = [Entry(f"f{number}") for number in range(40)]
    refused = [Entry(f"d{number}/f") for number in range(100)]
    program.add("both.zip", *written, *refused)
    for entry in refused:
        (program.folder / "out/both" / str(entry.name) / "folder").mkdir(parents=True)
    _shell(program, "ulimit -n 64; s3unzip run both.zip out -w 1").ends(
        1, "40 extracted, 100 failed"
    )


def test_the_same_run_twice_at_once(program: Program) -> None:
    """Two processes: one of them does it, and what it leaves is right."""
    program.add("many.zip", *(Entry(f"f{n}", b"%d" % n * 1000, method=8) for n in range(600)))
    both = [
        subprocess.Popen(
            [*program.command, "run", "many.zip", "out"],
            cwd=program.folder,
            env=os.environ | program.variables,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=HANG_SECONDS)[1] for process in both]
    assert sorted(process.returncode for process in both) in ([0, 0], [0, 2]), said
    assert program.files("out/many") == {f"f{n}": b"%d" % n * 1000 for n in range(600)}


def test_ctrl_c_while_the_output_is_flushed() -> None:
    """The second Ctrl-C ends the wait for a reader that pauses; one line is printed."""
    code = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            sys.stdout = self
            raise KeyboardInterrupt
    def flush(self):
        raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
sys.argv = ["s3unzip", "ls", "a.zip"]
from s3unzip.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "s3unzip: stopped\n")


class SlowRun(HttpServer):
    """A run whose archive comes from this server, which stops sending, of some bytes or of all."""

    def __init__(self, program: Program, stops_at: str | tuple[str, ...] = "bytes=0-") -> None:
        super().__init__(self._answer)
        self.reached = threading.Event()
        self.go_on = threading.Event()
        self._program, self._stops_at = program, stops_at
        self._files = WebFiles({"a.zip": (program.folder / "a.zip").read_bytes()})

    def _answer(self, asked: Asked) -> Reply:
        if asked.method == "GET" and asked.headers["range"].startswith(self._stops_at):
            self.reached.set()
            self.go_on.wait(HANG_SECONDS)
        return self._files(asked)

    def go_on_after(self, path: Path) -> None:
        assert any(path.exists() for _ in looks())
        self.go_on.set()

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start the program in a group of its own; return it when the server has stopped."""
        process = subprocess.Popen(
            [*self._program.command, "run", *words],
            cwd=self._program.folder,
            env={
                **os.environ,
                **self._program.variables,
                # tasks for several workers, each of them worth its start
                "S3UNZIP_TUNING": '{"batch_members": 5, "min_worker_seconds": 0}',
            },
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        assert self.reached.wait(HANG_SECONDS)
        return process

    def stop(
        self,
        process: subprocess.Popen[str],
        number: signal.Signals = signal.SIGINT,
        kill: Callable[[int, int], None] = os.kill,
        times: int = 1,
    ) -> str:
        """Send signals before the server goes on; return what the program said at its end."""
        for _ in range(times):
            kill(process.pid, number)
            await_delivery(process)
        self.go_on.set()
        return process.communicate(timeout=HANG_SECONDS)[1]


def await_delivery(process: subprocess.Popen[str]) -> None:
    """Return when no signal waits any more for the process, as far as its system shows it."""
    pending = re.compile(r"^(?:SigPnd|ShdPnd):\s*0*[1-9a-f]", re.MULTILINE)
    if LINUX:
        assert any(
            not pending.search(Path(f"/proc/{process.pid}/status").read_text()) for _ in looks()
        )
    time.sleep(0.5)  # the program has passed it on to its workers


@pytest.mark.skipif(not LINUX, reason="/proc tells which processes are left")
def test_no_worker_outlives_a_killed_program(program: Program) -> None:
    """The worker waits for a server that sends nothing; it ends as soon as the program does."""
    with SlowRun(program) as slow:
        process = slow.start(f"{slow.url}/a.zip", "out", "-w", "2")
        workers = next(pids for _ in looks() if (pids := descendants(process.pid)))
        process.kill()
        process.communicate()
        # Far below the stall limit.
        assert any(not any(map(is_running, workers)) for _ in looks(20.0))
        slow.go_on.set()


@pytest.mark.parametrize(
    ("number", "code", "kill"), [(signal.SIGTERM, 143, os.kill), (signal.SIGHUP, 129, os.killpg)]
)
def test_sigterm_and_sighup_are_as_ctrl_c(
    program: Program, number: signal.Signals, code: int, kill: Callable[[int, int], None]
) -> None:
    """The run is settled, its advice has the run's id, and `resume` completes it."""
    with SlowRun(program) as slow:
        process = slow.start(f"{slow.url}/a.zip", "out", "-w", "2")
        told = slow.stop(process, number, kill)
        assert process.returncode == code
        (run,) = program.runs()
        assert f"continue with: s3unzip resume {run}" in told
        assert (program.home / "runs" / run / "report.json").exists()
        assert program.run("resume", run, "-w", "1").code == 0
    assert len(program.files("out/a")) == MEMBERS


@pytest.mark.parametrize(
    ("stops_at", "times", "advice"),
    [("bytes=-", 1, ""), ("bytes=0-", 2, "; continue with: s3unzip resume {}")],
)
def test_ctrl_c_that_leaves_no_record_of_members(
    program: Program, stops_at: str, times: int, advice: str
) -> None:
    """Before the directory is read, or twice: the program prints one line without a figure."""
    with SlowRun(program, stops_at) as slow:
        process = slow.start(f"{slow.url}/a.zip", "out", "-w", "2")
        told = slow.stop(process, times=times).splitlines()[-1]
    assert (process.returncode, told) == (
        130,
        f"s3unzip: stopped{advice.format(*program.runs())}",
    )


@pytest.mark.parametrize("workers", ["1", "2"])
def test_abort_stops_the_process_that_works_on_a_run(program: Program, workers: str) -> None:
    """Another process stops the run as Ctrl-C does; what had ended is only told."""
    with SlowRun(program, tuple(f"bytes={digit}" for digit in range(10))) as slow:
        process = slow.start(f"{slow.url}/a.zip", "out", "-w", workers)
        (run,) = program.runs()
        threading.Thread(
            target=slow.go_on_after, args=(program.home / "runs" / run / "stop.json",)
        ).start()
        assert program.run("abort", "latest", "--json").lines == [
            {"run": run, "environment": None, "stopped": True, "uploads": 0}
        ]
        _, told = process.communicate(timeout=HANG_SECONDS)
        assert process.returncode == 130
        assert f"continue with: s3unzip resume {run}" in told
        assert "s3unzip abort" in program.run("show").out
        assert program.run("abort", run).out.startswith(
            f"{run}: it has ended with verdict FAILED; 0 incomplete"
        )
        program.run("runs", "--prune", "0").prints("0 runs removed").says("1 older run stays")
        assert program.run("resume", run, "-w", "1").code == 0
    assert len(program.files("out/a")) == MEMBERS


def test_ctrl_c_stops_several_archives_and_says_how_to_go_on(program: Program) -> None:
    """Exit 130; what had begun can be resumed, and the rest is started again."""
    program.add("first.zip", Entry("f", b"1"))
    program.add("last.zip", Entry("f", b"1"))
    with SlowRun(program) as slow:
        process = slow.start("first.zip", f"{slow.url}/a.zip", "last.zip", "out", "-w", "1")
        told = slow.stop(process)
    assert process.returncode == 130
    assert re.search(
        "stopped: [12] of 3 archives finished; (.*; )?([12] archives? not started|next archive):",
        told,
    )
    assert "\\n" not in told
    assert "s3unzip resume" in told or "run the same command again" in told


TEXTS = [Entry(f"{number}.txt", b"%d" % number * 2_000) for number in range(40)]
# Opens an archive, and prints what forked processes read of its copy, and of a pickled archive.
FORKING = """
import multiprocessing, sys
import s3unzip

source, destination = sys.argv[1:]
archive = s3unzip.open_archive(source)
names = list(archive)
archive.read(names[0])

def read(name):
    return archive.read(name)[:3]

def extract(number):
    return s3unzip.extract(source, f"{destination}{number}", workers=1).extracted

fork = multiprocessing.get_context("fork")
with fork.Pool(4, fork.Barrier(4).wait) as pool:  # all begin at once
    print(set(pool.map(read, names, 1)) - set(map(read, names)))
    print(sum(map(len, pool.map(archive.read, names))), pool.map(extract, range(2)))
"""


@pytest.mark.parametrize(
    ("kind", "source"),
    [("s3", "s3://from/a.zip"), ("botocore", "s3://from/a//b.zip"), ("web", "{web}/a.zip")],
)
def test_forked_processes_read_and_extract(
    program: Program, s3: MemoryS3, kind: str, source: str
) -> None:
    """An archive in S3 or on the web is read and extracted by forks, none hangs.

    None of them uses the connection of their parent, which opens the archive and reads 41 members.
    """
    files = WebFiles({"a.zip": build(*TEXTS)})
    connections: list[int] = []  # of each request; the server has a thread for each

    def answer(request: Asked) -> Reply:
        connections.append(threading.get_ident())
        return files(request)

    for key in ("a.zip", "a//b.zip"):  # obstore cannot name the latter
        s3.buckets["from"].add(key, files.files["a.zip"])
    with HttpServer(answer) as server:
        program.variables |= {
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": s3.url,
            "PYTHONPATH": str(ROOT),
            "PYTHONWARNINGS": "ignore",
        }
        words = (FORKING, source.format(web=server.url), "s3://out/to")
        ended = program.start_as([sys.executable, "-c", *words]).ends(0)
    assert (ended.out.splitlines(), ended.err) == (
        ["set()", f"{sum(len(entry.content) for entry in TEXTS)} [40, 40]"],
        "",
    )
    # Of an archive on the web; the program asks S3 for the others.
    assert connections.count((connections or [0])[0]) == (42 if kind == "web" else 0)
