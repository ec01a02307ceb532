"""Endpoints, odd keys and listings of S3, failed writes, and the parts of an archive."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, count, islice, repeat
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from s3unzip.errors import AccessDeniedError, StorageError, UsageError
from s3unzip.model import Location, Part, Pin
from s3unzip.run_ids import archive_stem
from s3unzip.stores.archives import advise_name, locate_part, make_archive_test
from s3unzip.stores.calls import Calls
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.listing import MAX_PAGES, list_pages
from s3unzip.stores.open import NowhereDestination, check_names
from s3unzip.stores.ports import Buffer, ListPage, StoredObject, Upload
from s3unzip.stores.run_store import PART, ObjectRunStore
from s3unzip.stores.s3.aws_session import AwsSession
from s3unzip.stores.s3.session import Session
from s3unzip.stores.s3.source import MAX_KEYS_FOR_BOTOCORE, needs_botocore
from tests.support.memory import ManualClock, MemoryBucket, MemorySource


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")


@pytest.mark.parametrize(
    ("bucket", "settings", "url", "path"),
    [
        ("with.dot", {}, "https://s3.eu-west-1.amazonaws.com", "/with.dot/key"),
        ("plain", {"addressing_style": "path"}, "https://s3.eu-west-1.amazonaws.com", "/plain/key"),
        (
            "plain",
            {"endpoint_url": "http://s3.local:1/base/"},
            "http://s3.local:1/base",
            "/plain/key",
        ),
        ("plain", {"endpoint_url": "HTTP://s3.local:1"}, "http://s3.local:1", "/plain/key"),
        (  # the global endpoint redirects requests for a new bucket
            "plain",
            {"endpoint_url": "https://s3.amazonaws.com/", "addressing_style": "path"},
            "https://s3.eu-west-1.amazonaws.com",
            "/plain/key",
        ),
        (
            "plain",
            {"endpoint_url": "http://s3.local:1/base", "addressing_style": "virtual"},
            "http://plain.s3.local:1/base",
            "/key",
        ),
        (
            "arn:aws:s3:us-east-1:123456789012:accesspoint:reader",
            {},
            "https://reader-123456789012.s3-accesspoint.us-east-1.amazonaws.com",
            "/key",
        ),
    ],
)
def test_both_clients_reach_a_bucket_at_the_same_url(
    bucket: str, settings: dict[str, str], url: str, path: str
) -> None:
    """The host and the path before the key are those of botocore's requests."""
    session = Session(AwsSession(StoreConfig(region="eu-west-1", **settings)))  # type: ignore[arg-type]
    assert dict(session.reader(bucket).config)["endpoint"] == url
    signed = session.client("control").generate_presigned_url(
        "head_object", {"Bucket": bucket, "Key": "key"}
    )
    assert signed.partition("?")[0] == url + path


@given(st.text(st.sampled_from("a./\x00\x1f\x7f\u00a0\u00e9\ud7ff"), max_size=8))
@example("a")
@example(".profile")
@example("a/..b")
@example("caf\u00e9/\u00a0")
@example("a/b...")
def test_odd_keys(key: str) -> None:
    """Empty, one-dot and two-dot segments and control characters are odd, and nothing else."""
    session = Session(AwsSession(StoreConfig()))
    is_odd = not (
        {"", ".", ".."}.isdisjoint(key.split("/")) and {"\x00", "\x1f", "\x7f"}.isdisjoint(key)
    )
    assert needs_botocore(session, key) == is_odd


def test_with_many_keys_for_botocore_it_sends_all_requests() -> None:
    """The keys are not remembered without bound."""
    session = Session(AwsSession(StoreConfig()))
    session.keys_for_botocore.update(map(str, range(MAX_KEYS_FOR_BOTOCORE + 1)))
    assert needs_botocore(session, "a")


@pytest.mark.parametrize("key", ["arn:aws:kms:eu-west-1:1:key/k\n", "a\x01b"])
def test_a_kms_key_that_no_header_can_hold(key: str) -> None:
    """Also another server than AWS gets no such key."""
    config = StoreConfig(endpoint_url="http://127.0.0.1:9", destination_kms_key=key)
    with pytest.raises(UsageError, match=r"(?s)^--kms-key .*: no ARN, no id and no alias"):
        check_names(config, Location("file", "", "/a.zip"), Location("s3", "bucket", "out/"))


class Refusing(MemoryBucket):
    """Takes no second part, and does not let an upload be dropped."""

    def upload_part(
        self, upload: Upload, number: int, offset: int, body: Buffer, crc32: int
    ) -> Part:
        if number == 2:
            raise StorageError("the part is refused")
        return super().upload_part(upload, number, offset, body, crc32)

    def abort_upload(self, upload: Upload) -> None:
        raise AccessDeniedError("s3:AbortMultipartUpload is missing")


def test_the_first_fault_is_the_one_that_is_told() -> None:
    """If the clean-up lacks a right, the first error is raised, with a note about the right."""
    store = Refusing()
    work = ObjectRunStore(
        Location("s3", "work", "runs/a/"), MemorySource(store), store, Calls(ManualClock(), 1.0, 4)
    )
    with pytest.raises(StorageError, match="the part is refused") as caught:
        work.write("members.jsonl", iter([b"x" * PART, b"y"]))
    assert type(caught.value) is StorageError
    assert "s3:AbortMultipartUpload is missing" in caught.value.__notes__[0]


