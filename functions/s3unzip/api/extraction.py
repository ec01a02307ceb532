"""Extract an archive on this machine.

>>> import tempfile, zipfile
>>> from pathlib import Path
>>> import s3unzip
>>> folder = tempfile.TemporaryDirectory()
>>> path = Path(folder.name, "a.zip")
>>> with zipfile.ZipFile(path, "w") as new:
...     new.writestr("hello.txt", "hello")
>>> report = s3unzip.extract(path, folder.name, s3unzip.Options(key_template="out/{member}"))
>>> report.verdict.value, report.extracted, report.failed
('COMPLETED', 1, 0)
>>> Path(folder.name, "out", "hello.txt").read_text()
'hello'
>>> folder.cleanup()
"""

import glob
import os
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from s3unzip.api.options import (
    as_text,
    at_endpoint,
    check_arguments,
    make_policy,
    parse_after_success,
)
from s3unzip.context import Progress
from s3unzip.errors import NotFoundError, StorageError, UsageError
from s3unzip.globs import WILDCARDS, compile_glob, has_wildcards
from s3unzip.local.destination_objects import check_safe_to_delete, clear_extra
from s3unzip.local.machine import Machine, open_machine
from s3unzip.model import (
    AfterSuccess,
    Location,
    NestedRun,
    OnConflict,
    Options,
    Report,
    Request,
    SourceAction,
)
from s3unzip.planning.select import parse_template
from s3unzip.settings import Tuning
from s3unzip.stores import Stores
from s3unzip.stores.archives import advise_name
from s3unzip.stores.calls import Calls
from s3unzip.stores.config import StoreConfig, parse_destination, parse_source, split_bucket
from s3unzip.stores.listing import list_pages
from s3unzip.stores.open import OpenedStores
from s3unzip.stores.ports import Clock, StoredObject
from s3unzip.zip import Limits

_ARCHIVE = re.compile(r"\.zip(\.0{2,}1)?\Z", re.IGNORECASE)  # also a first part, ".zip.001"


def extract(  # noqa: PLR0913 - options of a public function
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    options: Options | None = None,
    *,
    password: bytes | str | None = None,
    limits: Limits | None = None,
    workers: int | None = None,
    tuning: Tuning | None = None,
    max_cost: float | None = None,
    after_success: str | None = None,
    endpoint_url: str | None = None,
    stores: StoreConfig | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], object] | None = None,
    delete_extra: Callable[[Sequence[StoredObject]], bool] | None = None,
) -> Report:
    """Extract an archive with processes on this machine; return a report, even if members failed.

    Args:
        source: ``s3://bucket/key``, a path, or an ``http://`` or ``https://`` URL.
        destination: ``s3://bucket/prefix`` or a folder.
        options: which members to extract, under which keys, and what to do if a key already exists.
        password: password for encrypted members (a string is encoded as UTF-8); not recorded.
        limits: limits on the archive, as for `open_archive`.
        workers: maximum number of processes, including this one. None means one for each processor.
        tuning: how to divide the work. None means the defaults for the number of workers.
        max_cost: maximum cost of each run in dollars. A run with a higher estimate writes nothing.
        after_success: action on the archive after a complete run: ``delete`` or ``tag=NAME=VALUE``.
        endpoint_url: URL of the S3 server. None means the variable ``AWS_ENDPOINT_URL``, or AWS.
        stores: how to reach S3 and web servers, and where to keep records.
        progress: object whose methods are called during the run.
        warn: function called with a message for each glob that matches no member.
        delete_extra: called with the extra objects below the prefix; returns True to delete them.

    Raises:
        UsageError: an argument is wrong, nothing is selected, or the cost is too high.
        StorageError, ServiceFaultError: a store refused a request, or failed during planning.
        InterruptedRunError: Ctrl-C was pressed; finished members are recorded.
    """
    check_arguments(workers=workers, tuning=tuning, max_cost=max_cost, delete_extra=delete_extra)
    target = parse_destination(as_text(destination))
    config = at_endpoint(stores, endpoint_url)
    policy = make_policy(options or Options(), password, target, limits)
    options = _note_password(options or Options(), password)
    request = make_request(parse_source(as_text(source)), target, options, after_success)
    if delete_extra is not None:  # with `str`, messages use the Python names of options
        check_safe_to_delete(request, config.work, OpenedStores(config), "delete_extra", naming=str)
    with open_machine(config, policy, tuning, workers, progress=progress) as machine:
        return extract_one(machine, request, warn, delete_extra, max_cost=max_cost)[0]


