"""Known vulnerabilities in the locked dependencies, for ``make audit`` and CI.

pip-audit checks every locked distribution against PyPI's advisories. Without a network, the command
prints a message and passes. A finding is a failure.
"""

import subprocess
import sys
import urllib.error
import urllib.request
from importlib.util import find_spec

ADVISORIES = "https://pypi.org/pypi/pip/json"
SECONDS = 10.0


def main() -> int:
    """Audit this environment; return the exit code."""
    if find_spec("pip_audit") is None:
        print("audit: pip-audit is not installed; make it with: uv sync --frozen")
        return 1
    reason = _unreachable()
    if reason is not None:
        print(f"audit: skipped, because pypi.org does not answer ({reason})")
        return 0
    command = (sys.executable, "-m", "pip_audit", "--local", "--skip-editable")
    return subprocess.run((*command, "--progress-spinner", "off"), check=False).returncode


def _unreachable() -> str | None:
    """Return why PyPI is unreachable, None if it is reachable."""
    try:
        with urllib.request.urlopen(ADVISORIES, timeout=SECONDS):
            return None
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        return str(getattr(error, "reason", error))


if __name__ == "__main__":
    sys.exit(main())
