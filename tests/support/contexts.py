"""Lambda's context object, as far as the handlers use it."""

from aws_lambda_powertools.utilities.typing import LambdaContext


class Invocation(LambdaContext):
    """An invocation that always has a minute left."""

    _function_name = "plan"
    _function_version = "$LATEST"
    _memory_limit_in_mb = 128
    _invoked_function_arn = "arn:aws:lambda:us-east-1:000000000000:function:plan"
    _aws_request_id = "request-1"

    def get_remaining_time_in_millis(self) -> int:  # type: ignore[override]  # Lambda's is a method
        return 60_000
