"""The options of how a run's stores are reached, for the commands that continue the run."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from s3unzip.cli.options.connections import AllowedWeb, Connection
from s3unzip.cli.options.destinations import RunConnection

if TYPE_CHECKING:
    import typer

    from s3unzip.model import Connections

# Of two options that exclude each other, the one that is typed counts.
RIVALS = {"no_sign_request": "request_payer", "request_payer": "no_sign_request"}


def recall(connection: Connection, context: typer.Context, known: Connections) -> RunConnection:
    """Return the options of a run: as they are typed now, else as they were when it began.

    Args:
        connection: the options of this command.
        context: says which of them are typed; those of the environment's variables are not.
        known: what the run's records have.
    """
    values: dict[str, Any] = {one.name: getattr(connection, one.name) for one in fields(connection)}
    typed = {name for name in values if _is_typed(name, context)}
    kept = asdict(known) | {"allow": [AllowedWeb(name) for name in known.allow]}
    recalled = {
        name: value
        for name, value in kept.items()
        if value and name not in typed and RIVALS.get(name) not in typed
    }
    return RunConnection(**values | recalled)


def _is_typed(name: str, context: typer.Context) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
