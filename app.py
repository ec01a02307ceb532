"""Entry point of the CDK CLI: writes the CloudFormation template; makes no AWS call."""

from __future__ import annotations

import sys

from infra.application import synthesize
from infra.bundle import BundleError
from infra.environment_file import EnvironmentFileError

try:
    synthesize()
except (EnvironmentFileError, BundleError) as error:
    sys.exit(str(error))
