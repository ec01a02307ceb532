"""`cdk synth -c env=dev|staging|prod`: the pipeline as a CloudFormation template; no AWS call."""

from __future__ import annotations

import sys

from infra.application import synthesize
from infra.environment import EnvironmentFileError

try:
    synthesize()
except EnvironmentFileError as error:
    sys.exit(str(error))
