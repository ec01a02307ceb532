"""The arguments and options of all commands, each declared once, and what they come to.

A command is a function of what is given, with the names of what it takes::

    @command("src names", MEMBERS, ODD, SOURCE, "json")
    def ls(given: Given) -> int: ...
"""

from __future__ import annotations

import getpass
import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click
import msgspec
from msgspec.structs import replace

from s3unzip.errors import UsageError
from s3unzip.local import logs
from s3unzip.local.processors import available_processors
from s3unzip.model import GzipForm, Location, OnConflict, Options
from s3unzip.object_properties import ObjectProperties
from s3unzip.platforms import Platform
from s3unzip.settings import Tuning, machine_tuning, make_tuning
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.early_checks import check_names
from s3unzip.stores.locations import runs_home

if TYPE_CHECKING:
    from s3unzip.operate.runs import DeployedRuns

PASSWORD_VARIABLE = "S3UNZIP_PASSWORD"  # noqa: S105 - a name
TUNING_VARIABLE = "S3UNZIP_TUNING"
S3_ENDPOINT = "AWS_ENDPOINT_URL_S3"
OTHER_HOSTS = "other-hosts"
ASKED = "-"  # in place of a file: the terminal
REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+-[0-9]+\Z")
PAIR = re.compile(r"([^=]*)=(.*)", re.DOTALL)
# A glob may have "=" in it, as in "year=2026/*.csv=text/csv"; so may what follows the type's ";".
TYPE = re.compile(r"([^;]*)=([^/=;]+/[^/=;]+(?:;.*)?)", re.DOTALL)
COUNT, SEVERAL, DOLLARS = click.IntRange(min=0), click.IntRange(min=1), click.FloatRange(min=0.0)

# Names of options that commands share.
MEMBERS = "include exclude member limit"
WHERE = "prefix key_template strip_components"
LOOK = "on_conflict as_gzip nested storage_class acl tag metadata cache_control content_type"
ODD = "password_file lenient encoding"
SERVER = "endpoint_url region profile"
SOURCE = f"{SERVER} addressing_style allow no_sign_request request_payer"
PLACES = f"{SOURCE} dest_endpoint_url dest_profile"
AFTERWARDS = "after_success delete_extra marker"
SECTIONS = {
    "Which members": MEMBERS,
    "Where to": WHERE,
    "How objects look": LOOK,
    "Encrypted and odd archives": ODD,
    "S3 and HTTP": f"{PLACES} dest_no_sign_request kms_key",
    "After the run": AFTERWARDS,
}


def option(words: str, text: str, default: Any = None, **settings: Any) -> Any:
    """Return a field that is an option or, if its words have no dash, an argument.

    `words` are its names and the placeholder of its value, which may be a choice; `text` is its
    help. A default of () means that it may be given several times, one of False that it is a flag.
    """
    names = [word for word in words.split() if word.startswith("-")]
    metavar = next((word for word in words.split() if word not in names), None)
    if metavar is not None and metavar.startswith("<"):
        settings["type"] = click.Choice(metavar.strip("<>").split("|"))
    settings |= {"help": text, "metavar": metavar}
    if names:
        settings |= {"default": default, "show_envvar": True, "show_default": bool(default)}
        settings |= {"is_flag": default is False, "multiple": default == ()}
    elif default is not None:
        settings |= {"nargs": -1} if default == () else {"default": default, "required": False}
    return field(default=default, metadata={"names": names, "settings": settings})


