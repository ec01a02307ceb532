"""Options of how much of this machine a run uses, and how its work is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from s3unzip.cli.options.messages import OptionGroup
from s3unzip.cli.options.sizes import parse_number
from s3unzip.errors import UsageError
from s3unzip.settings import make_tuning

if TYPE_CHECKING:
    from s3unzip.settings import Tuning


@dataclass(frozen=True)
class Power(OptionGroup):
    """How much of this machine, and how the work is cut."""

    workers: Annotated[
        int | None,
        typer.Option("--workers", "-w", min=1, help="Worker processes; default: one for each CPU."),
    ] = None
    puts: Annotated[
        int | None, typer.Option("--puts", "-p", min=1, help="PUTs in flight in each worker.")
    ] = None
    tune: Annotated[
        list[str] | None,
        typer.Option(
            "--tune", metavar="NAME=VALUE", help="Set one of the tuning settings; repeatable."
        ),
    ] = None

    @property
    def processes(self) -> int:
        """Worker processes of a run on this machine."""
        from s3unzip.local.processes.processors import available_processors

        return self.workers or len(available_processors())

    def tuning(self, workers: int, base: Tuning | None = None) -> Tuning:
        """Return the tuning of a run with so many workers.

        Raises:
            UsageError: an unknown name or a bad number.
        """
        more = {} if self.puts is None else {"puts_in_flight": self.puts}
        return tuning_of(self.tune, base, max_workers=workers, **more)


def tuning_of(changes: list[str] | None, base: Tuning | None = None, **more: int) -> Tuning:
    """Return the tuning that ``--tune`` and other options ask for.

    Raises:
        UsageError: an unknown name or a bad number.
    """
    values: dict[str, object] = dict(more)
    for change in changes or ():
        name, separator, text = change.partition("=")
        try:
            values[name.strip().replace("-", "_")] = parse_number(text)
        except ValueError as error:
            shown = f"{text!r}" if separator else "nothing"
            raise UsageError(f"--tune {name}: {shown} is no number") from error
    return make_tuning(values, base)
