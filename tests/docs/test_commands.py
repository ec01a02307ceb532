"""Every command in README.md and docs/ is run here, or held against what it names.

What runs: ``s3unzip`` and the shell's own small tools, page by page, in a
folder of its own, against MiniStack. The world that a page speaks of is made
for it: see `World`. What cannot run here is in `ELSEWHERE` with the check that
takes the run's place. A command that is in neither fails.
"""

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from embedded.deploy import make_client
from embedded.ministack import EmbeddedAws, EmbeddedAwsError, free_port
from tests.docs.commands import (
    ROOT,
    Command,
    check_aws,
    check_make,
    check_module,
    check_s3unzip,
    check_spans,
    documents,
    make_archive,
    read_commands,
    show_page,
)
from tests.support.processes import run_process
from tests.support.servers import (
    Asked,
    HttpServer,
    Reply,
    WebFiles,
    make_embedded_aws,
    require_embedded_aws,
)

SHELL = {"chmod", "cp", "curl", "echo", "ls", "mkdir", "printf", "python3", "rm", "seq", "split"}
ASSIGNMENT = re.compile(r"(?:export )?([A-Za-z_][A-Za-z0-9_]*)=(\S*)$")


# Commands that are not run here, by how they begin: what is checked instead.
ELSEWHERE: dict[str, Callable[[list[str]], str | None]] = {
    "make ": check_make,  # takes minutes, or is this test
    "EMBEDDED_STRICT=0 make ": check_make,
    "aws ": check_aws,  # the AWS CLI is no dependency
    "uv run python -m ": check_module,  # needs a deployed stack: tests/acceptance
    **dict.fromkeys(
        (
            "zip ",  # no dependency either: the test makes the archive by its name
            "git ",  # asks the repository's server
            "uv tool install ",  # asks the package index: tests/docs/test_install.py
            "pipx install ",
            "uv tool uninstall ",
            "uv sync",  # has made the environment of this test
            ".venv/bin/python -c ",  # needs a deployed stack: test_deploy.py
        ),
        lambda _: None,
    ),
}


class World:
    """What a page speaks of: its archives, buckets, web server and S3.

    A name that ends in ``.zip`` or ``.whl`` in a bucket or on the web server is an archive, made by
    its name. Archives that are files are made by the page itself, or by their names if the page
    makes them by a command that does not run here. A bucket that is named exists. ``https://`` is
    the local server, port 9000 of 127.0.0.1 is MiniStack, and ``s3unzip`` is the one of the wheel.
    """

    def __init__(self, folder: Path, aws: EmbeddedAws, web: str, installed: Path) -> None:
        self._folder = folder
        self._aws = aws
        self._web = web  # the URL of the local server
        self._variables = {
            "PATH": f"{installed}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "S3UNZIP_HOME": str(folder / ".runs"),
            **aws.environment,
        }

    def run(self, command: Command) -> str | None:
        if assignment := ASSIGNMENT.fullmatch(command.text):  # the world's own keep what they are
            self._variables.setdefault(assignment[1], self._substitute(assignment[2]))
            return None
        if command.words[0] == "zip":  # it does not run here
            for word in (word for word in command.words if word.endswith(".zip")):
                (self._folder / word).write_bytes(make_archive(word))
            return None
        for url in re.findall(r"s3://[^\s'\"=]+", command.text):
            self._provide_bucket(url)
        done = run_process(
            ["bash", "-euo", "pipefail", "-c", self._substitute(command.text)],
            self._folder,
            self._variables,
        )
        if done.returncode == command.exit_code:
            return None
        words = (done.stdout + done.stderr)[-1_000:].decode(errors="replace")
        return f"{command}\nexit code {done.returncode}, not {command.exit_code}\n{words}"

    def _substitute(self, text: str) -> str:
        text = text.replace("http://127.0.0.1:9000", self._aws.endpoint)
        return re.sub(r"https://[\w.-]+(/[\w./-]*)", rf"{self._web}\1", text)

    def _provide_bucket(self, url: str) -> None:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        s3 = make_client("s3", self._aws.environment)
        s3.create_bucket(Bucket=bucket)
        if key.endswith(".zip") and not s3.list_objects_v2(Bucket=bucket, Prefix=key)["KeyCount"]:
            s3.put_object(Bucket=bucket, Key=key, Body=make_archive(key.rsplit("/", 1)[-1]))


