"""Select members by globs and names, and build the keys of the members."""

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
from s3unzip.printable import choose_form
from s3unzip.run_ids import archive_stem
from s3unzip.zip import Index

MARKER = "_SUCCESS"  # name of the object that the option `marker` writes below the run's prefix
MAX_COMPARED = 20_000  # maximum number of names to compare in a search for similar names
MAX_PAIRS = 25_000_000  # maximum number of character pairs that difflib compares, in about a second
MAX_NEAR = 3  # maximum number of similar names shown for a name or glob


class KeyTemplate(Struct, frozen=True):
    """How keys are built: a constant prefix, then a text with fields that depend on the member.

    The fields of the member are its path ``{member}``, its folder ``{dir}``, the last part of its
    path ``{name}``, and the ``{stem}`` and ``{suffix}`` of the name. The fields of the archive are
    ``{archive_stem}``, ``{archive_dir}``, ``{archive_key}`` and ``{bucket}``.
    """

    prefix: str
    after_prefix: str  # the text with the fields; "{member}" in almost every run
    archive: dict[str, str]  # values of the fields that describe the archive
    ending: str = ""  # ".gz" if members stay compressed
    strip: int = 0  # number of leading folders of the path that the key leaves out

    @property
    def plain(self) -> bool:
        """Whether each key is the prefix followed by the path."""
        return self.after_prefix == "{member}" and not self.ending and not self.strip

    @property
    def marker(self) -> str:
        """The key of the object that marks a completed run."""
        return self.prefix + MARKER

    def key_of(self) -> Callable[[str], str]:
        """Return the function that builds the key from the path of a member."""
        if self.plain:
            return self.prefix.__add__
        return self._make_key

    def folder_key(self, path: str) -> str | None:
        """Return the key of the folder `path`, without a trailing slash.

        Returns None if the template is not a prefix followed by ``{member}``, which stands for the
        whole path. Also returns None if `strip` removes the whole path.
        """
        # The last part is the path without the folders that `strip` removes.
        parts = path.strip("/").split("/", self.strip)
        if self.after_prefix != "{member}" or len(parts) <= self.strip:
            return None
        return self.prefix + parts[-1]

    def _make_key(self, path: str) -> str:
        if path.count("/") < self.strip:
            # Only the path of a refused member can be so short: the path was cut, or lost its
            # leading slashes. The slash makes the key of the outcome unique, because the keys of
            # other members have no slash after the prefix.
            return f"{self.prefix}/{path}"
        path = path.split("/", self.strip)[-1]
        folder, name = posixpath.split(path)
        stem, suffix = posixpath.splitext(name)
        member = {"member": path, "dir": folder, "name": name, "stem": stem, "suffix": suffix}
        filled = _fill(self.after_prefix, self.archive | member)
        # An empty field, such as the folder of a top-level member, leaves a double slash.
        return self.prefix + re.sub(r"/{2,}", "/", filled).lstrip("/") + self.ending


PATHS = KeyTemplate("", "{member}", {})  # the key of each member is its path


