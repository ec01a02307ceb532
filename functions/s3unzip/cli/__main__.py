"""The command line as a process, quiet from its first moment.

What takes time to import is imported inside of `main`, where Ctrl-C is caught.
"""

import sys
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line; Ctrl-C is no traceback, also while that is imported."""
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
