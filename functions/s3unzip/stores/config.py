"""The locations of archives, destinations and runs, and the settings for their stores.

`parse_source` and `parse_destination` parse locations as users write them. A run records its
`StoreConfig` and passes it to the workers.
"""

import os
import posixpath
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Self
from urllib.parse import unquote, urlsplit

from msgspec import Meta, Struct, field
from msgspec.structs import replace

from s3unzip.errors import UsageError
from s3unzip.model import STORE_KINDS, Location, StoreKind
from s3unzip.options import HelpSection, RunOption, option_words
from s3unzip.settings import OTHER_BUCKETS

# A malformed endpoint URL: without "http://", with too few slashes, or with a query. The
# group `server` includes the path; the group `query` is a query or a fragment.
_ALMOST_ENDPOINT = re.compile(
    r"(?!https?://[^?#]*\Z)(?:(?P<scheme>https?):/{0,2})?"
    r"(?P<server>(?:\[[^]/]*\]|[^/?#\s:]+)(?::\d+)?(?:/[^?#\s]*)?)(?P<query>(?:[?#].*)?)"
)
STARTUP_SECONDS = 30.0  # an endpoint that is unreachable within this time is probably wrong
CONNECTIONS = 100  # number of connections that are kept open to a server
# The environment variables for fields of a `StoreConfig`. The first variable that is set applies.
VARIABLES = {
    "endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "profile": ("AWS_PROFILE",),
}
# The kinds of buckets whose ARNs are refused, by service.
OTHER_ARNS = {
    "s3-object-lambda": "an Object Lambda access point",
    "s3-outposts": "a bucket on Outposts",
    "s3express": "a directory bucket (S3 Express One Zone)",
    "s3tables": "a table bucket",
}
ARN = "arn:"  # a bucket whose name begins with this prefix is an access point
PROXY_LOGIN = (  # advice for HTTP status 407
    "the proxy requires a login: write http://USER:PASSWORD@HOST:PORT in HTTPS_PROXY or HTTP_PROXY"
)
HOME_ADVICE = "this folder keeps the records of runs; set S3UNZIP_HOME to use another folder"
# Patterns are compiled on first use, because few commands need all of them.
_ARN = (
    r"(?s)arn:aws[a-z-]*:(?P<service>[a-z0-9-]+):(?P<region>[a-z0-9-]*):(?P<account>|[0-9]{12})"
    r":(?P<resource>.*)\Z"
)
# Text after the last colon of a host, unless it is a port. A slash in a password ends the host, so
# this text may be the beginning of a password. Therefore, messages do not show this text.
_NOT_A_PORT = r":(?![0-9]*\Z)[^]:@]*\Z"
_ACCESS_POINT = r"(?s)accesspoint[:/](?P<name>[a-z0-9-]{3,50})(?:/(?P<key>.*))?\Z"


def parse_source(text: str) -> Location:
    """Return the location of the archive that `text` names."""
    if not text:
        raise UsageError("SRC is empty; is a variable of your shell not set?")
    if text == "-":
        raise UsageError(
            "-: an archive is read from its end, so a pipe must be saved first: "
            "curl -o archive.zip URL, then s3unzip run archive.zip DEST"
        )
    location = parse_location(text)
    # In another process, /dev/stdin and /dev/fd/3 refer to other files.
    if location.store.is_local and location.key.startswith(("/dev/", "/proc/")):
        with suppress(OSError):  # the error is raised when the archive is opened
            location = replace(location, key=str(Path(location.key).resolve(strict=True)))
    if location.store.has_prefixes and (not location.key or location.key.endswith("/")):
        raise UsageError(f"{text}: names a bucket or a prefix, not an archive in it")
    return location


def parse_destination(text: str) -> Location:
    """Return the location that `text` names; the key is empty or ends in a slash."""
    if not text:
        raise UsageError("DEST is empty; is a variable of your shell not set?")
    if text == "-":
        raise UsageError("members cannot be written to standard output by a run; see s3unzip cat")
    location = parse_location(text)
    if not location.store.takes_members:
        raise UsageError(f"{text}: members can be written to s3:// or to a folder only")
    key = location.key
    if key and not key.endswith("/"):
        key += "/"
    if not location.store.has_folders and ".." in key.split("/"):
        raise UsageError(f"{text}: a prefix with '..' in it")
    return Location(location.scheme, location.bucket, key)


