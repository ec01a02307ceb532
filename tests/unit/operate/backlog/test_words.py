"""Words that name archives: prefixes, globs, archives, inventories; and what is refused."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import pytest

from s3unzip.aws.environment import Trigger
from s3unzip.errors import StorageError, UsageError
from s3unzip.operate.backlog import listing
from s3unzip.operate.backlog.listing import Listing
from s3unzip.operate.backlog.scope import Scope, parse_words
from tests.unit.operate.backlog.environment import BUCKET, make_inventory

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.account import Account

SCOPE = Scope("dev", Trigger("arrivals", "in/", ".zip"))
ROOT = Scope("dev", Trigger("arrivals", "", ".zip"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name archives"),
        (["in/"], "archives of an environment are in S3"),
        (["file:///in/"], "archives of an environment are in S3"),
        (["s3://"], "archives of an environment are in S3"),
        (["s3://other/in/"], r"takes only s3://arrivals/in/\*\.zip; copy"),
        (["s3://arrivals/out/"], "takes only"),
        (["s3://arrivals/out/*.zip"], "takes only"),
        (["s3://arrivals/in/a.txt"], "takes only"),
        (["s3://arrivals/a.zip"], "takes only"),
        (["s3://arrivals/in/", "s3://arrivals/in/x/"], "is also named by s3://arrivals/in/:"),
        (["s3://arrivals/in/a.zip", "s3://arrivals/in/"], "in/a.zip is also named by"),
        (["s3://arrivals/in/a.zip"] * 2, "is also named by"),
    ],
)
def test_words_that_are_refused(words: Sequence[str], said: str) -> None:
    """Before anything is listed, with what the environment takes."""
    with pytest.raises(UsageError, match=said):
        parse_words(words, SCOPE)


@pytest.mark.parametrize(
    "words",
    [
        ["s3://arrivals/in/"],
        ["S3://arrivals/in/x/"],
        ["s3://arrivals/"],  # what is below in/ is in it
        ["s3://arrivals"],
        ["s3://arrivals/in/a.zip", "s3://arrivals/in/b.zip"],
        ["s3://arrivals/in/a*.zip", "s3://arrivals/in/b*.zip"],
        ["s3://reports/x/manifest.json", "s3://arrivals/in/"],
    ],
)
def test_words_that_are_taken(words: Sequence[str]) -> None:
    """They name archives that the environment takes, or may."""
    assert [word.text for word in parse_words(words, SCOPE)] == words


def test_a_scope_with_tenants_takes_only_theirs() -> None:
    """Its words are the tenants' prefixes."""
    scope = Scope("dev", Trigger("arrivals", "", ".zip"), ("acme/", "globex/"))
    assert str(scope) == "s3://arrivals/acme/*.zip or s3://arrivals/globex/*.zip"
    assert scope.covers("acme/a.zip")
    assert not scope.covers("a.zip")
    assert scope.tenant_of("globex/x/a.zip") == "globex/"
    with pytest.raises(UsageError, match="takes only"):
        parse_words(["s3://arrivals/other/"], scope)


def list_words(account: Account, *words: str) -> list[str]:
    """Return the keys that words name."""
    listing = Listing(account.client("s3"), ROOT)
    return list(listing.keys(parse_words(words, ROOT)))


def test_globs_and_archives_are_listed(account: Account) -> None:
    """A star does not cross a slash; an archive that is named is not asked for."""
    account.client("s3").create_bucket(Bucket="arrivals")
    for key in ("x/a.zip", "x/y/b.zip", "x/c d+e.zip", "z.zip"):
        account.put(key, b"")
    assert list_words(account, BUCKET + "x/*.zip") == ["x/a.zip", "x/c d+e.zip"]
    assert list_words(account, BUCKET + "**.zip") == [
        "x/a.zip",
        "x/c d+e.zip",
        "x/y/b.zip",
        "z.zip",
    ]
    assert list_words(account, BUCKET + "nowhere.zip") == ["nowhere.zip"]


def test_an_inventory_names_archives(account: Account) -> None:
    """Keys are decoded; versions that are not the latest, and delete markers, are left out."""
    manifest = make_inventory(
        account,
        [
            {"Key": "a.zip", "Size": "99999999999999999999999999999"},
            {"Key": "späße & co+1 %.zip", "Size": ""},
            {"Key": "old.zip", "IsLatest": "false"},
            {"Key": "deleted.zip", "IsDeleteMarker": "true"},
            {"Key": "readme.txt"},
        ],
    )
    assert list_words(account, manifest) == ["a.zip", "späße & co+1 %.zip"]


