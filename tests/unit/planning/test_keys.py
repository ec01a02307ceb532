"""Key templates, locations, and the selection of members."""

from pathlib import Path

import pytest

from s3unzip.model import Location, Options, Request
from s3unzip.planning.select import KeyTemplate, find_unmatched, parse_template, selector
from s3unzip.stores.config import parse_destination, parse_source


def _key(path: str, template: str | None = None, source: str = "s3://bucket/in/data.v1.zip") -> str:
    options = Options() if template is None else Options(key_template=template)
    return parse_template(
        Request(parse_source(source), parse_destination("s3://out/base"), options)
    ).key_of()(path)


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        (None, "base/data.v1/a/b.tar.gz"),
        ("{member}", "base/a/b.tar.gz"),
        ("x/{archive_dir}/{name}", "base/x/in/b.tar.gz"),
        ("{bucket}/{archive_key}/{stem}{suffix}", "base/bucket/in/data.v1.zip/b.tar.gz"),
        ("{dir}/{stem}-{archive_stem}{suffix}", "base/a/b.tar-data.v1.gz"),
        ("{suffix}/{member}", "base/.gz/a/b.tar.gz"),
        ("./{member}", "base/a/b.tar.gz"),
        ("./p//q/./r./{member}", "base/p//q/r./a/b.tar.gz"),  # in S3, a part may be empty
    ],
)
def test_fields_are_filled(template: str | None, wanted: str) -> None:
    """Each field stands for what the documentation says."""
    assert _key("a/b.tar.gz", template) == wanted


@pytest.mark.parametrize(
    ("source", "template", "wanted"),
    [
        ("s3://bucket/.zip", None, "base/.zip/a"),
        ("s3://bucket/in/..zip", None, "base/..zip/a"),
        ("s3://bucket/in/...zip", None, "base/...zip/a"),
        ("s3://bucket/in/....zip", None, "base/.../a"),
        ("s3://bucket/in/..", None, "base/archive/a"),
        ("s3://bucket/what?.zip", None, "base/what?/a"),
        ("s3://bucket/{member}.zip", None, "base/{member}/a"),  # its braces make no field
        ("https://host/?file=1.zip", None, "base/archive/a"),
        ("https://host/x%2F..%2F..zip", None, "base/..zip/a"),
        ("https://host/x%2F..%2F../a.zip", "{archive_dir}/{member}", "base/x/%2E%2E/%2E%2E/a"),
        ("https://host/in/a.zip?X-Amz-Signature=1", "{archive_key}/{member}", "base/in/a.zip/a"),
        ("s3://bucket/in/../b.zip", "{archive_dir}/{member}", "base/in/%2E%2E/a"),
        ("s3://bucket/../x/./b.zip", "{archive_key}-{name}", "base/%2E%2E/x/%2E/b.zip-a"),
    ],
)
def test_every_archive_has_a_place_below_the_prefix(
    source: str, template: str | None, wanted: str
) -> None:
    """The sender of an archive chooses its name: none leads out, or shows a URL's query."""
    assert _key("a", template, source) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s3://bucket/a/b.zip", Location("s3", "bucket", "a/b.zip")),
        ("https://host:8/a.zip?sig=1", Location("https", "host:8", "a.zip?sig=1")),
        ("https://host/a.zip?sig=1#sha256=0f", Location("https", "host", "a.zip?sig=1")),
        ("http://b\xfccher.de:8/a", Location("http", "xn--bcher-kva.de:8", "a")),
        ("http://b\xfccher:8/a", Location("http", "xn--bcher-kva:8", "a")),
        ("http://\xe4@b\xfccher.de/a", Location("http", "\xe4@xn--bcher-kva.de", "a")),
        ("http://[::1]:8/a", Location("http", "[::1]:8", "a")),
        ("http://a..b/a", Location("http", "a..b", "a")),
        ("s3://bucket/a#b.zip", Location("s3", "bucket", "a#b.zip")),
        ("/tmp/x/../a.zip", Location("file", "", "/tmp/a.zip")),
        ("file:///tmp/a%20b.zip", Location("file", "", "/tmp/a b.zip")),
        # As /dev/stdin: another file in another process.
        *[("/proc/self/root/etc/passwd", Location("file", "", "/etc/passwd"))]
        * Path("/proc/self").exists(),
    ],
)
def test_sources_are_parsed(text: str, wanted: Location) -> None:
    """Each kind of location, and what it prints as."""
    assert parse_source(text) == wanted