def _note_password(options: Options, password: bytes | str | None) -> Options:
    """Return the options to record: they show that a password was given, but do not contain it."""
    if password is None:
        return options
    return replace(options, password_ref=options.password_ref or "argument")


def make_request(
    source: Location, destination: Location, options: Options, after_success: str | None
) -> Request:
    """Return the request of a run; `after_success` is ``delete``, ``tag=NAME=VALUE`` or None."""
    return Request(
        source,
        destination,
        options,
        after_success=parse_after_success(after_success, source, options),
    )


def extract_one(
    machine: Machine,
    request: Request,
    warn: Callable[[str], object] | None,
    confirm: Callable[[Sequence[StoredObject]], bool] | None = None,
    max_cost: float | None = None,
) -> tuple[Report, list[NestedRun]]:
    """Extract an archive, delete extra objects if confirmed, and extract nested archives.

    Returns:
        The report of the archive, and the results of its nested archives.
    """
    report = machine.run(request, machine.progress.planned, warn, max_cost)
    try:
        if confirm is not None:
            report = clear_extra(report, machine.context, confirm)
    finally:  # report the run even if objects cannot be deleted
        machine.progress.reported(report)
    return report, machine.run_nested(report, max_cost)


def names_several(word: str) -> bool:
    """Return whether `word` looks like a folder, a prefix or a glob; send no request to a store."""
    scheme, _, path = word.partition("://")
    if not path:  # a path on this machine, or "s3://", which `parse_source` refuses
        is_glob = has_wildcards(word) and not Path(word).exists()
        # `Path("")` is the current folder, but an empty word names nothing.
        return is_glob or (word != "" and Path(word).is_dir())
    location = Location(scheme.lower(), *split_bucket(path))
    return location.store.has_prefixes and (
        not location.key or location.key.endswith("/") or has_wildcards(location.key)
    )


def names_one(word: str, stores: Stores) -> bool:
    """Return whether `word` names one archive; the key of an object may look like a glob."""
    if not names_several(word):
        return True
    bucket, key = split_bucket(word.partition("://")[2])  # a local glob has no bucket or key
    if not has_wildcards(key):  # a folder, a prefix or a local glob
        return False
    location = Location("s3", bucket, key)
    try:
        _make_calls().run("head", partial(stores.source(location).stat, location), "source")
    except StorageError:
        # The object does not exist, or access is refused. Listing the glob reports a refusal.
        return False
    return True


def find_archives(words: Sequence[str], config: StoreConfig) -> list[Location]:
    """Return the archives that `words` name, in the order of the words and without duplicates.

    A folder or a prefix names the archives below it, at any depth. The names of these archives end
    in ``.zip`` or ``.zip.001``, in upper or lower case. A glob matches archives with any suffix,
    but not the other parts of a split archive (``a.z01``, ``a.zip.002``). In a glob, ``**`` matches
    slashes and ``*`` does not. A word that looks like a glob but is the key of an object names that
    object.

    Raises:
        NotFoundError: a folder or a prefix contains no archive, or a glob matches none.
    """
    archives: dict[Location, None] = {}  # the dict is used as an ordered set
    stores = open_sources(config)
    for word in words:
        if names_one(word, stores):
            archives[parse_source(word)] = None
        else:
            archives |= dict.fromkeys(_list_archives(word, stores))
    return list(archives)


def _list_archives(word: str, stores: Stores) -> list[Location]:
    """Return the archives that `word` names; raise `NotFoundError` if there are none."""
    if "://" in word:
        named = _list_objects(word, stores)
    else:
        named = [parse_source(str(path)) for path in sorted(_list_files(word))]
    # For a later piece (a.zip.002) or an earlier part (a.z01), the advice is to give another file.
    archives = [archive for archive in named if advise_name(archive) is None]
    if archives:
        return archives
    if has_wildcards(word) and not Path(word).is_dir():
        raise NotFoundError(f"{word}: no archive matches")
    raise NotFoundError(f"{word}: no archive is there: nothing below has a name that ends in .zip")


