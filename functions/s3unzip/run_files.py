"""The names of the objects that a run keeps in its run store, below ``runs/<run id>/``.

`runs.records` reads and writes them; docs/run-files.md says what is in each.
"""

from __future__ import annotations

RUN = "run.json"  # model.Run
SUMMARY = "summary.json"  # model.PlanSummary; written last, so a plan is whole where it exists
MEMBERS = "members.jsonl"  # model.PlannedMember, one a line
PLAN = "plan.jsonl"  # model.Task, one a line
FOLDERS = "folders.jsonl"  # the archive's folders, a key a line; only for a folder as destination
WHOLE = "whole.jsonl"  # model.Task: those of whole members, if the run has split members, too
SLICES = "slices.jsonl"  # model.Task: those of split members
SCAN = "scan.jsonl"  # model.ScanTask, one a line
REDO = "redo.jsonl"  # model.Task: what the last report found unfinished
RESCAN = "rescan.jsonl"  # model.ScanTask: the scans without a report, one a line
LINK_COST = "link.json"  # model.LinkCost
FAILED = "failed.json"  # how a failed execution ended
REFUSED = "refused.json"  # aws.refusals.Refusal: its event is sent
CONNECTIONS = "connections.json"  # model.Connections; of a run on one machine
STOP = "stop.json"  # model.Stop: why no further task may begin
REPORT = "report.json"  # model.Report
PAGE = "report.html"
NESTED = "nested.jsonl"  # model.NestedRun, one a line

# Folders beside the runs' own; no id of a run begins with a dash. Their objects are named by
# `entry_name`.
CLAIMS = "-claims"  # direct.bundle: who does a direct run, then its records
REFUSALS = "-refused"  # empty objects: runs that ended with their plan
BUNDLE_SUFFIX = ".zip"  # of the names in CLAIMS

# Prefixes of the names of several objects.
OUTCOMES = "outcomes/"
SCANS = "scans/"
LINKS = "links/"
UPLOADS = "uploads/"
RETRIES = "retry-"
MAPS = "maps"  # a folder: Step Functions writes the results of its Maps here; nothing reads them

# The objects of an earlier run of the same archive and options, which a new run deletes.
LEAVINGS = (OUTCOMES, SCANS, LINKS, UPLOADS, LINK_COST, STOP, REDO, RETRIES, "report.")

INDEX_TASK = "index"  # the task id of members that fail in the plan
LAST_MILLISECOND = 10**13  # the year 2286


def entry_name(run: str, time: float) -> str:
    """Return the name of the object of `run` at a Unix time; a listing has the latest first."""
    return f"{LAST_MILLISECOND - round(time * 1_000):013d}-{run}"


def run_of_entry(key: str) -> str:
    """Return the run of an object that `entry_name` named, by its key."""
    return key.rpartition("/")[2].partition("-")[2].removesuffix(BUNDLE_SUFFIX)


def outcomes(task: str) -> str:
    """Return the name of a task's report and outcomes."""
    return f"{OUTCOMES}{task}.jsonl"


def scan_report(scan: str) -> str:
    """Return the name of the report of one scan."""
    return f"{SCANS}{scan}.json"


def scanned_segment(member: int, part: int) -> str:
    """Return the name of the result of one segment's scan."""
    return f"{SCANS}scan-{member:08d}-{part:04d}.bin"


def link(member: int) -> str:
    """Return the name of a split member's link."""
    return f"{LINKS}{member:08d}.json"


def linked_segment(member: int, part: int) -> str:
    """Return the name of one linked segment, its window included."""
    return f"{LINKS}{member:08d}-{part:04d}.bin"


def uploads(owner: str) -> str:
    """Return the prefix of the names of one task's upload records."""
    return f"{UPLOADS}{owner}/"


def retry(generation: int) -> str:
    """Return the name of one retry; the first generation is 1."""
    return f"{RETRIES}{generation:04d}"


def retry_tasks(retry: str) -> str:
    """Return the name of the task list of one retry."""
    return f"{retry}.jsonl"
