"""The canary: sends a small archive through the whole pipeline and removes it.

The canary uses the functions' real rights, the key and the secret, and the operator's right to
read the destination. If its run does not end well, the run's records stay for diagnosis.
"""

from __future__ import annotations

import gzip
import secrets
import time
from functools import partial
from typing import TYPE_CHECKING

from s3unzip.aws.timeline import recent_prefixes
from s3unzip.errors import S3UnzipError
from s3unzip.model import Location, Pin, Request, Status, Verdict, run_id
from s3unzip.operate.bundled_store import is_claimed
from s3unzip.operate.doctor.asking import ask, not_checked
from s3unzip.operate.doctor.canary_archive import build_canary, canary_members
from s3unzip.operate.doctor.removal import remove_versions
from s3unzip.operate.doctor.results import Answer, CheckResult, CheckStatus
from s3unzip.operate.doctor.secret import read_password
from s3unzip.operate.ends import find_end
from s3unzip.operate.runs import RUNNING
from s3unzip.planning.keys import parse_template
from s3unzip.run_files import CLAIMS, run_of_entry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

    from s3unzip.model import Report
    from s3unzip.operate.doctor.deployment import Deployment

POLL_SECONDS = 0.5


def try_canary(deployment: Deployment, seconds: float) -> Iterator[CheckResult]:
    """Extract, verify and remove the canary; yield one result for each step.

    Args:
        deployment: the environment.
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
        answer = canary.judge(seconds)
    except S3UnzipError as error:
        answer = not_checked(error)
    yield CheckResult("canary", *answer)
    try:
        answer = canary.remove(keep_run=answer.status is CheckStatus.FAILURE)
    except S3UnzipError as error:
        answer = canary.left_behind(error)
    yield CheckResult("canary removal", *answer)


class Canary:
    """One canary: its archive, its keys, its run.

    Raises:
        S3UnzipError: the environment cannot be read.
    """

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._token = f"s3unzip-doctor-{secrets.token_hex(4)}"
        trigger = deployment.orders.trigger
        self._archive = Location(
            "s3", trigger.bucket, trigger.prefix + self._token + trigger.suffix
        )
        self._request = Request(
            self._archive, deployment.orders.destination, deployment.orders.options
        )
        self._template = parse_template(self._request)
        self._pin: Pin | None = None

    @property
    def replaces_marker(self) -> bool:
        """Whether its run would replace a marker that other archives share."""
        return self._request.options.marker and self._token not in self._template.prefix

    def put(self) -> None:
        """Put the archive; its last member is encrypted where the password can be read.

        Raises:
            AccessDeniedError: s3:PutObject is missing.
        """
        try:
            password = read_password(self._deployment)
        except S3UnzipError:  # the check of the secret reports it
            password = None
        body = build_canary(self._token, password)
        where = self._archive
        put = partial(self._s3.put_object, Bucket=where.bucket, Key=where.key, Body=body)
        answer = ask("s3:PutObject", put)
        self._pin = Pin(len(body), answer.get("ETag"), answer.get("VersionId"))

    def judge(self, seconds: float) -> Answer:
        """Wait for the run's report, and compare its objects with the archive's members.

        Raises:
            S3UnzipError: something cannot be read.
        """
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
                f"s3unzip show {report.run}{self._deployment.runs.found_by}",
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

        Raises:
            AccessDeniedError: a right to list or delete versions is missing.
        """
        s3, where, run = self._s3, self._archive, self._run
        count = remove_versions(s3, where.bucket, where.key)
        orders = self._deployment.orders
        rule = orders.after_success
        moved = None if rule is None else rule.below(self._token + orders.trigger.suffix).target
        if moved is not None:
            count += remove_versions(s3, moved.bucket, moved.key)
        target = self._request.destination.bucket
        for key in self._keys:
            count += remove_versions(s3, target, key, key.__eq__)
        work = self._deployment.runs.work_location
        if keep_run or run is None:
            kept = f"; runs/{run}/ is kept for diagnosis" if run is not None else ""
            return Answer.ok(f"{count} objects deleted{kept}")
        count += remove_versions(s3, work.bucket, f"{work.key}runs/{run}/")
        for prefix in recent_prefixes(time.time()):
            claims = f"{work.key}runs/{CLAIMS}/{prefix}"
            count += remove_versions(s3, work.bucket, claims, lambda key: run_of_entry(key) == run)
        return Answer.ok(f"{count} objects deleted, nothing is left")

    def left_behind(self, error: S3UnzipError) -> Answer:
        """Return the warning of a removal that `error` ended."""
        where = f"{self._archive} and {self._request.destination}"
        return Answer.warning(
            f"not everything could be deleted: {error}",
            f"delete every object with {self._token} in its key from {where}",
        )

    @property
    def _s3(self) -> S3Client:
        client: S3Client = self._deployment.client("s3")
        return client

    @property
    def _run(self) -> str | None:
        """The run's id as the planner computes it; None before the archive is put.

        The archive may be gone by now: an environment can delete or move it after its run.
        """
        return run_id(self._request, self._pin) if self._pin is not None else None

    @property
    def _keys(self) -> list[str]:
        """The keys that the run may write."""
        key_of = self._template.key_of()
        keys = [key_of(member.path) for member in canary_members(self._token)]
        if self._request.options.marker:
            keys.append(self._template.marker)
        return keys

    def _await_report(self, until: float) -> Report | None:
        """Return the report after the run's execution has ended; None after the time limit."""
        runs, run = self._deployment.runs, self._run
        while run is not None and time.monotonic() < until:
            report = find_end(runs, run)
            if report is not None:
                return report
            time.sleep(POLL_SECONDS)
        return None

    def _late(self, seconds: float) -> Answer:
        run = self._run
        state = self._state(run) if run is not None else None
        if run is None or state is None:
            return Answer.failure(
                f"no run began for the canary in {seconds:.0f} s",
                "look at the checks above (events, rules, queue, trigger), then at the plan "
                "function's log",
            )
        return Answer.failure(
            f"its run is {state} after {seconds:.0f} s and has no report",
            f"s3unzip watch {run}{self._deployment.runs.found_by}; or wait longer with --wait",
        )

    def _state(self, run: str) -> str | None:
        runs = self._deployment.runs
        return RUNNING if is_claimed(runs, run) else runs.state(run)

    def _compare(self, report: Report, took: float) -> Answer:
        """Read every object that the run says it wrote."""
        key_of = self._template.key_of()
        contents = {key_of(one.path): one.content for one in canary_members(self._token)}
        records = self._deployment.runs.records(report.run)
        keys = [one.key for _, one in records.each_outcome() if one.status is Status.EXTRACTED]
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
            return self._s3.get_object(Bucket=bucket, Key=key)["Body"].read()

        body = ask("s3:GetObject", get)
        is_gzip = self._request.options.as_gzip is not None and body.startswith(b"\x1f\x8b")
        return gzip.decompress(body) if is_gzip else body
