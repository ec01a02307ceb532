"""What the CDK CLI runs: writes the pipeline as a CloudFormation template; no AWS call."""

from __future__ import annotations

import sys

from infra.application import synthesize
from infra.bundle import BundleError
from infra.environment import EnvironmentFileError

try:
    synthesize()
except (EnvironmentFileError, BundleError) as error:
    sys.exit(str(error))
