"""Every mistake of docs/mistakes.toml is made, and prints what the reference says."""

import gzip
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.commands import PLAIN, ROOT, make_archive
from tests.support.processes import LIMITED, Program
from tests.support.servers import Asked, HttpServer, Reply, WebFiles, nobody, s3_error
from tests.support.zips import Entry, build, build_split

SPLIT = build_split(*(Entry(name, bytes(400)) for name in "abc"), sizes=[440, 440])
S3_ANSWERS = {  # by bucket: status, code and message
    "missing": (404, "NoSuchBucket", "no"),
    "empty": (404, "NoSuchKey", "no"),
    "closed": (403, "AccessDenied", "no"),
    "frozen": (403, "InvalidObjectState", "no"),
    "stranger": (403, "InvalidAccessKeyId", "no"),
    "forged": (403, "SignatureDoesNotMatch", "no"),
    "late": (403, "RequestTimeTooSkewed", "no"),
    "elsewhere": (400, "AuthorizationHeaderMalformed", "no"),
    "below": (409, "ObjectParentIsFile", "no"),
    "strict": (403, "SecondLevelDomainForbidden", "no"),
    "sealed": (
        400,
        "InvalidRequest",
        "The object was stored using a form of Server Side Encryption.",
    ),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, dict[str, str]]]:
    """The folder in which the mistakes are made, and what the placeholders stand for."""
    folder = tmp_path_factory.mktemp("mistakes")
    _write_files(folder)
    files = WebFiles({"a.zip": make_archive("archive.zip"), "empty.zip": b""})
    with (
        HttpServer(lambda asked: WEB_ANSWERS.get(asked.path) or files(asked)) as web,
        HttpServer(_answer_s3) as s3,
        nobody() as url,
    ):
        yield folder, {"{folder}": str(folder), "{web}": web.url, "{s3}": s3.url, "{nobody}": url}


def _write_files(folder: Path) -> None:
    plain = make_archive("archive.zip")
    (folder / "folder").mkdir()
    for name, data in {
        "a.zip": plain,
        "secret.zip": make_archive("secret.zip"),
        "damaged.zip": make_archive("damaged.zip"),
        "cut.zip": plain[:-30],
        "tail.zip": plain + b"junk",
        "twins.zip": build(Entry("twin", b"1"), Entry("twin", b"2")),
        "climbing.zip": build(*PLAIN, Entry("../up.txt", b"x")),
        "odd.zip": build(Entry("a.bin", b"x", central={"method": 20}, local={"method": 20})),
        "split.z02": SPLIT[1],
        "split.zip": SPLIT[2],
        "mixed.z01": SPLIT[0],
        "mixed.z02": bytes(len(SPLIT[1])),
        "mixed.zip": SPLIT[2],
        "part.zip": build(*PLAIN, Entry("x", b"x", central={"disk": 1})),
        "empty.zip": b"",
        "a.tgz": gzip.compress(b"x" * 1000),
        "page.zip": b"<!DOCTYPE html><title>Sign in</title>",
        "a.txt": b"Not an archive.\n" * 10,
        "password.txt": b"wrong\n",
        "empty.txt": b"",
    }.items():
        (folder / name).write_bytes(data)
    (folder / "unreadable.zip").write_bytes(plain)
    (folder / "unreadable.zip").chmod(0)
    (folder / "closed").mkdir(mode=0o555)


WEB_ANSWERS = {
    "/whole.zip": Reply(200, make_archive("archive.zip")),  # a server without ranges
    "/moved.zip": Reply(302, b"", {"Location": "https://other.example/a.zip"}),
    "/private.zip": Reply(403),
    "/expired.zip": s3_error(403, "AccessDenied", "Request has expired"),
    "/page.html": Reply(200, b"<html>Sign in</html>", {"Content-Type": "text/html; charset=utf-8"}),
    "/answer.json": Reply(200, b"{}", {"Content-Type": "application/json"}),
    "/form": Reply(405),
}


def _answer_s3(asked: Asked) -> Reply:
    return s3_error(
        *S3_ANSWERS.get(re.split("[/?]", asked.path.lstrip("/"))[0], S3_ANSWERS["missing"])
    )


@pytest.mark.parametrize(
    "mistake",
    tomllib.loads((ROOT / "docs" / "mistakes.toml").read_text())["mistake"],
    ids=lambda mistake: mistake["command"],
)
def test_a_mistake_has_the_documented_answer(
    mistake: dict[str, str | int],
    world: tuple[Path, dict[str, str]],
) -> None:
    """The exit code and the line are the documented ones, and nothing is a traceback."""
    folder, known = world
    words = [_filled(word, known) for word in shlex.split(str(mistake["command"]))]
    if not mistake.get("limited"):
        ended = Program(folder).run(*words)
    elif LIMITED is None:
        pytest.skip("root may do everything; no setpriv")
    else:
        ended = Program(folder).start_as([*LIMITED, *Program.command, *words])
    assert ended.code == mistake["exit"]
    assert _filled(str(mistake["says"]), known) in [
        line.strip() for line in (ended.err + ended.out).splitlines()
    ]


def _filled(text: str, known: dict[str, str]) -> str:
    for mark, value in known.items():
        text = text.replace(mark, value)
    return text
