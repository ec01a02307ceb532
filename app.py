"""Entry point of the CDK CLI: writes the CloudFormation template; makes no AWS call."""

from __future__ import annotations

import signal
import sys

# Ctrl-C ends the program at once: jsii would print tracebacks of many lines.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from infra import RefusedError  # noqa: E402 - the imports take seconds, too
from infra.application import synthesize  # noqa: E402

try:
    synthesize()
except RefusedError as error:
    sys.exit(str(error))
