"""Addresses of archives: buckets in host names, access points, and presigned URLs that end."""

import itertools
import random
import shlex
from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import urlsplit

import pytest

from s3unzip.stores.ports import ObjectFacts
from tests.support.memory_server import Asked, MemoryS3
from tests.support.processes import Ended, Program
from tests.support.servers import Asked as WebAsked, HttpServer, Reply, WebFiles, s3_error
from tests.support.zips import DEFLATE, STORED, Entry, build

LARGE = random.Random(1).randbytes(5 * 1024**2 + 1)  # of several parts, or copied by the store
MEMBERS = {"small.txt": b"text " * 50, "large.bin": LARGE}
ARCHIVE = build(
    Entry("small.txt", MEMBERS["small.txt"], DEFLATE), Entry("large.bin", LARGE, STORED)
)
SERVER = "s3.example"
ACCOUNT = "123456789012"
POINT = f"arn:aws:s3:eu-west-1:{ACCOUNT}:accesspoint"
VIRTUAL = ("--addressing-style", "virtual")
HOSTS = {f"{bucket}.{SERVER}": bucket for bucket in ("from", "out")} | {
    f"{bucket}-{ACCOUNT}.{SERVER}": bucket for bucket in ("from", "out")
}


class Hosts(MemoryS3):
    """A store behind a proxy that knows buckets by their host names only."""

    def answer_proxied(self, asked: WebAsked) -> Reply:
        url = urlsplit(asked.path)
        bucket = HOSTS.get(url.hostname or "")
        if bucket is None:
            return s3_error(403, "SecondLevelDomainForbidden")
        mine = Asked(
            asked.method,
            f"/{bucket}{url.path}" + (f"?{url.query}" if url.query else ""),
            asked.headers,
            asked.body,
        )
        self.asked.append(mine)
        if "x-amz-copy-source" in mine.headers:
            source = mine.headers["x-amz-copy-source"].replace(f"{POINT}:from/object/", "from/")
            mine = replace(mine, headers={**mine.headers, "x-amz-copy-source": source})
        return self.answer(mine)


class Site:
    """The command line, and the store."""

    def __init__(self, program: Program, s3: Hosts, proxy: str) -> None:
        self.program, self.s3 = program, s3
        self.out = s3.create_bucket("out")
        archive = ObjectFacts("application/zip", {})
        s3.create_bucket("from").put("in/a.zip", ARCHIVE, archive, if_absent=False)
        program.variables |= {
            "http_proxy": proxy,
            "no_proxy": "",
            "NO_PROXY": "",
            "AWS_ENDPOINT_URL": f"http://{SERVER}",
            "AWS_REGION": "us-east-1",
            "S3UNZIP_TUNING": '{"small_member": 100000, "copy_from": 5242880}',
        }

    def extract(self, *words: str, source: str = "from", target: str = "out") -> Ended:
        return self.program.start(
            "run", f"s3://{source}/in/a.zip", f"s3://{target}/to", "-w", "2", *words
        )


@pytest.fixture
def site(program: Program) -> Iterator[Site]:
    s3 = Hosts()
    with HttpServer(s3.answer_proxied) as proxy:
        yield Site(program, s3, proxy.url)


@pytest.mark.parametrize("way", ["option", "configuration"])
def test_a_server_that_wants_buckets_in_host_names(site: Site, way: str) -> None:
    """The option does it, and the configuration; without both the message names the option."""
    site.extract().ends(6, "add --addressing-style virtual")
    words = VIRTUAL if way == "option" else ()
    if way == "configuration":
        (site.program.folder / "no-config").write_text(
            "[default]\ns3 =\n  addressing_style = virtual\n"
        )
    site.extract(*words).ends(0)
    assert {key: one.body for key, one in site.out.objects.items()} == {
        f"to/a/{name}": MEMBERS[name] for name in ("small.txt", "large.bin")
    }
    assert {asked.method for asked in site.s3.asked} == {"GET", "POST", "PUT"}
    site.program.start("verify", "s3://from/in/a.zip", "s3://out/to", *words).ends(0)
    assert "COMPLETED already" in site.program.start("resume", "latest").err


@pytest.mark.parametrize("mark", [":", "/"])
def test_access_points_are_places_like_buckets(site: Site, mark: str) -> None:
    """Both forms of an ARN name one; requests go to its host, and are signed for its region."""
    site.extract(source=f"{POINT}{mark}from", target=f"{POINT}{mark}out").ends(0)
    assert site.out.objects.keys() == {"to/a/small.txt", "to/a/large.bin"}
    signed = {asked.headers["authorization"].split("/")[2] for asked in site.s3.asked}
    assert signed == {"eu-west-1"}
    site.program.start("run", f"s3://{POINT}{mark}from/in/", "out").ends(0)
    assert site.program.files("out/a")["large.bin"] == LARGE


@pytest.mark.parametrize("place", ["s3://from", f"s3://{POINT}:from"])
def test_an_address_has_no_names_before_it(site: Site, place: str) -> None:
    """A server that is an IP address is refused in one line."""
    words = (*VIRTUAL, "--endpoint-url", "http://127.0.0.1:9")
    site.program.start("ls", f"{place}/in/a.zip", *words).ends(
        2, "http://127.0.0.1:9: no bucket can be in a host name that is an IP address"
    )


NAME = "my%20report.zip"
ENTRIES = [Entry(f"{number:03}.txt", b"text " * 50, DEFLATE) for number in range(50)]
REQUESTS = 1  # until the link expires: the plan's


def test_a_new_link_goes_on_where_the_old_one_expired(program: Program) -> None:
    """The offered command extracts what is left, with the new link in place of NEW-URL.

    A space in the name is one in the folder, as it is where the archive comes from S3.
    """
    files, numbers = WebFiles({NAME: build(*ENTRIES)}), itertools.count(1)

    def answer(asked: WebAsked) -> Reply:
        if "old" in asked.path and next(numbers) > REQUESTS:
            return s3_error(403, "AccessDenied", "Request has expired")
        return files(asked)

    with HttpServer(answer) as server:
        ended = (
            program.extract(f"{server.url}/{NAME}?old", "out")
            .ends(5, "Request has expired")
            .hides("old")
        )
        command = f"s3unzip run NEW-URL {program.folder}/out/ --on-conflict skip-unchanged"
        assert f"next: {command}\n" in ended.err
        words = command.replace("NEW-URL", f"{server.url}/{NAME}?new")
        again = program.run(*shlex.split(words)[1:], "-w", "1")
    assert again.code == 0, again.err
    assert len(program.files("out/my report")) == len(ENTRIES)


def test_an_archive_without_a_date_has_runs_of_the_first_day(program: Program) -> None:
    """Where a server tells no Last-Modified, the id has the time of the first run, and stays."""
    with HttpServer(WebFiles({"a.zip": build(*ENTRIES)})) as server:
        for _ in range(2):
            ended = program.extract(f"{server.url}/a.zip", "out").ends(0)
    (run,) = program.runs()
    assert not run.startswith("1970")
    assert run in ended.err
