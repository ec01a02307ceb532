"""The parent of the functions' processes: it has already imported what most of them import.

MiniStack starts it with the first function, by `embedded.strict.lambda_processes`, as ``python -P
fork_server.py``. Its standard input is a socket. Each message asks for one process and has the pipe
for its output. The new process has the variables and the folder of the message and becomes
`embedded.sandbox`, as if that program had been started. It has a state of its own, as each cold
start has, but the interpreter and its libraries are not read again. Without this, they take most of
the CPU time of a cold start.

Environment: ``EMBEDDED_PRELOAD``, further modules to import, with commas between them.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import time
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SANDBOX = Path(__file__).resolve().parent / "sandbox.py"
MAX_REQUEST = 1 << 18  # bytes; a function's own variables have at most 4 KiB
# What AWS's runtime client imports. Not the client itself, nor its extension module, which read the
# variables of the function when they are imported.
CLIENT = ("http", "logging", "simplejson", "traceback")


def main() -> None:
    """Import the modules, then make processes until the socket ends."""
    sandbox = _load(SANDBOX)
    preload()
    gc.freeze()  # a collection would write to all objects, so each process would copy them
    request = _await_own()
    if request:
        sys.argv = [str(SANDBOX), request["folder"]]
        sandbox.main()


def preload() -> None:
    """Import the modules. They leave no thread behind, because a fork would not have it."""
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # else numpy's OpenBLAS starts threads
    vars(sys)["modules"]["awscrt"] = None  # as in the sandbox, where a comment says why
    for name in (*CLIENT, *filter(None, os.environ.get("EMBEDDED_PRELOAD", "").split(","))):
        import_module(name)


def _load(path: Path) -> Any:
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _await_own() -> dict[str, Any]:
    """Make a process for each message; in it return the message, here nothing at the end."""
    with socket.socket(fileno=os.dup(0)) as messages:
        while True:
            message, files, _, _ = socket.recv_fds(messages, MAX_REQUEST, 1)
            if not message:
                return {}
            if _is_new(messages):
                break
            os.close(files[0])
    request: dict[str, Any] = json.loads(message)
    with Path(os.devnull).open("rb") as nothing:
        become(request["variables"], request["folder"], (nothing.fileno(), files[0], files[0]))
    os.close(files[0])
    return request


def _is_new(messages: socket.socket) -> bool:
    """Make a process and answer with its number; True in that process.

    Its parent ends at once, so MiniStack becomes its parent and learns how it ends.
    """
    reading, writing = os.pipe()
    between = os.fork()
    if between:
        os.waitpid(between, 0)
        messages.send(os.read(reading, 32))
    elif pid := os.fork():
        os.write(writing, str(pid).encode())
        os._exit(0)
    os.close(reading)
    os.close(writing)
    return not between


def become(variables: Mapping[str, str], folder: str, streams: Sequence[int]) -> None:
    """Take what a process gets from the one that starts it.

    Args:
        variables: its environment.
        folder: its working folder.
        streams: open descriptors; they become its standard input, output and errors.
    """
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()
    os.chdir(folder)


if __name__ == "__main__":
    main()
