"""Stands for app.py in the cdk.json of a test's checkout: makes each synthesis once.

Run as ``python -m tests.docs.synthesis KEPT`` by the CDK CLI. A synthesis depends on the variables
that the CLI sets, and on the asset. With those of an earlier command, this program copies what
app.py wrote then from the folder KEPT. A synthesis takes 3 s of a processor, and the commands of
docs/deploy.md need fifteen.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

OUTPUT = "CDK_OUTDIR"


def use_kept_syntheses(checkout: Path, kept: Path) -> None:
    """Make the CDK CLI in a checkout run this program; the syntheses are in `kept`."""
    settings = json.loads((checkout / "cdk.json").read_text())
    settings["app"] = f".venv/bin/python -m {__name__} {kept}"
    (checkout / "cdk.json").unlink()
    (checkout / "cdk.json").write_text(json.dumps(settings))


def main() -> int:
    """Write the synthesis that the CLI asks for; return the exit code of app.py.

    Two syntheses have one name if the CLI asks for the same. With a ready asset it is no matter
    which stacks' assets the command needs.
    """
    asked = {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(("CDK_", "S3UNZIP_")) and name != OUTPUT
    }
    context = json.loads(asked.pop("CDK_CONTEXT_JSON"))
    context.pop("aws:cdk:bundling-stacks", None)
    folder = Path(
        sys.argv[1], hashlib.sha256(json.dumps([asked, context]).encode()).hexdigest()[:16]
    )
    output = Path(os.environ[OUTPUT])
    if folder.exists():
        staged = [path.name for path in output.glob("asset.*")]  # by a hash of their content
        shutil.copytree(folder, output, ignore=shutil.ignore_patterns(*staged), dirs_exist_ok=True)
        return 0
    code = subprocess.run([sys.executable, "app.py"], check=False).returncode
    if code == 0:
        shutil.copytree(output, folder)
    return code


if __name__ == "__main__":
    sys.exit(main())
