"""``make audit``: what was checked, what was not, and when it fails."""

from typing import Any

import pytest

from bench.audit import judge

SOUND: dict[str, Any] = {"name": "sound", "version": "1.0", "vulns": []}
HOLED: dict[str, Any] = {
    "name": "holed",
    "version": "2.0",
    "vulns": [{"id": "PYSEC-2026-1", "fix_versions": ["2.1"]}],
}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found on PyPI"}
OURS = {"name": "s3unzip", "skip_reason": "distribution marked as editable"}


@pytest.mark.parametrize(
    ("dependencies", "code", "code_in_ci", "line"),
    [
        ([SOUND, OURS], 0, 0, "1 of 1 distributions were checked; 0 with a known"),
        ([SOUND, HOLED], 1, 1, "holed 2.0: PYSEC-2026-1, mended in 2.1"),
        ([SOUND, UNKNOWN], 0, 1, "1 of 2 distributions were checked; 0 with a known"),
        ([UNKNOWN, OURS], 0, 1, "0 of 1 distributions were checked; nothing is known of them"),
    ],
)
def test_an_audit_says_what_it_checked(
    dependencies: list[dict[str, Any]], code: int, code_in_ci: int, line: str
) -> None:
    """A hole always fails; a distribution that was not checked is named, and fails in CI."""
    assert judge({"dependencies": dependencies}, required=False)[0] == code
    assert judge({"dependencies": dependencies}, required=True)[0] == code_in_ci
    assert line in judge({"dependencies": dependencies}, required=True)[1]
