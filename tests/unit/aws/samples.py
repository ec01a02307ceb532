"""A run, its plan and its report."""

from s3unzip.model import Location, Options, Pin, PlanSummary, Report, Run, Verdict

RUN = Run(
    id="a-0",
    source=Location("s3", "arrivals", "a.zip"),
    pin=Pin(1),
    destination=Location("s3", "members", "out/"),
    options=Options(),
    key_prefix="out/a/",
    created=1.0,
)
PLAN = PlanSummary(run=RUN, members=1, selected=1, tasks=1)
REPORT = Report(
    run="a-0",
    verdict=Verdict.COMPLETED,
    source=RUN.source,
    pin=RUN.pin,
    destination=RUN.destination,
    options=RUN.options,
    started=100.0,
    finished=110.0,
)
