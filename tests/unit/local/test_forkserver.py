"""The process that workers are forked from, born both ways: as a fork, and as an interpreter."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, NoReturn

import pytest

from s3unzip.errors import ServiceFaultError
from s3unzip.local.processes.forkserver import MAX_RESTARTS, Child, ForkServer
from tests.patience import HANG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = HANG_SECONDS
LINUX = sys.platform == "linux"
BIRTHS = [
    pytest.param("fork", marks=pytest.mark.skipif(not LINUX, reason="only Linux counts threads")),
    "spawn",
]


def run(birth: str, *lines: str, **env: str | None) -> subprocess.CompletedProcess[str]:
    """Run a program that has one thread, or two, to its end and to that of all that it started.

    Variables of `env` that are None are taken away.
    """
    code = [
        "import os, signal, sys, threading, time",
        "from s3unzip.local.processes.forkserver import ForkServer",
        "from tests.unit.local import test_forkserver as test",
        # A job in the background of a shell begins with Ctrl-C ignored.
        "signal.signal(signal.SIGINT, signal.default_int_handler)",
        "other = threading.Thread(target=threading.Event().wait, daemon=True)",
        "other.start()" if birth == "spawn" else "",
        *lines,
    ]
    return subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        env={name: value for name, value in (os.environ | env).items() if value is not None},
        capture_output=True,  # which ends when the last of them has closed its output
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )


def run_program(birth: str, *lines: str, **env: str | None) -> str:
    """Run such a program, which must end well and without a word of errors; return its output."""
    done = run(birth, *lines, **env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def echo(connection: Connection) -> None:
    """Be a worker that sends back what it is sent."""
    while True:
        try:
            connection.send(connection.recv())
        except EOFError:
            return


def tell_parents(connection: Connection) -> None:
    """Be a worker that tells who forked it, and how Python was started there."""
    connection.send((os.getppid(), sys.orig_argv))


def fail(connection: Connection) -> NoReturn:
    """Be a worker with a bug."""
    raise LookupError(f"no answer for {type(connection).__name__}")


def hang(connection: Connection) -> None:
    """Be a worker that is deaf to being stopped."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection.send("deaf")
    time.sleep(SECONDS)


@pytest.fixture
def server() -> Iterator[ForkServer]:
    """A server of this process."""
    with ForkServer() as server:
        yield server


def ended(child: Child) -> bool:
    """Wait for the end of a worker's connection."""
    assert wait([child.connection], SECONDS)
    try:
        child.connection.recv()
    except (EOFError, ConnectionError):
        return True
    return False


@pytest.mark.parametrize("birth", BIRTHS)
def test_workers_serve_their_connections(birth: str) -> None:
    """Concurrent workers serve one connection each; the server of the given kind forks them."""
    printed = run_program(
        birth,
        "with ForkServer(['colorsys']) as server:",
        "    workers = [server.start(test.echo) for _ in range(2)]",
        "    for number, worker in enumerate(workers): worker.connection.send(number)",
        "    print(*(worker.connection.recv() for worker in workers))",
        "    for worker in workers: server.reap(worker)",
        "    teller = server.start(test.tell_parents)",
        "    parent, arguments = teller.connection.recv()",
        "    print(parent == server.pid, 'colorsys' in sys.modules, arguments == sys.orig_argv)",
        "    server.reap(teller)",
    )
    forked = birth == "fork"  # then the program has imported, and they began as it did
    assert printed == f"0 1\nTrue {forked} {forked}\n"


@pytest.mark.parametrize("birth", BIRTHS)
def test_an_early_ctrl_c_is_the_programs(birth: str, tmp_path: Path) -> None:
    """A terminal sends it to all processes; the server continues, even during its imports."""
    (tmp_path / "slow_to_import.py").write_text("import time; time.sleep(0.5)")
    printed = run_program(
        birth,
        "with ForkServer(['slow_to_import']) as server:",
        "    os.kill(server.pid, signal.SIGINT)",
        "    try: os.kill(os.getpid(), signal.SIGINT); time.sleep(5)",
        "    except KeyboardInterrupt: print('heard')",
        "    worker = server.start(test.echo)",
        "    worker.connection.send('works')",
        "    print(worker.connection.recv())",
        "    server.reap(worker)",
        PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]),
    )
    assert printed == "heard\nworks\n"


@pytest.mark.parametrize("birth", BIRTHS)
def test_nothing_that_was_open_stays_open(birth: str) -> None:
    """A lock or a pipe of the program ends with it, or when it closes it."""
    printed = run_program(
        birth,
        "hear, tell = os.pipe()",
        "with ForkServer() as server:",
        "    os.close(tell)",
        "    print(os.read(hear, 1))",
    )
    assert printed == "b''\n"