def parse_location(text: str) -> Location:
    """Return the location for a URL or a path; the key may be empty or end in a slash."""
    scheme, separator, path = text.partition("://")
    scheme = scheme.lower()
    if not separator:
        # Text that looks like a malformed URL is never treated as a path; users can write ./s3:/a.
        # The ARN of an access point matches an empty prefix, so the advice contains the whole ARN.
        wrong_prefix = re.match(r"(?i)(s3:/?|s3//|arn:aws[a-z-]*:s3:::|(?=arn:aws))(?=[^/])", text)
        if wrong_prefix is not None:
            raise UsageError(
                f"{text}: no location; did you mean s3://{text[wrong_prefix.end() :]}?"
            )
        return Location("file", "", absolute_path(text))
    if scheme == "file":
        host, slash, path_below = path.partition("/")
        if not slash or host not in {"", "localhost"}:
            raise UsageError(f"{text}: a file:// URL has a whole path: file:///folder/name")
        return Location("file", "", absolute_path(f"/{unquote(path_below)}"))
    kind = STORE_KINDS.get(scheme, StoreKind())  # an unknown scheme has the defaults of `StoreKind`
    if kind.has_prefixes:
        bucket, key = split_bucket(path)
        if kind.takes_s3_options:
            _check_bucket(text, bucket)
        return Location(scheme, bucket, key)
    if kind.is_url:
        host, _, key = path.partition("/")
        if not host or not key:
            # The query string of a presigned URL is secret.
            raise UsageError(f"{text.partition('?')[0]}: an address without host or path")
        if re.search(_NOT_A_PORT, host):
            raise UsageError(
                f"{scheme}://{host.partition(':')[0]}:...: the port is not a number; a slash in a "
                "password is written %2F"
            )
        with suppress(UnicodeError):  # without idna, urllib3 refuses a name like "bücher.example"
            host = re.sub(
                r"[^:@]*(?=(:[0-9]*)?\Z)", lambda name: name[0].encode("idna").decode(), host
            )
        return Location(scheme, host, key.partition("#")[0])  # a fragment is not sent
    raise UsageError(f"{text}: {scheme}:// is not known; s3://, http(s):// or a path")


def split_bucket(path: str) -> tuple[str, str]:
    """Return the bucket and the key that follow ``s3://``.

    The path may also be the ARN of a bucket, of an object or of an access point. For an access
    point, the ARN is returned as the bucket. Users write this ARN with either ``accesspoint:`` or
    ``accesspoint/``; the result always contains the colon.
    """
    arn = re.match(_ARN, path)
    if arn is not None and arn.group("service", "region", "account") == ("s3", "", ""):
        path = arn["resource"]  # the ARN of a bucket or an object ends in BUCKET or BUCKET/KEY
    elif arn is not None:
        point = re.match(_ACCESS_POINT, arn["resource"])
        if point is not None:
            return f"{path[: arn.start('resource')]}accesspoint:{point['name']}", point["key"] or ""
    bucket, _, key = path.partition("/")  # `parse_location` refuses all other kinds of ARNs
    return bucket, key


def _check_bucket(text: str, bucket: str) -> None:
    """Refuse text that is not a bucket name, and unsupported kinds of buckets."""
    unsupported_kind = next(
        (kind for suffix, kind in OTHER_BUCKETS.items() if bucket.endswith(suffix)), None
    )
    arn = re.match(_ARN, bucket)  # `split_bucket` has already replaced the ARN of a bucket
    if arn is not None and not arn["region"]:  # a multi-Region access point
        unsupported_kind = OTHER_BUCKETS[".mrap"]
    elif arn is not None and unsupported_kind is None:
        unsupported_kind = OTHER_ARNS.get(arn["service"])
    if unsupported_kind is not None:
        raise UsageError(
            f"{text}: {unsupported_kind} is not supported: use a general purpose bucket, or an "
            "access point of one"
        )
    is_access_point = (
        arn is not None
        and arn["service"] == "s3"
        and re.match(_ACCESS_POINT, arn["resource"]) is not None
    )
    if not is_access_point and not re.match(r"(?i)[a-z0-9][a-z0-9.\-_]{1,61}[a-z0-9]\Z", bucket):
        raise UsageError(
            f"{text}: {bucket!r} is no bucket name (3 to 63 letters, digits, dots, hyphens)"
        )


def absolute_path(text: str) -> str:
    """Return the absolute form of a path; ``~`` stands for the home folder."""
    if "\0" in text:
        raise UsageError(f"{text}: no path has a NUL character")
    try:
        return posixpath.normpath(Path(text).expanduser().absolute().as_posix())
    except RuntimeError:
        raise UsageError(f"{text}: there is no such home folder; give the whole path") from None
    except FileNotFoundError:
        raise UsageError(
            f"{text}: the current folder no longer exists; change to another folder, or give the "
            "whole path"
        ) from None


