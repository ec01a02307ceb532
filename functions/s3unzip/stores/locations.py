"""Locations as people write them, and where runs are kept on this machine."""

import os
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from s3unzip.errors import UsageError
from s3unzip.model import Location
from s3unzip.settings import OTHER_BUCKETS
from s3unzip.store_kinds import SCHEMES_TEXT, find_kind

# By service, the kinds of buckets whose ARNs are refused.
OTHER_ARNS = {
    "s3-object-lambda": "an Object Lambda access point",
    "s3-outposts": "a bucket on Outposts",
    "s3express": "a directory bucket (S3 Express One Zone)",
    "s3tables": "a table bucket",
}
ARN = "arn:"  # begins the bucket of an access point
HOME_ADVICE = "records of runs are kept there: S3UNZIP_HOME names another folder"
# Patterns are compiled when they are first used: few commands use all.
# The groups of an ARN: service, region, account, resource.
_ARN = r"(?s)arn:aws[a-z-]*:([a-z0-9-]+):([a-z0-9-]*):(|[0-9]{12}):(.*)\Z"
_ACCESS_POINT = r"(?s)accesspoint[:/]([a-z0-9-]{3,50})(?:/(.*))?\Z"


def parse_source(text: str) -> Location:
    """Return the archive that `text` names."""
    if not text:
        raise UsageError("SRC is empty; is a variable of your shell not set?")
    if text == "-":
        raise UsageError(
            "-: an archive is read from its end, so a pipe must be saved first: "
            "curl -o archive.zip URL, then s3unzip run archive.zip DEST"
        )
    location = _parse(text)
    if location.store.has_prefixes and (not location.key or location.key.endswith("/")):
        raise UsageError(f"{text}: names a bucket or a prefix, not an archive in it")
    return location


def parse_destination(text: str) -> Location:
    """Return the prefix that `text` names; its key is empty or ends in a slash."""
    if not text:
        raise UsageError("DEST is empty; is a variable of your shell not set?")
    if text == "-":
        raise UsageError("members cannot be written to standard output by a run; see s3unzip cat")
    location = _parse(text)
    if not location.store.takes_members:
        raise UsageError(f"{text}: members can be written to s3:// or to a folder only")
    key = location.key
    if key and not key.endswith("/"):
        key += "/"
    if not location.store.has_folders and ".." in key.split("/"):
        raise UsageError(f"{text}: a prefix with '..' in it")
    return Location(location.scheme, location.bucket, key)


def _parse(text: str) -> Location:
    """Return the location of a URL or a path; a key may be empty or end in a slash."""
    scheme, separator, path = text.partition("://")
    scheme = scheme.lower()
    if not separator:
        # These mistakes for s3:// are never paths: such a path can be written as ./s3:/a.
        mistake = re.match(r"(?i)(s3:/?|s3//|arn:aws[a-z-]*:s3:::|(?=arn:aws))(?=[^/])", text)
        if mistake is not None:
            raise UsageError(f"{text}: no location; did you mean s3://{text[mistake.end() :]}?")
        return Location("file", "", absolute_path(text))
    if scheme == "file":
        return Location("file", "", absolute_path(unquote(urlsplit(text).path)))
    kind = find_kind(scheme)
    if kind.has_prefixes:
        bucket, key = split_bucket(path)
        if kind.takes_s3_options:
            _check_bucket(text, bucket)
        return Location(scheme, bucket, key)
    if kind.is_url:
        host, _, key = path.partition("/")
        if not host or not key:
            # The query of a presigned URL is secret.
            raise UsageError(f"{text.partition('?')[0]}: an address without host or path")
        return Location(scheme, host, key)
    raise UsageError(f"{text}: {scheme}:// is not known; {SCHEMES_TEXT}")


def split_bucket(path: str) -> tuple[str, str]:
    """Return the bucket and the key that follow ``s3://``; the bucket may be an access point's ARN.

    People write such an ARN with ``accesspoint:`` or ``accesspoint/``. The result has the former.
    """
    arn = re.match(_ARN, path)
    if arn is not None and arn.group(1, 2, 3) == ("s3", "", ""):  # the ARN of a bucket or an object
        path = arn[4]
    elif arn is not None and (point := re.match(_ACCESS_POINT, arn[4])) is not None:
        return f"{path[: arn.start(4)]}accesspoint:{point[1]}", point[2] or ""
    bucket, _, key = path.partition("/")
    return bucket, key


def _check_bucket(text: str, bucket: str) -> None:
    """Refuse text that is not a bucket's name, and kinds of buckets that are not supported."""
    unsupported = next(
        (kind for suffix, kind in OTHER_BUCKETS.items() if bucket.endswith(suffix)), None
    )
    arn = re.match(_ARN, bucket)
    if arn is not None and not arn[2]:  # only multi-Region access points have no region
        unsupported = OTHER_BUCKETS[".mrap"]
    elif arn is not None:
        unsupported = unsupported or OTHER_ARNS.get(arn[1])
    if unsupported is not None:
        raise UsageError(
            f"{text}: {unsupported} is not supported: use a general purpose bucket, or an access "
            "point of one"
        )
    is_point = arn is not None and arn[1] == "s3" and re.match(_ACCESS_POINT, arn[4]) is not None
    if not is_point and not re.match(r"(?i)[a-z0-9][a-z0-9.\-_]{1,61}[a-z0-9]\Z", bucket):
        raise UsageError(
            f"{text}: {bucket!r} is no bucket name (3 to 63 letters, digits, dots, hyphens)"
        )


def absolute_path(text: str) -> str:
    """Return the absolute path; ``~`` stands for the home folder."""
    try:
        return posixpath.normpath(Path(text).expanduser().absolute().as_posix())
    except RuntimeError:
        raise UsageError(f"{text}: there is no such home folder; give the whole path") from None
    except FileNotFoundError:
        raise UsageError(
            f"{text}: the current folder is gone; change to another one, or give the whole path"
        ) from None


def runs_home() -> Location:
    """Return the folder below which runs are kept.

    Without ``S3UNZIP_HOME``, the XDG base directory specification says where it is.
    """
    home = os.environ.get("S3UNZIP_HOME")
    if not home:
        home = f"{os.environ.get('XDG_STATE_HOME') or '~/.local/state'}/s3unzip"
    return Location("file", "", f"{absolute_path(home)}/")
