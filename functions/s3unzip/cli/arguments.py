"""The parameters of all commands: they define the options, stores, tuning and password of a run.

The options of a run are declared in the classes that hold their values (see `s3unzip.options`).
`Arguments` declares all other parameters. A default of () makes a parameter repeatable.
"""

import codecs
import getpass
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import msgspec
from click.core import ParameterSource
from msgspec import Struct
from msgspec.structs import replace

from s3unzip.context import Progress
from s3unzip.contradictions import check_access
from s3unzip.errors import NotFoundError, UsageError
from s3unzip.globs import has_wildcards
from s3unzip.local.process_setup import count_processors
from s3unzip.model import Location, Options, Request
from s3unzip.object_properties import ObjectProperties
from s3unzip.options import HelpSection, RunOption, read_options
from s3unzip.pricing import Platform
from s3unzip.settings import Tuning, machine_tuning, make_tuning
from s3unzip.stores.config import StoreConfig, check_endpoint, runs_home
from s3unzip.stores.open import check_names, reaches_aws

if TYPE_CHECKING:
    from s3unzip.local.machine import Machine
    from s3unzip.operate.runs import DeployedRuns

S3_ENDPOINT_VARIABLE = "AWS_ENDPOINT_URL_S3"
# If this variable is "true", environment variables for endpoints are ignored.
IGNORE_VARIABLE = "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS"
PASSWORD_VARIABLE = "S3UNZIP_PASSWORD"  # noqa: S105 - the name of an environment variable
TUNING_VARIABLE = "S3UNZIP_TUNING"
OTHER_HOSTS = "other-hosts"
DAY = 86_400.0  # seconds
REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+-[0-9]+\Z")
SERVER_REGION = re.compile(r"[A-Za-z0-9-]+\Z")  # S3-compatible servers can use any region name
PAIR = re.compile(r"([^=]*)=(.*)", re.DOTALL)
# A glob can contain "=", as in "year=2026/*.csv=text/csv". A content type contains "=" only after
# its ";".
TYPE = re.compile(r"([^;]*)=([^/=;]+/[^/=;]+(?:;.*)?)", re.DOTALL)
EXAMPLES = {PAIR: "NAME=VALUE", TYPE: "GLOB=TYPE, like '*.csv=text/csv'"}


