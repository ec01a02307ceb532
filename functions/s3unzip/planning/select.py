"""Select members by globs and names, and make the keys of the members."""

import posixpath
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import PurePosixPath

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.errors import NothingSelectedError, UsageError
from s3unzip.globs import compile_glob, compile_name, has_wildcards
from s3unzip.model import (
    KEY_FIELD,
    MEMBER_FIELDS,
    NO_NAMES,
    GzipForm,
    Location,
    Options,
    Report,
    Request,
    Verdict,
)
from s3unzip.run_ids import archive_stem
from s3unzip.zip import Index

MARKER = "_SUCCESS"  # name of the object that the option `marker` writes below the run's prefix
MAX_COMPARED = 20_000  # maximum number of names that are searched for similar ones
MAX_PAIRS = 25_000_000  # maximum number of character pairs that difflib compares: about a second
MAX_NEAR = 3


class KeyTemplate(Struct, frozen=True):
    """How keys are made: a constant prefix, then text and fields that depend on the member.

    The fields of the member are its path ``{member}``, its folder ``{dir}``, its last part
    ``{name}``, and the ``{stem}`` and ``{suffix}`` of the name. The fields of the archive are
    ``{archive_stem}``, ``{archive_dir}``, ``{archive_key}`` and ``{bucket}``.
    """

    prefix: str
    fields: str  # is "{member}" in nearly every run
    archive: dict[str, str]  # values of the fields of the archive
    ending: str = ""  # ".gz" if members stay compressed
    strip: int = 0  # number of leading folders of the path that the key leaves out

    @property
    def plain(self) -> bool:
        """Whether each key is the prefix and the path."""
        return self.fields == "{member}" and not self.ending and not self.strip

    @property
    def marker(self) -> str:
        """The key of the object that marks a completed run."""
        return self.prefix + MARKER

    def key_of(self) -> Callable[[str], str]:
        """Return the function that makes the key from the path; it is called once per member."""
        if self.plain:
            return self.prefix.__add__
        return self._render

    def folder_key(self, path: str) -> str | None:
        """Return the key of the folder `path`, without a trailing slash.

        Returns None if the keys of the members do not contain their folders (``{name}``), or if
        `strip` leaves out the whole path.
        """
        parts = path.strip("/").split("/", self.strip)
        if self.fields != "{member}" or len(parts) <= self.strip:
            return None
        return self.prefix + parts[-1]

    def _render(self, path: str) -> str:
        """Return the key of a member; fields may be empty, so double slashes are merged."""
        if path.count("/") < self.strip:  # the member is not extracted, but its key must be unique
            return f"{self.prefix}/{path}"
        path = path.split("/", self.strip)[-1]
        folder, name = posixpath.split(path)
        stem, suffix = posixpath.splitext(name)
        member = {"member": path, "dir": folder, "name": name, "stem": stem, "suffix": suffix}
        after_prefix = _fill(self.fields, self.archive | member)
        return self.prefix + re.sub(r"/{2,}", "/", after_prefix).lstrip("/") + self.ending


PATHS = KeyTemplate("", "{member}", {})  # the key of each member is its path


def parse_template(request: Request | Report) -> KeyTemplate:
    """Return the key template of `request`.

    Raises:
        UsageError: keys would lie outside the prefix of the destination.
    """
    text = request.options.key_template
    source = request.source
    archive = {
        "archive_stem": archive_stem(source),
        "archive_dir": _escape_dots(posixpath.dirname(source.name)),
        "archive_key": _escape_dots(source.name),
        "bucket": source.public.bucket,
    }
    if text.startswith("/") or ".." in _fill(text, archive).split("/"):
        raise UsageError(f"key template {text!r} leaves the destination's prefix")
    # All keys of the run are identical up to the first field of the member; every template has one.
    first_field = min(
        field.start() for field in KEY_FIELD.finditer(text) if field[1] in MEMBER_FIELDS
    )
    prefix = _fill(text[:first_field], archive).lstrip("/")
    if request.destination.store.has_folders:
        prefix = re.sub(r"(?<![^/])\.?/", "", prefix)  # "./a//" is "a/", as in paths
    return KeyTemplate(
        request.destination.key + prefix,  # the key of a folder is its path
        text[first_field:],
        archive,
        ending=".gz" if request.options.as_gzip is GzipForm.SUFFIX else "",
        strip=request.options.strip_components,
    )


def members_folder(run: Request | Report) -> Location:
    """Return the folder or the prefix of a run's members, which ends in a slash or is empty.

    If the archive was refused, the run has no members, and the destination itself is returned.
    """
    destination = run.destination
    if isinstance(run, Report) and run.verdict is Verdict.REJECTED:
        return destination
    prefix = parse_template(run).prefix
    # `rfind` returns -1 if there is no slash: then the folder is empty.
    return replace(destination, key=prefix[: prefix.rfind("/") + 1])


def _escape_dots(path: str) -> str:
    """Return the path of an archive with each part ``.`` or ``..`` escaped.

    S3 allows such parts in a key. Without the escapes, the name of an archive could lead outside
    the destination.
    """
    parts = path.strip("/").split("/")
    return "/".join(part.replace(".", "%2E") if part in NO_NAMES else part for part in parts)