@pytest.fixture(scope="module")
def aws() -> Iterator[EmbeddedAws]:
    with make_embedded_aws() as running:
        yield running


def _of_s3unzip(command: Command) -> list[str] | None:
    program, *words = shlex.split(command.text.removeprefix("uv run "))
    return words if program == "s3unzip" else None


def _runs_here(command: Command) -> bool:
    if _of_s3unzip(command) is not None:
        # tests/e2e/test_pipeline.py has what asks a deployed stack.
        return not re.search(r"\s--env\b", command.text)
    return bool(ASSIGNMENT.fullmatch(command.text)) or command.words[0] in SHELL


# test_deploy.py runs this page whole, on a machine of its own.
PAGES = [page for page in documents() if read_commands(page) and page.name != "deploy.md"]


@pytest.mark.parametrize("page", PAGES, ids=show_page)
def test_commands_run(page: Path, aws: EmbeddedAws, installed: Path, tmp_path: Path) -> None:
    """A page's commands, in its order, end as the page says."""
    aws.reset()
    with HttpServer(_answer_archive) as server:
        world = World(tmp_path, aws, server.url, installed)
        failed = [
            world.run(command)
            for command in read_commands(page)
            if command.words[0] == "zip" or _runs_here(command)
        ]
    assert not [what for what in failed if what is not None]


def _answer_archive(asked: Asked) -> Reply:
    path = asked.path.lstrip("/")
    return WebFiles({path: make_archive(path.rsplit("/", 1)[-1])})(asked)


@pytest.mark.parametrize("page", PAGES, ids=show_page)
def test_other_commands_are_known(page: Path) -> None:
    """A command that does not run here is on a list with a reason, and names what exists."""
    wrong = []
    for command in read_commands(page):
        arguments, found = _of_s3unzip(command), None
        begins = next((one for one in ELSEWHERE if f"{command.text} ".startswith(one)), None)
        if begins is not None:
            found = ELSEWHERE[begins](command.words[len(begins.split()) :])
        elif not _runs_here(command):
            found = "is neither run nor known" if arguments is None else check_s3unzip(arguments)
        if found is not None:
            wrong.append(f"{command}: {found}")
    assert not wrong


def test_the_embedded_aws_alone() -> None:
    """`make local-aws` serves S3 at the port that is named, says so, and takes no other's."""
    require_embedded_aws()
    port = free_port()
    with subprocess.Popen(
        ["make", "local-aws", f"PORT={port}"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as served:
        assert served.stdout is not None
        try:
            variables = dict(
                line.removeprefix("export ").strip().split("=", 1)
                for line in takewhile(lambda line: line.startswith("export "), served.stdout)
            )
            assert make_client("s3", variables).list_buckets()["Buckets"] == []
            with pytest.raises(EmbeddedAwsError, match=f"port {port} of 127.0.0.1 is taken"):
                EmbeddedAws(port=port).start()
        finally:
            served.terminate()
    assert variables["AWS_ENDPOINT_URL"] == f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("page", documents(), ids=show_page)
def test_commands_in_sentences_exist(page: Path) -> None:
    """Every make target, command and option in a sentence exists."""
    assert not check_spans(page)


@pytest.mark.parametrize("page", documents(), ids=show_page)
def test_blocks_say_what_they_are(page: Path) -> None:
    """No block is without a language: commands in one would not be found."""
    fences = re.findall(r"^ *```(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) % 2 == 0
    assert not {"", "bash", "shell", "zsh"} & set(fences[::2])
