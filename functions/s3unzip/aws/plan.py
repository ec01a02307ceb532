"""Function `plan`: the state Plan, for a run with a large directory or a resumed run."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from s3unzip.aws.environment import open_worker
from s3unzip.aws.events import parse_field
from s3unzip.aws.executions import end_run, find_run, read_input, state_of
from s3unzip.aws.telemetry import bind_run, lambda_function, record_plan
from s3unzip.settling.loop import KnownArchive, begin, resume


@lambda_function
def handler(event: dict[str, Any], invocation: LambdaContext) -> dict[str, Any]:
    """Plan the run, or continue it where it stopped; return the next state.

    If the input has a ``request``, a run without a plan is planned. Otherwise the run is resumed;
    with ``failed`` the members that failed are extracted again.
    """
    run = parse_field(event, "run", str)
    config = open_worker()
    bind_run(run)
    archive = read_input(event)
    if archive.request is not None:
        context = config.context(invocation, archive.request)
        settled = begin(
            archive.request,
            context,
            KnownArchive(run, archive.pin),
            planned=lambda plan: record_plan(plan.summary),
        )
    else:
        context = config.context(invocation, find_run(config, run))
        settled = resume(
            run, context, failed=bool(event.get("failed")), after_success=config.after_success
        )
    if settled.report is not None:
        end_run(settled.report, config, context, is_first=settled.is_first)
    return state_of(settled.next, config)
