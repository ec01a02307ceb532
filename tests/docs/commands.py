"""The commands in README.md and docs/, held against what they name, and the archives they take.

A fenced block marked ``sh`` or ``console`` is commands, a line each: in
``console`` those after ``$``, the rest is what they print. Two remarks are
understood: ``# exit 1`` is the exit code of a command that does not end with 0,
and a trailing backslash continues a line.
"""

import random
import re
import shlex
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import botocore.session
import click
from botocore import xform_name

from s3unzip.cli.main import COMMANDS, PROGRAM, load_command
from tests.support.zips import DEFLATE, Entry, build, seal_aes, seal_zipcrypto, with_wrong_crc

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^( *)```(sh|console)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)  # of any kind
GLOBAL_OPTIONS = {"cli-binary-format", "endpoint-url", "no-cli-pager", "output", "profile", "query"}
# Options of other programs.
FOREIGN_OPTIONS = {
    "--check",
    "--cli-binary-format",
    "--keep",
    "--no-validation",
    "--require-approval",
    "--s3-bucket",
}
S3_COMMANDS = {"cp", "ls", "mb", "mv", "rb", "rm", "sync"}  # the CLI's own, in no model


@dataclass(frozen=True, slots=True)
class Command:
    """One command as a reader would type it."""

    page: str
    text: str
    exit_code: int

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def documents() -> list[Path]:
    """Return README.md and the pages that people write."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    return [ROOT / "README.md", *(page for page in pages if page.parent.name != "reference")]


def show_page(page: Path) -> str:
    """Return the page's path in the repository."""
    return str(page.relative_to(ROOT))


def read_commands(page: Path) -> list[Command]:
    """Return the commands of a page, in order."""
    commands = []
    for block in FENCE.finditer(page.read_text(encoding="utf-8")):
        prompt = "$ " if block[2] == "console" else ""
        lines = (line.strip() for line in re.sub(r"\\\n\s*", "", block[3]).splitlines())
        for line in (line.removeprefix(prompt) for line in lines if line.startswith(prompt)):
            code = re.search(r"#.*\bexits? (\d+)", line)
            command = re.sub(r"\s+#\s.*$", "", line)
            if command and not command.startswith("#"):
                commands.append(Command(show_page(page), command, int(code[1]) if code else 0))
    return commands


def check_s3unzip(words: list[str]) -> str | None:
    """Say what is wrong with a command line of s3unzip, None where it could be run."""
    if not words or words[0] not in COMMANDS:
        return f"there is no command {words[:1]}"
    if "--help" in words:
        return None
    try:
        load_command(words[0]).make_context(words[0], words[1:])
    except Exception as error:  # noqa: BLE001 - whatever the parser says
        return f"{type(error).__name__}: {error}"
    return None


def check_spans(page: Path) -> list[str]:
    """Return the code spans of a page that name a target, command or option there is not."""
    text = BLOCK.sub("", page.read_text(encoding="utf-8"))
    return [span for span in re.findall(r"`([^`]+)`", text) if _names_nothing(span)]


def _names_nothing(span: str) -> bool:
    first, *rest = span.split() or [""]
    options = {word.partition("=")[0] for word in (first, *rest) if word.startswith("--")}
    if first in CHECKS and (rest if first == "make" else rest[1:]):
        return CHECKS[first](rest) is not None
    if module := re.search(r"python3? -m\s+([\w.]+)", span):
        return check_module([module[1]]) is not None
    of_commands = _known_options()
    if first == "s3unzip":
        command = rest[0] if rest and not rest[0].startswith("--") else "s3unzip"
        return command not in of_commands or not options <= of_commands[command]
    return first in options and not options <= FOREIGN_OPTIONS.union(*of_commands.values())


@cache
def _known_options() -> dict[str, set[str]]:
    commands = {"s3unzip": PROGRAM, **{name: load_command(name) for name in COMMANDS}}
    return {name: _options(command) for name, command in commands.items()}


def _options(command: click.Command) -> set[str]:
    return {"--help"}.union(*((*one.opts, *one.secondary_opts) for one in command.params))


def check_make(words: list[str]) -> str | None:
    """Say which of the targets the Makefile does not have."""
    targets = re.findall(r"^([a-z][a-z0-9 -]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    odd = {word for word in words if "=" not in word}.difference(" ".join(targets).split())
    return f"the Makefile has no {odd}" if odd else None


# Of the AWS CLI, of which botocore knows nothing.
OWN_COMMANDS = {
    ("cloudformation", "deploy"),
    ("configure", "list"),
    ("configure", "list-profiles"),
    ("sso", "login"),
}


def check_aws(words: list[str]) -> str | None:
    """Say what botocore's model of the service does not have."""
    while words[0].startswith("--"):  # --endpoint-url URL, --profile NAME
        words = words[2:]
    service, operation, *rest = words
    if service == "s3":
        return None if operation in S3_COMMANDS else f"there is no aws s3 {operation}"
    if (service, operation) in OWN_COMMANDS:
        return None
    session = botocore.session.get_session()
    if service not in {"s3api", *session.get_available_services()}:
        return f"there is no service {service}"
    model = session.get_service_model("s3" if service == "s3api" else service)
    names = {xform_name(name, "-"): name for name in model.operation_names}
    if operation not in names:
        return f"{service} has no {operation}"
    shape = model.operation_model(names[operation]).input_shape
    options = {xform_name(member, "-") for member in (shape.members if shape else ())}
    used = {word[2:].partition("=")[0] for word in rest if word.startswith("--")}
    options |= {f"no-{name}" for name in options}  # of a flag
    odd = used - options - GLOBAL_OPTIONS
    return f"{service} {operation} has no --{', --'.join(sorted(odd))}" if odd else None


def check_module(words: list[str]) -> str | None:
    """Say that ``python -m`` would only import a module: it ends with 0 and does nothing."""
    path = ROOT.joinpath(*words[0].split("."))
    main = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    runs = main.exists() and (path.is_dir() or 'if __name__ == "__main__"' in main.read_text())
    return None if runs else f"the module {words[0]} cannot be run"


CHECKS = {"make": check_make, "aws": check_aws}  # by a command's first word


# The archives that the pages speak of, by their names


PLAIN = (
    Entry("docs/readme.txt", b"Read me.\n" * 40, DEFLATE),
    Entry("data/a.csv", b"1,2\n" * 500, DEFLATE),
    Entry("data/b.csv", b"3,4\n" * 500, DEFLATE),
    Entry("images/logo.png", random.Random(1).randbytes(3_000)),
)


PASSWORD = b"open sesame"
ARCHIVE = build(*PLAIN)
SPECIAL = {
    "damaged.zip": build(*PLAIN, with_wrong_crc("data/c.csv", b"5,6\n" * 500, DEFLATE)),
    "nested.zip": build(PLAIN[0], Entry("inner.zip", ARCHIVE)),
    # Members encrypted in both ways, and one that is not.
    "secret.zip": build(
        seal_aes(PLAIN[0], PASSWORD), seal_zipcrypto(PLAIN[1], PASSWORD), *PLAIN[2:]
    ),
    "six-1.17.0-py2.py3-none-any.whl": build(
        Entry("six.py", b"import sys\n" * 400, DEFLATE),
        Entry("six-1.17.0.dist-info/WHEEL", b"Wheel-Version: 1.0\n", DEFLATE),
    ),
}


def make_archive(name: str) -> bytes:
    """Return the archive of that name; one that is not special is a plain one."""
    return SPECIAL.get(name, ARCHIVE)