def _s3(key: str) -> Location:
    return Location("s3", "bucket", key)


@pytest.mark.parametrize(
    ("named", "number", "parts", "found"),
    [
        (_s3("d/a.zip"), 1, 3, _s3("d/a.z01")),
        (_s3("d/a.zip"), 3, 3, _s3("d/a.zip")),
        (_s3("a.ZIP"), 12, 13, _s3("a.Z12")),
        (_s3("a.zip"), 100, 200, _s3("a.z100")),
        (_s3("d.zip/a.zip"), 1, 2, _s3("d.zip/a.z01")),
        (_s3("a.zipx"), 1, 2, _s3("a.zx01")),
        (_s3("A.ZIPX"), 100, 200, _s3("A.ZX100")),
        (_s3("a.zipy"), 1, 2, None),
        (_s3("a.zip.001"), 2, 2, _s3("a.zip.002")),
        (_s3("a.zip.0001"), 1_234, 2_000, _s3("a.zip.1234")),
        (_s3("a.zip?x.zip"), 1, 2, _s3("a.zip?x.z01")),
        (_s3("a.exe"), 1, 2, None),
        # A signature for a whole folder holds for its parts, too.
        (
            Location("https", "host", "d/a.zip?sig=a.zip"),
            1,
            2,
            Location("https", "host", "d/a.z01?sig=a.zip"),
        ),
    ],
)
def test_the_names_of_all_parts_follow_from_one(
    named: Location, number: int, parts: int, found: Location | None
) -> None:
    """The name of the last part, or of the first piece, leads to all others."""
    assert locate_part(named, number, is_last=number == parts) == found


def test_parts_and_pieces_are_told_by_their_endings() -> None:
    """A counter of backups is neither."""
    advice = {
        "d/a.z01": "give its last part as the archive: a.zip",
        "A.Z123": "give its last part as the archive: A.ZIP",
        "a.zx01": "give its last part as the archive: a.zipx",
        "A.ZX01": "give its last part as the archive: A.ZIPX",
        "d/a.zip.0012": "give its first piece as the archive: a.zip.0001",
        "a.zip.001": None,
        "a.zip.02": None,
        "a.zip": None,
        "a.zst": None,
    }
    assert {key: advise_name(_s3(key)) for key in advice} == advice
    assert [
        archive_stem(_s3(key)) for key in ("d/a.zip.001", "a.001", "a.z01", "a.zx01", "d/a.zip.1")
    ] == ["a", "a", "a", "a", "a.zip.1"]


def test_an_archive_that_is_gone_is_no_member(tmp_path: Path) -> None:
    """The archive is deleted while its directory is read: a file of its name is another one."""
    (tmp_path / "a.zip").touch()
    assert not make_archive_test(
        Location("file", "", f"{tmp_path}/gone/a.zip"), Pin(1), Location("file", "", str(tmp_path))
    )(f"{tmp_path}/a.zip")


@dataclass
class ScriptedStore(NowhereDestination):
    """Lists the keys of `pages`, of which number `last` is the last one; None: it never says so."""

    pages: Iterator[list[str]]
    last: int | None = None
    asked: int = 0

    def list_page(self, prefix: str, first: str, last: str, token: str | None) -> ListPage:
        assert int(token or "0") == self.asked
        self.asked += 1
        page = [StoredObject(key, 1) for key in next(self.pages)]
        return page, None if self.asked == self.last else str(self.asked)


@pytest.mark.parametrize(
    ("pages", "keys", "in_order", "asked"),
    [
        ([["a", "b"], ["c"], ["d"]], "bc", True, 2),  # "c" is the last key that is asked for
        ([["b"], ["z"], ["zz"]], "b", True, 2),
        ([["b"], [], ["c"]], "bc", True, 3),
        ([["c", "b"], ["a"]], "cb", False, 2),  # no order, as in directory buckets
        ([["z", "b"], ["c"]], "bc", False, 2),  # a key after the last one does not end it
        ([["b", "b"]], "bb", False, 1),
    ],
)
def test_a_listing_has_all_keys_that_are_asked_for(
    pages: list[list[str]], keys: str, *, in_order: bool, asked: int
) -> None:
    """Keys from "b" to "c" come in the store's order, from as few pages as possible."""
    store = ScriptedStore(iter(pages), len(pages))
    listed = list(list_pages(store, "", lambda call: call(), "b", "c"))
    assert "".join(one.key for page in listed for one in page.objects) == keys
    assert (listed[-1].in_order, listed[-1].is_last, store.asked) == (in_order, True, asked)


@pytest.mark.parametrize(
    ("store", "pages"),
    [
        (ScriptedStore(chain([["a"]], repeat(["b", "c"]))), 2),  # the page comes again
        (ScriptedStore(chain([["a"]], repeat([]))), MAX_PAGES),
        (ScriptedStore([f"{number:09}"] for number in count()), MAX_PAGES),
    ],
    ids=["the same page", "empty pages", "new keys"],
)
def test_a_store_does_not_decide_when_a_listing_ends(store: NowhereDestination, pages: int) -> None:
    """If new tokens never end, the listing is refused after the maximum number of pages."""
    listing = list_pages(store, "out/", lambda call: call())
    assert len(list(islice(listing, pages - 1))) == pages - 1
    with pytest.raises(StorageError, match=r"^out/: the store lists "):
        list(listing)
