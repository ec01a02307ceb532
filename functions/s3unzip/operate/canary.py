"""The canary: a small archive that `doctor` sends through the whole pipeline and then removes.

The canary tests whether the intake function has the permissions that it needs, and whether it can
use the KMS key and the secret. Most environments extract such a small archive without the state
machine. The operator needs permission to read the destination. If the run does not complete, its
records remain for diagnosis.
"""

import io
import secrets
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

from s3unzip.errors import AccessDeniedError, ExpiredKeysError, NotFoundError, S3UnzipError
from s3unzip.model import Report, Status, Verdict
from s3unzip.operate.checks import FAILURE, OK, WARNING, Answer, CheckResult, run_check
from s3unzip.operate.runs import IAM_ACTIONS, DeployedRuns, translating_errors
from s3unzip.planning.select import parse_template
from s3unzip.printable import choose_form, show_count
from s3unzip.run_ids import run_id
from s3unzip.runs.records import RUNS

POLL_SECONDS = 0.5
MAX_DELETED = 1_000  # maximum number of objects in one DeleteObjects request
GZIP_MAGIC = b"\x1f\x8b"
RETRY_ADVICE = (
    "run the command again; if a program or a rule deletes or moves new objects, exempt those "
    "whose keys contain s3unzip-doctor-"
)


def canary_members(token: str) -> dict[str, bytes]:
    """Return five members by path. Keys are unique: `token` is in every path and file name."""
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
    """Put, extract, verify and remove the canary; yield the results of extraction and removal.

    Args:
        runs: the runs of the environment.
        seconds: maximum time to wait for the report of the run.
    """
    canary = Canary(runs)
    result = run_check("canary", partial(_warn_if_gone, canary.put))
    if result.status is OK:  # the result of the extraction replaces that of the PUT
        result = run_check("canary", partial(_warn_if_gone, canary.check, seconds))
    yield result
    if canary.is_put:
        keep_run = result.status is FAILURE or not canary.has_ended
        yield run_check("canary removal", partial(canary.remove, keep_run=keep_run))


def _warn_if_gone(check: Callable[..., Answer], *arguments: float) -> Answer:
    """Return the answer of a check, or a warning if the archive, a member or a record is gone.

    Somebody else may have deleted or moved the object, so the environment may be in order. Expired
    keys of the operator also cause only a warning, so that `Canary.remove` still runs and names
    what remains.
    """
    try:
        return check(*arguments)
    except (NotFoundError, ExpiredKeysError) as error:
        return Answer(WARNING, f"not checked: {error}", RETRY_ADVICE)


