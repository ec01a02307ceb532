"""The archive of the canary, and the removal of what it left."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING

import pytest

from s3unzip.errors import AccessDeniedError
from s3unzip.operate.doctor.canary_archive import build_canary, canary_members
from s3unzip.operate.doctor.removal import remove_versions
from tests.servers import Asked, HttpServer, Reply
from tests.unit.operate.doctor.scripted import make_client

if TYPE_CHECKING:
    from tests.account import Account


def test_a_refused_delete_is_not_silent(account: Account) -> None:
    """DeleteObjects answers 200 with errors inside."""
    listing = (
        "<ListVersionsResult><Version><Key>a</Key><VersionId>1</VersionId></Version>"
        "<Version><Key>ab</Key><VersionId>2</VersionId></Version></ListVersionsResult>"
    )
    refusal = "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error></DeleteResult>"

    def answer(asked: Asked) -> Reply:
        if asked.method == "POST":
            assert b"<Key>ab</Key>" not in asked.body
            return Reply(200, refusal.encode())
        return Reply(200, listing.encode())

    del account  # its credentials
    with (
        HttpServer(answer) as server,
        pytest.raises(AccessDeniedError, match="1 objects of bucket stay: AccessDenied for a"),
    ):
        remove_versions(make_client("s3", server.url), "bucket", "a", "a".__eq__)


@pytest.mark.parametrize("password", [None, b"secret"])
def test_the_archive_is_a_good_one(password: bytes | None) -> None:
    """Another reader of ZIP files agrees on names, sizes and plain contents."""
    members = canary_members("token")
    with zipfile.ZipFile(io.BytesIO(build_canary("token", password))) as archive:
        assert archive.namelist() == [member.path for member in members]
        assert [one.file_size for one in archive.infolist()] == [len(m.content) for m in members]
        for member in members[: 4 if password else 5]:
            assert archive.read(member.path) == member.content
