"""Logging of the command line and of its worker processes, to standard error."""

import logging
import os
import sys

LOG_LEVEL = "S3UNZIP_LOG_LEVEL"  # worker processes inherit it


def start_logging() -> None:
    """Log to standard error at the level in `LOG_LEVEL`; log nothing without this variable."""
    level = os.environ.get(LOG_LEVEL)
    if not level:
        return
    logger = logging.getLogger("s3unzip")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(
            logging.Formatter("%(asctime)s %(levelname)-7s %(process)d %(message)s")
        )
        logger.addHandler(handler)
    logger.setLevel(level.upper())
