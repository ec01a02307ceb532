"""Which archives an environment takes, and words that name archives outside of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from s3unzip.api.several import GLOB, names_several
from s3unzip.aws.environment import tenant_of
from s3unzip.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from s3unzip.aws.environment import Trigger

MANIFEST = "manifest.json"


class Scope(NamedTuple):
    """The archives whose events start runs of an environment."""

    environment: str
    trigger: Trigger
    tenants: tuple[str, ...] = ()

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What the keys of its archives begin with, one of them."""
        return self.tenants or (self.trigger.prefix,)

    def covers(self, key: str) -> bool:
        """Return whether the environment takes the archive `key` of its bucket."""
        taken = self.trigger.covers(self.trigger.bucket, key)
        return taken and (not self.tenants or bool(self.tenant_of(key)))

    def tenant_of(self, key: str) -> str:
        """Return the tenant of an archive; empty where there are no tenants."""
        return tenant_of(self.tenants, key)

    def __str__(self) -> str:
        bucket, suffix = self.trigger.bucket, self.trigger.suffix
        return " or ".join(f"s3://{bucket}/{prefix}*{suffix}" for prefix in self.prefixes)


class Word(NamedTuple):
    """What a user named: an archive, a prefix, a glob, or a manifest of S3 Inventory."""

    text: str
    bucket: str
    key: str

    @property
    def is_manifest(self) -> bool:
        """Whether it is the manifest of an inventory."""
        return self.key.rpartition("/")[2] == MANIFEST

    @property
    def is_several(self) -> bool:
        """Whether a listing is needed."""
        return not self.is_manifest and names_several(self.text)

    @property
    def is_glob(self) -> bool:
        """Whether it is a glob."""
        return self.is_several and bool(GLOB & set(self.key))

    @property
    def prefix(self) -> str:
        """What all keys begin with that it names."""
        start = min((self.key.find(one) for one in GLOB if one in self.key), default=len(self.key))
        return self.key[:start] if self.is_several else self.key


def parse_words(words: Sequence[str], scope: Scope) -> list[Word]:
    """Return what `words` name.

    Raises:
        UsageError: one names nothing in S3, or nothing that the environment takes, or two of them
            name the same archives.
    """
    if not words:
        raise UsageError("name archives: s3://bucket/prefix/, a glob, or an inventory's manifest")
    parsed = [_parse(word) for word in words]
    for word in parsed:
        if not word.is_manifest:
            _check(word, scope)
    _check_apart(parsed)
    return parsed


def _parse(text: str) -> Word:
    scheme, separator, rest = text.partition("://")
    bucket, _, key = rest.partition("/")
    if not separator or scheme.lower() != "s3" or not bucket:
        raise UsageError(f"{text}: archives of an environment are in S3: s3://bucket/prefix/")
    return Word(text, bucket, key)


def _check(word: Word, scope: Scope) -> None:
    inside = word.bucket == scope.trigger.bucket
    if inside and word.is_several:
        start = word.prefix
        inside = any(one.startswith(start) or start.startswith(one) for one in scope.prefixes)
    elif inside:
        inside = scope.covers(word.key)
    if not inside:
        raise UsageError(
            f"{word.text}: the environment {scope.environment} takes only {scope}; copy the "
            "archives there, or extract them on this machine with s3unzip run"
        )


def _check_apart(words: Sequence[Word]) -> None:
    """Refuse words of which one names all that another one names; globs are not compared."""
    plain = [word for word in words if not word.is_glob]
    for place, one in enumerate(plain):
        for other in plain[place + 1 :]:
            wide, narrow = sorted((one, other), key=lambda word: len(word.prefix))
            within = wide.is_several and narrow.prefix.startswith(wide.prefix)
            same = (wide.bucket, wide.key) == (narrow.bucket, narrow.key)
            if same or (within and wide.bucket == narrow.bucket and not narrow.is_manifest):
                raise UsageError(f"{narrow.text} is also named by {wide.text}: give one of them")
