"""Commands and their options: a command is a dataclass whose fields are its arguments and options.

Options that commands share are groups: classes that a command inherits from. What a group stands
for (the options of a run, how stores are reached) is built by methods that call ``super()``::

    class Listing(Selection, SourceConnection):
        src: str = argument("SRC", help="The archive.")

        def act(self) -> int: ...
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import click
from msgspec.structs import replace

from s3unzip.errors import UsageError
from s3unzip.model import GzipForm, OnConflict, Options
from s3unzip.settings import make_tuning
from s3unzip.stores.locations import runs_home

if TYPE_CHECKING:
    from collections.abc import Iterable

    from s3unzip.model import Location
    from s3unzip.object_properties import ObjectProperties
    from s3unzip.settings import Tuning
    from s3unzip.stores.factory import StoreConfig

PASSWORD_VARIABLE = "S3UNZIP_PASSWORD"  # noqa: S105 - a name
TUNING_VARIABLE = "S3UNZIP_TUNING"
S3_ENDPOINT = "AWS_ENDPOINT_URL_S3"
OTHER_HOSTS = "other-hosts"
ASKED = "-"  # in place of a file: the terminal
REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+-[0-9]+\Z")
# A glob may have "=" in it, as in "year=2026/*.csv=text/csv"; so may what follows the type's ";".
TYPE = re.compile(r"(?P<glob>[^;]*)=(?P<kind>[^/=;]+/[^/=;]+(;.*)?)", re.DOTALL)

MEMBERS, WHERE, LOOK = "Which members", "Where to", "How objects look"
SERVERS, ODD, AFTERWARDS = "S3 and HTTP", "Encrypted and odd archives", "After the run"
OTHERS = "Options"
SECTIONS = (MEMBERS, WHERE, LOOK, ODD, SERVERS, AFTERWARDS, OTHERS)
PLACEHOLDERS = {"integer": "N", "integer range": "N", "float": "NUMBER", "float range": "NUMBER"}


def option(*names: str, default: Any = None, **settings: Any) -> Any:
    """Return a field that is an option; `settings` are those of `click.Option`."""
    if settings.get("multiple"):
        default = ()
    if not settings.get("required"):
        settings["default"] = default
    settings |= {"show_envvar": True, "show_default": bool(default)}
    if default is False:
        settings["is_flag"] = True
    return field(default=default, metadata={"names": names, "settings": settings})


def argument(metavar: str, **settings: Any) -> Any:
    """Return a field that is an argument; `settings` are those of `click.Argument`."""
    default = () if settings.get("nargs") == -1 else settings.get("default")
    settings["metavar"] = metavar
    return field(default=default, metadata={"settings": settings})


def choice(values: Iterable[object]) -> click.Choice[str]:
    """Return the type of an option that takes one of `values`."""
    return click.Choice([str(value) for value in values])


class GroupedCommand(click.Command):
    """A command whose help shows its options by sections."""

    sections: dict[str, str]  # by the name of a parameter

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse what is typed; every mistake knows the command whose help says what is right."""
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below the titles of their sections."""
        records: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                records[self.sections.get(parameter.name or "", OTHERS)].append(record)
        for title in SECTIONS:
            if records[title]:
                with formatter.section(title):
                    formatter.write_dl(records[title])


@dataclass(frozen=True)
class Command:
    """What every command has. Its docstring is its help."""

    section: ClassVar[str] = OTHERS

    verbose: int = option(
        "-v",
        "--verbose",
        count=True,
        default=0,
        help="Log retries and decisions to stderr; -vv: every request to a store.",
    )

    def act(self) -> int:
        """Do what the command is for; return the exit code."""
        raise NotImplementedError

    def options(self) -> Options:
        """Return the options of a run.

        Raises:
            UsageError: an option is wrong.
        """
        return Options()

    def start(self) -> int:
        """Start logging as this process and its workers are asked to, then do the work."""
        from s3unzip.local import logs

        if self.verbose:
            os.environ[logs.LOG_LEVEL] = "info" if self.verbose == 1 else "debug"
        level = os.environ.get(logs.LOG_LEVEL)
        known = ("error", "warning", "info", "debug")
        if level and level.lower() not in known:
            raise UsageError(f"{logs.LOG_LEVEL}={level}: is not one of {', '.join(known)}")
        logs.start_logging()
        return self.act()


def make_command(name: str, kind: type[Command]) -> click.Command:
    """Return the command that makes a `kind` of what is typed, and starts it."""
    parameters, sections = [], {}
    for one in fields(kind):
        parameters.append(_make_parameter(one.name, **one.metadata))
        owner = next(c for c in kind.__mro__ if one.name in vars(c).get("__annotations__", {}))
        sections[one.name] = vars(owner).get("section", OTHERS)
    parameters.sort(key=lambda one: SECTIONS.index(sections[one.name or ""]))
    command = GroupedCommand(
        name,
        params=parameters,
        callback=lambda **typed: kind(**typed).start(),
        help=kind.__doc__,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    command.sections = sections
    return command


def _make_parameter(
    name: str, settings: dict[str, Any], names: tuple[str, ...] = ()
) -> click.Parameter:
    if not names:
        return click.Argument([name], **settings)
    made = click.Option([name, *sorted(names, key=len, reverse=True)], **settings)
    if made.metavar is None and not (made.is_flag or made.count):
        made.metavar = PLACEHOLDERS.get(made.type.name, "TEXT")
        if isinstance(made.type, click.Choice):
            made.metavar = f"<{'|'.join(made.type.choices)}>"
    return made


def source() -> Any:
    """Return the argument for one archive."""
    return argument("SRC", help="The archive: s3://bucket/key, a path, http(s)://...")


def run_id(default: str | None = None) -> Any:
    """Return the argument for a run."""
    shown = "RUN" if default is None else "[RUN]"
    return argument(shown, default=default, help="A run's id, the beginning of one, or latest.")


def environment(*, required: bool = False) -> Any:
    """Return the option for a deployed environment."""
    help_text = "The environment: its stack is s3unzip-NAME."
    return option("--env", metavar="NAME", required=required, help=help_text)


def json() -> Any:
    """Return the option that prints JSON."""
    return option("--json", default=False, help="Print JSON on stdout.")


def quiet() -> Any:
    """Return the option that prints no progress and no report."""
    return option("-q", "--quiet", default=False, help="No progress, no report.")


def as_gzip() -> Any:
    """Return the option that keeps members compressed."""
    return option(
        "--as-gzip",
        type=choice(GzipForm),
        help="Keep deflated members compressed, re-wrapped as gzip.",
    )


def max_cost() -> Any:
    """Return the option that is a budget."""
    return option(
        "--max-cost",
        type=click.FloatRange(min=0.0),
        help="Exit with 2 if the estimate is above so many dollars.",
    )


@dataclass(frozen=True)
class Selection(Command):
    """Which members."""

    section = MEMBERS

    include: tuple[str, ...] = option(
        "-i",
        "--include",
        metavar="GLOB",
        multiple=True,
        help="Only members that match; repeatable.",
    )
    exclude: tuple[str, ...] = option(
        "-x", "--exclude", metavar="GLOB", multiple=True, help="No members that match; repeatable."
    )
    member: tuple[str, ...] = option(
        "-m", "--member", metavar="NAME", multiple=True, help="Only this member; repeatable."
    )
    limit: int | None = option(
        "--limit", type=click.IntRange(min=1), help="Only the first N of the selected members."
    )

    def options(self) -> Options:
        """Return the options of a run."""
        return replace(
            super().options(),
            include=self.include,
            exclude=self.exclude,
            names=self.member,
            limit=self.limit,
        )


def globs_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return globs for names, folders and globs that were given as arguments."""
    return tuple(one if set(one) & set("*?[") else f"/{one}" for one in names)


