"""An environment of moto's account whose archives are submitted, and its functions."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import quote_plus

from s3unzip.operate.backlog import submitting
from s3unzip.operate.runs import DeployedRuns
from s3unzip.stores.s3.access import S3Access
from tests.unit.operate.doctor.scripted import make_client
from tests.zips import DEFLATE, Entry, build

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from s3unzip.operate.backlog.values import Backlog
    from tests.account import Account
    from tests.unit.handlers.pipeline import Functions

BUCKET = "s3://arrivals/"
COLUMNS = ("Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", "Size")


def make_archive(members: int = 3, size: int = 200) -> bytes:
    """Return an archive of equal members."""
    return build(*(Entry(f"m{n}.txt", b"%d" % n * size, DEFLATE) for n in range(members)))


class DeniedRuns(DeployedRuns):
    """The runs of an environment of which another server answers for one service."""

    denied: tuple[str, str] | None = None  # service and URL

    def client(self, service: str) -> Any:
        """Return a client of the account, or of the other server."""
        if self.denied is not None and service == self.denied[0]:
            return make_client(service, self.denied[1])
        return super().client(service)


@dataclass
class Site:
    """The environment ``dev``, in which small archives are direct runs."""

    functions: Functions

    @cached_property
    def runs(self) -> DeployedRuns:
        """Its runs."""
        return DeployedRuns("dev", S3Access(endpoint_url=self.functions.account.url))

    def denied(self, service: str, url: str) -> DeployedRuns:
        """Return its runs, of which the server at `url` answers for a service."""
        runs = DeniedRuns("dev", S3Access(endpoint_url=self.functions.account.url))
        runs.denied = (service, url)
        return runs

    def put(self, *keys: str, body: bytes | None = None) -> None:
        """Put archives."""
        for key in keys:
            self.functions.account.put(key, make_archive() if body is None else body)

    def submit(
        self, *words: str, now: float = 1_800_000_000.0, runs: DeployedRuns | None = None
    ) -> Backlog:
        """Queue all that `words` name."""
        runs = runs or self.runs
        backlog = self.record(*words, now=now, runs=runs)
        submitting.queue_backlog(backlog, runs)
        return backlog

    def record(self, *words: str, now: float, runs: DeployedRuns) -> Backlog:
        """Write the record of a backlog, and queue nothing."""
        with submitting.open_spool() as spool:
            found = submitting.find_archives(words, runs, spool, sample=5)
            return submitting.write_backlog(found, spool, words, runs, now)

    def messages(self) -> list[dict[str, Any]]:
        """Take all messages out of the queue."""
        account = self.functions.account
        return account.receive(account.variables["S3UNZIP_QUEUE_URL"])

    def extract_queued(self) -> None:
        """Call the plan function until the queue is empty, as Lambda does."""
        account = self.functions.account
        sqs, url = account.client("sqs"), account.variables["S3UNZIP_QUEUE_URL"]
        while messages := account.receive(url):
            for message in messages:
                assert self.functions.plan(message) == []
            sqs.purge_queue(QueueUrl=url)


def make_inventory(
    account: Account,
    rows: Iterable[Mapping[str, str]],
    *,
    source: str = "arrivals",
    change: Mapping[str, object] | None = None,
    data: bytes | None = None,
) -> str:
    """Put a report of S3 Inventory; return the location of its manifest.

    Args:
        account: in which the bucket ``reports`` is made.
        rows: values of columns; the key is encoded here.
        source: the bucket of the manifest, and of each row that names none.
        change: fields of the manifest that are different.
        data: the compressed list instead of the rows.
    """
    account.client("s3").create_bucket(Bucket="reports")
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    for row in rows:
        usual = {"Bucket": source, "IsLatest": "true", "IsDeleteMarker": "false", "Size": "1"}
        values = {**usual, **row}
        values["Key"] = quote_plus(values["Key"], safe="/")
        writer.writerow([values.get(name, "") for name in COLUMNS])
    body = gzip.compress(text.getvalue().encode()) if data is None else data
    account.put("data/list.csv.gz", body, "reports")
    manifest: dict[str, object] = {
        "sourceBucket": source,
        "destinationBucket": "arn:aws:s3:::reports",
        "version": "2016-11-30",
        "creationTimestamp": "1514944800000",
        "fileFormat": "CSV",
        "fileSchema": ", ".join(COLUMNS),
        "files": [
            {
                "key": "data/list.csv.gz",
                "size": len(body),
                "MD5checksum": hashlib.md5(body, usedforsecurity=False).hexdigest(),
            }
        ],
    }
    manifest.update(change or {})
    account.put("manifest.json", json.dumps(manifest).encode(), "reports")
    return "s3://reports/manifest.json"
