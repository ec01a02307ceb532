"""The command line as a process, quiet from its first moment.

What takes time to import, `typing` too, is imported inside of `main`, where Ctrl-C is caught.
"""

import gc
import os
import sys

# Objects that are made between two collections of the youngest ones. Each visits what is alive, and
# a listing or a plan has millions of values: verify of 100,000 objects takes 2.1 s of CPU, with
# Python's 700 it takes 3.4.
COLLECT_AFTER = 50_000


def main() -> None:
    """Run the command line; Ctrl-C is no traceback, also while that is imported."""
    try:
        if sys.getfilesystemencoding() != "utf-8" and "PYTHONUTF8" not in os.environ:
            _start_again_with_utf8()
        gc.set_threshold(COLLECT_AFTER)
        from s3unzip.cli.terminal import mend_streams

        mend_streams()
        if sys.argv[1:] == ["--version"]:  # without the imports of a command line
            from s3unzip.version import __version__

            sys.stdout.write(f"s3unzip {__version__}\n")
            sys.exit(0)
        from s3unzip.cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.stderr.write("s3unzip: stopped\n")
        sys.exit(130)


def _start_again_with_utf8() -> None:
    """Replace this process by one whose file names are UTF-8, as those of archives are.

    Another locale has no bytes for most names. What is printed has the locale's encoding still.
    It is started as this one was: `-m` would put the current folder before the libraries.
    """
    os.environ["PYTHONUTF8"] = "1"
    os.environ.setdefault("PYTHONIOENCODING", getattr(sys.stdout, "encoding", "utf-8"))
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself


if __name__ == "__main__":
    main()