@dataclass(frozen=True)
class Given:
    """What is given to a command; what it does not take has its default."""

    src: str = option("SRC", "The archive: s3://bucket/key, a path, http(s)://...")
    sources: tuple[str, ...] = option(
        "SRC...",
        "Archives: s3://bucket/key, a path, http(s)://...; a folder, a prefix, a glob.",
        (),
    )
    dest: str = option("DEST", "Where members go: s3://bucket/prefix or a folder.", "")
    names: tuple[str, ...] = option("MEMBER...", "Names as ls shows them, folders/ or globs.", ())
    run: str = option("RUN", "A run's id, the beginning of one, or latest.")

    include: tuple[str, ...] = option(
        "--include -i GLOB", "Only members that match; repeatable.", ()
    )
    exclude: tuple[str, ...] = option("--exclude -x GLOB", "No members that match; repeatable.", ())
    member: tuple[str, ...] = option("--member -m NAME", "Only this member; repeatable.", ())
    limit: int | None = option(
        "--limit N", "Only the first N of the selected members.", type=SEVERAL
    )

    prefix: str | None = option(
        "--prefix TEXT", "Put members below DEST/PREFIX instead of the archive's name."
    )
    key_template: str | None = option(
        "--key-template TEXT", "How keys are made; default {archive_stem}/{member}."
    )
    strip_components: int = option(
        "--strip-components N",
        "Leave out N leading folders; members with fewer folders are not extracted.",
        0,
        type=COUNT,
    )

    on_conflict: str = option(
        f"--on-conflict <{'|'.join(OnConflict)}>",
        "What to do if DEST already has the key.",
        "overwrite",
    )
    as_gzip: str | None = option(
        f"--as-gzip <{'|'.join(GzipForm)}>", "Keep deflated members compressed, re-wrapped as gzip."
    )
    nested: int = option(
        "--nested DEPTH",
        "Also extract archives inside the archive, up to DEPTH levels deep.",
        0,
        type=COUNT,
    )
    storage_class: str | None = option(
        "--storage-class CLASS", "Of every object in S3, such as STANDARD_IA."
    )
    acl: str | None = option(
        "--acl NAME", "Canned ACL of every object in S3, such as bucket-owner-full-control."
    )
    tag: tuple[str, ...] = option("--tag KEY=VALUE", "Tag of every object in S3; repeatable.", ())
    metadata: tuple[str, ...] = option(
        "--metadata NAME=VALUE", "Metadata of every object in S3; repeatable.", ()
    )
    cache_control: str | None = option(
        "--cache-control TEXT", "Cache-Control header of every object in S3."
    )
    content_type: tuple[str, ...] = option(
        "--content-type GLOB=TYPE",
        "Type of members that match, instead of their suffix's; the first match counts.",
        (),
    )

    password_file: str | None = option(
        "--password-file FILE",
        f"File with the password of encrypted members; - asks for it; or set {PASSWORD_VARIABLE}.",
    )
    lenient: bool = option(
        "--lenient",
        "Turn checks that are policy into warnings; absolute names lose their slash.",
        False,
    )
    encoding: str | None = option(
        "--encoding TEXT", "Encoding of names that are neither ASCII nor marked as UTF-8."
    )

    endpoint_url: str | None = option(
        "--endpoint-url URL", "An S3-compatible server.", envvar="AWS_ENDPOINT_URL"
    )
    region: str | None = option(
        "--region TEXT", "The buckets' region.", envvar=["AWS_REGION", "AWS_DEFAULT_REGION"]
    )
    profile: str | None = option("--profile TEXT", "Profile of ~/.aws/config.")
    addressing_style: str | None = option(
        "--addressing-style <path|virtual>",
        "Where requests have the bucket: in the path or in the host name.",
    )
    allow: tuple[str, ...] = option(
        f"--allow <{OTHER_HOSTS}>", "Let an HTTP source redirect to other hosts.", ()
    )
    no_sign_request: bool = option(
        "--no-sign-request", "Read a public archive in S3 without credentials.", False
    )
    request_payer: bool = option(
        "--request-payer", "Pay for reading SRC from a Requester Pays bucket.", False
    )
    dest_endpoint_url: str | None = option(
        "--dest-endpoint-url URL", "DEST's server; default: --endpoint-url."
    )
    dest_profile: str | None = option(
        "--dest-profile PROFILE", "Profile for DEST; default: --profile."
    )
    dest_no_sign_request: bool = option(
        "--dest-no-sign-request", "Read a public DEST without credentials.", False
    )
    kms_key: str | None = option("--kms-key ARN", "Encrypt what is written to S3 with this key.")

    after_success: str | None = option(
        "--after-success ACTION",
        "Delete the archive, or tag=NAME=VALUE, if all of it is extracted.",
    )
    delete_extra: int | None = option(
        "--delete-extra N",
        "Delete up to N other objects below the prefix; asks first on a terminal.",
        type=SEVERAL,
    )
    marker: bool = option(
        "--marker", "Write the object _SUCCESS last, if all members are extracted.", False
    )

    verbose: int = option(
        "--verbose -v",
        "Log retries and decisions to stderr; -vv: every request to a store.",
        0,
        count=True,
    )
    workers: int | None = option(
        "--workers -w N", "Processes at most; default: one for each CPU.", type=SEVERAL
    )
    env: str | None = option("--env NAME", "The environment: its stack is s3unzip-NAME.")
    max_cost: float | None = option(
        "--max-cost NUMBER", "Exit with 2 if the estimate is above so many dollars.", type=DOLLARS
    )
    json: bool = option("--json", "Print JSON on stdout.", False)
    quiet: bool = option("--quiet -q", "No progress, no report.", False)
    dry_run: bool = option(
        "--dry-run", "List the keys and what would be done; write nothing.", False
    )
    platform: str | None = option("--on TEXT", "Estimate for aws or local; default: local.")
    deep: bool = option("--deep", "Read every object; trust no record and no stored CRC-32.", False)
    no_records: bool = option("--no-records", "Ignore what runs recorded of the objects.", False)
    listed: int = option(
        "--list N", "Differences of each kind to list; all are counted.", 20, type=COUNT
    )
    at_once: int = option(
        "--at-once N", "HEADs in flight; with --deep, GETs.", 64, type=click.IntRange(1, 512)
    )
    objects: str | None = option(
        "--objects FILE", "Write a JSON line for each object: its key and what proves its content."
    )
    newest: int = option("--limit N", "How many runs to list.", 50, type=SEVERAL)
    failures: bool = option("--failures", "List every failed member.", False)
    html: bool = option("--html", "Open the report page; print where it is.", False)
    failed: bool = option("--failed", "Try the failed members again.", False)
    every: float = option(
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
        type=DOLLARS,
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
        secret = f"file:{self.password_file}" if self.password_file is not None else None
        if self.password_file == ASKED:
            secret = "prompt"  # noqa: S105 - says where it is
        elif secret is None and os.environ.get(PASSWORD_VARIABLE):
            secret = f"variable:{PASSWORD_VARIABLE}"
        return Options(
            self.template() or Options().key_template,
            OnConflict(self.on_conflict),
            globs_of(self.names) + self.include,
            self.exclude,
            self.strip_components,
            self.member,
            self.limit,
            lenient=self.lenient,
            encoding=self.encoding,
            as_gzip=None if self.as_gzip is None else GzipForm(self.as_gzip),
            password_ref=secret,
            nested_depth=self.nested,
            marker=self.marker,
            objects=self._properties(),
        )

    def template(self) -> str | None:
        """Return the key template that the options ask for; None: they ask for none."""
        if self.prefix is None:
            return self.key_template
        if self.key_template is not None:
            raise UsageError("--prefix and --key-template: give one of them")
        return f"{self.prefix.strip('/')}/{{member}}".removeprefix("/")

    def _properties(self) -> ObjectProperties | None:
        """Return what is set on objects in S3."""
        # Another order of names is the same run; of types the first that fits counts.
        chosen = ObjectProperties(
            storage_class=self.storage_class,
            cache_control=self.cache_control,
            content_types=_read_pairs("--content-type", self.content_type, TYPE),
            metadata=dict(sorted(_read_pairs("--metadata", self.metadata).items())),
            tags=dict(sorted(_read_pairs("--tag", self.tag).items())),
            acl=self.acl,
        )
        chosen.check()
        return None if chosen == ObjectProperties() else chosen

    def password(self) -> bytes | None:
        """Return the password of encrypted members, None if there is none."""
        if self.password_file is None:
            return os.environ.get(PASSWORD_VARIABLE, "").encode() or None
        where, lacks = f"--password-file {self.password_file}", "is empty"
        if self.password_file != ASKED:
            try:
                line = Path(self.password_file).read_bytes()
            except OSError as error:
                raise UsageError(f"{where}: {error.strerror}") from error
            secret = line.removesuffix(b"\n").removesuffix(b"\r")
        elif sys.stdin.isatty():
            secret, lacks = getpass.getpass("Password: ").encode(), "no password was given"
        else:
            raise UsageError(
                f"{where}: standard input is no terminal; name a file, or set {PASSWORD_VARIABLE}"
            )
        if not secret:
            raise UsageError(f"{where}: {lacks}")
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
        if self.no_sign_request and self.request_payer:
            raise UsageError(
                "--no-sign-request and --request-payer: give one of them, because S3 must know "
                "who pays"
            )
        check_endpoint(self.endpoint_url)
        if S3_ENDPOINT in os.environ:  # botocore reads it
            check_endpoint(os.environ[S3_ENDPOINT], S3_ENDPOINT)
        check_endpoint(self.dest_endpoint_url, "--dest-endpoint-url")
        if self.region is not None:  # an S3-compatible server may call its region anything
            form = REGION if self.endpoint_url is None else re.compile(r"[A-Za-z0-9-]+\Z")
            if not form.match(self.region):
                raise UsageError(
                    f"--region {self.region!r}: not a region; they look like eu-west-1"
                )
        return StoreConfig(
            runs_home(),
            self.endpoint_url,
            self.region,
            self.profile,
            addressing_style=self.addressing_style,
            unsigned=self.no_sign_request,
            request_payer=self.request_payer,
            destination_endpoint_url=self.dest_endpoint_url,
            destination_profile=self.dest_profile,
            destination_unsigned=self.dest_no_sign_request,
            destination_kms_key=self.kms_key,
            other_hosts=OTHER_HOSTS in self.allow,
            check_reachable=True,
        )

    def deployed(self) -> DeployedRuns:
        """Return the runs of the deployed environment; `NotFoundError`: it is not there."""
        from s3unzip.operate.runs import DeployedRuns

        return DeployedRuns(self.env or "", replace(self.config(), check_reachable=False))

    def check_places(self, where: Location, destination: Location | None = None) -> None:
        """Refuse options of S3 for other places, and names that S3 does not have."""
        if where.scheme != "s3" and (self.no_sign_request or self.request_payer):
            raise UsageError(f"{where}: --no-sign-request and --request-payer are for S3")
        names = ("dest_endpoint_url", "dest_profile", "kms_key", "dest_no_sign_request")
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name)]
        if destination is not None and destination.scheme != "s3" and given:
            verb = "is" if len(given) == 1 else "are"
            raise UsageError(f"{destination}: {' and '.join(given)} {verb} for S3")
        check_names(self.config(), where, destination)


