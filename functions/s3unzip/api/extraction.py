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
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from s3unzip.api.options import at_endpoint, judge_selection, make_policy, parse_after_success
from s3unzip.context import Progress
from s3unzip.errors import AccessDeniedError, NotFoundError, StorageError, UsageError
from s3unzip.globs import WILDCARDS, compile_glob, has_wildcards
from s3unzip.local.extra import check_extra, clear_extra
from s3unzip.local.machine import Machine, open_machine
from s3unzip.model import Location, Options, Report, Request
from s3unzip.planning.plan import Plan
from s3unzip.planning.select import parse_template
from s3unzip.settings import Tuning
from s3unzip.stores import Stores
from s3unzip.stores.calls import Calls
from s3unzip.stores.clock import LocalClock
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.listing import Page, list_pages
from s3unzip.stores.locations import parse_destination, parse_source, split_bucket
from s3unzip.stores.open import open_stores
from s3unzip.stores.ports import ListedObject


def extract(  # noqa: PLR0913 - options of a public function
    source: str | os.PathLike[str],
    destination: str | os.PathLike[str],
    options: Options | None = None,
    *,
    password: bytes | str | None = None,
    workers: int | None = None,
    tuning: Tuning | None = None,
    max_cost: float | None = None,
    after_success: str | None = None,
    endpoint_url: str | None = None,
    stores: StoreConfig | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], object] | None = None,
    delete_extra: Callable[[Sequence[ListedObject]], bool] | None = None,
) -> Report:
    """Extract an archive with worker processes of this machine; return the run's report.

    Failed members are in the report; nothing is written before all options are checked.

    Args:
        source: ``s3://bucket/key``, a path, or an ``http://`` or ``https://`` URL.
        destination: ``s3://bucket/prefix`` or a folder.
        options: which members, under which keys, and what to do where a key exists.
        password: opens encrypted members. A string is used as UTF-8. It is not recorded.
        workers: processes at most, with this one. None: one for each processor.
        tuning: how the work is cut. None: the defaults, for so many workers.
        max_cost: dollars. A run whose estimate is above it writes nothing.
        after_success: ``delete`` or ``tag=NAME=VALUE``, done to the archive of a complete run.
        endpoint_url: URL of the S3 server. None: AWS, or the variable ``AWS_ENDPOINT_URL``.
        stores: how S3 and web servers are reached, and where records are kept.
        progress: its methods are called as the run goes on.
        warn: takes a sentence for each glob that matches no member.
        delete_extra: given the objects below the prefix that are no members; True deletes them.

    Raises:
        UsageError: a location or an option is wrong, nothing is selected, the cost is too high.
        StorageError, ServiceFaultError: a store refused, or failed while the run was planned.
        InterruptedRunError: Ctrl-C; finished members are on record.
    """
    archive = parse_source(_as_text(source))
    target = parse_destination(_as_text(destination))
    request = make_request(archive, target, _note_password(options, password), after_success)
    reached = at_endpoint(stores, endpoint_url)
    policy = make_policy(request.options, password, target)
    shown = progress or Progress()
    if delete_extra is not None:
        check_extra(request, reached.work, open_stores(reached))
    with open_machine(reached, policy, tuning, workers, shown) as machine:
        return extract_one(machine, request, shown, warn, delete_extra, max_cost)


def _note_password(options: Options | None, password: bytes | str | None) -> Options:
    """Return the options; the record of the run shows that the password was an argument."""
    options = options or Options()
    if password is None or options.password_ref:
        return options
    place = "argument"
    return replace(options, password_ref=place)


def make_request(
    source: Location, destination: Location, options: Options, after_success: str | None
) -> Request:
    """Return the request of a run, with a rule for its archive as `extract` takes it."""
    rule = None
    if after_success:
        rule = parse_after_success(after_success, source, options)
    return Request(source, destination, options, after_success=rule)


def _as_text(location: object) -> str:
    if not isinstance(location, (str, os.PathLike)):
        kind = type(location).__name__
        raise UsageError(f"extract takes a path or a URL, not a {kind}: workers cannot share it")
    return os.fspath(location)


def extract_one(
    machine: Machine,
    request: Request,
    progress: Progress,
    warn: Callable[[str], object] | None,
    confirm: Callable[[Sequence[ListedObject]], bool] | None = None,
    max_cost: float | None = None,
) -> Report:
    """Extract an archive, and the archives inside it."""

    def planned(plan: Plan) -> None:
        if max_cost is not None:
            machine.check_cost(plan, max_cost)
        progress.planned(plan.summary)

    report = machine.run(request, judge_selection(request.options, warn), planned)
    if confirm is not None:
        report = clear_extra(report, machine.context, confirm)
    progress.reported(report)
    for nested_report in machine.run_nested(report):
        progress.nested(nested_report)
    return report


SUFFIX = ".zip"


def names_several(word: str) -> bool:
    """Return whether `word` is a folder, a prefix or a glob; nothing is asked of a store."""
    scheme, _, rest = word.partition("://")
    if not word:
        return False
    if not rest:
        return (has_wildcards(word) and not Path(word).exists()) or Path(word).is_dir()
    key = split_bucket(rest)[1]
    return scheme.lower() == "s3" and (not key or key.endswith("/") or has_wildcards(key))


