"""The values of the pipeline: request -> run -> tasks and members -> outcomes -> report.

Each is defined once, is frozen, and converts to JSON and back without loss (`encode`, `decode`).
Data flows in one direction: `extract` never changes a plan, and `report` never asks the store for
data that an outcome has.
"""

from __future__ import annotations

from s3unzip.model.connections import Connections
from s3unzip.model.report import (
    NOT_AN_ARCHIVE,
    ArchiveEnd,
    Batch,
    Failure,
    NestedRun,
    Report,
    Settled,
)
from s3unzip.model.request import (
    AfterSuccess,
    Budget,
    GzipForm,
    Location,
    OnConflict,
    Options,
    Pin,
    Request,
    Run,
    SourceAction,
    SourceResult,
    SourceState,
    archive_stem,
    run_id,
    run_stem,
)
from s3unzip.model.tasks import (
    Link,
    LinkCost,
    Outcome,
    Part,
    PlannedMember,
    PlanSummary,
    Requests,
    ScanReport,
    ScanTask,
    SliceParts,
    Status,
    Stop,
    Task,
    TaskKind,
    TaskReport,
    UploadRecord,
    Verdict,
)
from s3unzip.model.values import decode, decode_lines, encode