def _list_objects(word: str, stores: Stores) -> list[Location]:
    """Return the archives below a prefix in S3, or all objects that a glob matches."""
    bucket, key = split_bucket(word.partition("://")[2])
    prefix, is_selected = select_keys(word)
    pages = list_pages(
        stores.destination(Location("s3", bucket, "")),  # sources cannot list
        prefix,
        partial(_make_calls().paced, "list"),
    )
    return [
        Location("s3", bucket, listed.key)
        for page in pages
        for listed in page.objects
        if is_selected(listed.key)
        # A glob can name archives with any suffix.
        and (has_wildcards(key) or _ARCHIVE.search(listed.key))
    ]


def _list_files(word: str) -> Iterator[Path]:
    """Yield the archives below a folder, or the files that match a glob."""
    if Path(word).is_dir():
        for top, _, names in os.walk(word):
            yield from (Path(top, name) for name in names if _ARCHIVE.search(name))
    else:
        # `Path.glob` would refuse absolute paths.
        yield from filter(Path.is_file, map(Path, glob.glob(word, recursive=True)))  # noqa: PTH207


def check_prefixes_differ(requests: Sequence[Request]) -> None:
    """Refuse archives that would be extracted to the same prefix.

    If the key template does not mention the archive, all archives are meant to share a prefix. A
    shared prefix is also refused if the archives are deleted afterwards and members may overwrite
    each other, because an overwritten member would be lost.
    """
    sources: dict[str, Location] = {}  # the first source of each prefix
    for request in requests:
        prefix = parse_template(request).prefix  # a wrong template is refused before any run begins
        first_source = sources.setdefault(prefix, request.source)
        is_sharing_meant = "{archive" not in request.options.key_template
        loses_members = (
            request.after_success == AfterSuccess(SourceAction.DELETE)
            and request.options.on_conflict is not OnConflict.NEVER
        )
        if first_source == request.source or (is_sharing_meant and not loses_members):
            continue
        own_destination = "extract each archive into its own DEST"
        remedy = "--on-conflict never" if is_sharing_meant else own_destination
        raise UsageError(
            f"{first_source} and {request.source} would both be extracted to "
            f"{prefix or request.destination}, where one may overwrite members of the other: "
            f"give --key-template '{{archive_key}}/{{member}}', or {remedy}"
        )


def open_sources(config: StoreConfig) -> Stores:
    """Return stores that can list archives.

    Only a destination can list keys. Therefore the destinations of these stores have the settings
    of the sources. If a setting of a destination is None, the setting of the source is used.
    """
    return OpenedStores(
        replace(
            config,
            destination_endpoint_url=None,
            destination_region=None,
            destination_profile=None,
            destination_unsigned=config.unsigned,  # a flag cannot be None
            destination_owner=None,
            destination_kms_key=None,
        )
    )


def select_keys(word: str) -> tuple[str, Callable[[str], object]]:
    """Return the prefix to list for a URL, and a test for the keys that the URL selects.

    The URL ends in a key, a prefix or a glob. A glob is compared with the whole key. An object
    whose key is the text of the glob is also selected. Keys that mark folders are not selected.
    """
    _, key = split_bucket(word.partition("://")[2])
    if not names_several(word):
        return key, lambda listed: listed == key
    prefix = fixed_part(key)
    if prefix == key:  # not a glob: all keys below the prefix
        return prefix, is_object
    glob = compile_glob(f"/{key}")  # as in .gitignore, the slash anchors the glob at the start
    return prefix, lambda listed: is_object(listed) and (listed == key or glob(listed))


def is_object(key: str) -> bool:
    """Return whether a listed key belongs to an object; the key of a folder ends in a slash."""
    return not key.endswith("/")


def _make_calls() -> Calls:
    return Calls(Clock(), Tuning().retry_seconds, at_once=1)


def fixed_part(key: str) -> str:
    """Return the part of a glob before its first wildcard: all matching keys begin with it."""
    return re.split(f"[{re.escape(''.join(WILDCARDS))}]", key, maxsplit=1)[0]
