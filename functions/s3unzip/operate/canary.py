"""The canary: sends a small archive through the whole pipeline and removes it.

The canary uses the functions' real rights, the key and the secret, and the operator's right to
read the destination. If its run does not end well, the run's records stay for diagnosis.
"""

import gzip
import io
import secrets
import time
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from s3unzip.errors import AccessDeniedError, S3UnzipError
from s3unzip.model import Location, Pin, Report, Request, Status, Verdict, run_id
from s3unzip.operate.doctor import Answer, CheckResult, CheckStatus, Deployment, ask, not_checked
from s3unzip.operate.runs import find_end
from s3unzip.planning.select import parse_template
from s3unzip.runs.records import RUNS

POLL_SECONDS = 0.5
MAX_DELETED = 1_000  # limit of one DeleteObjects


def canary_members(token: str) -> dict[str, bytes]:
    """Return five members by path; each path and file name has `token`, so the keys are unique."""
    line = b"A line of the canary of s3unzip doctor.\n"
    contents = {
        "empty.txt": b"",
        "stored.bin": bytes(range(256)) * 8,
        "deflated.txt": line * 500,
        "\u00fcml\u00e4ut.txt": line,
        "last.txt": line * 9,
    }
    return {f"{token}/{token}-{name}": content for name, content in contents.items()}


def try_canary(deployment: Deployment, seconds: float) -> Iterator[CheckResult]:
    """Extract, verify and remove the canary; yield one result for each step.

    Args:
        seconds: how long to wait for the run's report.
    """
    try:
        canary = Canary(deployment)
        if canary.replaces_marker:
            answer = Answer.warning(
                "not tried: options.marker and the key template would replace a _SUCCESS object "
                "that other archives share",
                "put {archive_stem} into options.key_template, or pass --no-canary",
            )
            yield CheckResult("canary", *answer)
            return
        canary.put()
    except S3UnzipError as error:
        yield CheckResult("canary", *not_checked(error))
        return
    try:
        answer = canary.check(seconds)
    except S3UnzipError as error:
        answer = not_checked(error)
    yield CheckResult("canary", *answer)
    try:
        answer = canary.remove(keep_run=answer.status is CheckStatus.FAILURE)
    except S3UnzipError as error:
        answer = canary.left_behind(error)
    yield CheckResult("canary removal", *answer)