@dataclass(frozen=True)
class Layout(Command):
    """Under which keys."""

    section = WHERE

    prefix: str | None = option(
        "--prefix", help="Put members below DEST/PREFIX instead of the archive's name."
    )
    key_template: str | None = option(
        "--key-template", help="How keys are made; default {archive_stem}/{member}."
    )
    strip_components: int = option(
        "--strip-components",
        type=click.IntRange(min=0),
        default=0,
        help="Leave out N leading folders; members with fewer folders are not extracted.",
    )

    def template(self) -> str | None:
        """Return the key template that the options ask for; None: they ask for none.

        Raises:
            UsageError: both ways to give one are used.
        """
        if self.prefix is None:
            return self.key_template
        if self.key_template is not None:
            raise UsageError("--prefix and --key-template: give one of them")
        cleaned = self.prefix.strip("/")
        return f"{cleaned}/{{member}}" if cleaned else "{member}"

    def options(self) -> Options:
        """Return the options of a run."""
        made = super().options()
        template = self.template() or made.key_template
        return replace(made, key_template=template, strip_components=self.strip_components)


@dataclass(frozen=True)
class Password(Command):
    """Where the password of encrypted members is."""

    section = ODD

    password_file: str | None = option(
        "--password-file",
        metavar="FILE",
        help="File with the password of encrypted members; - asks for it; or set "
        f"{PASSWORD_VARIABLE}.",
    )

    def read_password(self) -> bytes | None:
        """Return the password, None if there is none.

        Raises:
            UsageError: the file cannot be read or is empty, or nobody can be asked.
        """
        if self.password_file == ASKED:
            return _ask_password()
        if self.password_file is not None:
            return _read_password_file(Path(self.password_file))
        return os.environ.get(PASSWORD_VARIABLE, "").encode() or None

    def options(self) -> Options:
        """Return the options of a run; they say where the password is, never the password."""
        where = None
        if self.password_file is not None:
            where = "prompt" if self.password_file == ASKED else f"file:{self.password_file}"
        elif os.environ.get(PASSWORD_VARIABLE):
            where = f"variable:{PASSWORD_VARIABLE}"
        return replace(super().options(), password_ref=where)


