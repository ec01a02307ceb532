"""Commands are loaded when they are used, and have what their help and their messages promise."""

import subprocess
import sys

from s3unzip.cli.main import COMMANDS, load_command


def test_summaries_are_the_commands_own() -> None:
    """The list of commands says what the help of each command begins with."""
    found = {name: load_command(name).get_short_help_str(300) for name in COMMANDS}
    assert found == {name: summary for name, (_, summary) in COMMANDS.items()}


def test_all_but_the_functions_work_without_powertools() -> None:
    """It comes with the extra `functions`; neither commands nor the Python API import it."""
    script = """
import importlib, pkgutil, sys
sys.modules["aws_lambda_powertools"] = sys.modules["aws_xray_sdk"] = None
import s3unzip
for found in pkgutil.walk_packages(s3unzip.__path__, "s3unzip."):
    if not found.name.startswith("s3unzip.aws.") and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