class Arguments(Struct, frozen=True):
    """The values of a command's parameters; parameters of other commands keep their defaults."""

    values: dict[str, Any] = {}  # all values of the command, including the options of a run

    src: Annotated[str, RunOption("SRC", "The archive: s3://bucket/key, a path, http(s)://...")] = (
        ""
    )
    sources: Annotated[
        tuple[str, ...],
        RunOption(
            "SRC...",
            "Archives: s3://bucket/key, a path, http(s)://...; a folder, a prefix or a glob.",
        ),
    ] = ()
    dest: Annotated[
        str, RunOption("DEST", "Where to write members: s3://bucket/prefix or a folder.")
    ] = ""
    names: Annotated[
        tuple[str, ...], RunOption("MEMBER...", "Names as ls shows them, folders/ or globs.")
    ] = ()
    run: Annotated[str, RunOption("RUN", "A run id, its first characters, or latest.")] = ""
    prefix: Annotated[
        str | None,
        RunOption(
            "--prefix TEXT",
            "Put members below DEST/TEXT instead of below the archive's name.",
            HelpSection.KEYS,
        ),
    ] = None
    password_file: Annotated[
        str | None,
        RunOption(
            "--password-file FILE",
            "File that contains the password for encrypted members, or - for a prompt; "
            f"you can set {PASSWORD_VARIABLE} instead.",
            HelpSection.ODD,
        ),
    ] = None
    allow: Annotated[
        tuple[str, ...],
        RunOption(
            f"--allow <{OTHER_HOSTS}>",
            "Let an HTTP source redirect to other hosts.",
            HelpSection.STORES,
        ),
    ] = ()
    after_success: Annotated[
        str | None,
        RunOption(
            "--after-success ACTION",
            "Once everything is extracted, delete the archive (delete) or tag it (tag=NAME=VALUE).",
            HelpSection.AFTERWARDS,
        ),
    ] = None
    delete_extra: Annotated[
        int | None,
        RunOption(
            "--delete-extra N",
            "Delete up to N objects that are below the prefix but not members; on a terminal, ask "
            "first.",
            HelpSection.AFTERWARDS,
            minimum=1,
        ),
    ] = None
    verbose: Annotated[
        int,
        RunOption(
            "--verbose -v",
            "Log retries and decisions to stderr; -vv: also each request for archives and members.",
        ),
    ] = 0
    workers: Annotated[
        int | None,
        RunOption(
            "--workers -w N", "Maximum number of processes; default: one for each CPU.", minimum=1
        ),
    ] = None
    env: Annotated[
        str | None, RunOption("--env NAME", "The environment: its stack is s3unzip-NAME.")
    ] = None
    max_cost: Annotated[
        float | None,
        RunOption("--max-cost NUMBER", "Exit with code 2 if the estimate exceeds NUMBER dollars."),
    ] = None
    json: Annotated[bool, RunOption("--json", "Print JSON on stdout.")] = False
    quiet: Annotated[
        bool, RunOption("--quiet -q", "Print only failures: no progress and no report.")
    ] = False
    dry_run: Annotated[
        bool, RunOption("--dry-run", "List the keys and what would be done; write nothing.")
    ] = False
    platform: Annotated[
        str | None,
        RunOption(
            "--on TEXT",
            "Platform of the estimate: aws or local; default: local.",
            known_values=("aws", "local"),
        ),
    ] = None
    deep: Annotated[
        bool, RunOption("--deep", "Read every object; ignore records and stored CRC-32 values.")
    ] = False
    no_records: Annotated[
        bool, RunOption("--no-records", "Ignore what runs recorded about the objects.")
    ] = False
    listed: Annotated[
        int, RunOption("--list N", "How many differences of each kind to list; all are counted.")
    ] = 20
    at_once: Annotated[
        int,
        RunOption(
            "--at-once N",
            "Maximum number of concurrent HEAD requests, or of GET requests with --deep; at "
            "most a third of the open files allowed.",
        ),
    ] = 128
    objects: Annotated[
        str | None,
        RunOption(
            "--objects FILE",
            "Write a JSON line for each object: its key, and the proof or the difference.",
        ),
    ] = None
    max_runs: Annotated[int, RunOption("--limit N", "How many runs to list.", minimum=1)] = 50
    prune: Annotated[
        float | None,
        RunOption(
            "--prune DAYS",
            "Remove records of ended runs on this machine that are older than DAYS days.",
        ),
    ] = None
    failures: Annotated[bool, RunOption("--failures", "List every failed member.")] = False
    html: Annotated[bool, RunOption("--html", "Open the report page, and print its path.")] = False
    failed: Annotated[bool, RunOption("--failed", "Try the failed members again.")] = False
    interval: Annotated[
        float, RunOption("--every NUMBER", "Seconds between two updates.", minimum=0.1)
    ] = 1.0
    yes: Annotated[bool, RunOption("--yes -y", "Do not ask before queueing.")] = False
    missing: Annotated[
        bool,
        RunOption(
            "--missing",
            "Handle only archives without a verdict: queue those without a run, and resume the "
            "runs of the others.",
        ),
    ] = False
    days: Annotated[
        float | None,
        RunOption(
            "--days NUMBER", "With --missing: archives from the last NUMBER days; default 7."
        ),
    ] = None
    no_canary: Annotated[
        bool,
        RunOption(
            "--no-canary",
            "Skip the canary, which extracts, verifies and removes an archive of five members.",
        ),
    ] = False
    wait: Annotated[
        float, RunOption("--wait NUMBER", "Seconds to wait for the canary's run.", minimum=1.0)
    ] = 180.0

    @property
    def processes(self) -> int:
        """The maximum number of processes for a run on this machine."""
        return self.workers or count_processors()

    def options(self) -> Options:
        """Return the options of a run; they contain the password's source, never the password."""
        values = self._values_of(Options)
        properties = ObjectProperties(**self._values_of(ObjectProperties))
        properties.check()
        if properties != ObjectProperties():
            values["objects"] = properties
        if self.prefix is not None:
            if "key_template" in values:
                raise UsageError("--prefix and --key-template: give one of them")
            # Remove the leading slash that an empty prefix would leave.
            values["key_template"] = f"{self.prefix.strip('/')}/{{member}}".removeprefix("/")
        # MEMBER arguments select members as --include does.
        values["include"] = globs_of(self.names) + values.get("include", ())
        return Options(**values, password_ref=self._password_source())

    def _values_of(self, kind: type[Struct]) -> dict[str, Any]:
        """Return the given options that `kind` declares, keyed by the names of its fields."""
        values = {}
        for option in read_options(kind):
            value = self.values.get(option.parameter)
            if value is not None:  # the option is given
                if option.is_mapping:
                    value = _read_pairs(option, value)
                values[option.field] = value
        return values

    def _password_source(self) -> str | None:
        """Return the source of the password, as the run records it; None if there is none."""
        match self.password_file:
            case None if os.environ.get(PASSWORD_VARIABLE):
                return f"variable:{PASSWORD_VARIABLE}"
            case None:
                return None
            case "-":
                return "prompt"
            case path:
                return f"file:{path}"

    def password(self) -> bytes | None:
        """Return the password for encrypted members, or None if no password is given."""
        if self.password_file is None:
            return os.environb.get(os.fsencode(PASSWORD_VARIABLE)) or None
        name = f"--password-file {self.password_file}"
        if self.password_file == "-":  # noqa: S105 - not a password
            return _ask_password(name)
        try:
            content = Path(self.password_file).read_bytes()
        except OSError as error:
            raise UsageError(f"{name}: {error.strerror}") from error
        if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):  # PowerShell wrote it
            content = content.decode("utf-16", "replace").encode()
        secret = content.removeprefix(codecs.BOM_UTF8).removesuffix(b"\n").removesuffix(b"\r")
        if not secret:
            raise UsageError(f"{name}: is empty")
        return secret

    def tuning(self, platform: Platform | None = None, base: Tuning | None = None) -> Tuning:
        """Return the tuning of a run, with changes from the environment variable `TUNING_VARIABLE`.

        Args:
            platform: the platform of the run. None means this machine.
            base: the tuning of a deployed environment. None means the defaults.
        """
        text = os.environ.get(TUNING_VARIABLE) or "{}"
        try:
            changes = msgspec.json.decode(text, type=dict[str, object])
        except ValueError as error:
            raise UsageError(f"{TUNING_VARIABLE}={text}: not a JSON object: {error}") from None
        if platform is None or platform.name == "local":
            platform_settings = machine_tuning(self.processes)
        else:
            platform_settings = {"max_workers": platform.workers}
        return make_tuning(platform_settings | changes, base)

    def config(self) -> StoreConfig:
        """Return the configuration of the stores; raise `UsageError` if its options are invalid."""
        values = self._values_of(StoreConfig) | {"endpoint_url": self._choose_endpoint()}
        config = StoreConfig(
            runs_home(),
            **values,
            other_hosts=OTHER_HOSTS in self.allow,
            check_reachable=True,
        )
        check_access(config, after_success=self.after_success)
        for name, url in (
            (S3_ENDPOINT_VARIABLE, os.environ.get(S3_ENDPOINT_VARIABLE)),
            ("--endpoint-url", config.endpoint_url),
            ("--dest-endpoint-url", config.destination_endpoint_url),
        ):
            if url is not None:
                check_endpoint(url, name)
        region = config.region
        if region is not None and not REGION.match(region):
            reaches_only_aws = reaches_aws(config) and reaches_aws(config.at_destination())
            if reaches_only_aws or not SERVER_REGION.match(region):
                raise UsageError(f"--region {region!r}: not a region; they look like eu-west-1")
        return config

    def _choose_endpoint(self) -> str | None:
        """Return the URL of the S3 server, from the option or else from the environment, if set."""
        url: str | None = self.values.get("endpoint_url")  # from the option or AWS_ENDPOINT_URL
        source = click.get_current_context().get_parameter_source("endpoint_url")
        if source is ParameterSource.COMMANDLINE:
            return url
        if os.environ.get(IGNORE_VARIABLE, "").lower() == "true":
            return None
        # As in botocore, the variable that is specific to S3 overrides AWS_ENDPOINT_URL. With
        # --env, the URL is also used for other services, such as SQS, so the variable for S3 is
        # ignored.
        if self.env:
            return url
        return os.environ.get(S3_ENDPOINT_VARIABLE) or url

    def deployed(self) -> "DeployedRuns":
        """Return the runs of the environment; raise `NotFoundError` if it is not deployed."""
        from s3unzip.operate.runs import DeployedRuns

        return DeployedRuns(self.env or "", replace(self.config(), check_reachable=False))

    def open_machine(
        self, request: Request, stores: StoreConfig, password: bytes | None, progress: Progress
    ) -> "Machine":
        """Return a machine for runs that have the options and the destination of `request`."""
        from s3unzip.api.options import make_policy
        from s3unzip.local.machine import open_machine

        return open_machine(
            stores,
            make_policy(request.options, password, request.destination),
            self.tuning(),
            self.processes,
            progress=progress,
        )

    def check_locations(self, source: Location, destination: Location | None = None) -> None:
        """Refuse S3 options for locations outside S3, and names that S3 does not allow."""
        config = self.config()
        check_access(config, source, destination)
        check_names(config, source, destination)


