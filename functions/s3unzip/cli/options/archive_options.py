"""Options that several commands share, in groups, and what becomes of them."""

from __future__ import annotations

import dataclasses
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli.options.messages import OptionGroup
from s3unzip.errors import UsageError
from s3unzip.model import GzipForm, Options

if TYPE_CHECKING:
    from collections.abc import Sequence


PASSWORD_VARIABLE = "S3UNZIP_PASSWORD"  # noqa: S105 - a name


Source = Annotated[
    str,
    typer.Argument(
        metavar="SRC", help="The archive: s3://bucket/key, a path, http(s)://..., - for a pipe."
    ),
]
Sources = Annotated[
    list[str],
    typer.Argument(
        default_factory=list,
        metavar="SRC...",
        show_default=False,
        help="Archives: s3://bucket/key, a path, http(s)://..., -; a folder, a prefix, a glob.",
    ),
]
Dest = Annotated[
    str, typer.Argument(metavar="DEST", help="Where members go: s3://bucket/prefix or a folder.")
]
RunId = Annotated[
    str, typer.Argument(metavar="RUN", help="A run's id, the beginning of one, or latest.")
]
Env = Annotated[
    str | None,
    typer.Option("--env", metavar="NAME", help="The environment: its stack is s3unzip-NAME."),
]
RequiredEnv = Annotated[
    str,
    typer.Option("--env", metavar="NAME", help="The environment: its stack is s3unzip-NAME."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress, no report.")]
AsGzip = Annotated[
    GzipForm | None,
    typer.Option("--as-gzip", help="Keep deflated members compressed, re-wrapped as gzip."),
]
MaxCost = Annotated[
    float | None,
    typer.Option("--max-cost", min=0.0, help="Refuse a run with a forecast above so many dollars."),
]
AfterSuccess = Annotated[
    str | None,
    typer.Option(
        "--after-success",
        metavar="ACTION",
        help="Then delete the archive, move=LOCATION, or tag=NAME=VALUE, if all is extracted.",
    ),
]


@dataclass(frozen=True)
class Selection(OptionGroup):
    """Which members."""

    include: Annotated[
        list[str] | None,
        typer.Option(
            "--include", "-i", metavar="GLOB", help="Only members that match; repeatable."
        ),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option("--exclude", "-x", metavar="GLOB", help="No members that match; repeatable."),
    ] = None
    member: Annotated[
        list[str] | None,
        typer.Option("--member", "-m", metavar="NAME", help="Only this member; repeatable."),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option("--limit", min=1, help="Only the first N of the selected members."),
    ] = None

    def with_members(self, members: Sequence[str]) -> Selection:
        """Return the selection with names, folders and globs that were given as arguments."""
        globs = [one if set(one) & set("*?[") else f"/{one}" for one in members]
        return dataclasses.replace(self, include=[*globs, *(self.include or ())] or None)


@dataclass(frozen=True)
class Layout(OptionGroup):
    """Under which keys."""

    prefix: Annotated[
        str | None,
        typer.Option(
            "--prefix", help="Put members below DEST/PREFIX instead of the archive's name."
        ),
    ] = None
    key_template: Annotated[
        str | None,
        typer.Option("--key-template", help="How keys are made; default {archive_stem}/{member}."),
    ] = None

    strip_components: Annotated[
        int,
        typer.Option(
            "--strip-components",
            metavar="N",
            min=0,
            help="Leave out N leading folders; members with fewer folders are not extracted.",
        ),
    ] = 0
    flatten: Annotated[
        bool,
        typer.Option(
            "--flatten", help="Leave out all folders; two members with one name are refused."
        ),
    ] = False

    @property
    def template(self) -> str | None:
        """The key template that the options ask for; None: they ask for none.

        Raises:
            UsageError: both ways to give one are used.
        """
        if self.key_template is not None and (self.flatten or self.prefix is not None):
            other = "--flatten" if self.prefix is None else "--prefix"
            raise UsageError(f"{other} and --key-template: give one of them")
        member = "{name}" if self.flatten else "{member}"
        if self.prefix is None:
            return f"{{archive_stem}}/{member}" if self.flatten else self.key_template
        cleaned = self.prefix.strip("/")
        return f"{cleaned}/{member}" if cleaned else member


@dataclass(frozen=True)
class Password(OptionGroup):
    """Where the password of encrypted members is."""

    password_file: Annotated[
        Path | None,
        typer.Option(
            "--password-file",
            help=f"File with the password of encrypted members; or set {PASSWORD_VARIABLE}.",
        ),
    ] = None
    ask_password: Annotated[
        bool, typer.Option("--ask-password", help="Ask for the password on the terminal.")
    ] = False

    def read(self) -> bytes | None:
        """Return the password, None if there is none.

        Raises:
            UsageError: the file cannot be read or is empty, or nobody can be asked.
        """
        if self.password_file is not None and self.ask_password:
            raise UsageError("--password-file and --ask-password: give one of them")
        if self.password_file is not None:
            return _read_password_file(self.password_file)
        if self.ask_password:
            return _ask_password()
        return os.environ.get(PASSWORD_VARIABLE, "").encode() or None

    @property
    def reference(self) -> str | None:
        """Where the password is, never the password: fit for the records of a run."""
        if self.password_file is not None:
            return f"file:{self.password_file}"
        if self.ask_password:
            return "prompt"
        return f"variable:{PASSWORD_VARIABLE}" if os.environ.get(PASSWORD_VARIABLE) else None


@dataclass(frozen=True)
class Reading(Password):
    """How the archive is read."""

    lenient: Annotated[
        bool, typer.Option("--lenient", help="Turn checks that are policy into warnings.")
    ] = False
    encoding: Annotated[
        str | None,
        typer.Option(
            "--encoding", help="Encoding of names that are neither ASCII nor marked as UTF-8."
        ),
    ] = None


def make_options(
    selection: Selection, layout: Layout, reading: Reading, *, as_gzip: GzipForm | None = None
) -> Options:
    """Return a run's options from a command's.

    Raises:
        UsageError: two of them exclude each other.
    """
    return Options(
        key_template=layout.template or Options().key_template,
        include=tuple(selection.include or ()),
        exclude=tuple(selection.exclude or ()),
        names=tuple(selection.member or ()),
        limit=selection.limit,
        strip_components=layout.strip_components,
        lenient=reading.lenient,
        encoding=reading.encoding,
        as_gzip=as_gzip,
    )


def _read_password_file(path: Path) -> bytes:
    """Return the password in a file, without its last line end.

    Raises:
        UsageError: the file cannot be read or is empty.
    """
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
            f"--ask-password: standard input is no terminal; use --password-file or "
            f"{PASSWORD_VARIABLE}"
        )
    import getpass

    password = getpass.getpass("Password: ").encode()
    if not password:
        raise UsageError("--ask-password: no password was given")
    return password