class GroupedCommand(click.Command):
    """A command whose help shows its options by sections."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what is typed; every mistake knows the command whose help says what is right."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below the titles of their sections."""
        options = {one.name: one for one in self.get_params(ctx) if isinstance(one, click.Option)}
        for title, names in (SECTIONS | {"Options": " ".join(filter(None, options))}).items():
            shown = [options.pop(name) for name in names.split() if name in options]
            records = [one.get_help_record(ctx) for one in shown]
            if records:
                with formatter.section(title):
                    formatter.write_dl(list(filter(None, records)))


def command(
    *names: str, **changes: dict[str, Any]
) -> Callable[[Callable[[Given], int]], click.Command]:
    """Return what makes a command of a function, whose docstring is the help.

    It takes the fields of `Given` that `names` name, some of them with other settings.
    """

    def make(act: Callable[[Given], int]) -> click.Command:
        def start(**typed: Any) -> int:
            given = Given(**typed)
            _start_logging(given.verbose)
            return act(given)

        params: list[click.Parameter] = []
        for name in " ".join((*names, "verbose")).split():
            declared = Given.__dataclass_fields__[name].metadata
            settings, words = declared["settings"] | changes.get(name, {}), declared["names"]
            if settings.get("required"):
                settings.pop("default", None)
            params.append((click.Option if words else click.Argument)([name, *words], **settings))
        return GroupedCommand(
            act.__name__,
            params=params,
            callback=start,
            help=act.__doc__,
            context_settings={"help_option_names": ["-h", "--help"]},
        )

    return make


