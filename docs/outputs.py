"""What each command prints with ``--json``: the types of its lines, for the schemas."""

from typing import NamedTuple

from docs.markdown import make_table
from s3unzip.api.verification import ComparedObject, Verification
from s3unzip.cli import runs as lines
from s3unzip.cli.deployed import Diagnosis, Submission
from s3unzip.cli.look import ListedMember
from s3unzip.estimate import Estimate
from s3unzip.local.destination_objects import Decision
from s3unzip.model import Batch, NestedRun, Report
from s3unzip.operate.submit import MissingArchives
from s3unzip.runs.run_list import ListedRun, RunProgress


class Output(NamedTuple):
    """What a command prints as JSON."""

    command: str  # its words, without `--json`
    schema: str  # name of the schema, without its ending
    title: str
    kinds: tuple[type, ...]  # of a line: one of them


OUTPUTS = (
    Output("ls", "ls", "a member", (ListedMember,)),
    Output("plan", "estimate", "the estimate", (Estimate,)),
    Output(
        "run",
        "run",
        "the report; further lines: an archive inside the archive",
        (Report, NestedRun),
    ),
    Output(
        "run SRC SRC DEST",
        "batch",
        "how all archives ended, also if SRC is a folder, a prefix or a glob",
        (Batch,),
    ),
    Output("run --dry-run", "dry-run", "a member", (Decision,)),
    Output("test", "report", "the report", (Report,)),
    Output("verify", "verification", "what was found", (Verification,)),
    Output(
        "verify --objects FILE", "objects", "an object; the lines are in FILE", (ComparedObject,)
    ),
    Output("runs", "runs", "a run", (ListedRun,)),
    Output("show", "report", "the report", (Report,)),
    Output("show --failures", "failures", "a member that failed", (lines.FailedMember,)),
    Output("watch", "watch", "the figures; the last line is the report", (RunProgress, Report)),
    Output(
        "resume",
        "run",
        "the report; further lines: an archive inside the archive",
        (Report, NestedRun),
    ),
    Output(
        "resume --env NAME",
        "resume",
        "what was started, or the report of a complete run",
        (lines.Resumed, Report),
    ),
    Output("abort", "abort", "what was stopped", (lines.Aborted,)),
    Output("doctor", "doctor", "all checks", (Diagnosis,)),
    Output("submit", "submit", "what was found and queued", (Submission,)),
    Output("submit --missing", "missing", "what was found and started", (MissingArchives,)),
)

TEXT = """\
## JSON

Every command with output has `--json`, except `cat`, whose output is the members' bytes. JSON is on
stdout, one value a line. Messages and progress are on stderr. Values that are not set may be left
out. The exit code is the same as without `--json`.
"""


def make_json_section() -> str:
    """Return the section of cli.md about JSON."""
    rows = (
        (f"`{one.command}`", one.title, f"[{one.schema}]({one.schema}.schema.json)")
        for one in OUTPUTS
    )
    return (
        f"{TEXT}\n{make_table(('command with `--json`', 'what a line describes', 'schema'), rows)}"
    )
