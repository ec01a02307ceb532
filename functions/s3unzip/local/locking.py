"""One process at a time does a run on this machine.

A second one would forget the outcomes of the first and drop its uploads. The
lock is the kernel's, on a file in the run's folder: it ends with its process,
however that ends.
"""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import TYPE_CHECKING

from s3unzip.errors import UsageError

if TYPE_CHECKING:
    from io import BufferedWriter
    from types import TracebackType
    from typing import Self

LOCK = "lock"


class RunLocks:
    """The locks of this process; a context manager that lets go of them all.

    Args:
        home: the folder that runs are kept below.
    """

    def __init__(self, home: str) -> None:
        self._runs = Path(home, "runs")
        self._held: dict[str, BufferedWriter] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._held:
            self._held.popitem()[1].close()

    def hold(self, run: str) -> None:
        """Keep other processes from doing `run`; nothing happens where it is held already.

        Raises:
            UsageError: another process does it.
        """
        if run in self._held:
            return
        folder = self._runs / run
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise UsageError(
                f"{run}: another process is doing this run; follow it with: s3unzip watch {run}"
            ) from None
        self._held[run] = file
