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

from s3unzip.errors import AccessDeniedError, S3UnzipError
from s3unzip.model import Location, Report, Status, Verdict, run_id
from s3unzip.operate.doctor import FAILURE, OK, WARNING, Answer, CheckResult, run_check
from s3unzip.operate.runs import DeployedRuns, asking, find_end
from s3unzip.planning.select import parse_template
from s3unzip.runs.records import RUNS
from s3unzip.stores.listing import bound_pages

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


def try_canary(runs: DeployedRuns, seconds: float) -> Iterator[CheckResult]:
    """Extract, verify and remove the canary; yield one result for each step.

    Args:
        seconds: how long to wait for the run's report.
    """
    canary, name = Canary(runs), "canary"
    put = run_check(name, canary.put)
    if put.status is not OK:
        yield put
        return
    found = run_check(name, partial(canary.check, seconds))
    yield found
    yield CheckResult("canary removal", *canary.remove(keep_run=found.status is FAILURE))


class Canary:
    """One canary: its archive, its keys, its run."""

    def __init__(self, runs: DeployedRuns) -> None:
        self._runs = runs
        self._token = f"s3unzip-doctor-{secrets.token_hex(4)}"
        defaults = self._runs.defaults
        key = defaults.trigger.prefix + self._token + defaults.trigger.suffix
        self._archive = Location("s3", defaults.trigger.bucket, key)
        self._request = defaults.request(key)
        self._template = parse_template(self._request)
        self._run = ""  # as the planner computes it, when the archive is put

    def put(self) -> Answer:
        """Put the archive, unless its run would replace a marker that other archives share."""
        if self._request.options.marker and self._token not in self._template.prefix:
            message = "not tried: options.marker and the key template would replace a _SUCCESS "
            advice = "put {archive_stem} into options.key_template, or pass --no-canary"
            return WARNING, f"{message}object that other archives share", advice
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for path, content in canary_members(self._token).items():
                stored = path.endswith(".bin")
                method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
                archive.writestr(path, content, method)
        body, where = out.getvalue(), {"Bucket": self._archive.bucket, "Key": self._archive.key}
        self._runs.ask("s3:PutObject", **where, Body=body)
        found = self._runs.stores.source(self._archive).stat(self._archive)
        self._run = run_id(self._request, found.pin, found.modified)
        return OK, f"{self._archive} is put", ""

    def check(self, seconds: float) -> Answer:
        """Wait for the run's report, and compare its objects with the archive's members."""
        report, began = None, time.monotonic()
        while report is None and time.monotonic() < began + seconds:
            report = find_end(self._runs, self._run)
            if report is None:
                time.sleep(POLL_SECONDS)
        took = time.monotonic() - began
        if report is None:
            state = self._runs.state(self._run)
            advice = f"s3unzip watch {self._run}{self._runs.found_by}; or wait longer with --wait"
            message = f"its run is {state} after {seconds:.0f} s and has no report"
            if state is None:
                advice = "look at the checks above (events, rules, trigger), then at the plan "
                advice += "function's log"
                message = f"no run began for the canary in {seconds:.0f} s"
            return FAILURE, message, advice
        if report.verdict is not Verdict.COMPLETED:
            first = report.failures[0] if report.failures else None
            why = report.message or report.reason or (first and f"{first.reason}: {first.message}")
            advice = f"s3unzip show {report.run}{self._runs.found_by}"
            return FAILURE, f"its run is {report.verdict}: {why}", advice
        if not report.extracted:
            message = f"its run ended in {took:.1f} s, but options.include, exclude or others "
            advice = "put an archive with members that they select, and look at its run"
            return WARNING, f"{message}select none of its members", advice
        return self._compare(report, took)

    def remove(self, *, keep_run: bool) -> Answer:
        """Delete the archive, the members and the run's records, with all versions.

        Args:
            keep_run: keep the records, which say why the run did not end well.
        """
        places = [(self._archive.bucket, self._archive.key)]
        target, key_of = self._request.destination, self._template.key_of()
        places += [(target.bucket, key_of(path)) for path in canary_members(self._token)]
        if self._request.options.marker:
            places.append((target.bucket, self._template.marker))
        work, run, kept = self._runs.work_location, self._run, ", nothing is left"
        try:
            count = sum(remove_versions(self._runs, *place, place[1].__eq__) for place in places)
            if keep_run:
                kept = f"; runs/{run}/ is kept for diagnosis"
            else:
                count += remove_versions(self._runs, work.bucket, f"{work.key}{RUNS}{run}/")
        except S3UnzipError as error:
            message = f"not everything could be deleted: {error}"
            where = f"{self._archive} and {target}"
            return (
                WARNING,
                message,
                f"delete every object with {self._token} in its key from {where}",
            )
        return OK, f"{count} objects deleted{kept}", ""

    def _compare(self, report: Report, took: float) -> Answer:
        """Read every object that the run says it wrote."""
        key_of = self._template.key_of()
        contents = {key_of(path): body for path, body in canary_members(self._token).items()}
        records = self._runs.records(report.run)
        outcomes = records.outcome_lines()
        keys = [one.key for one in outcomes if one.status is Status.EXTRACTED]
        bucket, wrong = self._request.destination.bucket, list[str]()
        for key in keys:
            with asking("s3:GetObject"):
                body: bytes = self._runs.ask("s3:GetObject", Bucket=bucket, Key=key)["Body"].read()
            if self._request.options.as_gzip is not None and body.startswith(b"\x1f\x8b"):
                body = gzip.decompress(body)
            if body != contents.get(key):
                wrong.append(key)
        if wrong:
            message = f"{len(wrong)} of {len(keys)} objects differ from their members: {wrong[0]}"
            return FAILURE, message, "report this as a bug: the run says that it verified them"
        return OK, f"{len(keys)} of 5 members extracted and verified in {took:.1f} s", ""


def remove_versions(
    runs: DeployedRuns, bucket: str, prefix: str, wanted: Callable[[str], bool] = lambda _: True
) -> int:
    """Delete all versions and delete markers of `wanted` keys below a prefix; return how many."""
    pages = runs.client("s3").get_paginator("list_object_versions")
    with asking("s3:ListBucketVersions"):
        listing = pages.paginate(Bucket=bucket, Prefix=prefix)
        found = [
            {"Key": one["Key"], "VersionId": one["VersionId"]}
            for page in bound_pages(listing, f"s3://{bucket}/{prefix}")
            for one in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
            if wanted(one["Key"])
        ]
    action = "s3:DeleteObject, s3:DeleteObjectVersion"
    for at in range(0, len(found), MAX_DELETED):
        given = {"Objects": found[at : at + MAX_DELETED], "Quiet": True}
        with asking(action):
            answer = runs.client("s3").delete_objects(Bucket=bucket, Delete=given)
        refused = answer.get("Errors", ())
        if refused:  # DeleteObjects returns 200 even if it deleted no object
            first = refused[0]
            raise AccessDeniedError(
                f"{action}: {len(refused)} objects of {bucket} stay: {first.get('Code')} for "
                f"{first.get('Key')}"
            )
    return len(found)