def parse_template(request: Request | Report) -> KeyTemplate:
    """Return the template from which a run builds its keys.

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
    # All keys of the run begin with the text before the first field of the member. Every template
    # contains such a field.
    first_field = min(
        field.start() for field in KEY_FIELD.finditer(text) if field[1] in MEMBER_FIELDS
    )
    # Remove "./" at the beginning and after a slash. If the destination is a folder, "a//" also
    # becomes "a/". In S3, "a//" and "a/" are different prefixes.
    prefix = re.sub(r"(^|(?<=/))\./", "", _fill(text[:first_field], archive)).lstrip("/")
    if request.destination.store.has_folders:
        prefix = re.sub("/{2,}", "/", prefix)
    return KeyTemplate(
        request.destination.key + prefix,
        text[first_field:],
        archive,
        ending=".gz" if request.options.as_gzip is GzipForm.SUFFIX else "",
        strip=request.options.strip_components,
    )


def members_folder(run: Request | Report) -> Location:
    """Return the folder or the prefix that contains a run's members; the key ends with a slash.

    If the archive was refused, the run has no members, and the destination itself is returned.
    """
    if isinstance(run, Report) and run.verdict is Verdict.REJECTED:
        return run.destination
    prefix = parse_template(run).prefix
    # Without a slash, `rfind` returns -1, so the key is empty and stands for the whole bucket.
    return replace(run.destination, key=prefix[: prefix.rfind("/") + 1])


def _escape_dots(path: str) -> str:
    """Return the path of an archive, with escaped dots in the parts ``.`` and ``..``.

    S3 allows such parts in a key. Without the escapes, the name of an archive could lead out of
    the destination.
    """
    return "/".join(
        part.replace(".", "%2E") if part in NO_NAMES else part
        for part in path.strip("/").split("/")
    )


def _fill(text: str, values: dict[str, str]) -> str:
    """Return `text` with the values of its fields; a field without a value is left unchanged."""
    return KEY_FIELD.sub(lambda match: values.get(match[1], match[0]), text)


def selector(options: Options) -> Callable[[str], bool] | None:
    """Return a function that tests whether a path is selected; None if every path is selected."""
    strip = options.strip_components
    if not (options.include or options.exclude or options.names or strip):
        return None
    include = [compile_name(pattern) for pattern in options.include]
    exclude = [compile_name(pattern) for pattern in options.exclude]
    names = frozenset(options.names)

    def is_selected(path: str) -> bool:
        if names and path not in names:
            return False
        if path.count("/") < strip:  # stripping would remove the whole path
            return False
        if include and not any(matches(path) for matches in include):
            return False
        return not any(matches(path) for matches in exclude)

    return is_selected


def makes_folders(options: Options) -> bool:
    """Return whether a run creates all selected folders of the archive, even empty ones.

    If the options name members or limit the number of members, the run creates only the folders
    that contain selected members.
    """
    return not options.names and options.limit is None


def check_selection(
    options: Options, index: Index, warn: Callable[[str], object] | None = None
) -> None:
    """Call `warn` with a sentence for each glob that matches no member; refuse an empty selection.

    An archive without members is refused only if the options name or include members.

    Raises:
        NothingSelectedError: a name in the options is not the name of a member, or nothing is
            selected.
    """
    is_empty = not index.selected and not index.failures
    missing_names, unmatched_globs = find_unmatched(
        options, lambda: index.paths, selected_count=len(index.selected)
    )
    causes = missing_names
    if is_empty:  # a glob without a match is refused only if nothing is selected
        causes = missing_names or unmatched_globs
    if causes:
        raise NothingSelectedError("; ".join(causes) + "; s3unzip ls lists them all")
    if is_empty and index.excluded:
        excluding = "the options"
        # Name the globs only if no other option can have excluded members.
        if options.exclude and not (options.include or options.names or options.strip_components):
            excluding = " ".join(f"--exclude {glob}" for glob in options.exclude)
        raise NothingSelectedError(
            "nothing is selected: "
            + choose_form(
                index.excluded, "the only member is", f"all {index.excluded:,} members are"
            )
            + f" excluded by {excluding}"
        )
    if warn is not None:
        for sentence in unmatched_globs:
            warn(sentence)


def find_unmatched(
    options: Options, paths: Callable[[], Iterable[str]], selected_count: int
) -> tuple[list[str], list[str]]:
    """Return a sentence for each name that no member has, and for each glob that matches no member.

    A pattern with a leading slash and without wildcards, such as ``/a.txt``, is a name.

    Args:
        options: the names and globs.
        paths: function that returns the names of all members; it can be called several times.
        selected_count: number of selected members.
    """
    missing = set(options.names)
    if missing:  # without names, the paths need not be read
        missing.difference_update(paths())
    missing_names = [
        f"no member is called {name!r}{_show_near(near_names(name, paths()))}"
        for name in options.names
        if name in missing
    ]
    unmatched_globs: list[str] = []
    # Each selected member matches one of the globs in `include`. If there is only one glob, this
    # glob has a match.
    if selected_count and len(options.include) == 1:
        return missing_names, unmatched_globs
    for pattern in options.include:
        if any(map(compile_name(pattern), paths())):
            continue
        near = _show_near(_near_glob(pattern, paths))
        if pattern.startswith("/") and not has_wildcards(pattern):
            missing_names.append(f"no member is called {pattern.lstrip('/')!r}{near}")
        else:
            unmatched_globs.append(f"no member matches {pattern!r}{near}")
    return missing_names, unmatched_globs


def _show_near(near: Sequence[str]) -> str:
    if not near:
        return ""
    return f"; near: {', '.join(map(repr, near))}"


def near_names(name: str, paths: Iterable[str]) -> tuple[str, ...]:
    """Return the paths that `name` might mean, ignoring case.

    These are the paths that equal `name` or end with a slash and `name`. If there are none, paths
    with a similar spelling are returned.
    """
    import difflib  # noqa: PLC0415 - needed only after a mistake

    compared = list(islice(paths, MAX_COMPARED))
    lower_name = name.lower()
    with_ending = [path for path in compared if f"/{path.lower()}".endswith(f"/{lower_name}")]
    if with_ending:
        return tuple(with_ending[:MAX_NEAR])
    # The time to compare two names grows roughly with the square of their length, so a long name is
    # compared with fewer paths.
    max_paths = MAX_PAIRS // max(1, len(lower_name) ** 2)
    by_lower = {path.lower(): path for path in compared[:max_paths]}
    return tuple(
        by_lower[path] for path in difflib.get_close_matches(lower_name, by_lower, MAX_NEAR)
    )


def _near_glob(pattern: str, paths: Callable[[], Iterable[str]]) -> tuple[str, ...]:
    """Return the names that `pattern` matches if case is ignored.

    If the pattern matches no name, the function returns similar names. If no name is similar, the
    function returns names with a similar suffix.
    """
    return (
        tuple(islice(filter(compile_glob(pattern, any_case=True), paths()), MAX_NEAR))
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
    return tuple(
        path
        for near_suffix in difflib.get_close_matches(suffix, filter(None, by_suffix), n=1)
        for path in by_suffix[near_suffix][:MAX_NEAR]
    )
