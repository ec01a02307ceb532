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

        # A command that failed to write has already reported the error. If the reader of a pipe is
        # paused, `flush` waits until the reader continues or the user presses Ctrl-C.
        with suppress(OSError, KeyboardInterrupt):
            sys.stdout.flush()
        # Skip Python's shutdown: it waits for threads that an error left behind, and it frees each
        # object, which takes a tenth of the time of a short run. All files are already closed.
        os._exit(int(end.code or 0))


def run_program() -> None:
    """Run the command line and raise `SystemExit`. Ctrl-C prints one line, never a traceback."""
    try:
        if sys.getfilesystemencoding() != "utf-8" and os.environ.get("PYTHONUTF8") != "1":
            _start_again_with_utf8()
        # A listing or a plan holds millions of values, and frequent garbage collections would
        # traverse all of them each time. Verifying 100,000 objects takes 3.4 s of CPU time with
        # Python's threshold of 700 allocations, and 2.1 s with 50,000.
        gc.set_threshold(50_000)
        # Use one thread of tokio, the runtime of obstore, for all requests; the default is one per
        # processor. A second thread does not help, because Python's global interpreter lock limits
        # the process. With two threads instead of one, extracting 20,000 small members took a third
        # more switches between threads. Worker processes inherit the
        # variable.
        os.environ.setdefault("TOKIO_WORKER_THREADS", "1")
        from s3unzip.cli.terminal import repair_streams

        repair_streams()
        from s3unzip.cli.main import main as run_command

        run_command(sys.argv[1:])
    except KeyboardInterrupt:
        sys.stderr.write("s3unzip: stopped\n")
        sys.exit(130)


def _start_again_with_utf8() -> None:
    """Replace this process with one that encodes file names as UTF-8.

    Other encodings cannot represent most member names. Output keeps the locale's encoding. The new
    interpreter receives the original arguments. The arguments `-m s3unzip` would be wrong: with
    them, Python could import modules from the current folder.
    """
    os.environ["PYTHONUTF8"] = "1"
    os.environ.setdefault("PYTHONIOENCODING", getattr(sys.stdout, "encoding", "utf-8"))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - no shell is needed


if __name__ == "__main__":
    main()
