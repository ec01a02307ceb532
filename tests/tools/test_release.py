"""A release is made only where tag, version and changelog agree."""

import pytest

from tools.release import CHANGELOG, ReleaseError, release_notes

TEXT = """# Changelog

## [Unreleased]

## [1.2.0] - 2026-11-22

### Added

- A thing.

## [1.1.0] - 2026-01-01

## [1.0.0]

- Undated.
"""


def test_notes_are_the_section_of_the_version() -> None:
    """The notes hold that version's changes and no other's; there is a place for the next ones."""
    assert release_notes("v1.2.0", "1.2.0", TEXT) == "### Added\n\n- A thing.\n"
    assert "## [Unreleased]" in CHANGELOG.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("tag", "version", "why"),
    [
        ("v1.2.1", "1.2.0", "the tag is v1.2.1, but the version is 1.2.0"),
        ("1.2.0", "1.2.0", "tag v1.2.0"),
        ("v1.1.0", "1.1.0", "is empty"),
        ("v1.0.0", "1.0.0", "no section"),
        ("v9.9.9", "9.9.9", "no section"),
    ],
)
def test_a_release_that_does_not_agree_is_refused(tag: str, version: str, why: str) -> None:
    """Each disagreement is refused with what to do."""
    with pytest.raises(ReleaseError, match=why):
        release_notes(tag, version, TEXT)
