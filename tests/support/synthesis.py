"""``python -m tests.support.synthesis FOLDER``: writes each variant into a folder of its name.

cdk-nag checks them; tests/infra/test_deployment.py lets CDK's own linter check one.
"""

import sys
from pathlib import Path

from infra.application import Application, build
from infra.environment_file import load_environment
from tests.support.assemblies import VARIANTS

for name, (environment, settings) in VARIANTS.items():
    app = Application(Path(sys.argv[1], name), linter=False)
    build(app, load_environment(environment, settings=settings))
