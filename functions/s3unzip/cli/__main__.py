"""The command line as a process, quiet from its first moment.

What takes time to import is imported inside of `main`, where Ctrl-C is caught.
"""

import gc
import sys
from typing import NoReturn

# Objects that are made between two collections of the youngest ones. Each visits what is alive, and
# a listing or a plan has millions of values: verify of 100,000 objects takes 2.1 s of CPU, with
# Python's 700 it takes 3.4.
COLLECT_AFTER = 50_000


def main() -> NoReturn:
    """Run the command line; Ctrl-C is no traceback, also while that is imported."""
    gc.set_threshold(COLLECT_AFTER)
    try:
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


if __name__ == "__main__":
    main()