def _read_password_file(path: Path) -> bytes:
    """Return the password in a file, without its last line end."""
    try:
        password = path.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
    except OSError as error:
        raise UsageError(f"--password-file {path}: {error.strerror}") from error
    if not password:
        raise UsageError(f"--password-file {path}: is empty")
    return password


def _ask_password() -> bytes:
    if not sys.stdin.isatty():
        raise UsageError(
            f"--password-file -: standard input is no terminal; name a file, or set "
            f"{PASSWORD_VARIABLE}"
        )
    import getpass

    password = getpass.getpass("Password: ").encode()
    if not password:
        raise UsageError("--password-file -: no password was given")
    return password


@dataclass(frozen=True)
class Reading(Password):
    """How the archive is read."""

    section = ODD

    lenient: bool = option(
        "--lenient",
        default=False,
        help="Turn checks that are policy into warnings; absolute names lose their slash.",
    )
    encoding: str | None = option(
        "--encoding", help="Encoding of names that are neither ASCII nor marked as UTF-8."
    )

    def options(self) -> Options:
        """Return the options of a run."""
        return replace(super().options(), lenient=self.lenient, encoding=self.encoding)


@dataclass(frozen=True)
class Power(Command):
    """How much of this machine."""

    workers: int | None = option(
        "-w",
        "--workers",
        type=click.IntRange(min=1),
        help="Worker processes; default: one for each CPU.",
    )

    @property
    def processes(self) -> int:
        """Worker processes of a run on this machine."""
        from s3unzip.local.processors import available_processors

        return self.workers or len(available_processors())

    def tuning(self, workers: int, base: Tuning | None = None) -> Tuning:
        """Return the tuning of a run with so many workers; a variable may change more of it.

        Raises:
            UsageError: the variable is no JSON object, or has an unknown name or a bad number.
        """
        import msgspec

        text = os.environ.get(TUNING_VARIABLE) or "{}"
        try:
            changes = msgspec.json.decode(text, type=dict[str, object])
        except msgspec.MsgspecError as error:
            raise UsageError(f"{TUNING_VARIABLE}={text}: no JSON object: {error}") from None
        return make_tuning({"max_workers": workers} | changes, base)


