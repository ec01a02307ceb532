"""The parent of the command line's processes: it has already imported what they import.

`tests.forking` starts it as ``python -m tests.fork_parent``. Its standard input is a socket. Each
message asks for one process and has its three standard streams, and a pipe that says how it ends.
The new process has the variables and the folder of the message, and runs the command line as
``python -m s3unzip.cli`` does. What it does not do is to start an interpreter and to import
libraries: that is most of the CPU time of a short command.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import pkgutil
import select
import signal
import socket
import struct
import sys
import threading
from importlib import import_module
from runpy import run_module
from typing import TYPE_CHECKING, Any, NoReturn

import botocore.session

from embedded.fork_server import become
from tests.botocore_constants import share_constants

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAM = "s3unzip.cli"
NUMBER = struct.Struct("!i")  # on the pipe: the process id, then a return code as of `subprocess`
MAX_REQUEST = 1 << 18  # bytes
STREAMS = 3
# Of the package: what only functions on AWS use, and numpy, which most commands never import.
LEFT_OUT = ("s3unzip.handlers", "s3unzip.aws", "s3unzip.deflate.boundary")
# What is imported when it is first used, by the package or by boto3.
LIBRARIES = (
    *("boto3.session", "boto3.s3.inject", "botocore.docs.docstring", "botocore.retries.standard"),
    *("botocore.httpsession", "dateutil.parser", "encodings.idna", "rich.console"),
)


def main() -> None:
    """Import the modules, then make processes until the socket ends."""
    for name in (*_list_modules(), *LIBRARIES):
        import_module(name)
    share_constants()
    session = botocore.session.get_session()
    session.set_credentials("nobody", "nothing")  # instead of a search for them
    session.create_client("s3", "us-east-1")  # reads its model, for all processes
    gc.freeze()  # a collection would write to all objects, so each process would copy them
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all
    with socket.socket(fileno=os.dup(0)) as messages:
        request = _await_own(messages)
    if request:
        sys.argv[1:] = request["words"]
        sys.path[0] = request["folder"]
        try:
            run_module(PROGRAM, run_name="__main__", alter_sys=True)
        except SystemExit as end:
            if isinstance(end.code, int):
                _end(end.code)
            raise


def _list_modules() -> Iterator[str]:
    package = import_module("s3unzip")
    for module in pkgutil.walk_packages(package.__path__, "s3unzip."):
        if not module.name.startswith(LEFT_OUT) and not module.name.endswith("__main__"):
            yield module.name


def _await_own(messages: socket.socket) -> dict[str, Any]:
    """Make a process for each message; in it return the message, here nothing at the end."""
    pipes: dict[int, int] = {}  # by the descriptor of a process
    while True:
        for ready in select.select([messages.fileno(), *pipes], [], [])[0]:
            if ready in pipes:
                _tell_end(ready, pipes.pop(ready))
                continue
            message, files, _, _ = socket.recv_fds(messages, MAX_REQUEST, STREAMS + 1)
            if not message:
                return {}
            pid = os.fork()
            if not pid:
                return _begin(json.loads(message), files, messages)
            os.write(files[STREAMS], NUMBER.pack(pid))
            pipes[os.pidfd_open(pid)] = files[STREAMS]
            for file in files[:STREAMS]:
                os.close(file)


def _tell_end(process: int, pipe: int) -> None:
    ended = os.waitid(os.P_PIDFD, process, os.WEXITED)
    if ended:
        by_itself = ended.si_code == os.CLD_EXITED
        os.write(pipe, NUMBER.pack(ended.si_status if by_itself else -ended.si_status))
    os.close(pipe)
    os.close(process)


def _begin(request: dict[str, Any], files: list[int], messages: socket.socket) -> dict[str, Any]:
    """Be a process as the system starts it, with no other descriptors than the streams."""
    become(request["variables"], request["folder"], files[:STREAMS])
    messages.detach()
    os.closerange(STREAMS, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _open_streams()
    return request


def _open_streams() -> None:
    """Open the standard streams again: they remember what the parent's could do."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        new = open(  # noqa: SIM115 - a descriptor, for as long as the process
            number,
            "w" if number else "r",
            1 if name == "stderr" else -1,
            old.encoding,
            old.errors,
            "\n",
            closefd=False,
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _end(code: int) -> NoReturn:
    """End as an interpreter does, up to the moment when it takes its objects apart.

    That would write to all memory of the parent, so the process would copy it: 35 ms of CPU.
    """
    vars(threading)["_shutdown"]()  # waits for threads
    atexit._run_exitfuncs()  # as multiprocessing ends its forks
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    main()
