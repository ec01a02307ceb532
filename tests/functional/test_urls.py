"""Archives behind presigned URLs at the command line: a link ends in mid-run, and its name."""

import itertools
import shlex

from tests.support.processes import Program
from tests.support.servers import Asked, HttpServer, Reply, WebFiles, s3_error
from tests.support.zips import DEFLATE, Entry, build

NAME = "my%20report.zip"
ENTRIES = [Entry(f"{number:03}.txt", b"text " * 50, DEFLATE) for number in range(50)]
REQUESTS = 1  # until the link expires: the plan's


def test_a_new_link_goes_on_where_the_old_one_expired(program: Program) -> None:
    """The offered command extracts what is left, with the new link in place of NEW-URL.

    A space in the name is one in the folder, as it is where the archive comes from S3.
    """
    files, numbers = WebFiles({NAME: build(*ENTRIES)}), itertools.count(1)

    def answer(asked: Asked) -> Reply:
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