@dataclass(frozen=True)
class Objects(Command):
    """What is set on the objects of a destination in S3."""

    section = LOOK

    storage_class: str | None = option(
        "--storage-class", metavar="CLASS", help="Of every object in S3, such as STANDARD_IA."
    )
    tag: tuple[str, ...] = option(
        "--tag", metavar="KEY=VALUE", multiple=True, help="Tag of every object in S3; repeatable."
    )
    metadata: tuple[str, ...] = option(
        "--metadata",
        metavar="NAME=VALUE",
        multiple=True,
        help="Metadata of every object in S3; repeatable.",
    )
    cache_control: str | None = option(
        "--cache-control", help="Cache-Control header of every object in S3."
    )
    content_type: tuple[str, ...] = option(
        "--content-type",
        metavar="GLOB=TYPE",
        multiple=True,
        help="Type of members that match, instead of their suffix's; the first match counts.",
    )

    def options(self) -> Options:
        """Return the options of a run."""
        return replace(super().options(), objects=self._properties())

    def _properties(self) -> ObjectProperties | None:
        lists = self.tag, self.metadata, self.content_type
        if (self.storage_class, self.cache_control) == (None, None) and not any(lists):
            return None
        from s3unzip.object_properties import ObjectProperties

        chosen = ObjectProperties(
            storage_class=self.storage_class,
            cache_control=self.cache_control,
            content_types=_read_types(self.content_type),
            metadata=_read_pairs("--metadata", self.metadata),
            tags=_read_pairs("--tag", self.tag),
        )
        chosen.check()
        return chosen


def _read_pairs(name: str, texts: Iterable[str]) -> dict[str, str]:
    """Return values by name, by the order of the names: another order is the same run."""
    found: dict[str, str] = {}
    for text in texts:
        key, mark, value = text.partition("=")
        if not mark:
            raise UsageError(f"{name} {text}: must be NAME=VALUE")
        if key in found:
            raise UsageError(f"{name} {text}: {key!r} is given twice")
        found[key] = value
    return dict(sorted(found.items()))


def _read_types(texts: Iterable[str]) -> dict[str, str]:
    """Return types by glob, in their order: the first that fits counts."""
    found: dict[str, str] = {}
    for text in texts:
        read = TYPE.fullmatch(text)
        if read is None:
            raise UsageError(f"--content-type {text}: must be GLOB=TYPE, like '*.csv=text/csv'")
        if read["glob"] in found:
            raise UsageError(f"--content-type {text}: {read['glob']!r} is given twice")
        found[read["glob"]] = read["kind"]
    return found


@dataclass(frozen=True)
class Writing(Command):
    """What is written for each member."""

    section = LOOK

    on_conflict: str = option(
        "--on-conflict",
        type=choice(OnConflict),
        default="overwrite",
        help="What to do if DEST already has the key.",
    )
    as_gzip: str | None = as_gzip()
    nested: int = option(
        "--nested",
        metavar="DEPTH",
        type=click.IntRange(min=0),
        default=0,
        help="Also extract archives inside the archive, up to DEPTH levels deep.",
    )

    def options(self) -> Options:
        """Return the options of a run."""
        return replace(
            super().options(),
            on_conflict=OnConflict(self.on_conflict),
            as_gzip=None if self.as_gzip is None else GzipForm(self.as_gzip),
            nested_depth=self.nested,
        )


@dataclass(frozen=True)
class Connection(Command):
    """How S3 is reached; the archive's server where others are named for the destination."""

    section = SERVERS

    endpoint_url: str | None = option(
        "--endpoint-url", metavar="URL", envvar="AWS_ENDPOINT_URL", help="An S3-compatible server."
    )
    region: str | None = option(
        "--region", envvar=["AWS_REGION", "AWS_DEFAULT_REGION"], help="The buckets' region."
    )
    profile: str | None = option("--profile", help="Profile of ~/.aws/config.")

    def config(self) -> StoreConfig:
        """Return how stores are opened.

        Raises:
            UsageError: the endpoint is not a URL of HTTP, or the region has no region's form.
        """
        from s3unzip.stores.factory import StoreConfig

        if self.endpoint_url is not None:
            check_endpoint(self.endpoint_url)
        if S3_ENDPOINT in os.environ:  # botocore reads it
            check_endpoint(os.environ[S3_ENDPOINT], S3_ENDPOINT)
        if self.region is not None:
            _check_region(self.region, own_server=self.endpoint_url is not None)
        return StoreConfig(
            runs_home(), self.endpoint_url, self.region, self.profile, check_reachable=True
        )