class Canary:
    """One canary: its archive, its keys and its run."""

    def __init__(self, runs: DeployedRuns) -> None:
        self._runs = runs
        self._token = f"s3unzip-doctor-{secrets.token_hex(4)}"
        # The archive is put where no route applies.
        unrouted = self._runs.config.environment_defaults
        self._request = self._runs.config.request(
            unrouted.ingest_prefix + self._token + unrouted.ingest_suffix
        )
        self._archive = self._request.source
        self._template = parse_template(self._request)
        key_of = self._template.key_of()
        self._contents = {  # the contents of the members, by key
            key_of(path): content for path, content in canary_members(self._token).items()
        }
        self._run = ""  # id of the run, which `put` computes as the planner does
        self.is_put = False  # whether there is something to remove
        self.has_ended = False  # whether the run has ended; False also if its state is unknown

    def put(self) -> Answer:
        """Put the archive and compute the id of its run.

        Nothing is uploaded if the run would replace a marker that other archives share.
        """
        # Only the canary has the token in its name. If the prefix of the run does not contain the
        # token, runs of other archives have the same prefix, and therefore the same marker.
        if self._request.options.marker and self._token not in self._template.prefix:
            return Answer(
                WARNING,
                "not tried: with options.marker and this key template, the canary would replace a "
                "_SUCCESS object that other archives share",
                "put {archive_stem} into options.key_template, or pass --no-canary",
            )
        self._runs.ask(
            "s3:PutObject",
            Bucket=self._archive.bucket,
            Key=self._archive.key,
            Body=_make_archive(self._token),
        )
        self.is_put = True
        tail = self._runs.stores.source(self._archive).stat(self._archive)
        self._run = run_id(self._request, tail.pin, tail.modified)
        return Answer(OK, f"{self._archive} was put")

    def check(self, seconds: float) -> Answer:
        """Wait for the report of the run, and compare its objects with the archive's members."""
        began = time.monotonic()
        report = self._runs.find_final_report(self._run)
        while report is None and time.monotonic() < began + seconds:
            time.sleep(POLL_SECONDS)
            report = self._runs.find_final_report(self._run)
        took = time.monotonic() - began
        if report is None:
            return self._explain_missing_report(seconds)
        self.has_ended = True
        if report.verdict is not Verdict.COMPLETED:
            failures = (f"{failure.reason}: {failure.message}" for failure in report.failures)
            return Answer(
                FAILURE,
                f"its run is {report.verdict}: "
                f"{report.message or report.reason or next(failures, None)}",
                f"s3unzip show {report.run}{self._runs.env_options}",
            )
        if not report.extracted:
            return Answer(
                WARNING,
                f"its run ended in {took:.1f} s, but the options of the environment, such as "
                "options.include, select none of its members",
                "upload an archive with members that these options select, then look at its run",
            )
        return self._compare_objects(report, took)

    def _explain_missing_report(self, seconds: float) -> Answer:
        """Return the state of a run that still has no report after `seconds` seconds."""
        state = self._runs.state(self._run)
        if state is None:
            return Answer(
                FAILURE,
                f"no run began for the canary within {seconds:.0f} s",
                "look at the checks above (events, rules, trigger), then at the intake function's "
                "log",
            )
        return Answer(
            FAILURE,
            f"its run is {state} after {seconds:.0f} s and has no report",
            f"s3unzip watch {self._run}{self._runs.env_options}; or wait longer with --wait",
        )

    def remove(self, *, keep_run: bool) -> Answer:
        """Delete the archive, the members and the records of the run, including all versions.

        Args:
            keep_run: whether to keep the records of the run, because the run may still be active or
                because the records show why it did not complete.
        """
        destination = self._request.destination
        objects = [(self._archive.bucket, self._archive.key)]
        objects += [(destination.bucket, key) for key in self._contents]
        if self._request.options.marker:
            objects.append((destination.bucket, self._template.marker))
        try:
            # `key.__eq__` excludes longer keys that begin with this one.
            count = sum(
                remove_versions(self._runs, bucket, key, key.__eq__) for bucket, key in objects
            )
            if not keep_run:
                count += remove_versions(
                    self._runs,
                    self._runs.work_location.bucket,
                    f"{self._runs.work_location.key}{RUNS}{self._run}/",
                )
        except S3UnzipError as error:
            return Answer(
                WARNING,
                f"not everything could be deleted: {error}",
                f"delete every object in {self._archive} and {destination} whose key contains "
                f"{self._token}",
            )
        remains = "; nothing is left"
        if keep_run:
            remains = f"; {RUNS}{self._run or '...'}, if it exists, is kept for diagnosis"
        return Answer(OK, f"{show_count(count, 'object')} deleted{remains}")

    def _compare_objects(self, report: Report, took: float) -> Answer:
        """Compare each object that the run wrote with the member that has the same key.

        The run is COMPLETED: it wrote all members that the options select.
        """
        keys = [
            outcome.key
            for outcome in self._runs.records(report.run).all_outcomes()
            if outcome.status is Status.EXTRACTED
        ]
        different = [key for key in keys if self._read_object(key) != self._contents.get(key)]
        if different:
            return Answer(
                FAILURE,
                f"{len(different)} of {len(keys)} objects differ from their members: "
                f"{different[0]}",
                "report this as a bug: the run reports that it verified these members",
            )
        return Answer(
            OK,
            f"{len(keys)} of {len(self._contents)} members extracted and verified in {took:.1f} s",
        )

    def _read_object(self, key: str) -> bytes:
        """Return the content of a member's object, inflated if it was written as gzip.

        If the gzip data is damaged, it is returned unchanged, so it differs from the member.
        """
        with translating_errors("s3:GetObject"):  # also translates errors of `read`
            body: bytes = (
                self._runs.client("s3")
                .get_object(Bucket=self._request.destination.bucket, Key=key)["Body"]
                .read()
            )
        if self._request.options.as_gzip is not None and body.startswith(GZIP_MAGIC):
            with suppress(zlib.error):
                return zlib.decompress(body, wbits=31)  # gzip format
        return body


def _make_archive(token: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, content in canary_members(token).items():
            archive.writestr(
                path,
                content,
                zipfile.ZIP_STORED if path.endswith(".bin") else zipfile.ZIP_DEFLATED,
            )
    return out.getvalue()


def remove_versions(
    runs: DeployedRuns,
    bucket: str,
    prefix: str,
    is_selected: Callable[[str], bool] = lambda _key: True,
) -> int:
    """Delete all versions and delete markers of the selected keys below a prefix.

    Returns:
        The number of deleted versions and markers.
    """
    versions = [
        {"Key": version["Key"], "VersionId": version["VersionId"]}
        for page in runs.list_pages("list_object_versions", bucket, prefix)
        for version in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
        if is_selected(version["Key"])
    ]
    for start in range(0, len(versions), MAX_DELETED):
        deleting = {"Objects": versions[start : start + MAX_DELETED], "Quiet": True}
        refused = runs.ask("s3:DeleteObjects", Bucket=bucket, Delete=deleting).get("Errors", ())
        if refused:  # DeleteObjects returns 200 even if it deleted no object
            raise AccessDeniedError(
                f"{IAM_ACTIONS['s3:DeleteObjects']}: {show_count(len(refused), 'object')} "
                f"{choose_form(len(refused), 'remains', 'remain')} in {bucket}: "
                f"{refused[0].get('Code')} for {refused[0].get('Key')}"
            )
    return len(versions)
