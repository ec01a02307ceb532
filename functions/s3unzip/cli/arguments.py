"""The parameters of all commands, and the options, stores, tuning and password that they give.

The options of a run are declared in the classes that hold their values: see `s3unzip.options`.
`Arguments` declares all other parameters.
"""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

import click
import msgspec
from click.shell_completion import CompletionItem
from msgspec.structs import replace

from s3unzip.contradictions import check_access
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.globs import has_wildcards
from s3unzip.local.process_setup import available_processors
from s3unzip.model import Location, Options
from s3unzip.object_properties import ObjectProperties
from s3unzip.options import HelpSection, OptionRow, read_options
from s3unzip.pricing import Platform
from s3unzip.settings import Tuning, machine_tuning, make_tuning
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.locations import runs_home
from s3unzip.stores.open import check_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from msgspec import Struct

    from s3unzip.operate.runs import DeployedRuns

    Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

PASSWORD_VARIABLE = "S3UNZIP_PASSWORD"  # noqa: S105 - the name of a variable, not a password
TUNING_VARIABLE = "S3UNZIP_TUNING"
S3_ENDPOINT = "AWS_ENDPOINT_URL_S3"
OTHER_HOSTS = "other-hosts"
DAY = 86_400.0  # seconds
FROM_TERMINAL = "-"  # as the value of --password-file
REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+-[0-9]+\Z")
SERVER_REGION = re.compile(r"[A-Za-z0-9-]+\Z")  # S3-compatible servers have any names
PAIR = re.compile(r"([^=]*)=(.*)", re.DOTALL)
# A glob may contain "=", as in "year=2026/*.csv=text/csv". A type has "=" only after its ";".
TYPE = re.compile(r"([^;]*)=([^/=;]+/[^/=;]+(?:;.*)?)", re.DOTALL)
POSITIVE = click.IntRange(min=1)
NOT_NEGATIVE = click.FloatRange(min=0.0)
PATH = click.Path(readable=False)  # completed by shells; any text is accepted


class Declaration(NamedTuple):
    """The names, the help and the settings of a parameter of commands."""

    form: str  # its names, then a placeholder of its value, or its values as <A|B>
    help: str
    default: Any = None
    section: HelpSection | None = None
    settings: Mapping[str, Any] = {}  # further keyword arguments of click's parameter


def option(
    form: str,
    help_text: str,
    default: Any = None,
    *,
    section: HelpSection | None = None,
    **settings: Any,
) -> Any:
    """Return a field that declares an option or, if `form` has no dash, an argument.

    A default of () makes it repeatable. A default of False makes it a flag.
    """
    return field(
        default=default,
        metadata={
            "declaration": Declaration(form, help_text, default, section=section, settings=settings)
        },
    )


