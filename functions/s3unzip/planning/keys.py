"""Build the key of a member from its path."""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from msgspec import Struct

from s3unzip.errors import UsageError
from s3unzip.model import GzipForm, archive_stem

if TYPE_CHECKING:
    from collections.abc import Callable

    from s3unzip.model import Request

MEMBER_FIELDS = frozenset({"member", "dir", "name", "stem", "suffix"})
ARCHIVE_FIELDS = frozenset({"archive_stem", "archive_dir", "archive_key", "bucket"})
GZIP_ENDING = ".gz"
MARKER = "_SUCCESS"  # below the run's prefix, where the option `marker` asks for it
_FIELD = re.compile(r"\{([^{}]*)\}")


class KeyTemplate(Struct, frozen=True):
    """How keys are made: a constant prefix, then what depends on the member.

    Fields: ``{member}`` the path, ``{dir}`` its folder, ``{name}`` its last
    part, ``{stem}`` and ``{suffix}`` of that; ``{archive_stem}``,
    ``{archive_dir}``, ``{archive_key}``, ``{bucket}`` of the source.
    """

    prefix: str
    rest: str  # "{member}" in nearly every run
    archive: dict[str, str]  # values of the archive's fields
    ending: str = ""  # ".gz" where members are kept compressed
    strip: int = 0  # leading folders of the path that are left out

    @property
    def plain(self) -> bool:
        """Whether a key is just the prefix and the path."""
        return self.rest == "{member}" and not self.ending and not self.strip

    @property
    def marker(self) -> str:
        """The key that says that the run was completed."""
        return marker_key(self.prefix)

    def key_of(self) -> Callable[[str], str]:
        """Return the function from path to key; it is called once for each member."""
        if self.plain:
            return self.prefix.__add__
        return self._render

    def folder_key(self, path: str) -> str | None:
        """Return the key of the folder `path`, without a slash at its end.

        None: members of this folder do not have keys below it (``{name}``), or
        all of its path is left out.
        """
        parts = path.strip("/").split("/", self.strip)
        if self.rest != "{member}" or len(parts) <= self.strip:
            return None
        return self.prefix + parts[-1]

    def _render(self, path: str) -> str:
        if path.count("/") < self.strip:  # not extracted: a key that no other member has
            return f"{self.prefix}/{path}"
        path = path.split("/", self.strip)[-1]
        folder, name = posixpath.split(path)
        stem, suffix = posixpath.splitext(name)
        member = {"member": path, "dir": folder, "name": name, "stem": stem, "suffix": suffix}
        rest = _fill(self.rest, self.archive | member)
        return self.prefix + re.sub(r"/{2,}", "/", rest).lstrip("/") + self.ending


PATHS = KeyTemplate("", "{member}", {})  # each member's key is its path


def marker_key(prefix: str) -> str:
    """Return the key of the completion marker of a run with this key prefix."""
    return prefix + MARKER


def parse_template(request: Request) -> KeyTemplate:
    """Return the key template of `request`."""
    text = request.options.key_template
    names = set(_FIELD.findall(text))
    if names - MEMBER_FIELDS - ARCHIVE_FIELDS or re.search(r"[{}]", _FIELD.sub("", text)):
        known = ", ".join(sorted(MEMBER_FIELDS | ARCHIVE_FIELDS))
        raise UsageError(f"key template {text!r}: unknown or broken field; known: {known}")
    if not names & {"member", "name", "stem"}:
        raise UsageError(f"key template {text!r} gives every member one key: add {{member}}")
    source = request.source
    archive = {
        "archive_stem": archive_stem(source),
        "archive_dir": posixpath.dirname(source.key).strip("/"),
        "archive_key": source.key.strip("/"),
        "bucket": source.bucket,
    }
    cut = min(match.start() for match in _FIELD.finditer(text) if match[1] in MEMBER_FIELDS)
    prefix = _fill(text[:cut], archive)
    if text.startswith("/") or ".." in (prefix + _fill(text[cut:], archive)).split("/"):
        raise UsageError(f"key template {text!r} leaves the destination's prefix")
    ending = GZIP_ENDING if request.options.as_gzip is GzipForm.SUFFIX else ""
    # A bucket's keys are whole, and so are a folder's: paths that begin with the folder's.
    base = request.destination.key
    return KeyTemplate(
        base + prefix.lstrip("/"), text[cut:], archive, ending, request.options.strip_components
    )


def _fill(text: str, values: dict[str, str]) -> str:
    return _FIELD.sub(lambda match: values.get(match[1], match[0]), text)
