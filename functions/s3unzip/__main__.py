"""The entry point of the command line.

All slow imports, even `typing`, are inside `run_program`, so that Ctrl-C during an import does not
print a traceback.
"""

import gc
import os
import sys


def main() -> None:
    """Run the command line and end the process with its exit code."""
    try:
        run_program()
    except SystemExit as end:
        from contextlib import suppress

        # A command that failed to write has already reported the error. While a reader is paused,
        # `flush` waits for it, until Ctrl-C.
        with suppress(OSError, KeyboardInterrupt):
            sys.stdout.flush()
        # All files are closed. Python would now wait for threads that an error left behind, and it
        # would free each object, which takes a tenth of the time of a short run.
        os._exit(int(end.code or 0))


def run_program() -> None:
    """Run the command line. Ctrl-C prints one line, never a traceback."""
    try:
        if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
            _start_again_with_utf8()
        # A listing or a plan holds millions of values, and frequent collections would visit them
        # again and again: with Python's threshold of 700 allocations, verifying 100,000 objects
        # takes 3.4 s of CPU time; with this threshold, it takes 2.1 s.
        gc.set_threshold(50_000)
        # One thread of tokio, the runtime of obstore, sends all requests. By default, there is one
        # per processor. A second one gains nothing, because Python's global interpreter lock limits
        # the process. With two, each request wakes more threads: extracting 20,000 small members
        # took a third more thread switches. Worker processes inherit the variable.
        os.environ.setdefault("TOKIO_WORKER_THREADS", "1")
        from s3unzip.cli.terminal import repair_streams

        repair_streams()
        from s3unzip.cli.main import main as run_command

        run_command()
    except KeyboardInterrupt:
        sys.stderr.write("s3unzip: stopped\n")
        sys.exit(130)


def _start_again_with_utf8() -> None:
    """Replace this process with one that encodes file names as UTF-8.

    Other encodings cannot represent most member names. Output keeps the locale's encoding. The new
    interpreter gets the original arguments, because with `-m s3unzip` instead, it could import
    modules from the current folder.
    """
    os.environ["PYTHONUTF8"] = "1"
    os.environ.setdefault("PYTHONIOENCODING", getattr(sys.stdout, "encoding", "utf-8"))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - no shell is needed


if __name__ == "__main__":
    main()
