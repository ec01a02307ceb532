"""What a shell completes beside options: paths, runs of this machine, values that S3 knows.

Each function has the form of click's `shell_complete`: it gets what is typed so far, and returns
what fits. Nothing here asks a service.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click

    Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def complete_path(
    context: click.Context,  # noqa: ARG001 - click's
    parameter: click.Parameter,  # noqa: ARG001 - click's
    incomplete: str,
) -> list[CompletionItem]:
    """Let the shell complete names of files and folders."""
    return [CompletionItem(incomplete, type="file")]


def complete_run(
    context: click.Context,
    parameter: click.Parameter,  # noqa: ARG001 - click's
    incomplete: str,
) -> list[CompletionItem]:
    """Complete ``latest`` and the runs of this machine, not those of an environment."""
    from s3unzip.local.locking import known_runs
    from s3unzip.stores.locations import runs_home

    if context.params.get("env"):
        return _fitting(("latest",), incomplete)
    return _fitting(("latest", *known_runs(runs_home())), incomplete)


def complete_from(values: Iterable[str]) -> Completer:
    """Return a function that completes some of `values`."""

    def complete(
        context: click.Context,  # noqa: ARG001 - click's
        parameter: click.Parameter,  # noqa: ARG001 - click's
        incomplete: str,
    ) -> list[CompletionItem]:
        return _fitting(values, incomplete)

    return complete


def _fitting(values: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(value) for value in values if value.startswith(incomplete)]