def check_endpoint(url: str, name: str = "--endpoint-url") -> None:
    """Raise `UsageError` if `url`, the value of `name`, is not an HTTP URL with a valid host.

    obstore panics on some of the URLs that this function refuses.
    """
    if not _is_endpoint(url) or re.search(r"[?#<>`\s\x00-\x1f\x7f]", url):
        refusal = "not a URL that begins with http:// or https://"
        almost_valid = _ALMOST_ENDPOINT.fullmatch(url)
        if almost_valid and "@" not in url:  # the example must not contain a password
            if almost_valid["query"]:
                refusal += " and has no query"
            refusal += f", like {almost_valid['scheme'] or 'http'}://{almost_valid['server']}"
        elif url.startswith(("http://", "https://")):
            refusal += ", with a valid host and port"
        shown_url = re.sub("(?s).*@", "...@", url)  # without the user and the password
        raise UsageError(f"{name} {shown_url}: {refusal}")


def _is_endpoint(url: str) -> bool:
    import socket  # noqa: PLC0415 - most commands have no endpoint

    try:
        parts = urlsplit(url)
        return bool(
            parts.scheme in {"http", "https"}
            and parts.hostname
            and re.fullmatch(r"[a-z0-9._:-]+", parts.hostname)
            # A name that ends in a number must be an IPv4 address, which `inet_aton` checks.
            and (
                not re.match(r"([^:]*\.)?[0-9]+\.?\Z", parts.hostname)
                or socket.inet_aton(parts.hostname)
            )
            # A label that begins with xn-- must be the Punycode of a lower-case, non-ASCII name.
            and all(
                label.isprintable() and not label.isascii() and label == label.lower()
                for encoded in re.findall(r"(?<![^.])xn--([^.]*)", parts.hostname)
                for label in [encoded.encode().decode("punycode")]
            )
            and parts.port != 0
            # A slash in a password ends the host early, and the "@" is then in the path.
            and "@" not in parts.path
        )
    except (OSError, ValueError):  # a malformed port, IP address or Punycode
        return False


def runs_home() -> Location:
    """Return the folder below which the records of runs are kept.

    Without ``S3UNZIP_HOME``, the folder follows the XDG base directory specification.
    """
    state_home = posixpath.expanduser(os.environ.get("XDG_STATE_HOME") or "~/.local/state")
    # For a user without a home folder, "~" remains: the records are in /.local/state/s3unzip.
    home = os.environ.get("S3UNZIP_HOME") or re.sub("^~/", "/", f"{state_home}/s3unzip")
    try:
        return Location("file", "", f"{absolute_path(home)}/")
    except UsageError as error:
        raise UsageError(f"{error}; {HOME_ADVICE}") from None


def find_proxy(url: str) -> str | None:
    """Return the URL of the proxy for `url`, with any password, from ``HTTPS_PROXY`` and the like.

    Raises:
        UsageError: the proxy's URL is not valid. obstore would ignore an invalid URL, and the
            messages of botocore and urllib3 may contain its password.
    """
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - needed for few requests

    scheme, _, address = url.partition("://")  # `urlsplit` raises an error for an invalid URL
    host = re.split("[/?#]", address, maxsplit=1)[0].rpartition("@")[2]
    proxy = getproxies().get(scheme)
    if not proxy or proxy_bypass(host):
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    try:
        check_endpoint(proxy)
    except UsageError:
        raise UsageError(
            f"{scheme}_proxy: not a valid URL; it should look like http://host:port"
        ) from None
    return proxy


