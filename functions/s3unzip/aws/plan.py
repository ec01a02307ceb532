"""The function `plan`, which the Plan state calls for large directories and resumed runs."""

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from s3unzip.aws.environment import convert_input, load_config
from s3unzip.aws.executions import RunInput, end_run, find_recorded_run, machine_data
from s3unzip.aws.telemetry import add_plan_metrics, bind_run, lambda_function
from s3unzip.errors import UsageError
from s3unzip.settling.loop import KnownArchive, begin_run, resume


@lambda_function
def handler(event: dict[str, Any], invocation: LambdaContext) -> dict[str, Any]:
    """Begin or resume the run; return the next state.

    With a ``request``, the run is planned if it has no plan yet, then continued. Without a
    ``request``, the run is resumed; with ``failed``, its failed members are extracted again.
    """
    run_input = convert_input(event, RunInput)
    if not run_input.run:
        raise UsageError(f"the input has no run; its fields are {sorted(event)}")
    config = load_config()
    bind_run(run_input.run)
    if run_input.request is not None:
        context = config.context(invocation, run_input.request)
        begun_run = begin_run(
            run_input.request,
            context,
            KnownArchive(run_input.run, run_input.pin),
            planned=add_plan_metrics,
        )
    else:
        context = config.context(invocation, find_recorded_run(config, run_input.run))
        begun_run = resume(
            run_input.run, context, failed=run_input.failed, after_success=config.after_success
        )
    if begun_run.report is not None:
        end_run(begun_run.report, config, context, is_first=begun_run.is_first)
    return machine_data(begun_run.next, config)
