"""The environment dev with a password and small sizes to split by, deployed on the embedded AWS."""

from collections.abc import Iterator

import pytest

from embedded.deploy import make_client, start_aws
from embedded.pipeline import DeployedPipeline
from tests.support.assemblies import for_embedded_aws

# Members of the runs that the set stops, so that few of them keep a run active long enough. Those
# of the case overwrite are written at once: both of its runs write the same keys.
SLOW_PUTS = "0.2 ^/[^/]+/acceptance-[^/]+-(abort|resume)-[^/]+/"


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedPipeline]:
    """The stack, once a module; its retries wait a fiftieth of their time."""
    with start_aws(wait_scale=0.02, slow_puts=SLOW_PUTS) as aws:
        secrets = make_client("secretsmanager", aws.environment)
        secret = secrets.create_secret(Name="archives", SecretString="correct horse")["ARN"]
        yield DeployedPipeline.create(
            for_embedded_aws(tmp_path_factory, "acceptance", secret), aws.environment
        )
