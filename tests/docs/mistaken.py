"""The world in which the mistakes of docs/mistakes.toml are made: archives, a web server, an S3."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.docs.archives import PLAIN, make_archive
from tests.support.servers import Asked, HttpServer, Reply, WebFiles, nobody, s3_error
from tests.support.zips import Entry, build, build_split

SPLIT = build_split(*(Entry(name, bytes(400)) for name in "abc"), sizes=[440, 440])
S3_ANSWERS = {
    "missing": (404, "NoSuchBucket"),
    "empty": (404, "NoSuchKey"),
    "closed": (403, "AccessDenied"),
    "frozen": (403, "InvalidObjectState"),
    "stranger": (403, "InvalidAccessKeyId"),
    "forged": (403, "SignatureDoesNotMatch"),
    "late": (403, "RequestTimeTooSkewed"),
    "elsewhere": (400, "AuthorizationHeaderMalformed"),
    "below": (409, "ObjectParentIsFile"),
    "strict": (403, "SecondLevelDomainForbidden"),
    "sealed": (400, "InvalidRequest"),
}
MESSAGES = {"sealed": "The object was stored using a form of Server Side Encryption."}


@contextmanager
def mistaken_world(folder: Path) -> Iterator[dict[str, str]]:
    """Make the files in `folder` and start the servers; yield what the placeholders stand for."""
    _write_files(folder)
    files = WebFiles({"a.zip": make_archive("archive.zip"), "empty.zip": b""})
    with (
        HttpServer(lambda asked: _answer_web(asked, files)) as web,
        HttpServer(_answer_s3) as s3,
        nobody() as url,
    ):
        yield {"{folder}": str(folder), "{web}": web.url, "{s3}": s3.url, "{nobody}": url}


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


def _answer_web(asked: Asked, files: WebFiles) -> Reply:
    return WEB_ANSWERS.get(asked.path) or files(asked)


def _answer_s3(asked: Asked) -> Reply:
    bucket = asked.path.lstrip("/").split("/")[0].split("?")[0]
    status, code = S3_ANSWERS.get(bucket, (404, "NoSuchBucket"))
    return s3_error(status, code, MESSAGES.get(bucket, "no"))
