"""Entry point of the CDK CLI: writes the CloudFormation template; makes no AWS call."""

from __future__ import annotations

import sys

from infra import RefusedError
from infra.application import synthesize

try:
    synthesize()
except RefusedError as error:
    sys.exit(str(error))