class StoreConfig(Struct, frozen=True, omit_defaults=True):
    """The settings for reaching stores, without secrets: credentials come from boto3's chain.

    If a setting is missing for the destination, the setting of the source is used. If the records
    of a run are in S3, the settings of the destination apply to them. Times are in seconds.
    """

    # The folder, or the S3 prefix ending in "/", below which the records of runs are kept.
    work: Location = field(default_factory=runs_home)
    endpoint_url: Annotated[
        str | None,
        RunOption(
            "--endpoint-url URL",
            "An S3-compatible server.",
            HelpSection.STORES,
            variable="AWS_ENDPOINT_URL",
        ),
    ] = None  # None means the server in AWS_ENDPOINT_URL if set, else AWS
    region: Annotated[
        str | None,
        RunOption(
            "--region TEXT",
            "The buckets' region.",
            HelpSection.STORES,
            variable=["AWS_REGION", "AWS_DEFAULT_REGION"],
        ),
    ] = None
    profile: Annotated[
        str | None,
        RunOption("--profile TEXT", "Profile of ~/.aws/config.", HelpSection.STORES),
    ] = None
    # The bucket name is in the path or in the host name ("virtual"). If neither this field nor
    # AWS's configuration file has a value, boto3's rule applies: virtual for AWS, otherwise path.
    addressing_style: Annotated[
        Annotated[str, Meta(pattern="^(path|virtual|auto)?$")] | None,
        RunOption(
            "--addressing-style <path|virtual>",
            "Put the bucket's name in the path or in the host name.",
            HelpSection.STORES,
        ),
    ] = None
    unsigned: Annotated[
        bool,
        RunOption(
            "--no-sign-request",
            "Read a public archive in S3 without credentials.",
            HelpSection.STORES,
        ),
    ] = False
    request_payer: Annotated[
        bool,
        RunOption(
            "--request-payer",
            "Pay for reading SRC from a Requester Pays bucket.",
            HelpSection.STORES,
        ),
    ] = False
    destination_endpoint_url: Annotated[
        str | None,
        RunOption(
            "--dest-endpoint-url URL", "DEST's server; default: --endpoint-url.", HelpSection.STORES
        ),
    ] = None
    destination_region: str | None = None  # no command-line option sets it
    destination_profile: Annotated[
        str | None,
        RunOption(
            "--dest-profile PROFILE", "Profile for DEST; default: --profile.", HelpSection.STORES
        ),
    ] = None
    destination_unsigned: Annotated[
        bool,
        RunOption(
            "--dest-no-sign-request", "Read a public DEST without credentials.", HelpSection.STORES
        ),
    ] = False  # only for verify, because a run writes to DEST
    destination_owner: str | None = None  # account that must own the destination bucket
    destination_kms_key: Annotated[
        str | None,
        RunOption(
            "--kms-key ARN", "KMS key that encrypts what is written to S3.", HelpSection.STORES
        ),
    ] = None  # None means the default encryption of the bucket
    other_hosts: bool = False  # follow redirects from a web server to other hosts
    connections: Annotated[int, Meta(ge=1)] = CONNECTIONS
    check_reachable: bool = False  # at startup, do not retry an unreachable server
    connect_seconds: Annotated[float, Meta(gt=0)] = 5.0
    stall_seconds: Annotated[float, Meta(gt=0)] = 20.0  # maximum time without receiving a byte
    # Maximum time for a PUT of a few MiB, including sending the body. For a part, the limit applies
    # to each 128 KiB that is sent, and to the wait for the response.
    put_seconds: Annotated[float, Meta(gt=0)] = 80.0
    # Maximum time without a byte during UploadPartCopy and CompleteMultipartUpload.
    slow_seconds: Annotated[float, Meta(gt=0)] = 600.0

    def startup_ends(self) -> float:
        """Return the monotonic time when the startup ends, or 0.0 if `check_reachable` is False."""
        if self.check_reachable:
            return time.monotonic() + STARTUP_SECONDS
        return 0.0

    def at_destination(self) -> Self:
        """Return a copy in which the destination's settings are in the fields of the source."""
        return replace(
            self,
            endpoint_url=self.destination_endpoint_url or self.endpoint_url,
            region=self.destination_region or self.region,
            profile=self.destination_profile or self.profile,
            unsigned=self.destination_unsigned,  # `self.unsigned` applies only to the source
            request_payer=False,
            destination_endpoint_url=None,
            destination_region=None,
            destination_profile=None,
        )

    def recorded(self) -> Self:
        """Return the configuration to record for a run, without URLs that contain a secret.

        `connections` and `check_reachable` are reset to their defaults, because each process sets
        its own values.
        """
        return replace(
            self,
            endpoint_url=_drop_secret(self.endpoint_url),
            destination_endpoint_url=_drop_secret(self.destination_endpoint_url),
            connections=CONNECTIONS,
            check_reachable=False,
        )

    def for_printed_commands(self) -> Self:
        """Return the configuration without the values that come from environment variables.

        A command in the same environment needs options only for the remaining values.
        """
        # `next` returns the value of the first variable that is set, or None.
        from_variables = [
            field_name
            for field_name, variables in VARIABLES.items()
            if getattr(self, field_name) == next(filter(None, map(os.environ.get, variables)), None)
        ]
        return replace(self, **dict.fromkeys(from_variables))  # these fields become None

    def command_options(self) -> list[str]:
        """Return the command-line options for reaching the same stores."""
        options = list(option_words(self))
        if self.other_hosts:
            options += ["--allow", "other-hosts"]
        return options

    @property
    def can_copy(self) -> bool:
        """Whether the server and credentials of the destination can also read the archive.

        If so, the server may be able to copy ranges of the archive itself.
        """
        access = self.at_destination()
        return (
            access.endpoint_url == self.endpoint_url
            and access.profile == self.profile
            and not self.unsigned  # the archive's bucket may refuse the destination's credentials
        )


def _drop_secret(url: str | None) -> str | None:
    """Return the URL, or None if it contains a password or a signed query."""
    parts = urlsplit(url or "")
    if parts.query or "@" in parts.netloc:
        return None
    return url
