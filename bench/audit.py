"""Known vulnerabilities in the locked dependencies, for ``make audit`` and CI.

pip-audit asks PyPI for the advisories of every installed distribution. A vulnerability is a
failure. What was not checked is said: without a network, or where the index has no advisories, that
is all distributions. It is a failure where `REQUIRE_TOOLS` is set, as in CI.
"""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

REQUIRE_TOOLS = "S3UNZIP_REQUIRE_TOOLS"


def main() -> int:
    """Audit this environment; return the exit code."""
    if find_spec("pip_audit") is None:
        print("audit: pip-audit is not installed; make it with: uv sync --frozen")
        return 1
    required = bool(os.environ.get(REQUIRE_TOOLS))
    reason = _unreachable()
    if reason is not None:
        print(f"audit: nothing was checked, because pypi.org does not answer ({reason})")
        return int(required)
    command = (sys.executable, "-m", "pip_audit", "--local", "--skip-editable", "--format", "json")
    done = subprocess.run(
        (*command, "--progress-spinner", "off"), capture_output=True, text=True, check=False
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        print(f"audit: pip-audit failed\n{done.stderr}")
        return 1
    code, words = judge(report, required=required)
    print(words)
    return code


def judge(report: Mapping[str, Any], *, required: bool) -> tuple[int, str]:
    """Return the exit code and the words for what pip-audit found.

    Args:
        report: as pip-audit prints it as JSON.
        required: whether it is a failure that a distribution was not checked.
    """
    skipped = [entry for entry in report["dependencies"] if "skip_reason" in entry]
    unchecked = [entry["name"] for entry in skipped if "editable" not in entry["skip_reason"]]
    checked = [entry for entry in report["dependencies"] if "vulns" in entry]
    vulnerable = [entry for entry in checked if entry["vulns"]]
    lines = [
        f"{entry['name']} {entry['version']}: {hole['id']}, "
        f"mended in {', '.join(hole['fix_versions']) or 'no version'}"
        for entry in vulnerable
        for hole in entry["vulns"]
    ]
    total = len(checked) + len(unchecked)
    count = (
        f"{len(vulnerable)} with a known vulnerability" if checked else "nothing is known of them"
    )
    lines.append(f"audit: {len(checked)} of {total} distributions were checked; {count}")
    if unchecked:
        names = ", ".join(unchecked[:5]) + (", ..." if len(unchecked) > 5 else "")
        lines.append(f"audit: the index has no advisories for {len(unchecked)}: {names}")
    return int(bool(vulnerable) or (required and bool(unchecked))), "\n".join(lines)


def _unreachable() -> str | None:
    try:
        with urllib.request.urlopen("https://pypi.org/pypi/pip/json", timeout=10.0):
            return None
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        return str(getattr(error, "reason", error))


if __name__ == "__main__":
    sys.exit(main())
