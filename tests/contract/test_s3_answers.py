"""What the S3 adapters make of real servers' answers, and of endpoints that cannot be reached."""

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from s3unzip.errors import (
    AccessDeniedError,
    S3UnzipError,
    ServiceFaultError,
    StorageError,
    UsageError,
)
from s3unzip.model import Location, Part
from s3unzip.stores import config, ports, web
from s3unzip.stores.s3 import aws_session, session
from tests.contract.conftest import list_all, refuse, scripted, stores_at
from tests.contract.test_s3_faults import CALLS, LINE
from tests.support.servers import (
    HOST,
    Asked,
    HttpServer,
    Reply,
    make_tls,
    nobody,
    raw_server,
    s3_error,
    set_variables,
)

WHERE = Location("s3", "bucket", "")
XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
STAMP = "2026-11-25T22:19:26.764Z"

# API_ListObjectsV2 of Amazon S3: keys are encoded as forms are, so a space is "+".
AWS = f"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult {XMLNS}><Name>bucket</Name><Prefix/><KeyCount>6</KeyCount><MaxKeys>1000</MaxKeys>
<EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>
{{contents}}</ListBucketResult>"""
AWS_ENTRY = (
    f"<Contents><Key>{{key}}</Key><LastModified>{STAMP}</LastModified>"
    "<ETag>&quot;c4ca4238a0b923820dcc509a6f75849b&quot;</ETag><Size>1</Size>"
    "<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)
# MinIO of 2026-02-12: EncodingType is the last element.
MINIO = f"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult {XMLNS}><Name>rec</Name><Prefix></Prefix><KeyCount>14</KeyCount>\
<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>{{contents}}\
<EncodingType>url</EncodingType></ListBucketResult>"""
MINIO_ENTRY = (
    f"<Contents><Key>{{key}}</Key><LastModified>{STAMP}</LastModified>"
    "<ETag>&#34;c4ca4238a0b923820dcc509a6f75849b&#34;</ETag><Size>1</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)
# VersityGW 1.8.0 encodes nothing, and says so by an empty EncodingType.
VERSITY = f"""<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult {XMLNS}><Name>rec</Name><KeyCount>14</KeyCount><MaxKeys>1000</MaxKeys>\
<IsTruncated>false</IsTruncated>{{contents}}<EncodingType></EncodingType></ListBucketResult>"""
VERSITY_ENTRY = (
    "<Contents><LastModified>2026-11-25T22:19:26Z</LastModified><ETag>"
    "&#34;c4ca4238a0b923820dcc509a6f75849b&#34;</ETag><Key>{key}</Key><Size>1</Size>"
    "<StorageClass>STANDARD</StorageClass></Contents>"
)
# Ceph and MiniStack percent-encode as URLs are: a space is "%20".
FORM = {
    "%01c": "\x01c",
    "100%25": "100%",
    "%3Cx%3E%22": '<x>"',
    "a%26b": "a&b",
    "a%2Bb": "a+b",
    "ctl%7F": "ctl\x7f",
    "e%3D%3F%23%3B%3A%40%2C%24": "e=?#;:@,$",
    "my+docs/file+0.txt": "my docs/file 0.txt",
    "new%0Aline": "new\nline",
    "per%2520cent": "per%20cent",
    "plus%2B+and+space": "plus+ and space",
    "st*r%7E%28%21%29%27": "st*r~(!)'",
    "%C3%BC/%E6%96%87": "ü/文",
}
URL = {
    "my%20docs/file%200.txt": "my docs/file 0.txt",
    "plus%2B%20and%20space": "plus+ and space",
    "plain/key.txt": "plain/key.txt",
}
PLAIN = {
    "100%": "100%",
    "&lt;x&gt;&#34;": '<x>"',
    "a&amp;b": "a&b",
    "a+b": "a+b",
    "my docs/file 0.txt": "my docs/file 0.txt",
    "new&#xA;line": "new\nline",
    "per%20cent": "per%20cent",
    "t&#x9;ab": "t\tab",
    "ü/文": "ü/文",
}
LISTS = {
    "Amazon S3": (AWS, AWS_ENTRY, FORM),
    "MinIO": (MINIO, MINIO_ENTRY, FORM),
    "Ceph": (AWS, AWS_ENTRY, URL),
    "VersityGW": (VERSITY, VERSITY_ENTRY, PLAIN),
}


@pytest.mark.parametrize("server_name", LISTS)
def test_a_listing_has_the_keys_that_the_server_meant(server_name: str) -> None:
    """Keys are those that botocore's own parser finds in the same bytes."""
    page, entry, keys = LISTS[server_name]
    body = page.format(contents="".join(entry.format(key=key) for key in keys)).encode()
    with HttpServer(lambda _: Reply(200, body)) as server:
        listed = list_all(stores_at(server.url).destination(WHERE), "")
        client = aws_session.AwsSession(config.StoreConfig()).client("s3", endpoint_url=server.url)
        answer = client.list_objects_v2(Bucket="bucket")
    assert listed == [
        ports.StoredObject(key, 1, etag="c4ca4238a0b923820dcc509a6f75849b") for key in keys.values()
    ]
    assert [entry.get("Key") for entry in answer["Contents"]] == list(keys.values())


UPLOADS = (
    f"<ListMultipartUploadsResult {XMLNS}><Bucket>rec</Bucket>"
    "<NextKeyMarker>{after}</NextKeyMarker><NextUploadIdMarker>{after_id}</NextUploadIdMarker>"
    "<EncodingType>{encoding}</EncodingType><IsTruncated>{more}</IsTruncated>"
    "<Upload><Key>{key}</Key><UploadId>{upload}</UploadId></Upload></ListMultipartUploadsResult>"
)


@pytest.mark.parametrize(
    ("encoding", "keys"),
    [("url", ["a%2Bb", "my+docs/new%0Aline"]), ("", ["a+b", "my docs/new&#xA;line"])],
    ids=["MinIO", "VersityGW"],
)
def test_uploads_are_listed_over_pages(encoding: str, keys: list[str]) -> None:
    """Keys and markers of uploads are decoded as the server says."""
    pages = (
        UPLOADS.format(
            key=key,
            upload=f"u{n}",
            encoding=encoding,
            more=("true", "false")[n],
            after=key,
            after_id=f"u{n}",
        )
        for n, key in enumerate(keys)
    )
    with scripted(lambda _: Reply(200, next(pages).encode())) as (stores, asked):
        uploads = list(stores.destination(WHERE).uploads(""))
    assert uploads == [ports.Upload("a+b", "u0"), ports.Upload("my docs/new\nline", "u1")]
    assert "key-marker=a%2Bb&" in asked[1].path
    assert "upload-id-marker=u0" in asked[1].path


def test_an_upload_to_a_key_that_xml_cannot_represent() -> None:
    """Amazon S3 repeats the key in its answers as a reference to a character that XML forbids."""
    told = "<Key>a&#x7;</Key><UploadId>u</UploadId><ETag>&quot;e-1&quot;</ETag>"
    body = f"<{{0}}MultipartUploadResult {XMLNS}>{told}</{{0}}MultipartUploadResult>"
    names = iter(("Initiate", "Complete"))
    with scripted(lambda _: Reply(200, body.format(next(names)).encode())) as (stores, _):
        out = stores.destination(WHERE)
        upload = ports.Upload("a\a", out.create_upload("a\a", ports.ObjectFacts("a/b", {})))
        etag = out.complete_upload(upload, [Part(1, "e", 9)], if_absent=False)
    assert (upload.upload_id, etag) == ("u", "e-1")


MORE_KEYS = f"<ListBucketResult {XMLNS}><IsTruncated>true</IsTruncated>{{}}</ListBucketResult>"
# Pages that announce another page, but say nothing new about where it begins.
ENDLESS: dict[str, tuple[str, Callable[[ports.Destination], object], type[S3UnzipError], str]] = {
    "uploads after the same markers": (
        UPLOADS.format(key="a", upload="u", encoding="url", after="a", after_id="u", more="true"),
        lambda out: list(out.uploads("")),
        StorageError,
        "list of uploads does not end",
    ),
    "keys without a token": (
        MORE_KEYS.format(""),
        lambda out: list_all(out, ""),
        StorageError,
        "the list has no token for a new page; .* ListObjectsV2",
    ),
    "keys without a token, in another spelling": (
        MORE_KEYS.replace("true", "True").format("<NextMarker>a</NextMarker>"),
        lambda out: list_all(out, ""),
        StorageError,
        "the list has no token for a new page; .* ListObjectsV2",
    ),
    "keys after the same token": (
        MORE_KEYS.format("<NextContinuationToken>t</NextContinuationToken>"),
        lambda out: list_all(out, ""),
        StorageError,
        "the list has no token for a new page; .* ListObjectsV2",
    ),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_list_without_progress_ends(case: str) -> None:
    """A server that gives the same page again is not asked for ever."""
    page, read, kind, words = ENDLESS[case]
    asked = refuse(
        lambda stores: read(stores.destination(WHERE)),
        lambda _: Reply(200, page.encode()),
        kind,
        words,
    )
    assert len(asked) == 2 - ("without a token" in case)


ERRORS = {
    "an element inside": "<Error><Code>Access<b/>Denied</Code><Message>m</Message></Error>",
    "an element inside the message": "<Error><Code>A</Code><Message>m<b>x</b></Message></Error>",
    "twice": "<Error><Code>A</Code><Code>B</Code><Message>m</Message><Message>n</Message></Error>",
    "twice with elements inside": "<Error><Code><b/></Code><Code><b/></Code></Error>",
    "no elements": "<Error>AccessDenied</Error>",
    "an error inside": "<Answer><Error>AccessDenied</Error></Answer>",
    "two errors": "<Answer><Error/><Error><Code>A</Code></Error></Answer>",
    "two request ids": "<Error><Code>A</Code><RequestId>1</RequestId><RequestId/></Error>",
    "a list": "<ListBucketResult><Contents/></ListBucketResult>",
    "no XML": "<Error><Code>A</Error>",
    "HTML": "<html><body>Bad gateway</body></html>",
    "nothing": "",
}


@pytest.mark.parametrize("call", CALLS)
def test_no_shape_of_an_error_is_an_error_of_ours(call: str) -> None:
    """Whatever a server puts into an error, the call says in one line that the server refuses."""
    body = ""
    with scripted(lambda _: Reply(400, body.encode())) as (stores, _):
        for body in ERRORS.values():
            with pytest.raises(S3UnzipError, match=LINE) as caught:
                CALLS[call](stores)
            assert "object has no attribute" not in str(caught.value), body


@pytest.mark.parametrize("truncated", ["true", "True", "1", "\n  true\n", None])
def test_pages_of_one_listing_follow_the_token(truncated: str | None) -> None:
    """The first request says where to begin, the next one has the token of the page before.

    A server may spell the boolean in another form, or send only the token.
    """
    entry = AWS_ENTRY.format(key="b")
    more = "<NextContinuationToken>t+/=</NextContinuationToken>"
    if truncated is not None:
        more += f"<IsTruncated>{truncated}</IsTruncated>"
    pages = [
        f"<ListBucketResult>{entry}{more}</ListBucketResult>",
        f"<ListBucketResult>{entry.replace('>b<', '>c<')}</ListBucketResult>",
    ]

    def answer(asked: Asked) -> Reply:
        return Reply(200, pages["continuation-token=t%2B%2F%3D" in asked.path].encode())

    with scripted(answer) as (stores, asked):
        listed = list_all(stores.destination(WHERE), "", "b")
    assert [entry.key for entry in listed] == ["b", "c"]
    assert "start-after=a" in asked[0].path


def test_a_list_that_ignores_the_prefix() -> None:
    """Objects outside of a prefix are none of it, so none of them is extracted or deleted."""
    page = "".join(AWS_ENTRY.format(key=key) for key in ("a/x", "b", "b/", "b/x", "b0", "c/x"))
    with scripted(lambda _: Reply(200, AWS.format(contents=page).encode())) as (stores, _):
        listed = list_all(stores.destination(WHERE), "b/")
    assert [entry.key for entry in listed] == ["b/", "b/x"]


ARCHIVE = Location("s3", "bucket", "a.zip")
NO_URLS = (
    *("127.0.0.1:9000", "localhost:9000", "ftp://x", "http:/x", "http://", "http://h:99999"),
    *("http://h/?x=1", "https://h:9000#x"),
    *("http://[::1", "http://a b", "http://a\n", "", "http://me:SEC/RET@h", "me:SECRET@h"),
    # For these, obstore panics.
    *("http://10.0.0.256", "http://x.1:9000", "http://1.2.3.4.5", "http://[::1%25eth0]"),
    *("http://xn--a", "http://a.xn--:9000", "http://xn--99zzz9999", "http://xn--abc-.d"),
    *("http://xn--zva", "http://xn--7ba", "http://xn--zug"),  # upper case, unassigned, no width
    *("http://\xe9", "http://a%41", "http://a|b", "http://a:b:9", "http://h/<x", "http://h/`x"),
)


E = TypeVar("E", bound=S3UnzipError)


def _ask(url: str, kind: type[E], *, by: str, beginning: bool = True) -> E:
    stores = stores_at(url, check_reachable=beginning)
    source, destination = stores.source(ARCHIVE), stores.destination(ARCHIVE)
    web_archive = Location("https", url.removeprefix("https://"), "a.zip")
    calls: dict[str, Callable[[], object]] = {
        "obstore": lambda: source.tail(ARCHIVE, 10),
        "boto3": lambda: destination.create_upload("key", ports.ObjectFacts("a/b", {})),
        "check": destination.check_reachable,
        "web": lambda: web.WebSource(config.StoreConfig()).tail(web_archive, 10),
    }
    with pytest.raises(kind) as caught:
        calls[by]()
    # An error that is final may not be of a class that is handled otherwise.
    assert type(caught.value) is kind or kind in {S3UnzipError, ServiceFaultError}
    return caught.value


@pytest.mark.parametrize("by", ["obstore", "boto3"])
def test_a_wrong_endpoint_is_told_at_once(by: str) -> None:
    """One error names host, cause and advice, and the request is not sent again.

    A user in the URL is no part of S3's protocol, and is not shown.
    """
    with nobody() as url:
        refused = f"cannot reach {url}: connection refused; check --endp"
        for endpoint, words in (
            (url, refused),
            (url.replace("//", "//me:SECRET@"), refused),
            (
                "http://s3.eu-wset-1.invalid",
                "s3.eu-wset-1.invalid: there is no host with this name; check --endp",
            ),
        ):
            assert words in str(_ask(endpoint, StorageError, by=by))


@pytest.mark.parametrize(("by", "words"), [("obstore", "Connection refused"), ("boto3", "")])
def test_later_it_is_a_fault_that_may_pass(by: str, words: str) -> None:
    """A worker of an active run retries; the message has the cause, and no user of the URL."""
    with nobody() as url:
        fault = _ask(url.replace("//", "//me:SECRET@"), ServiceFaultError, by=by, beginning=False)
    assert words in str(fault)
    assert "SECRET" not in f"{fault}{fault.trouble}"


@pytest.mark.parametrize(
    ("variable", "proxy", "direct"),
    [
        ("http_proxy", "", "*"),
        ("http_proxy", "http://127.0.0.1:9", "*"),
        ("ALL_PROXY", "socks5://127.0.0.1:9", ""),  # botocore does not use it
    ],
)
def test_a_server_that_answers_is_reachable(
    monkeypatch: pytest.MonkeyPatch, variable: str, proxy: str, direct: str
) -> None:
    """A broken answer at the beginning is a fault that may pass; no proxy is asked with "*"."""
    set_variables(monkeypatch, {variable: proxy, "no_proxy": direct})
    with HttpServer(lambda asked: Reply(500, b"x", cut=0)) as server:
        assert "cannot reach" not in str(_ask(server.url, S3UnzipError, by="obstore"))
        session.Session(
            aws_session.AwsSession(config.StoreConfig(endpoint_url=server.url))
        ).check_bucket("bucket")


def test_an_endpoint_that_says_nothing() -> None:
    """A TLS handshake that is not answered ends when a connection should have been made."""
    with socket.create_server((HOST, 0)) as silent:
        refusal = _ask(f"https://{HOST}:{silent.getsockname()[1]}", StorageError, by="obstore")
    assert ": no answer; check --endp" in str(refusal)


@pytest.mark.parametrize("by", ["obstore", "boto3"])
def test_a_proxy_is_not_passed_by(monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """Only the proxy may know the endpoint; an error names both, and no user of the proxy."""
    with nobody() as proxy:
        monkeypatch.setenv("http_proxy", proxy.replace("//", "//me:SECRET@"))
        fault = _ask("http://no-such-host.invalid", ServiceFaultError, by=by)
    where = f"http://no-such-host.invalid through the proxy {proxy}"
    assert str(fault).endswith(f"; no answer from {where}")
    assert fault.trouble.startswith(f"no answer from {where} (")
    assert "SECRET" not in f"{fault}{fault.trouble}"


def _refuse_tunnel(status: str) -> Callable[[socket.socket], None]:
    return lambda one: one.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())


@pytest.mark.parametrize(
    ("by", "kind"),
    [*((by, AccessDeniedError) for by in ("obstore", "boto3", "check")), ("web", StorageError)],
)
def test_a_proxy_that_refuses_a_tunnel(
    monkeypatch: pytest.MonkeyPatch, by: str, kind: type[S3UnzipError]
) -> None:
    """A proxy that wants a login will want it again; another refusal may pass."""
    with raw_server(_refuse_tunnel("407 Proxy Authentication Required")) as proxy:
        monkeypatch.setenv("https_proxy", f"http://{proxy}")
        refusal = _ask("https://s3.example", kind, by=by)
    assert re.search("HTTP 407.*; the proxy requires a login: write http://USER:P", str(refusal))
    if by in {"obstore", "boto3"}:  # a check reports only what is final
        with raw_server(_refuse_tunnel("502 Bad Gateway")) as proxy:
            monkeypatch.setenv("https_proxy", f"http://{proxy}")
            fault = _ask("https://s3.example", ServiceFaultError, by=by)
        assert fault.trouble.endswith(f"through the proxy http://{proxy} (the proxy refuses)")


@pytest.mark.parametrize("by", ["obstore", "boto3", "web"])
@pytest.mark.parametrize(
    "proxy",
    [
        *("http://me:SEC/RET@h:1", "http://me:/SECRET@h:1", "http://me:SECRET@", "http://[::1"),
        "socks5://me:SECRET@h:1",
    ],
)
def test_a_proxy_without_a_valid_url_is_refused(
    monkeypatch: pytest.MonkeyPatch, proxy: str, by: str
) -> None:
    """The message names the variable, and not its value, which may have a password."""
    monkeypatch.setenv("https_proxy", proxy)
    refusal = _ask("https://store.invalid", UsageError, by=by)
    assert str(refusal) == "https_proxy: not a valid URL; it should look like http://host:port"


NOT_AS_S3 = "{} answers, but not as S3 does"
TROUBLES = {
    "an error": (s3_error(503, "SlowDown"), "{} answers with errors (SlowDown)"),
    "the web page of a portal or a console": (Reply(200, b"<html>", {"ETag": '"e"'}), NOT_AS_S3),
    "another range": (Reply(206, bytes(5), {"Content-Range": "bytes 3-7/10"}), NOT_AS_S3),
    "no Content-Range": (Reply(206, bytes(10)), NOT_AS_S3),
    "a date of another form": (
        Reply(
            206,
            bytes(10),
            {"Content-Range": "bytes 0-9/10", "Last-Modified": "2024-01-01T00:00:00Z"},
        ),
        NOT_AS_S3,
    ),
}


@pytest.mark.parametrize("case", TROUBLES)
def test_a_store_that_answers_with_errors_is_named(case: str) -> None:
    """The line for the user names the host, and does not say that it did not answer."""
    reply, trouble = TROUBLES[case]
    with HttpServer(lambda _: reply) as server:
        fault = _ask(server.url, ServiceFaultError, by="obstore")
        if trouble == NOT_AS_S3:  # else a page with an ETag would be taken for the answer to a PUT
            _ask(server.url, StorageError, by="check")
    assert fault.trouble == trouble.format(server.url)
    assert ("; check --endpoint-url" in str(fault), "no answer" in str(fault)) == (
        trouble == NOT_AS_S3,
        False,
    )


@pytest.mark.parametrize("beginning", [True, False])
@pytest.mark.parametrize(
    ("by", "variable"),
    [
        *((by, "AWS_CA_BUNDLE") for by in ("obstore", "boto3", "check")),
        ("web", "SSL_CERT_FILE"),
    ],
)
def test_an_untrusted_certificate_is_named(
    tmp_path: Path, by: str, variable: str, *, beginning: bool
) -> None:
    """The error is final, because retries cannot help; it has the cause and advice."""
    with raw_server(lambda _: None, make_tls(tmp_path)) as host:
        refusal = _ask(f"https://{host}", StorageError, by=by, beginning=beginning)
    assert re.search(f"ertificate.*{variable}", str(refusal))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        (NO_URLS[0], r"like http://127\.0\.0\.1:9000$"),
        ("http:/x", "like http://x$"),
        ("https://h:9000/s3?x=1", "and has no query, like https://h:9000/s3$"),
        ("http://10.0.0.256", ", with a valid host and port$"),
        *((url, "") for url in NO_URLS[1:]),
    ],
)
def test_endpoints_that_are_no_urls(url: str, words: str) -> None:
    """They are refused before any request; most people mean HTTP on a port."""
    with pytest.raises(UsageError, match=f"not a URL that begins with http.*{words}") as caught:
        config.check_endpoint(url)
    assert "SEC" not in str(caught.value)
    if url:  # an empty one is none
        with pytest.raises(UsageError, match="Invalid endpoint: "):
            aws_session.AwsSession(config.StoreConfig(endpoint_url=url)).bucket_url("bucket")


@pytest.mark.parametrize(
    "url",
    [
        *("http://127.0.0.1:9000", "http://127.1", "http://h.1a", "http://my_server", "http://H."),
        *("https://[::1]:9000/path", "https://[::ffff:10.0.0.1]"),
        *("http://xn--bcher-kva", "https://s3.xn--strae-oqa.de", "http://a-xn--b"),
    ],
)
def test_endpoints_that_are_urls(url: str) -> None:
    """Also those of a port, of a number in brackets, and with a path."""
    config.check_endpoint(url)