def _fill(text: str, values: dict[str, str]) -> str:
    """Return `text` with the values of its fields; a field without a value is left unchanged."""
    return KEY_FIELD.sub(lambda match: values.get(match[1], match[0]), text)


def selector(options: Options) -> Callable[[str], bool] | None:
    """Return the function that tests whether a path is selected; None: all paths are selected."""
    strip = options.strip_components
    if not (options.include or options.exclude or options.names or strip):
        return None
    include = [compile_name(pattern) for pattern in options.include]
    exclude = [compile_name(pattern) for pattern in options.exclude]
    names = frozenset(options.names)

    def is_selected(path: str) -> bool:
        # From a path with too few folders, `strip_components` leaves nothing.
        if (names and path not in names) or path.count("/") < strip:
            return False
        if include and not any(matches(path) for matches in include):
            return False
        return not any(matches(path) for matches in exclude)

    return is_selected


def makes_folders(options: Options) -> bool:
    """Return whether a run into a folder makes the folders of the archive, including empty ones.

    If the options name members or limit their number, only folders that contain selected members
    are made.
    """
    return not options.names and options.limit is None


def check_selection(options: Options, index: Index) -> list[str]:
    """Return warnings about globs that match no member; refuse an empty selection.

    Raises:
        NothingSelectedError: a name matches no member, or nothing is selected.
    """
    is_empty = not index.selected and not index.failures
    names, globs = find_unmatched(options, lambda: index.paths, len(index.selected))
    refused = names
    if is_empty and not names:  # nothing is selected, so the globs are refused below
        refused = globs
    if refused:
        raise NothingSelectedError("; ".join(refused) + "; s3unzip ls lists them all")
    if is_empty and index.excluded:
        excluding = " ".join(f"--exclude {glob}" for glob in options.exclude) or "the options"
        raise NothingSelectedError(
            f"nothing is selected: all {index.excluded:,} members are excluded by {excluding}"
        )
    return globs


def find_unmatched(
    options: Options, paths: Callable[[], Iterable[str]], selected: int
) -> tuple[list[str], list[str]]:
    """Return sentences about the names and the globs that match no member.

    A rooted pattern without wildcards, such as ``/a.txt``, is a name.

    Args:
        options: the names and globs.
        paths: function that returns the names of all members; it can be called several times.
        selected: number of selected members.
    """
    missing = set(options.names)
    if missing:
        missing.difference_update(paths())
    names = [
        f"no member is called {name!r}{_show_near(near_names(name, paths()))}"
        for name in options.names
        if name in missing
    ]
    globs: list[str] = []
    if selected and len(options.include) == 1:  # a selected member must match the only glob
        return names, globs
    for pattern in options.include:
        if any(map(compile_name(pattern), paths())):
            continue
        near = _show_near(_near_glob(pattern, paths))
        if pattern.startswith("/") and not has_wildcards(pattern):
            names.append(f"no member is called {pattern.lstrip('/')!r}{near}")
        else:
            globs.append(f"no member matches {pattern!r}{near}")
    return names, globs


def _show_near(near: Sequence[str]) -> str:
    if not near:
        return ""
    return f"; near: {', '.join(map(repr, near))}"


def near_names(name: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that `name` might mean, ignoring case.

    These are the paths that are equal to `name`, or that end in a slash and `name`. If there are
    none, paths with a similar spelling are returned.
    """
    import difflib  # noqa: PLC0415 - needed only after a mistake

    compared = list(islice(paths, MAX_COMPARED))
    low = name.lower()
    with_ending = [path for path in compared if f"/{path.lower()}".endswith(f"/{low}")]
    if with_ending:
        return tuple(with_ending[:MAX_NEAR])
    # The time to compare two names grows with about the square of their length, so long names are
    # compared with fewer paths.
    by_low = {path.lower(): path for path in compared[: MAX_PAIRS // max(1, len(low) ** 2)]}
    return tuple(map(by_low.__getitem__, difflib.get_close_matches(low, by_low, MAX_NEAR)))


def _near_glob(pattern: str, paths: Callable[[], Iterable[str]]) -> tuple[str, ...]:
    """Return the names that `pattern` matches if case is ignored.

    If there are none, similar names are returned; if these do not exist either, names with a
    similar suffix.
    """
    matches = compile_glob(pattern, any_case=True)
    return (
        tuple(islice(filter(matches, paths()), MAX_NEAR))
        or near_names(pattern.strip("*?").lstrip("/"), paths())
        or _near_suffix(pattern, paths())
    )


def _near_suffix(pattern: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Return names whose suffix is similar to that of `pattern`: a.csv for ``*.cvs``."""
    import difflib  # noqa: PLC0415 - needed only after a mistake

    suffix = PurePosixPath(pattern).suffix
    if not suffix:
        return ()
    by_suffix: dict[str, list[str]] = {}
    for path in islice(paths, MAX_COMPARED):
        by_suffix.setdefault(PurePosixPath(path).suffix, []).append(path)
    nearest = difflib.get_close_matches(suffix, filter(None, by_suffix), 1)  # at most one suffix
    return tuple(path for near in nearest for path in by_suffix[near][:MAX_NEAR])
