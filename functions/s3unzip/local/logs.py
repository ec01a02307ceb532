"""Logging of the command line and of its worker processes, to standard error."""

import logging
import os
import sys

from s3unzip.printable import printable

LOG_LEVEL = "S3UNZIP_LOG_LEVEL"  # worker processes inherit it


class _Formatter(logging.Formatter):
    """Makes lines that are fit for a terminal: they quote servers."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's
        """Return the line of a record, without a traceback."""
        return printable(super().formatMessage(record))


def start_logging() -> None:
    """Log to standard error at the level in `LOG_LEVEL`; log nothing without this variable."""
    level = os.environ.get(LOG_LEVEL)
    if not level:
        return
    logger = logging.getLogger("s3unzip")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Formatter("%(asctime)s %(levelname)-7s %(process)d %(message)s"))
        logger.addHandler(handler)
    logger.setLevel(level.upper())
