"""What all functions share: the modules that are imported before their processes begin."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from embedded.deploy import PRELOAD, prepare_dependencies
from embedded.ministack import HOME, PYTHON
from s3unzip.settings import PROCESS_VARIABLES, Variable

# Imports what the parent of the functions imports; prints its threads, the modules, and the
# variables that were read.
PROGRAM = """
import json, os, sys
read = set()
class Recorder(type(os.environ)):
    def __getitem__(self, name):
        read.add(name)
        return super().__getitem__(name)
    def __contains__(self, name):
        read.add(name)
        return super().__contains__(name)
    def get(self, name, default=None):
        read.add(name)
        return super().get(name, default)
sys.path.append(sys.argv[1])
import fork_server
os.environ.__class__ = Recorder
fork_server.preload()
threads = len(os.listdir("/proc/self/task"))
print(json.dumps([threads, sorted(sys.modules), sorted(read)]))
"""


@pytest.fixture(scope="module")
def preloaded() -> tuple[int, list[str], set[str]]:
    """The threads, the modules and the variables read, in the parent of the functions."""
    done = subprocess.run(
        [str(PYTHON), "-P", "-c", PROGRAM, str(HOME)],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(prepare_dependencies()),
            "EMBEDDED_PRELOAD": PRELOAD,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[Any] = json.loads(done.stdout)
    threads, modules, read = found
    return threads, modules, set(read)


def test_a_fork_has_all_threads_of_its_parent(
    preloaded: tuple[int, list[str], set[str]],
) -> None:
    """No import starts a thread, not even that of numpy: a fork would not have it."""
    threads, modules, _ = preloaded
    assert "numpy" in modules
    assert threads == 1


def test_no_module_read_a_variable_of_a_function(
    preloaded: tuple[int, list[str], set[str]],
) -> None:
    """What is imported before a function has its variables depends on none that the stack sets."""
    _, _, read = preloaded
    assert "EMBEDDED_PRELOAD" in read
    own = {*PROCESS_VARIABLES, *Variable, "POWERTOOLS_LOG_LEVEL", "POWERTOOLS_SERVICE_NAME"}
    assert read.isdisjoint(own | {"POWERTOOLS_METRICS_NAMESPACE", "AWS_ENDPOINT_URL", "AWS_REGION"})


def test_the_package_and_what_reads_variables_stay_cold(
    preloaded: tuple[int, list[str], set[str]],
) -> None:
    """The asset, AWS's runtime client and the X-Ray SDK are imported by each function itself."""
    _, modules, _ = preloaded
    packages = {module.partition(".")[0] for module in modules}
    assert packages.isdisjoint({"s3unzip", "awslambdaric", "runtime_client", "aws_xray_sdk"})
