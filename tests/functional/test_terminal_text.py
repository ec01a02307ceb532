"""What commands print of archives, keys and servers does nothing to a terminal."""

import json
import re

import pytest

from tests.support.memory_server import MemoryS3
from tests.support.processes import Ended, Program
from tests.support.servers import Asked, HttpServer, Reply, WebFiles, s3_error, serve_range
from tests.support.zips import Entry, with_wrong_crc

# Sets the title, turns text round, begins a control sequence in one character, deletes.
EVIL = "\x1b]0;owned\x07\u202e\x9b31m\x7f"


def check(ended: Ended) -> str:
    """Return what a command printed, after every character was looked at."""
    text = ended.out + ended.err
    assert {c for c in text if not c.isprintable()} <= {"\n"}, text
    return text


@pytest.fixture
def program(program: Program) -> Program:
    bad = (with_wrong_crc(name, b"x") for name in (f"bad {EVIL}", "bad"))
    program.add(f"{EVIL}.zip", Entry("good", b"x"), *bad)
    program.extract(f"{EVIL}.zip", f"out{EVIL}", "-q")
    return program


@pytest.mark.parametrize(
    "command",
    [
        "ls -v {archive}",
        "ls -v {archive} --json",
        "plan {archive} {dest}",
        "test {archive}",
        "cat {archive} {name}",
        "run -vv {archive} {dest}",
        "run -v {archive} {archive} {dest}",
        "run {archive} {dest} --json",
        "run {archive} {dest} --include {name}",
        "run {archive} {dest} --dry-run",
        "verify {archive} {dest}",
        "verify {archive} {dest} --json",
        "runs",
        "show",
        "show --failures",
        "watch",
        "resume latest --failed",
        "abort latest",
        "show {name}",
        "run {name} {dest}",
        "run {dest}/absent.zip {dest}",
    ],
)
def test_names_are_shown_not_obeyed(program: Program, command: str) -> None:
    """Each command escapes the names of the archive, of its members and of the destination."""
    words = {"archive": f"{EVIL}.zip", "dest": f"out{EVIL}", "name": f"no {EVIL}"}
    ended = program.start(*[word.format(**words) for word in command.split()])
    assert check(ended)
    if "--json" in command:
        assert json.dumps(EVIL)[1:-1] in json.dumps(ended.lines)


IN_XML = "\u202eowned\x9b31m\x7f"  # what an error in XML can hold


@pytest.mark.parametrize(
    "command",
    ["run -vv s3://bucket/a.zip out", "run -vv a.zip s3://bucket/to", "run -vv {url}/a.zip out"],
)
@pytest.mark.parametrize("status", [206, 302, 400, 503])
def test_servers_are_quoted_not_obeyed(program: Program, command: str, status: int) -> None:
    """Errors and log lines escape the words of a server, also of one that redirects."""

    def answer(asked: Asked) -> Reply:
        evil = EVIL.encode().decode("latin-1").replace("\x85", "")
        headers = {"Location": f"http://{evil}/", "Content-Range": evil, "ETag": evil}
        if status >= 400 and "{url}" not in command:  # such headers would hide the body
            return s3_error(status, f"Evil{IN_XML}", f"owned {IN_XML}")
        return s3_error(status, f"Evil{EVIL}", f"owned {EVIL}", **headers)

    program.add("a.zip", Entry("f", b"x"))
    program.variables["S3UNZIP_TUNING"] = '{"retry_seconds": 0.5}'
    with HttpServer(answer) as server:
        ended = program.start(
            *command.format(url=server.url).split(),
            *["--endpoint-url", server.url][: 2 * ("s3:" in command)],
        )
    assert ended.code
    assert "owned" in check(ended) or status < 400


def test_a_web_server_that_sends_other_ranges(program: Program) -> None:
    """The run ends, and the advice fits a web server: only a download helps."""
    archive = program.add("a.zip", Entry("f", bytes(300_000))).read_bytes()
    with HttpServer(
        lambda asked: serve_range(archive, re.sub(r"=\d.*", "=0-9", asked.headers["range"]), {})
    ) as web:
        program.start("run", f"{web.url}/a.zip", "to").ends(
            5, "not-implemented", "download the archive first", "with the downloaded file"
        ).hides("s3unzip resume")


def test_each_request_is_logged(program: Program, s3: MemoryS3) -> None:
    """With what it asks for and how it ended; without records of runs and secrets of a URL."""
    archive = program.add("a.zip", Entry("f", b"x"), Entry("g", b"y")).read_bytes()
    with HttpServer(WebFiles({"a.zip": archive})) as web:
        words = (f"{web.url}/a.zip?secret=hunter2", "s3://out/b/", "--endpoint-url", s3.url)
        ended = program.start("run", "-vv", "-w", "1", *words).ends(0)
        missing = program.start("cat", "-vv", f"{web.url}/c.zip?secret=hunter2", "f").ends(6)
    requests = re.findall(r"DEBUG +\d+ (.*), \d+ ms", ended.err)
    assert requests[0] == f"get {web.url}/a.zip?... last 262144 bytes: ok"
    assert sorted(requests[-2:]) == ["put s3://out/b/a/f: ok", "put s3://out/b/a/g: ok"]
    assert re.search(r" get http:\S+/a\.zip\?\.\.\. bytes \[0, \d+\): ok, \d+ ms\n", ended.err)
    assert re.search(r" get http:\S+/c\.zip\?\S+ last \d+ bytes: .* 404 .*, \d+ ms\n", missing.err)
    assert "hunter2" not in ended.err + missing.err
