"""The archives of the acceptance set, never whole in memory; and its calls of the command line."""

import io
import signal
import threading
import tracemalloc
import zipfile

import pytest

from acceptance import archives, cases, site
from s3unzip.cli.terminal import Stopping
from s3unzip.settings import GIB, MIB
from tests.support import servers, zips


@pytest.mark.parametrize("one", cases.PUBLISHED, ids=lambda one: one.name)
def test_small_scale_archives_are_valid(one: cases.Published) -> None:
    """Every member has its CRC-32, the published size, and is compressed about as well."""
    archive = cases.published_archive(one, full=False)
    with zipfile.ZipFile(io.BytesIO(b"".join(archive.pieces()))) as made:
        assert (made.testzip(), len(made.namelist())) == (None, archive.count)
        largest = max(made.infolist(), key=lambda member: member.file_size)
    assert largest.file_size == one.size if one.members > 1 else largest.file_size >= 10**7
    assert largest.compress_size / largest.file_size == pytest.approx(one.share, rel=0.15)


def test_a_hundred_gigabytes_need_no_memory() -> None:
    """The member of 100 GB is sent piece by piece; no piece and no sum of them is large."""
    (one,) = (one for one in cases.PUBLISHED if one.name == "100gb")
    archive = cases.published_archive(one, full=True)
    tracemalloc.start()
    size = largest = 0
    for piece in archive.pieces():
        size += len(piece)
        largest = max(largest, len(piece))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    (member,) = archive.members()
    assert member.content.size >= 100_000_000_000
    assert size > member.content.compressed_size > 30 * GIB
    assert largest < 4 * MIB
    assert peak < 32 * MIB


@pytest.mark.parametrize("version", [1, 2])
def test_encryption_is_winzips(version: int) -> None:
    """The data is what an encoder written apart from this one makes of it."""
    member = archives.small_member(1, 3_000, 0.4)
    content = archives.encrypt(member, b"password", version).content
    assert list(content.chunks) == [
        zips.encrypt_aes(b"".join(member.content.pieces()), b"password")
    ]
    assert bool(content.crc32) is (version == 1)


def test_an_exit_code_that_no_case_expects() -> None:
    """The row of the case has it, with what the command said."""
    with pytest.raises(site.Mismatch, match=r"ls: exit code 6: s3unzip: .*no-such\.zip"):
        site.Site.call("ls", "no-such.zip")


def test_ctrl_c_during_a_command_ends_the_set() -> None:
    """The command ends as it does alone, and the set with it."""

    def interrupt(_: servers.Asked) -> servers.Reply:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return servers.Reply(404)

    def call(url: str) -> None:
        with Stopping().like_ctrl_c():
            site.Site.call("ls", f"{url}/a.zip")

    with servers.HttpServer(interrupt) as server, pytest.raises(KeyboardInterrupt):
        call(server.url)