def _ask_password(name: str) -> bytes:
    """Ask the user for a password and return it; error messages begin with `name`."""
    if not sys.stdin.isatty():
        raise UsageError(
            f"{name}: standard input is not a terminal; name a file, or set {PASSWORD_VARIABLE}"
        )
    try:
        secret = getpass.getpass("Password: ").encode()
    except UnicodeError:
        raise UsageError(f"{name}: the password is not UTF-8; write it into a file") from None
    if not secret:
        raise UsageError(f"{name}: no password was given")
    return secret


def globs_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return a glob for each argument; a leading slash anchors names at the root of the archive.

    An empty argument, for example from an unset shell variable, matches nothing.
    """
    return tuple(f"/{name}" if name and not has_wildcards(name) else name for name in names)


def _read_pairs(option: RunOption, texts: Iterable[str]) -> dict[str, str]:
    """Return the values of a repeatable option, keyed by the text before their ``=``.

    Content types keep their order, because the first glob that matches is used. Other pairs are
    sorted, so that their order does not change the run's id.
    """
    maps_types = option.form.endswith("=TYPE")  # whether the pairs map globs to content types
    pattern = TYPE if maps_types else PAIR
    pairs: dict[str, str] = {}
    for text in texts:
        match = pattern.fullmatch(text)
        if match is None:
            raise UsageError(f"{option.word} {text}: must be {EXAMPLES[pattern]}")
        if match[1] in pairs:
            raise UsageError(f"{option.word} {text}: {match[1]!r} is given twice")
        pairs[match[1]] = match[2]
    if maps_types:
        return pairs
    return dict(sorted(pairs.items()))


@contextmanager
def hint_at_prefix_if_missing(source: Location) -> Iterator[None]:
    """Add a hint to the error for a missing object: the key may have been meant as a prefix."""
    try:
        yield
    except NotFoundError as error:
        # A key with a suffix is usually the key of a file, not a prefix.
        may_be_prefix = source.store.has_prefixes and "." not in source.key.rpartition("/")[2]
        # An error that does not name the source is about another missing object.
        if may_be_prefix and str(source) in str(error):
            raise NotFoundError(
                f"{error}; if it is a prefix, end it with a slash: {source}/"
            ) from None
        raise
