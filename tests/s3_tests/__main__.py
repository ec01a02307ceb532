"""Run the named tests of ceph/s3-tests against the store in memory, VersityGW and MiniStack.

``python -m tests.s3_tests --folder FOLDER`` takes a clone of https://github.com/ceph/s3-tests. Its
tests run in an environment of their own. Exit code 1: a test failed that differences.toml does not
list, or one that it lists did not fail.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

from embedded.ministack import EmbeddedAws
from tests.s3_tests.memory_server import run_memory_s3
from tests.servers import VERSITY, run_versitygw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
TESTS = "s3tests/functional/test_s3.py"
NEEDS = (
    "boto3",
    "gevent",
    "httplib2",
    "isodate",
    "lxml",
    "munch",
    "pytest",
    "pytz",
    "pyyaml",
    "requests",
)
SECTIONS = ("s3 main", "s3 alt", "s3 tenant", "iam", "iam root", "iam alt root")
USER = """[{section}]
display_name = {name}
user_id = {name}
email = {name}@example.com
tenant = {name}
access_key = {access}
secret_key = {secret}
"""
HEAD = """[DEFAULT]
host = {host}
port = {port}
is_secure = False
ssl_verify = False
[fixtures]
bucket prefix = s3unzip-{{random}}-
"""


@contextmanager
def run_ministack() -> Iterator[str]:
    """Run the embedded AWS; yield its URL."""
    with EmbeddedAws() as aws:
        yield aws.endpoint


SERVERS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "memory": run_memory_s3,
    "versitygw": run_versitygw,
    "ministack": run_ministack,
}


def settings_of(url: str) -> str:
    """Return the text of the settings file that the tests want for a server."""
    parts = urlsplit(url)
    access, secret = VERSITY["AWS_ACCESS_KEY_ID"], VERSITY["AWS_SECRET_ACCESS_KEY"]
    users = (
        USER.format(section=one, name=one.replace(" ", "-"), access=access, secret=secret)
        for one in SECTIONS
    )
    return HEAD.format(host=parts.hostname, port=parts.port) + "".join(users)


def run_tests(folder: Path, url: str, names: list[str]) -> set[str]:
    """Run tests against a server; return the names of those that failed."""
    with tempfile.TemporaryDirectory(prefix="s3unzip-s3-tests-") as scratch:
        settings, result = Path(scratch, "s3tests.conf"), Path(scratch, "result.xml")
        settings.write_text(settings_of(url))
        uv = os.environ.get("UV") or shutil.which("uv") or ".uv/bin/uv"
        command = [str(Path(uv).absolute()), "run", "--no-project", "--isolated", "--quiet"]
        command += [word for need in NEEDS for word in ("--with", need)]
        command += ["pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={result}"]
        command += [f"{TESTS}::{name}" for name in names]
        environment = {**os.environ, "S3TEST_CONF": str(settings), "PYTHONPATH": ""}
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        if not result.exists():
            sys.exit(f"the tests did not run:\n{ended.stdout[-2_000:]}{ended.stderr[-2_000:]}")
        return read_failures(result, names)


def read_failures(result: Path, names: list[str]) -> set[str]:
    """Return which of the tests did not pass, by pytest's report; one that did not run is one."""
    root = ET.parse(result).getroot()  # noqa: S314 - pytest wrote it
    passed = {
        case.get("name", "")
        for case in root.iter("testcase")
        if all(case.find(bad) is None for bad in ("failure", "error", "skipped"))
    }
    return set(names) - passed


def tell(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run the tests, and compare what failed with what is listed."""
    parser = argparse.ArgumentParser(prog="python -m tests.s3_tests", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="a clone of ceph/s3-tests")
    parser.add_argument("--server", choices=SERVERS, action="append", help="only these")
    chosen = parser.parse_args()
    if not (chosen.folder / TESTS).exists():
        parser.error(f"{chosen.folder}: no {TESTS} there; clone github.com/ceph/s3-tests")
    named = tomllib.loads((HERE / "named.toml").read_text())
    differences = tomllib.loads((HERE / "differences.toml").read_text())
    wrong = 0
    for server in chosen.server or SERVERS:
        listed = differences.get(server, {}).keys()
        names = [name for group in named.values() for name in group]
        with SERVERS[server]() as url:
            failed = run_tests(chosen.folder, url, names)
        for group, tests in named.items():
            passed = sum(name not in failed for name in tests)
            tell(f"{server:10} {group:10} {passed:3} of {len(tests):3} pass")
        for name in sorted(failed - listed):
            tell(f"{server}: {name} fails, and is not listed")
        for name in sorted(listed - failed):
            tell(f"{server}: {name} passes, and is listed as different")
        wrong += len(failed ^ listed)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