@pytest.mark.parametrize("birth", BIRTHS)
def test_all_end_with_a_killed_program(birth: str) -> None:
    """They notice the ends of their connections."""
    done = run(
        birth,
        "server = ForkServer()",
        "worker = server.start(test.echo)",
        "worker.connection.send('works')",
        "print(worker.connection.recv(), flush=True)",
        "os.kill(os.getpid(), signal.SIGKILL)",
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "works\n", "")


def test_a_killed_worker_is_heard_of_and_reaped(server: ForkServer) -> None:
    """Its connection ends; no other process gets its process id until it is reaped."""
    child = server.start(echo)
    os.kill(child.pid, signal.SIGKILL)
    assert ended(child)
    os.kill(child.pid, 0)
    server.reap(child)
    with pytest.raises(ProcessLookupError):
        os.kill(child.pid, 0)


def test_a_stopped_worker_may_still_answer(server: ForkServer) -> None:
    """It gets no more data and ends, and its remaining messages disturb nothing."""
    child = server.start(echo)
    for _ in range(10):
        child.connection.send(bytes(10_000))
    child.ask_to_stop()
    assert child.ends_by(time.monotonic() + SECONDS)
    server.reap(child)


def test_a_worker_that_does_not_stop_is_killed(server: ForkServer) -> None:
    """The wait for it is never longer than its limit."""
    child = server.start(hang)
    assert child.connection.recv() == "deaf"
    child.ask_to_stop()
    assert not child.ends_by(time.monotonic() + 0.1)
    child.kill()
    assert child.ends_by(time.monotonic() + SECONDS)
    server.reap(child)


def test_a_bug_in_a_worker_ends_it(capfd: pytest.CaptureFixture[str]) -> None:
    """One line reports it, and only that worker ends."""
    with ForkServer() as server:
        child = server.start(fail)
        assert ended(child)
        server.reap(child)
        other = server.start(echo)
        other.connection.send("still here")
        assert other.connection.recv() == "still here"
        server.reap(other)
    told = capfd.readouterr().err
    assert told.startswith("s3unzip: internal error in a worker")
    assert told.endswith("LookupError('no answer for Connection')\n")


def test_a_killed_server_is_replaced(server: ForkServer) -> None:
    """Its workers end with it; the next worker has another server."""
    child, killed = server.start(echo), server.pid
    os.kill(killed, signal.SIGKILL)
    assert ended(child)
    server.reap(child)
    other = server.start(echo)
    assert server.pid != killed
    other.connection.send("works")
    assert other.connection.recv() == "works"
    server.reap(other)


def test_a_server_that_is_killed_each_time_is_given_up(server: ForkServer) -> None:
    """Something must be wrong; one line says so."""
    for _ in range(MAX_RESTARTS):
        os.kill(server.pid, signal.SIGKILL)
        server.reap(server.start(echo))
    os.kill(server.pid, signal.SIGKILL)
    with pytest.raises(ServiceFaultError, match="was killed 6 times"):
        server.start(echo)


@pytest.mark.parametrize("birth", BIRTHS)
@pytest.mark.parametrize("reaped", [False, True], ids=["busy", "waited for"])
def test_a_busy_worker_ends_with_a_killed_program(birth: str, *, reaped: bool) -> None:
    """It waits for something else than its connection, and is deaf to SIGTERM."""
    began = time.monotonic()
    done = run(
        birth,
        "server = ForkServer()",
        "worker = server.start(test.hang)",
        "print(worker.connection.recv(), flush=True)",
        "reaper = threading.Thread(target=server.reap, args=[worker])",
        "reaper.start(); time.sleep(0.3)" if reaped else "",
        "os.kill(os.getpid(), signal.SIGKILL)",
    )
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGKILL, "deaf\n", "")
    assert time.monotonic() - began < SECONDS  # which is how long the worker would sleep


@pytest.mark.parametrize("birth", BIRTHS)
def test_signals_of_a_terminal_and_a_service_manager_are_the_programs(birth: str) -> None:
    """They are sent to all processes of a group; the server continues."""
    printed = run_program(
        birth,
        "with ForkServer() as server:",
        "    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):",
        "        os.kill(server.pid, number)",
        "    worker = server.start(test.echo)",
        "    worker.connection.send('works')",
        "    print(worker.connection.recv())",
        "    server.reap(worker)",
    )
    assert printed == "works\n"


def test_a_full_process_table_is_named() -> None:
    """The system has no process left for this user: one line says so, in its words."""
    if not LINUX:
        pytest.skip("only Linux limits the processes of another process")
    printed = run_program(
        "fork",
        "import resource",
        "from s3unzip.errors import ServiceFaultError",
        "if os.getuid() == 0: os.setuid(65534)",  # root is not limited
        "with ForkServer() as server:",
        "    resource.prlimit(server.pid, resource.RLIMIT_NPROC, (0, 0))",
        "    try: server.start(test.echo)",
        "    except ServiceFaultError as error: print(error)",
        S3UNZIP_MEASURED=None,  # another user cannot write what `make coverage` collects
    )
    assert printed.startswith("no worker process can be started: Resource temporarily")
