"""`make demo` installs only what it needs: package, stack libraries and the embedded AWS."""

import re
import subprocess
import sys

from tests.docs.commands import ROOT

DEVELOPMENT = (
    "cfnlint",
    "greenlet",
    "hypothesis",
    "importlinter",
    "jsonschema",
    "moto",
    "mypy",
    "pytest",
    "selenium",
)
BLOCKED = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"{{name}} is for development", name=name)
sys.meta_path.insert(0, Block())
import embedded.demo, infra.application, infra.environment
"""


def test_the_demo_runs_without_development_packages() -> None:
    """What the demo and the synthesis import is none of them."""
    code = BLOCKED.format(names=DEVELOPMENT)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2_000:]


def test_make_demo_installs_no_development_packages() -> None:
    """Its environment has the group of the infrastructure only, and keeps what is there already."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    demo = re.search(r"^demo: (.*?) *##", makefile, re.MULTILINE)
    assert demo is not None
    assert demo[1].split() == [".venv/demo", "embedded/.venv/ready"]
    rule = makefile.partition("\n.venv/demo:")[2].partition("\n\n")[0]
    assert "--inexact --no-default-groups --group infra" in rule
    assert "--compile-bytecode" not in rule