def test_an_inventory_of_few_columns(account: Account) -> None:
    """Bucket and key are enough."""
    data = gzip.compress(b'"arrivals","a%20b.zip"\n"arrivals","c+d.zip"\n')
    manifest = make_inventory(
        account,
        [],
        change={"fileSchema": "Bucket, Key", "files": [{"key": "data/list.csv.gz"}]},
        data=data,
    )
    assert list_words(account, manifest) == ["a b.zip", "c d.zip"]


@pytest.mark.parametrize("kind", ["Parquet", "ORC"])
def test_other_formats_are_refused(account: Account, kind: str) -> None:
    """The message says which format is read."""
    manifest = make_inventory(account, [], change={"fileFormat": kind})
    with pytest.raises(UsageError, match=f"lists are {kind}, and s3unzip reads CSV: choose CSV"):
        list_words(account, manifest)


def test_an_inventory_of_another_bucket(account: Account) -> None:
    """It is refused by its manifest, and a row of another bucket by the row."""
    manifest = make_inventory(account, [{"Key": "a.zip"}], source="elsewhere")
    with pytest.raises(UsageError, match=r"is of the bucket elsewhere; .* takes only"):
        list_words(account, manifest)
    manifest = make_inventory(account, [{"Key": "a.zip", "Bucket": "elsewhere"}])
    with pytest.raises(UsageError, match="a line is of the bucket 'elsewhere', the report of arr"):
        list_words(account, manifest)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "is no manifest of S3 Inventory"),
        (b"[]", "is no manifest of S3 Inventory"),
        (b"\xff\xfe", "is no manifest of S3 Inventory"),
        (b'{"sourceBucket": 5}', "is no manifest of S3 Inventory"),
        (b'{"files": ' + b"[" * 100_000, "is no manifest of S3 Inventory"),
    ],
)
def test_what_is_no_manifest(account: Account, body: bytes, said: str) -> None:
    """One line says so."""
    account.client("s3").create_bucket(Bucket="reports")
    account.put("manifest.json", body, "reports")
    with pytest.raises(UsageError, match=said):
        list_words(account, "s3://reports/manifest.json")


def test_a_manifest_that_is_too_large(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not read to its end."""
    monkeypatch.setattr(listing, "MAX_MANIFEST", 100)
    manifest = make_inventory(account, [])
    with pytest.raises(UsageError, match="has more than 100 bytes"):
        list_words(account, manifest)


def test_a_manifest_without_needed_columns(account: Account) -> None:
    """The message names them."""
    manifest = make_inventory(account, [], change={"fileSchema": "Bucket, Size"})
    with pytest.raises(UsageError, match="no columns Bucket and Key: 'Bucket, Size'"):
        list_words(account, manifest)


GOOD = gzip.compress(b'"arrivals","a.zip","","true","false","1"\n' * 5_000, mtime=0)


@pytest.mark.parametrize(
    ("data", "error", "said"),
    [
        (GOOD[:-12], StorageError, "is not whole"),
        (GOOD[: len(GOOD) // 2], StorageError, "is not whole"),
        (b"no gzip", StorageError, "is not whole"),
        (GOOD[:20] + b"\xff" * 20 + GOOD[40:], StorageError, "is not whole"),
        (gzip.compress(b'"arrivals"\n', mtime=0), UsageError, "a line has 1 columns: 'arrivals'"),
        (
            gzip.compress(b'"arrivals","%FF",,true,false,1\n', mtime=0),
            UsageError,
            "a key is not UTF-8",
        ),
        (gzip.compress(b"\xff\n", mtime=0), UsageError, "is no CSV"),
        (gzip.compress(b'"arr"ivals",\n', mtime=0), UsageError, "is no CSV"),
        (gzip.compress(b"x" * 1_000_000, mtime=0), UsageError, "a line has 65,536 bytes or more"),
    ],
)
def test_lists_that_are_damaged(
    account: Account, data: bytes, error: type[Exception], said: str
) -> None:
    """Each ends in one line that names the list."""
    manifest = make_inventory(account, [], data=data)
    with pytest.raises(error, match=f"s3://reports/data/list.csv.gz: {said}"):
        list_words(account, manifest)


def test_a_list_of_another_report(account: Account) -> None:
    """The checksum of the manifest tells."""
    files = [{"key": "data/list.csv.gz", "MD5checksum": "0" * 32}]
    manifest = make_inventory(account, [{"Key": "a.zip"}], change={"files": files})
    with pytest.raises(StorageError, match="its MD5 is not the one of the manifest"):
        list_words(account, manifest)


def test_a_list_that_is_not_there(account: Account) -> None:
    """The object and the right are named."""
    manifest = make_inventory(account, [], change={"files": [{"key": "data/none.csv.gz"}]})
    with pytest.raises(
        StorageError, match=r"s3:GetObject of s3://reports/data/none\.csv\.gz: NoSuch"
    ):
        list_words(account, manifest)