def complete_run(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Complete ``latest`` and the runs of this machine; no environment is asked for its runs."""
    from s3unzip.local.run_folders import known_runs

    names = ["latest"]
    if not context.params.get("env"):
        names += known_runs(runs_home())
    return complete_from(names)(context, parameter, incomplete)


def complete_from(values: Iterable[str]) -> Completer:
    """Return a `shell_complete` of click that offers the values with the typed beginning."""

    def complete(
        context: click.Context,  # noqa: ARG001 - click's
        parameter: click.Parameter,  # noqa: ARG001 - click's
        incomplete: str,
    ) -> list[CompletionItem]:
        return [CompletionItem(value) for value in values if value.startswith(incomplete)]

    return complete


@dataclass(frozen=True)
class Arguments:
    """The values of a command's parameters; a parameter that the command lacks has its default."""

    run_options: Mapping[str, Any] = field(default_factory=dict)  # by the option's parameter name

    src: str = option("SRC", "The archive: s3://bucket/key, a path, http(s)://...", type=PATH)
    sources: tuple[str, ...] = option(
        "SRC...",
        "Archives: s3://bucket/key, a path, http(s)://...; a folder, a prefix, a glob.",
        (),
        type=PATH,
    )
    dest: str = option("DEST", "Where members go: s3://bucket/prefix or a folder.", "", type=PATH)
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
        type=PATH,
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
        type=POSITIVE,
        section=HelpSection.AFTERWARDS,
    )

    verbose: int = option(
        "--verbose -v",
        "Log retries and decisions to stderr; -vv: also each request for archives and members.",
        0,
        count=True,
    )
    workers: int | None = option(
        "--workers -w N", "Processes at most; default: one for each CPU.", type=POSITIVE
    )
    env: str | None = option("--env NAME", "The environment: its stack is s3unzip-NAME.")
    max_cost: float | None = option(
        "--max-cost NUMBER",
        "Exit with 2 if the estimate is above NUMBER dollars.",
        type=NOT_NEGATIVE,
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
        "--list N",
        "Differences of each kind to list; all are counted.",
        20,
        type=click.IntRange(min=0),
    )
    at_once: int = option(
        "--at-once N", "HEADs in flight; with --deep, GETs.", 64, type=click.IntRange(1, 512)
    )
    objects: str | None = option(
        "--objects FILE",
        "Write a JSON line for each object: its key and what proves its content.",
        type=PATH,
    )
    newest: int = option("--limit N", "How many runs to list.", 50, type=POSITIVE)
    prune: float | None = option(
        "--prune DAYS",
        "Remove records that are older than DAYS, of runs of this machine that ended.",
        type=NOT_NEGATIVE,
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
        "With --missing: archives from the last NUMBER days; default 7.",
        type=NOT_NEGATIVE,
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
        """The largest number of processes of a run on this machine."""
        return self.workers or len(available_processors())

    def options(self) -> Options:
        """Return the options of a run; they name the source of the password, never the password."""
        values = self._values_of(Options)
        properties = ObjectProperties(**self._values_of(ObjectProperties))
        properties.check()
        if properties != ObjectProperties():
            values["objects"] = properties
        if self.prefix is not None:
            if "key_template" in values:
                raise UsageError("--prefix and --key-template: give one of them")
            values["key_template"] = f"{self.prefix.strip('/')}/{{member}}".removeprefix("/")
        # The arguments MEMBER select as --include does.
        values["include"] = globs_of(self.names) + values.get("include", ())
        return Options(**values, password_ref=self._password_source())

    def _values_of(self, kind: type[Struct]) -> dict[str, Any]:
        """Return the given options that `kind` declares, by the names of its fields."""
        values = {}
        for row in read_options(kind):
            value = self.run_options.get(row.parameter)  # None: not given
            if value is not None and row.is_mapping:
                values[row.field] = _read_pairs(row, value)
            elif value is not None:
                values[row.field] = value
        return values

    def _password_source(self) -> str | None:
        if self.password_file == FROM_TERMINAL:
            return "prompt"
        if self.password_file is not None:
            return f"file:{self.password_file}"
        if os.environ.get(PASSWORD_VARIABLE):
            return f"variable:{PASSWORD_VARIABLE}"
        return None

    def password(self) -> bytes | None:
        """Return the password of encrypted members, or None if no password is given."""
        if self.password_file is None:
            return os.environ.get(PASSWORD_VARIABLE, "").encode() or None
        name = f"--password-file {self.password_file}"
        if self.password_file == FROM_TERMINAL:
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
        """Return the tuning of a run, with the changes in the variable `TUNING_VARIABLE`.

        Args:
            platform: the platform of the run. None: this machine.
            base: the tuning of a deployed environment. None: the defaults.
        """
        text = os.environ.get(TUNING_VARIABLE) or "{}"
        try:
            changes = msgspec.json.decode(text, type=dict[str, object])
        except msgspec.MsgspecError as error:
            raise UsageError(f"{TUNING_VARIABLE}={text}: not a JSON object: {error}") from None
        if platform is None or platform.name == "local":
            of_platform = machine_tuning(self.processes)
        else:
            of_platform = {"max_workers": platform.workers}
        return make_tuning(of_platform | changes, base)

    def config(self) -> StoreConfig:
        """Return the configuration of the stores; `UsageError`: its options are not valid."""
        config = StoreConfig(
            runs_home(),
            **self._values_of(StoreConfig),
            other_hosts=OTHER_HOSTS in self.allow,
            check_reachable=True,
        )
        check_access(config)
        check_endpoint(config.endpoint_url)
        if S3_ENDPOINT in os.environ:  # botocore uses it
            check_endpoint(os.environ[S3_ENDPOINT], S3_ENDPOINT)
        check_endpoint(config.destination_endpoint_url, "--dest-endpoint-url")
        pattern = REGION
        if config.endpoint_url is not None:
            pattern = SERVER_REGION
        if config.region is not None and not pattern.match(config.region):
            raise UsageError(f"--region {config.region!r}: not a region; they look like eu-west-1")
        return config

    def deployed(self) -> DeployedRuns:
        """Return the runs of the deployed environment; `NotFoundError`: no such environment."""
        from s3unzip.operate.runs import DeployedRuns

        return DeployedRuns(self.env or "", replace(self.config(), check_reachable=False))

    def check_places(self, source: Location, destination: Location | None = None) -> None:
        """Refuse S3 options for locations outside of S3, and names that S3 does not allow."""
        config = self.config()
        check_access(config, source, destination)
        check_names(config, source, destination)


def _ask_password(name: str) -> bytes:
    """Return the password that the user types; `name` begins the message of an error."""
    if not sys.stdin.isatty():
        raise UsageError(
            f"{name}: standard input is not a terminal; name a file, or set {PASSWORD_VARIABLE}"
        )
    secret = getpass.getpass("Password: ").encode()
    if not secret:
        raise UsageError(f"{name}: no password was given")
    return secret


def globs_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return a glob for each argument; a slash before a name anchors it at the archive's root."""
    return tuple(name if has_wildcards(name) else f"/{name}" for name in names)


def _read_pairs(row: OptionRow, texts: Iterable[str]) -> dict[str, str]:
    """Return the values of a repeatable option by the text before their ``=``.

    Content types keep their order, because the first glob that matches counts. Other pairs are
    sorted, so that their order does not change the run's id.
    """
    pattern = PAIR
    example = "NAME=VALUE"
    is_type = row.option.form.endswith("=TYPE")
    if is_type:
        pattern = TYPE
        example = "GLOB=TYPE, like '*.csv=text/csv'"
    pairs: dict[str, str] = {}
    for text in texts:
        match = pattern.fullmatch(text)
        if match is None:
            raise UsageError(f"{row.word} {text}: must be {example}")
        if match[1] in pairs:
            raise UsageError(f"{row.word} {text}: {match[1]!r} is given twice")
        pairs[match[1]] = match[2]
    if is_type:
        return pairs
    return dict(sorted(pairs.items()))


def check_endpoint(url: str | None, name: str = "--endpoint-url") -> None:
    """Raise `UsageError` if `url`, which `name` sets, is not an HTTP URL with a host."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
        is_http = url.lower().startswith(("http://", "https://"))
        is_valid = is_http and parts.hostname and parts.port != 0
    except ValueError:  # a port that is not a number, or a broken IPv6 address
        is_valid = False
    if not is_valid or re.search(r"[\s\x00-\x1f\x7f]", url):
        example = ""
        if "/" not in url:
            example = f", like http://{url}"
        raise UsageError(f"{name} {url}: not a URL that begins with http:// or https://{example}")


@contextmanager
def suggesting_prefix(source: Location) -> Iterator[None]:
    """Add a hint to the error of a missing object: its key may be meant as a prefix."""
    try:
        yield
    except NotFoundError as error:
        name = source.key.rpartition("/")[2]  # a name with a dot is likely a file's
        if not source.store.has_prefixes or "." in name or str(source) not in str(error):
            raise
        raise NotFoundError(
            f"{error}; is it a prefix? then end it with a slash: {source}/"
        ) from None
