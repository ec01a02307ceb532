"""The CloudWatch metrics that the functions emit: their names and units.

The telemetry of the functions emits the metrics. The dashboard and the alarms of the stack read
them. Both take namespace, names and units from here.
"""

from enum import StrEnum

NAMESPACE = "s3unzip"
SERVICE = "s3unzip"  # value of the dimension `service`


class Unit(StrEnum):
    """Units as CloudWatch spells them: StandardUnit of MetricDatum in its API reference."""

    SECONDS = "Seconds"
    MILLISECONDS = "Milliseconds"
    BYTES = "Bytes"
    COUNT = "Count"


METRICS = {
    "ArchivesCompleted": Unit.COUNT,  # runs that ended COMPLETED
    "ArchivesWithErrors": Unit.COUNT,  # runs that ended COMPLETED_WITH_ERRORS
    "ArchivesRejected": Unit.COUNT,  # archives that were REJECTED; nothing was written
    "ArchivesChanged": Unit.COUNT,  # runs that ended SOURCE_CHANGED; the newer archive has a run
    "ArchivesFailed": Unit.COUNT,  # runs that ended FAILED, timed-out runs included
    "ArchivesStopped": Unit.COUNT,  # runs that a user stopped
    "ArchivesWithheld": Unit.COUNT,  # archives not opened, because no scan says that they are clean
    "DirectHandovers": Unit.COUNT,  # small archives that the state machine had to finish
    "SourcesFinished": Unit.COUNT,  # archives deleted or tagged after success
    "SourcesNotFinished": Unit.COUNT,  # archives for which that failed, or that were replaced
    "ArchiveDuration": Unit.SECONDS,  # from the S3 event's time to the report
    "ArchivePace": Unit.SECONDS,  # ArchiveDuration for each 10 GB or 100,000 members of a large one
    "RunDuration": Unit.SECONDS,  # from the start of the plan to the report
    "QueueDelay": Unit.SECONDS,  # from the S3 event's time to the plan's start
    "PlanDuration": Unit.SECONDS,  # one plan
    "TaskDuration": Unit.SECONDS,  # one task of the extract function
    "SettleDuration": Unit.SECONDS,  # one settling; a run has one a round
    "MembersExtracted": Unit.COUNT,  # members written
    "MembersFailed": Unit.COUNT,  # members that were not written
    "MembersUnchanged": Unit.COUNT,  # members that the destination already had
    "BytesRead": Unit.BYTES,  # of archives
    "BytesWritten": Unit.BYTES,  # to the destination
    "ReadRequests": Unit.COUNT,  # GET and HEAD requests of plans and tasks
    "WriteRequests": Unit.COUNT,  # PUT, COPY, POST and LIST requests of plans and tasks
    "S3Throttles": Unit.COUNT,  # requests that S3 answered with "slow down"
    "PutLatency": Unit.MILLISECONDS,  # mean of one task
}
