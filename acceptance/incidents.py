"""The cases of incidents: duplicate and lost events, overwriting, stopping, continuing."""

import itertools
import json
import time
from dataclasses import replace

from acceptance.archives import Archive
from acceptance.cases import (
    FEW,
    SMALL_BYTES,
    Case,
    Done,
    complete,
    expect,
    expect_equal,
    small_archive,
    verdict_line,
)
from acceptance.leftovers import MAX_RUNS, list_versions, member_place
from acceptance.listener import Listener
from acceptance.site import Mismatch, NotApplicableError, Put, Site
from s3unzip.cli.arguments import DAY
from s3unzip.model import OnConflict, Report, Verdict
from s3unzip.planning.select import parse_template
from s3unzip.run_ids import FOLLOW_UP_SUFFIX

FIRST_MEMBERS = 200  # of a run that must still be active when the case acts, at least
MORE = 2  # times as many at each attempt
ATTEMPTS = 6
BURSTS = (1, 4, 8, 16)  # attempts to put and delete an archive until the planner misses one
LOOK_BACK = 120.0  # seconds before the put, for clock skew


def first_members(site: Site) -> int:
    """Return the members of an archive that the state machine extracts."""
    return max(FIRST_MEMBERS, site.config.tuning.max_direct_members + 1)


def meet_at_work(site: Site, name: str, count: int) -> Put:
    """Put an archive and return while its run is active; if it ended, put a larger one."""
    for attempt in range(ATTEMPTS):
        members = count * MORE**attempt
        put = site.put(f"{name}-{members}", small_archive(members))
        if site.wait_running(put):
            return put
    raise Mismatch(f"the run of {members:,} members ended before the case could act on it")


def do_duplicate(site: Site) -> Done:
    """Deliver the same event three times: one run, and nothing is sent or put by the third.

    Two functions that work at once may both send the completion event (docs/reliability.md).
    """
    with Listener(site) as listener:
        put = site.put("duplicate", small_archive(FEW))
        send_event(site, put)
        report = complete(site, put)
        site.wait_idle()
        before = snapshot(site, "duplicate")
        announced = listener.count(put.run)
        send_event(site, put)
        site.wait_idle(quiet=1.0)
        sent_again = listener.count(put.run) - announced
    if snapshot(site, "duplicate") != before:
        raise Mismatch("the third delivery changed object versions")
    if len(before) != FEW + site.config.environment_defaults.options.marker:  # and its _SUCCESS
        raise Mismatch(f"{len(before)} object versions of {FEW} members")
    if announced not in {1, 2} or sent_again:
        raise Mismatch(f"{announced} completion events, and {sent_again} after the third delivery")
    return Done(f"one run, {announced} sent, no second PUT", (report,))


def send_event(site: Site, put: Put) -> None:
    """Queue EventBridge's event of an archive as the rule does."""
    body = {
        "source": "aws.s3",
        "detail-type": "Object Created",
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "detail": {
            "bucket": {"name": site.ingest},
            "object": {"key": put.key, "size": put.pin.size, "version-id": put.pin.version_id},
        },
    }
    site.sqs.send_message(QueueUrl=site.runs.outputs["QueueUrl"], MessageBody=json.dumps(body))


def snapshot(site: Site, name: str) -> set[tuple[str, str, str]]:
    """Return key, version and time of every object version of an archive's members."""
    found = list_versions(site.s3, member_place(site)._replace(prefix=site.member_prefix(name)))
    return {(one["Key"], one["VersionId"], str(one["LastModified"])) for one in found}


def do_overwrite(site: Site) -> Done:
    """Replace an archive by one with the same names during its run: no object is a mix."""
    if site.config.environment_defaults.options.on_conflict is OnConflict.NEVER:
        raise NotApplicableError("on_conflict is never: the older archive's objects stay")
    old = meet_at_work(site, "overwrite", first_members(site))
    count = old.archive.count
    new = site.put(old.name, small_archive(count, SMALL_BYTES + 1))
    first, second = site.wait_report(old), site.wait_report(new)
    expect(second, Verdict.COMPLETED)
    if first.verdict not in {Verdict.COMPLETED, Verdict.SOURCE_CHANGED}:
        raise Mismatch(f"the older run: {verdict_line(first)}")
    again = wait_recheck(site, old, new)
    expect_equal(site, new)
    reports = (first, second) if again is None else (first, second, again)
    return Done(f"the new one, {count:,} equal; the older run: {first.verdict}", reports)


def wait_recheck(site: Site, old: Put, new: Put) -> Report | None:
    """Wait for the run that compares the newer archive's members once the older run has ended."""
    again = replace(new, run=f"{old.run}{FOLLOW_UP_SUFFIX}")
    return site.wait_report(again) if site.runs.state(again.run) is not None else None


