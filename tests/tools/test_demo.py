"""`make demo` installs only what it needs: package, stack libraries and the embedded AWS."""

import os
import sys

from tests.docs.commands import ROOT
from tests.support.bare import run_program

BLOCKED = """
import sys
DEVELOPMENT = {"cfnlint", "greenlet", "hypothesis", "importlinter", "jsonschema", "moto", "mypy"}
DEVELOPMENT |= {"pytest", "selenium"}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in DEVELOPMENT:
            raise ModuleNotFoundError(f"{name} is for development", name=name)
sys.meta_path.insert(0, Block())
import embedded.demo, infra.application, infra.environment
"""


def test_the_demo_runs_without_development_packages() -> None:
    """What the demo and the synthesis import is none of them."""
    run_program([sys.executable, "-c", BLOCKED], os.environ)


def test_make_demo_installs_no_development_packages() -> None:
    """Its environment has the group of the infrastructure only, and keeps what is there already."""
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert "\ndemo: .venv/demo embedded/.venv/ready  ##" in makefile
    rule = makefile.partition("\n.venv/demo:")[2].partition("\n\n")[0]
    assert "--inexact --no-default-groups --group infra" in rule