def _start_logging(verbose: int) -> None:
    """Start logging as this process and its workers are asked to."""
    if verbose:
        os.environ[logs.LOG_LEVEL] = "info" if verbose == 1 else "debug"
    level = os.environ.get(logs.LOG_LEVEL)
    known = ("error", "warning", "info", "debug")
    if level and level.lower() not in known:
        raise UsageError(f"{logs.LOG_LEVEL}={level}: is not one of {', '.join(known)}")
    logs.start_logging()


def globs_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return globs for names, folders and globs that were given as arguments."""
    return tuple(one if set(one) & set("*?[") else f"/{one}" for one in names)


def _read_pairs(name: str, texts: Iterable[str], form: re.Pattern[str] = PAIR) -> dict[str, str]:
    """Return the values of a repeatable option by what stands before their ``=``."""
    found: dict[str, str] = {}
    for text in texts:
        read = form.fullmatch(text)
        if read is None:
            like = "NAME=VALUE" if form is PAIR else "GLOB=TYPE, like '*.csv=text/csv'"
            raise UsageError(f"{name} {text}: must be {like}")
        if read[1] in found:
            raise UsageError(f"{name} {text}: {read[1]!r} is given twice")
        found[read[1]] = read[2]
    return found


def check_endpoint(url: str | None, name: str = "--endpoint-url") -> None:
    """Check that `url` is one of an S3-compatible server; `UsageError`: it is not."""
    if url is None:
        return
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is not a number, or a broken IPv6 address
        fits = False
    if not fits or re.search(r"[\s\x00-\x1f\x7f]", url):
        like = "" if "/" in url else f", like http://{url}"
        raise UsageError(f"{name} {url}: not a URL that begins with http:// or https://{like}")