def test_an_address_is_shown_without_its_query() -> None:
    """What is printed and reported of a presigned address carries no credential."""
    location = parse_source("https://user:pw@host/a.zip?X-Amz-Signature=secret")
    assert (str(location), "secret" in repr(location.public)) == ("https://host/a.zip?...", False)


@pytest.mark.parametrize(
    ("template", "path", "wanted"),
    [
        (KeyTemplate("out/", "{member}", {}), "a/b/", "out/a/b"),
        (KeyTemplate("out/", "{member}", {}, strip=1), "a/b/", "out/b"),
        (KeyTemplate("out/", "{member}", {}, strip=1), "a/b/c/", "out/b/c"),
        (KeyTemplate("out/", "{member}", {}, strip=1), "a/", None),
        (KeyTemplate("out/", "{name}", {}), "a/b/", None),
    ],
)
def test_folders_have_keys_where_their_members_have(
    template: KeyTemplate, path: str, wanted: str | None
) -> None:
    """A folder that is left out, or that no key names, has none."""
    assert template.folder_key(path) == wanted


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (Options(names=("a", "c")), "ac"),
        (Options(names=("a", "c"), exclude=("c",)), "a"),
        (Options(names=("a", "c"), include=("b", "c")), "c"),
        (Options(include=("a", "b")), "ab"),
        (Options(exclude=("a", "b")), "c"),
        (Options(include=("a", "b"), exclude=("b", "c")), "a"),
        (Options(include=("[bc]",)), "bc"),
    ],
)
def test_each_option_takes_away(options: Options, wanted: str) -> None:
    """Names and includes must fit, and no exclude may."""
    assert "".join(filter(selector(options), "abc")) == wanted


NO_B = ["no member is called 'b.txt'; near: 'd/b.txt'"]
NO_ZIP = ["no member matches '*.zip'"]


@pytest.mark.parametrize(
    ("options", "selected", "names", "globs"),
    [
        (Options(include=("*.zip",)), 0, [], NO_ZIP),
        (Options(include=("*.txt", "*.zip")), 2, [], NO_ZIP),
        (Options(include=("*.txt",)), 2, [], []),
        (Options(names=("a.txt", "b.txt")), 1, NO_B, []),
        (Options(names=("c.bin",), include=("*.zip",)), 0, [], NO_ZIP),
        (Options(include=("/b.txt", "/*.zip")), 0, NO_B, ["no member matches '/*.zip'"]),
    ],
)
def test_names_and_globs_without_a_member_are_listed(
    options: Options, selected: int, names: list[str], globs: list[str]
) -> None:
    """Each name and each glob by itself; one glob alone only if nothing was selected."""
    paths = ("a.txt", "d/b.txt", "c.bin")
    assert find_unmatched(options, lambda: iter(paths), selected) == (names, globs)


@pytest.mark.parametrize("path", ["file[1].txt", "d/file[1].txt", "d/file1.txt"])
def test_a_name_with_brackets_fits_itself(path: str) -> None:
    """A name that ``ls`` shows may be typed, and is no name that is missing."""
    options = Options(include=("file[1].txt", "none"))
    assert list(filter(selector(options), [path, "file[2].txt"])) == [path]
    assert find_unmatched(options, lambda: iter([path]), 1) == ([], ["no member matches 'none'"])


def test_near_names_are_bounded_by_the_characters_to_compare() -> None:
    """To compare a long name with all long names of an archive would take an hour."""
    name = "x" * 1_000
    paths = [f"{name}{number:05}" for number in range(20_000)]
    ((sentence,), _) = find_unmatched(Options(names=(name,)), lambda: iter(paths), 0)
    assert sentence.count(name) == 4