class Canary:
    """One canary: its archive, its keys, its run."""

    def __init__(self, deployment: Deployment) -> None:
        self._runs = deployment.runs
        self._deployment = deployment
        self._token = f"s3unzip-doctor-{secrets.token_hex(4)}"
        defaults = self._runs.defaults
        key = defaults.trigger.prefix + self._token + defaults.trigger.suffix
        self._archive = Location("s3", defaults.trigger.bucket, key)
        self._request = Request(self._archive, defaults.destination, defaults.options)
        self._template = parse_template(self._request)
        self._run: str | None = None  # as the planner computes it, when the archive is put

    @property
    def replaces_marker(self) -> bool:
        """Whether its run would replace a marker that other archives share."""
        return self._request.options.marker and self._token not in self._template.prefix

    def put(self) -> None:
        """Put the archive."""
        out, where = io.BytesIO(), self._archive
        with zipfile.ZipFile(out, "w") as archive:
            for path, content in canary_members(self._token).items():
                stored = path.endswith(".bin")
                method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
                archive.writestr(path, content, method)
        body = out.getvalue()
        put = partial(self._s3.put_object, Bucket=where.bucket, Key=where.key, Body=body)
        answer = ask("s3:PutObject", put)
        pin = Pin(len(body), answer.get("ETag"), answer.get("VersionId"))
        head = partial(self._s3.head_object, Bucket=where.bucket, Key=where.key)
        modified = ask("s3:GetObject", head)["LastModified"].timestamp()
        self._run = run_id(self._request, pin, modified)

    def check(self, seconds: float) -> Answer:
        """Wait for the run's report, and compare its objects with the archive's members."""
        began = time.monotonic()
        report = self._await_report(began + seconds)
        took = time.monotonic() - began
        if report is None:
            return self._late(seconds)
        if report.verdict is not Verdict.COMPLETED:
            first = report.failures[0] if report.failures else None
            why = report.message or report.reason or (first and f"{first.reason}: {first.message}")
            return Answer.failure(
                f"its run is {report.verdict}: {why}",
                f"s3unzip show {report.run}{self._runs.found_by}",
            )
        if not report.extracted:
            return Answer.warning(
                f"its run ended in {took:.1f} s, but options.include, exclude or others select "
                "none of its members",
                "put an archive with members that they select, and look at its run",
            )
        return self._compare(report, took)

    def remove(self, *, keep_run: bool) -> Answer:
        """Delete the archive, the members and the run's records, with all versions.

        Args:
            keep_run: keep the records, which say why the run did not end well.
        """
        s3, where, run = self._s3, self._archive, self._run
        count = remove_versions(s3, where.bucket, where.key)
        target = self._request.destination.bucket
        key_of = self._template.key_of()
        keys = [key_of(path) for path in canary_members(self._token)]
        for key in [*keys, self._template.marker] if self._request.options.marker else keys:
            count += remove_versions(s3, target, key, key.__eq__)
        if keep_run or run is None:
            kept = f"; runs/{run}/ is kept for diagnosis" if run is not None else ""
            return Answer.ok(f"{count} objects deleted{kept}")
        work = self._runs.work_location
        count += remove_versions(s3, work.bucket, f"{work.key}{RUNS}{run}/")
        return Answer.ok(f"{count} objects deleted, nothing is left")

    def left_behind(self, error: S3UnzipError) -> Answer:
        """Return the warning of a removal that `error` ended."""
        where = f"{self._archive} and {self._request.destination}"
        return Answer.warning(
            f"not everything could be deleted: {error}",
            f"delete every object with {self._token} in its key from {where}",
        )

    @property
    def _s3(self) -> Any:
        return self._deployment.client("s3")

    def _await_report(self, until: float) -> Report | None:
        """Return the report after the run's execution has ended; None after the time limit."""
        while self._run is not None and time.monotonic() < until:
            report = find_end(self._runs, self._run)
            if report is not None:
                return report
            time.sleep(POLL_SECONDS)
        return None

    def _late(self, seconds: float) -> Answer:
        run = self._run
        state = self._runs.state(run) if run is not None else None
        if state is None:
            return Answer.failure(
                f"no run began for the canary in {seconds:.0f} s",
                "look at the checks above (events, rules, trigger), then at the plan "
                "function's log",
            )
        return Answer.failure(
            f"its run is {state} after {seconds:.0f} s and has no report",
            f"s3unzip watch {run}{self._runs.found_by}; or wait longer with --wait",
        )

    def _compare(self, report: Report, took: float) -> Answer:
        """Read every object that the run says it wrote."""
        key_of = self._template.key_of()
        contents = {key_of(path): body for path, body in canary_members(self._token).items()}
        records = self._runs.records(report.run)
        outcomes = records.outcome_lines()
        keys = [one.key for one in outcomes if one.status is Status.EXTRACTED]
        wrong = [key for key in keys if self._read(key) != contents.get(key)]
        if wrong:
            return Answer.failure(
                f"{len(wrong)} of {len(keys)} objects differ from their members: {wrong[0]}",
                "report this as a bug: the run says that it verified them",
            )
        said = f"{len(keys)} of 5 members extracted and verified in {took:.1f} s"
        return Answer.ok(said)

    def _read(self, key: str) -> bytes:
        """Return the plain content of a member's object."""
        bucket = self._request.destination.bucket

        def get() -> bytes:
            body: bytes = self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()
            return body

        body = ask("s3:GetObject", get)
        is_gzip = self._request.options.as_gzip is not None and body.startswith(b"\x1f\x8b")
        return gzip.decompress(body) if is_gzip else body


def remove_versions(
    s3: Any, bucket: str, prefix: str, wanted: Callable[[str], bool] = lambda _: True
) -> int:
    """Delete all versions and delete markers of `wanted` keys below a prefix; return how many."""
    pages = s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix)
    found = ask("s3:ListBucketVersions", lambda: list(pages))
    unwanted = [
        {"Key": one["Key"], "VersionId": one["VersionId"]}
        for page in found
        for one in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
        if wanted(one["Key"])
    ]
    action = "s3:DeleteObject, s3:DeleteObjectVersion"
    for at in range(0, len(unwanted), MAX_DELETED):
        given = {"Objects": unwanted[at : at + MAX_DELETED], "Quiet": True}
        answer = ask(action, partial(s3.delete_objects, Bucket=bucket, Delete=given))
        refused = answer.get("Errors", ())
        if refused:  # DeleteObjects returns 200 even if it deleted no object
            first = refused[0]
            raise AccessDeniedError(
                f"{action}: {len(refused)} objects of {bucket} stay: {first.get('Code')} for "
                f"{first.get('Key')}"
            )
    return len(unwanted)