def names_one(word: str, config: StoreConfig) -> bool:
    """Return whether `word` is the name of one archive, also if it looks like a glob."""
    return not names_several(word) or names_object(word, _open_reading(config))


def names_object(word: str, stores: Stores) -> bool:
    """Return whether `word`, which looks like a glob, is the key of an object.

    One page of a listing shows it. Without the right to list, a HEAD of the object shows it.
    """
    bucket, key = split_bucket(word.partition("://")[2])
    if not has_wildcards(key):
        return False
    try:
        page = next(_list_pages(bucket, key, stores), None)
    except AccessDeniedError as denied:
        location = Location("s3", bucket, key)
        with suppress(StorageError):
            stores.source(location).head(location)
            return True
        raise denied from None
    return page is not None and any(listed.key == key for listed in page.objects)


def find_archives(
    words: Sequence[str], config: StoreConfig, *, is_listed: bool = False
) -> list[Location]:
    """Return the archives that `words` name, in their order. A name wins over a glob.

    A folder or a prefix names all archives in it whose names end in ``.zip`` in any case, however
    deep. In a glob ``*`` does not cross a slash, ``**`` does.

    Args:
        words: names of archives, folders, prefixes and globs.
        config: how the stores are reached.
        is_listed: whether a listing has shown that no word is the name of an object.

    `NotFoundError`: a folder, a prefix or a glob has no archive.
    """
    archives: dict[Location, None] = {}
    stores = _open_reading(config)
    for word in words:
        if not names_several(word) or (not is_listed and names_object(word, stores)):
            archives[parse_source(word)] = None
        else:
            archives |= dict.fromkeys(_list_archives(word, stores))
    return list(archives)


def _list_archives(word: str, stores: Stores) -> list[Location]:
    """Return the archives of a folder, a prefix or a glob; `NotFoundError`: there are none."""
    if "://" in word:
        archives = list(_list_bucket(word, stores))
        container = "prefix"
    else:
        archives = [parse_source(str(path)) for path in sorted(_list_files(word))]
        container = "folder"
    if archives:
        return archives
    if has_wildcards(word) and not Path(word).is_dir():
        raise NotFoundError(f"{word}: no archive matches")
    raise NotFoundError(
        f"{word}: no archive is there: nothing below this {container} has a name that ends in "
        f"{SUFFIX}"
    )


def check_apart(requests: Sequence[Request]) -> None:
    """Refuse archives that would be extracted to the same keys, if the template is not for that."""
    sources: dict[str, Location] = {}  # by the prefix that they are extracted to
    for request in requests:
        template = parse_template(request)
        if "{archive" not in request.options.key_template:
            return
        earlier = sources.setdefault(template.prefix, request.source)
        if earlier != request.source:
            raise UsageError(
                f"{earlier} and {request.source} would both be extracted to {template.prefix}: "
                "give --key-template '{archive_key}/{member}', or run them one by one"
            )


def _list_files(word: str) -> Iterator[Path]:
    """Yield the archives in a folder, or the files that match a glob."""
    if Path(word).is_dir():
        for top, _, names in os.walk(word):
            yield from (Path(top, name) for name in names if name.lower().endswith(SUFFIX))
    else:
        paths = glob.glob(word, recursive=True)  # noqa: PTH207 - ** of a whole path
        yield from (path for path in map(Path, paths) if path.is_file())


def _open_reading(config: StoreConfig) -> Stores:
    """Return stores whose destination is where archives are: it can be listed."""
    reading = replace(
        config,
        destination_endpoint_url=None,
        destination_region=None,
        destination_profile=None,
        destination_unsigned=config.unsigned,
        destination_owner=None,
        destination_kms_key=None,
    )
    return open_stores(reading)


def _list_bucket(word: str, stores: Stores) -> Iterator[Location]:
    """Yield archives of a bucket."""
    bucket, key = split_bucket(word.partition("://")[2])
    for listed in list_objects(word, stores):
        if has_wildcards(key) or listed.key.lower().endswith(SUFFIX):
            yield Location("s3", bucket, listed.key)


def list_objects(word: str, stores: Stores) -> Iterator[ListedObject]:
    """Yield the objects that a prefix or a glob of a bucket names."""
    bucket, key = split_bucket(word.partition("://")[2])
    start = fixed_part(key)
    is_prefix = start == key
    pattern = compile_glob(key)
    for page in _list_pages(bucket, start, stores):
        for listed in page.objects:
            is_meant = is_prefix or pattern.match(listed.key)
            if is_meant and not listed.key.endswith("/"):  # such objects stand for folders
                yield listed


def _list_pages(bucket: str, prefix: str, stores: Stores) -> Iterator[Page]:
    calls = Calls(LocalClock(), Tuning().retry_seconds, 1)
    destination = stores.destination(parse_destination(f"s3://{bucket}/"))
    return list_pages(destination, prefix, partial(calls.paced, "list"))


def fixed_part(key: str) -> str:
    """Return the beginning that all keys have that match a glob."""
    wildcards = (key.find(sign) for sign in WILDCARDS if sign in key)
    return key[: min(wildcards, default=len(key))]
