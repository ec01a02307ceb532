"""The environment dev with a password and small sizes to split by, deployed on the embedded AWS."""

from collections.abc import Iterator

import pytest

from embedded.deploy import make_client, start_aws
from embedded.ministack import PYTHON
from embedded.pipeline import DeployedPipeline
from infra.environment import Environment, load_environment
from s3unzip.settings import MIB
from tests.assemblies import synthesize_environment

PASSWORD = "correct horse"
TUNING = {
    "split_from": 2 * MIB,
    "segment_bytes": 1 * MIB,
    "part_bytes": 5 * MIB,
    "max_direct_bytes": 4 * MIB,  # so that larger members are copied and split
    "max_direct_members": 400,  # so that archives of the state machine can have so few
}
# Members of the runs that the set stops, so that few of them keep a run active long enough. Those
# of the case overwrite are written at once: both of its runs write the same keys.
SLOW_PUTS = "0.2 ^/[^/]+/acceptance-[^/]+-(abort|resume)-[^/]+/"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedPipeline]:
    """The stack, once a module; its retries wait a fiftieth of their time."""
    if not PYTHON.exists():
        pytest.skip("no embedded AWS: make it with `uv sync --project embedded --frozen`")
    with start_aws(wait_scale=0.02, slow_puts=SLOW_PUTS) as aws:
        secrets = make_client("secretsmanager", aws.environment)
        secret = secrets.create_secret(Name="archives", SecretString=PASSWORD)["ARN"]
        values = load_environment("dev").model_dump()
        changed = values | {"password_secret": secret, "tuning": TUNING}
        environment = Environment.model_validate(changed)
        assembly = synthesize_environment(environment, tmp_path_factory.mktemp("acceptance"))
        yield DeployedPipeline.create(assembly, aws.environment)
