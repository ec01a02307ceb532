"""``python -m tests.support.synthesis FOLDER``: writes each variant into a folder of its name.

cdk-nag checks them; tests/infra/test_deployment.py lets CDK's own linter check one.
"""

import sys
from pathlib import Path

from infra import application, environment_file
from tests.support.assemblies import VARIANTS

for name, (environment, settings) in VARIANTS.items():
    app = application.Application(Path(sys.argv[1], name), linter=False)
    application.build(app, environment_file.load_environment(environment, settings=settings))
