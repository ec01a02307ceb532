"""The archives that words name, one at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.api.several import SUFFIX
from s3unzip.aws_lambda.errors import asking
from s3unzip.errors import UsageError
from s3unzip.objects.globs import compile_glob
from s3unzip.operate.backlog.inventory import list_keys, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from mypy_boto3_s3 import S3Client

    from s3unzip.operate.backlog.scope import Scope, Word


class Listing:
    """Lists archives; counts those that the environment does not take."""

    def __init__(self, client: S3Client, scope: Scope) -> None:
        self.outside = 0
        self.first_outside = ""  # an example
        self._client = client
        self._scope = scope

    def keys(self, words: Sequence[Word]) -> Iterator[str]:
        """Yield the keys of the archives that `words` name, as they are listed.

        Objects whose names do not end as those of archives are left out. An inventory is checked
        before the first key is listed.

        Raises:
            UsageError: a word is no manifest of an inventory, or one of another bucket.
            StorageError, ServiceFaultError: something cannot be read.
        """
        sources = [self._open(word) for word in words]
        for word, keys in zip(words, sources, strict=True):
            for key in keys:
                if self._scope.covers(key):
                    yield key
                elif word.is_glob or key.lower().endswith(SUFFIX):
                    self.outside += 1
                    self.first_outside = self.first_outside or key

    def _open(self, word: Word) -> Iterable[str]:
        if not word.is_manifest:
            return self._list(word) if word.is_several else [word.key]
        manifest = read_manifest(self._client, word)
        bucket = self._scope.trigger.bucket
        if manifest.source_bucket != bucket:
            raise UsageError(
                f"{word.text}: is of the bucket {manifest.source_bucket}; the environment "
                f"{self._scope.environment} takes only {self._scope}"
            )
        return list_keys(self._client, word, manifest)

    def _list(self, word: Word) -> Iterator[str]:
        fits = compile_glob(word.key).match if word.is_glob else None
        pages = self._client.get_paginator("list_objects_v2")
        with asking(f"s3:ListBucket of {word.bucket}"):
            for page in pages.paginate(Bucket=word.bucket, Prefix=word.prefix):
                for found in page.get("Contents", ()):
                    key = found["Key"]
                    if not key.endswith("/") and (fits is None or fits(key)):
                        yield key