def stop_at_work(site: Site, name: str) -> tuple[Put, Report]:
    """Abort an active run with ``s3unzip abort``; return it and its report."""
    count = first_members(site)
    for _ in range(ATTEMPTS):
        put = meet_at_work(site, name, count)
        count = put.archive.count * MORE  # for the next time, if the work ends before the abort
        _, said = site.call("abort", put.run, "--env", site.environment)
        report = site.wait_report(put)
        if ": stopped; " in said and report.verdict is not Verdict.COMPLETED:
            _check_stopped(site, put, report)
            return put, report
    raise Mismatch(f"s3unzip abort came too late each time: {verdict_line(report)}")


def _check_stopped(site: Site, put: Put, report: Report) -> None:
    state = site.runs.state(put.run)
    if state != "ABORTED":
        raise Mismatch(f"the execution is {state} after s3unzip abort")
    expect(report, Verdict.FAILED)
    prefix = parse_template(put.request).prefix
    uploads = site.s3.list_multipart_uploads(Bucket=put.request.destination.bucket, Prefix=prefix)
    if uploads.get("Uploads"):
        raise Mismatch(f"{len(uploads['Uploads'])} incomplete uploads are left")


def _do_abort(site: Site) -> Done:
    _, report = stop_at_work(site, "abort")
    return Done(f"ABORTED, {report.missing:,} of {report.members:,} not done", (report,))


def _do_resume(site: Site) -> Done:
    put, stopped = stop_at_work(site, "resume")
    site.call("resume", put.run, "--env", site.environment)
    report = site.wait_report(put, after=stopped.finished)
    expect(report, Verdict.COMPLETED)
    expect_equal(site, put)
    return Done(
        f"{report.verdict}, {stopped.missing:,} left before, {report.extracted:,} equal", (report,)
    )


def do_missing(site: Site) -> Done:
    """Find and start an archive whose event started nothing, with ``submit --missing``."""
    started = time.time()
    put = lose_event(site)
    days = f"{(time.time() - started + LOOK_BACK) / DAY:.6f}"
    words = ("submit", "--missing", "--env", site.environment, "--days", days)
    _, found = site.call(*words, "--yes")
    if not _names(found, put):
        raise Mismatch(f"submit --missing does not name the archive without a run: {found}")
    report = complete(site, put)
    _, found = site.call(*words, "--dry-run")
    if _names(found, put):
        raise Mismatch("submit --missing names the archive after its run")
    return Done(f"found, started, {report.verdict}", (report,))


def lose_event(site: Site) -> Put:
    """Return an existing archive that has no run.

    The archive is deleted before its event is planned, so the event starts nothing. Then the delete
    marker is removed, for which S3 sends no "Object Created". A disabled rule would have the same
    effect, but it would also affect other people's events.
    """
    archive, numbers = small_archive(FEW), itertools.count()
    for burst in BURSTS:
        markers = {}
        for number in itertools.islice(numbers, burst):
            name = f"missing-{number}"
            markers[name] = put_and_delete(site, site.key(name), archive)
        site.wait_idle(quiet=1.0)
        for name, marker in markers.items():
            if not has_records(site, name):
                site.s3.delete_object(Bucket=site.ingest, Key=site.key(name), VersionId=marker)
                return site.find(name, archive)
    raise Mismatch("each archive that was deleted at once was planned even earlier")


def has_records(site: Site, name: str) -> bool:
    """Return whether any version of the archive `name` has a run."""
    return any(f"-{site.token}-{name}-" in recent.run for recent in site.runs.recent(MAX_RUNS))


def put_and_delete(site: Site, key: str, archive: Archive) -> str:
    """Put an archive and delete it at once; return the delete marker's version id."""
    site.s3.put_object(Bucket=site.ingest, Key=key, Body=b"".join(archive.pieces()))
    answer = site.s3.delete_object(Bucket=site.ingest, Key=key)
    if not answer.get("DeleteMarker") or answer.get("VersionId") in {None, "null"}:
        raise NotApplicableError("the ingest bucket keeps no versions: no event can be lost safely")
    marker: str = answer["VersionId"]
    return marker


def _names(listing: str, put: Put) -> bool:
    return any(put.key in line for line in listing.splitlines())


INCIDENTS = (
    Case("duplicate", "one run, no later event or PUT", do_duplicate),
    Case("overwrite", "the new one complete, no mix", do_overwrite),
    Case("abort", "ABORTED, nothing incomplete left", _do_abort),
    Case("resume", "COMPLETED after s3unzip resume", _do_resume),
    Case("missing", "found and started", do_missing),
)