@dataclass(frozen=True)
class SourceConnection(Connection):
    """How the archive is reached."""

    section = SERVERS

    allow: tuple[str, ...] = option(
        "--allow",
        type=choice([OTHER_HOSTS]),
        multiple=True,
        help="Let an HTTP source redirect to other hosts.",
    )
    no_sign_request: bool = option(
        "--no-sign-request", default=False, help="Read a public archive in S3 without credentials."
    )
    request_payer: bool = option(
        "--request-payer", default=False, help="Pay for reading SRC from a Requester Pays bucket."
    )

    def check_source(self, where: Location) -> None:
        """Refuse options of S3 for another source.

        Raises:
            UsageError: there are such.
        """
        if where.scheme != "s3" and (self.no_sign_request or self.request_payer):
            raise UsageError(f"{where}: --no-sign-request and --request-payer are for S3")

    def config(self) -> StoreConfig:
        """Return how stores are opened.

        Raises:
            UsageError: as of `Connection`; or two options exclude each other.
        """
        if self.no_sign_request and self.request_payer:
            raise UsageError(
                "--no-sign-request and --request-payer: give one of them, because S3 must know "
                "who pays"
            )
        return replace(
            super().config(),
            other_hosts=OTHER_HOSTS in self.allow,
            unsigned=self.no_sign_request,
            request_payer=self.request_payer,
        )


@dataclass(frozen=True)
class DestinationConnection(SourceConnection):
    """How the archive and the destination are reached."""

    section = SERVERS

    dest_endpoint_url: str | None = option(
        "--dest-endpoint-url", metavar="URL", help="DEST's server; default: --endpoint-url."
    )
    dest_profile: str | None = option(
        "--dest-profile", metavar="PROFILE", help="Profile for DEST; default: --profile."
    )

    def config(self) -> StoreConfig:
        """Return how stores are opened.

        Raises:
            UsageError: as of `SourceConnection`; or the destination's endpoint is no URL of HTTP.
        """
        if self.dest_endpoint_url is not None:
            check_endpoint(self.dest_endpoint_url, "--dest-endpoint-url")
        return replace(
            super().config(),
            destination_endpoint_url=self.dest_endpoint_url,
            destination_profile=self.dest_profile,
        )

    def check_places(self, where: Location, destination: Location) -> None:
        """Refuse options of S3 for other places.

        Raises:
            UsageError: there are such.
        """
        self.check_source(where)
        names = [one.name for one in fields(self) if one.name.startswith(("dest_", "kms_"))]
        given = [f"--{name.replace('_', '-')}" for name in names if getattr(self, name)]
        if destination.scheme != "s3" and given:
            verb = "is" if len(given) == 1 else "are"
            raise UsageError(f"{destination}: {' and '.join(given)} {verb} for S3")


@dataclass(frozen=True)
class RunConnection(DestinationConnection):
    """How the archive is read, and how the destination is written."""

    section = SERVERS

    kms_key: str | None = option(
        "--kms-key", metavar="ARN", help="Encrypt what is written to S3 with this key."
    )

    def config(self) -> StoreConfig:
        """Return how stores are opened.

        Raises:
            UsageError: as of `DestinationConnection`.
        """
        return replace(super().config(), destination_kms_key=self.kms_key)


def check_endpoint(url: str, name: str = "--endpoint-url") -> None:
    """Check that `url` is one of an S3-compatible server.

    Raises:
        UsageError: it is not.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
    except ValueError:  # a port that is not a number, or a broken IPv6 address
        fits = False
    if fits and not re.search(r"[\s\x00-\x1f\x7f]", url):
        return
    like = "" if "/" in url else f", like http://{url}"
    raise UsageError(f"{name} {url}: not a URL that begins with http:// or https://{like}")


def _check_region(region: str, *, own_server: bool) -> None:
    """Check that `region` can be one; an S3-compatible server may call its region anything."""
    fits = re.fullmatch(r"[A-Za-z0-9-]+", region) if own_server else REGION.match(region)
    if not fits:
        raise UsageError(f"--region {region!r}: not a region; they look like eu-west-1")
