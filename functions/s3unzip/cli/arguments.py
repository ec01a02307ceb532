"""The arguments of all commands, and what they come to: options, stores, tuning, a password.

The options of a run are declared by the values that they make: see `s3unzip.options`. What only a
command has is declared here, by the fields of `Arguments`.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click
import msgspec
from msgspec.structs import replace

from s3unzip.cli.completion import complete_from, complete_path, complete_run
from s3unzip.contradictions import check_access
from s3unzip.errors import UsageError
from s3unzip.globs import has_wildcards
from s3unzip.local.processors import available_processors
from s3unzip.model import Location, Options
from s3unzip.object_properties import ObjectProperties
from s3unzip.options import HelpSection, OptionRow, read_options
from s3unzip.platforms import Platform
from s3unzip.settings import Tuning, machine_tuning, make_tuning
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.locations import runs_home
from s3unzip.stores.open import check_names

if TYPE_CHECKING:
    from msgspec import Struct

    from s3unzip.operate.runs import DeployedRuns

PASSWORD_VARIABLE = "S3UNZIP_PASSWORD"  # noqa: S105 - a name
TUNING_VARIABLE = "S3UNZIP_TUNING"
S3_ENDPOINT = "AWS_ENDPOINT_URL_S3"
OTHER_HOSTS = "other-hosts"
ASKED = "-"  # in place of a file: the terminal
REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+-[0-9]+\Z")
SERVER_REGION = re.compile(r"[A-Za-z0-9-]+\Z")  # an S3-compatible server calls it anything
PAIR = re.compile(r"([^=]*)=(.*)", re.DOTALL)
# A glob may have "=" in it, as in "year=2026/*.csv=text/csv"; so may what follows the type's ";".
TYPE = re.compile(r"([^;]*)=([^/=;]+/[^/=;]+(?:;.*)?)", re.DOTALL)
COUNT = click.IntRange(min=0)
SEVERAL = click.IntRange(min=1)
AMOUNT = click.FloatRange(min=0.0)  # of dollars or days


class Declaration(NamedTuple):
    """How a parameter of commands is typed and explained."""

    form: str  # its names and the placeholder of its value, which may be a choice
    help: str
    default: Any = None
    section: HelpSection | None = None
    settings: Mapping[str, Any] = {}  # of click


def option(
    form: str,
    text: str,
    default: Any = None,
    *,
    section: HelpSection | None = None,
    **settings: Any,
) -> Any:
    """Return a field that is an option or, if its words have no dash, an argument.

    A default of () means that it may be given several times, one of False that it is a flag.
    """
    declaration = Declaration(form, text, default, section=section, settings=settings)
    return field(default=default, metadata={"declaration": declaration})


@dataclass(frozen=True)
class Arguments:
    """What is given to a command; what it does not take has its default."""

    run_options: Mapping[str, Any] = field(default_factory=dict)  # of the table, by parameter

    src: str = option(
        "SRC", "The archive: s3://bucket/key, a path, http(s)://...", shell_complete=complete_path
    )
    sources: tuple[str, ...] = option(
        "SRC...",
        "Archives: s3://bucket/key, a path, http(s)://...; a folder, a prefix, a glob.",
        (),
        shell_complete=complete_path,
    )
    dest: str = option(
        "DEST",
        "Where members go: s3://bucket/prefix or a folder.",
        "",
        shell_complete=complete_path,
    )
    names: tuple[str, ...] = option("MEMBER...", "Names as ls shows them, folders/ or globs.", ())
    run: str = option(
        "RUN", "A run's id, the beginning of one, or latest.", shell_complete=complete_run
    )

    prefix: str | None = option(
        "--prefix TEXT",
        "Put members below DEST/PREFIX instead of the archive's name.",
        section=HelpSection.KEYS,
    )

    password_file: str | None = option(
        "--password-file FILE",
        f"File with the password of encrypted members; - asks for it; or set {PASSWORD_VARIABLE}.",
        section=HelpSection.ODD,
        shell_complete=complete_path,
    )

    allow: tuple[str, ...] = option(
        f"--allow <{OTHER_HOSTS}>",
        "Let an HTTP source redirect to other hosts.",
        (),
        section=HelpSection.STORES,
    )

    after_success: str | None = option(
        "--after-success ACTION",
        "Delete the archive, or tag=NAME=VALUE, if all of it is extracted.",
        section=HelpSection.AFTERWARDS,
    )
    delete_extra: int | None = option(
        "--delete-extra N",
        "Delete up to N other objects below the prefix; asks first on a terminal.",
        type=SEVERAL,
        section=HelpSection.AFTERWARDS,
    )

    verbose: int = option(
        "--verbose -v",
        "Log retries and decisions to stderr; -vv: kind and time of each request.",
        0,
        count=True,
    )
    workers: int | None = option(
        "--workers -w N", "Processes at most; default: one for each CPU.", type=SEVERAL
    )
    env: str | None = option("--env NAME", "The environment: its stack is s3unzip-NAME.")
    max_cost: float | None = option(
        "--max-cost NUMBER", "Exit with 2 if the estimate is above so many dollars.", type=AMOUNT
    )
    json: bool = option("--json", "Print JSON on stdout.", False)
    quiet: bool = option("--quiet -q", "No progress, no report; failures only.", False)
    dry_run: bool = option(
        "--dry-run", "List the keys and what would be done; write nothing.", False
    )
    platform: str | None = option(
        "--on TEXT",
        "Estimate for aws or local; default: local.",
        shell_complete=complete_from(("aws", "local")),
    )
    deep: bool = option("--deep", "Read every object; trust no record and no stored CRC-32.", False)
    no_records: bool = option("--no-records", "Ignore what runs recorded of the objects.", False)
    listed: int = option(
        "--list N", "Differences of each kind to list; all are counted.", 20, type=COUNT
    )
    at_once: int = option(
        "--at-once N", "HEADs in flight; with --deep, GETs.", 64, type=click.IntRange(1, 512)
    )
    objects: str | None = option(
        "--objects FILE",
        "Write a JSON line for each object: its key and what proves its content.",
        shell_complete=complete_path,
    )
    newest: int = option("--limit N", "How many runs to list.", 50, type=SEVERAL)
    prune: float | None = option(
        "--prune DAYS",
        "Remove records that are older than DAYS, of runs of this machine that ended.",
        type=AMOUNT,
    )
    failures: bool = option("--failures", "List every failed member.", False)
    html: bool = option("--html", "Open the report page; print where it is.", False)
    failed: bool = option("--failed", "Try the failed members again.", False)
    interval: float = option(
        "--every NUMBER", "Seconds between two updates.", 1.0, type=click.FloatRange(min=0.1)
    )
    yes: bool = option("--yes -y", "Do not ask before queueing.", False)
    missing: bool = option(
        "--missing",
        "Only archives without a verdict: queue those without a run, resume the other runs.",
        False,
    )
    days: float | None = option(
        "--days NUMBER",
        "With --missing: archives that were put in the last so many days; default 7.",
        type=AMOUNT,
    )
    no_canary: bool = option(
        "--no-canary", "Do not extract, verify and remove an archive of five small members.", False
    )
    wait: float = option(
        "--wait NUMBER",
        "Seconds to wait for the canary's run.",
        180.0,
        type=click.FloatRange(min=1.0),
    )

    @property
    def processes(self) -> int:
        """Worker processes of a run on this machine."""
        return self.workers or len(available_processors())

    def options(self) -> Options:
        """Return the options of a run; they say where the password is, never the password."""
        values = self._values_of(Options)
        if self.prefix is not None:
            if "key_template" in values:
                raise UsageError("--prefix and --key-template: give one of them")
            values["key_template"] = f"{self.prefix.strip('/')}/{{member}}".removeprefix("/")
        values["include"] = globs_of(self.names) + values.get("include", ())
        return Options(
            **values, password_ref=self._password_ref(), objects=self._object_properties()
        )

    def _values_of(self, kind: type[Struct]) -> dict[str, Any]:
        """Return the given options that `kind` declares, by the names of its fields."""
        values = {}
        for row in read_options(kind):
            value = self.run_options.get(row.parameter)
            if value is not None and row.is_mapping:
                value = _read_pairs(row, value)
            if value is not None:
                values[row.field] = value
        return values

    def _object_properties(self) -> ObjectProperties | None:
        """Return what is set on objects in S3."""
        properties = ObjectProperties(**self._values_of(ObjectProperties))
        properties.check()
        if properties == ObjectProperties():
            return None
        return properties

    def _password_ref(self) -> str | None:
        """Return where the password of encrypted members is."""
        if self.password_file == ASKED:
            return "prompt"
        if self.password_file is not None:
            return f"file:{self.password_file}"
        if os.environ.get(PASSWORD_VARIABLE):
            return f"variable:{PASSWORD_VARIABLE}"
        return None

    def password(self) -> bytes | None:
        """Return the password of encrypted members, None if there is none."""
        if self.password_file is None:
            return os.environ.get(PASSWORD_VARIABLE, "").encode() or None
        name = f"--password-file {self.password_file}"
        if self.password_file == ASKED:
            return _ask_password(name)
        try:
            line = Path(self.password_file).read_bytes()
        except OSError as error:
            raise UsageError(f"{name}: {error.strerror}") from error
        secret = line.removesuffix(b"\n").removesuffix(b"\r")
        if not secret:
            raise UsageError(f"{name}: is empty")
        return secret

    def tuning(self, platform: Platform | None = None, base: Tuning | None = None) -> Tuning:
        """Return the tuning of a run; a variable may change more of it.

        Args:
            platform: where the run works; None: on this machine.
            base: the tuning of a deployed environment; None: the defaults.
        """
        text = os.environ.get(TUNING_VARIABLE) or "{}"
        try:
            changes = msgspec.json.decode(text, type=dict[str, object])
        except msgspec.MsgspecError as error:
            raise UsageError(f"{TUNING_VARIABLE}={text}: no JSON object: {error}") from None
        if platform is None or platform.name == "local":
            workers = machine_tuning(self.processes)
        else:
            workers = {"max_workers": platform.workers}
        return make_tuning(workers | changes, base)

    def config(self) -> StoreConfig:
        """Return how stores are reached; options that exclude each other are refused."""
        config = StoreConfig(
            runs_home(),
            **self._values_of(StoreConfig),
            other_hosts=OTHER_HOSTS in self.allow,
            check_reachable=True,
        )
        check_access(config)
        check_endpoint(config.endpoint_url)
        if S3_ENDPOINT in os.environ:  # botocore reads it
            check_endpoint(os.environ[S3_ENDPOINT], S3_ENDPOINT)
        check_endpoint(config.destination_endpoint_url, "--dest-endpoint-url")
        _check_region(config)
        return config

    def deployed(self) -> DeployedRuns:
        """Return the runs of the deployed environment; `NotFoundError`: it is not there."""
        from s3unzip.operate.runs import DeployedRuns

        return DeployedRuns(self.env or "", replace(self.config(), check_reachable=False))

    def check_places(self, source: Location, destination: Location | None = None) -> None:
        """Refuse options of S3 for places elsewhere, and names that S3 does not have."""
        config = self.config()
        check_access(
            config,
            source_elsewhere=_name_outside_s3(source),
            destination_elsewhere=_name_outside_s3(destination),
        )
        check_names(config, source, destination)


def _check_region(config: StoreConfig) -> None:
    """Check the form of a region, of AWS or of another server; `UsageError`: it is none."""
    form = REGION
    if config.endpoint_url is not None:
        form = SERVER_REGION
    if config.region is not None and not form.match(config.region):
        raise UsageError(f"--region {config.region!r}: not a region; they look like eu-west-1")


def _name_outside_s3(location: Location | None) -> str | None:
    """Return a location whose store takes no options of S3; None: the location is in S3."""
    if location is None or location.store.takes_s3_options:
        return None
    return str(location)


def _ask_password(name: str) -> bytes:
    """Return the password that somebody types at the terminal."""
    if not sys.stdin.isatty():
        raise UsageError(
            f"{name}: standard input is no terminal; name a file, or set {PASSWORD_VARIABLE}"
        )
    secret = getpass.getpass("Password: ").encode()
    if not secret:
        raise UsageError(f"{name}: no password was given")
    return secret


def globs_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return globs for names, folders and globs that were given as arguments."""
    return tuple(name if has_wildcards(name) else f"/{name}" for name in names)


