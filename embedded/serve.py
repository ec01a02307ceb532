"""`make local-aws`: the embedded AWS alone, for the commands of docs/deploy.md without an account.

It prints the variables that a shell needs, and runs until Ctrl-C or SIGTERM, in the background,
too. One of the variables makes the CDK CLI use the package as its asset: Lambda's asset is for
arm64, but here the functions run on this machine.
"""

import argparse
import contextlib
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from embedded.deploy import make_asset, start_aws
from embedded.ministack import EmbeddedAwsError
from infra import RefusedError


@contextlib.contextmanager
def serve(port: int = 0, wait_scale: float = 1.0) -> Iterator[dict[str, str]]:
    """Run the embedded AWS; yield the variables of a shell that deploys to it."""
    with tempfile.TemporaryDirectory(prefix="s3unzip-asset-") as folder:
        variables = make_asset(Path(folder) / "code")
        with start_aws(port=port, wait_scale=wait_scale) as aws:
            yield {**aws.environment, **variables}


def main() -> None:
    """Run one; print its variables."""
    parser = argparse.ArgumentParser(prog="embedded.serve", description=__doc__)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the files are deleted
    parser.add_argument("--port", type=int, default=0, help="default: a free one")
    try:
        with serve(parser.parse_args().port) as variables:
            for name, value in variables.items():
                sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
            sys.stdout.write("# Running until Ctrl-C.\n")
            sys.stdout.flush()
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    except (EmbeddedAwsError, RefusedError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
