"""Rules that AWS documents and MiniStack does not enforce, added inside MiniStack's process.

Each module has one rule or a few related rules and is named ``<service>_<rule>``.
Its docstring states the rule and the AWS page; its ``install()`` patches MiniStack,
which is pinned because its private names are used. Only the standard library and
MiniStack may be imported here: these modules run in MiniStack's own environment.
"""

from __future__ import annotations

from importlib import import_module

# In this order; a later rule may wrap what an earlier one installed.
RULES: tuple[str, ...] = (
    "lambda_runtime_client",
    "lambda_processes",
    "lambda_concurrency",
    "lambda_payloads",
    "lambda_variables",
    "lambda_tracing",
    "lambda_async",
    "sqs_batch_rights",
    "sqs_event_source",
    "sqs_move_task",
    "events_targets",
    "stepfunctions_engine",
    "stepfunctions_errors",
    "stepfunctions_async",
    "stepfunctions_sdk",
    "stepfunctions_express",
    "stepfunctions_history",
    "stepfunctions_inline_map",
    "stepfunctions_branches",
    "stepfunctions_map",
    "stepfunctions_map_rights",
    "stepfunctions_payload",
    "stepfunctions_definition",
    "stepfunctions_names",
    "stepfunctions_redrive",
    "stepfunctions_roles",
)


def install(rules: tuple[str, ...] = RULES) -> None:
    """Install `rules`, modules of this package, into the MiniStack of this process."""
    for rule in rules:
        import_module(f"{__name__}.{rule}").install()