def _read_pairs(row: OptionRow, texts: Iterable[str]) -> dict[str, str]:
    """Return the values of a repeatable option by the texts before their ``=``.

    Of types the first glob that matches counts. Other pairs are sorted: another order is the same
    run.
    """
    form = PAIR
    example = "NAME=VALUE"
    is_type = row.option.form.endswith("=TYPE")
    if is_type:
        form = TYPE
        example = "GLOB=TYPE, like '*.csv=text/csv'"
    pairs: dict[str, str] = {}
    for text in texts:
        match = form.fullmatch(text)
        if match is None:
            raise UsageError(f"{row.word} {text}: must be {example}")
        if match[1] in pairs:
            raise UsageError(f"{row.word} {text}: {match[1]!r} is given twice")
        pairs[match[1]] = match[2]
    if is_type:
        return pairs
    return dict(sorted(pairs.items()))


def check_endpoint(url: str | None, name: str = "--endpoint-url") -> None:
    """Check that `url` is one of an S3-compatible server; `UsageError`: it is not."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
        is_http = url.lower().startswith(("http://", "https://"))
        fits = is_http and parts.hostname and parts.port != 0
    except ValueError:  # a port that is not a number, or a broken IPv6 address
        fits = False
    if not fits or re.search(r"[\s\x00-\x1f\x7f]", url):
        example = ""
        if "/" not in url:
            example = f", like http://{url}"
        raise UsageError(f"{name} {url}: not a URL that begins with http:// or https://{example}")
