"""An environment with two routes on MiniStack with rights checked."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from embedded.deploy import start_aws
from embedded.pipeline import DeployedPipeline
from s3unzip.model import Report, Route, Verdict
from tests.e2e.functions import with_variables
from tests.e2e.test_pipeline import STATE_MACHINE, wait_until_idle
from tests.support.assemblies import for_embedded_aws
from tests.support.encrypting import seal_aes
from tests.support.zips import DEFLATE, Entry, build

PASSWORD = b"known-to-acme-only"
BUCKET = "acme-members"
SEALED = build(seal_aes(Entry("a.txt", b"of acme", DEFLATE), PASSWORD))
PLAIN = build(Entry("b.txt", b"of globex"))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedPipeline]:
    """The stack of such an environment; the bucket and the secret of a route are there before."""
    with start_aws(auth=True, wait_scale=0.02) as aws:
        bare = DeployedPipeline(aws.environment, {})
        bare.client("s3").create_bucket(Bucket=BUCKET)
        made = bare.client("secretsmanager").create_secret(
            Name="archives/acme", SecretString=json.dumps({"zip": PASSWORD.decode()})
        )
        yield DeployedPipeline.create(
            for_embedded_aws(tmp_path_factory, "partners", made["ARN"]), aws.environment
        )


def _extract(pipeline: DeployedPipeline, key: str, body: bytes) -> Report:
    pipeline.put(key, body)
    report = pipeline.wait(key)
    wait_until_idle(pipeline)
    return report


@pytest.mark.parametrize("how", ["here", "machine"])
def test_each_route_has_its_own_way(pipeline: DeployedPipeline, how: str) -> None:
    """Each archive goes where its route says, with the options and the password of the route."""
    with ExitStack() as stack:
        if how == "machine":
            stack.enter_context(with_variables(pipeline, "intake", STATE_MACHINE))
        acme = _extract(pipeline, f"acme/{how}.zip", SEALED)
        globex = _extract(pipeline, f"globex/{how}.zipx", PLAIN)
        neither = _extract(pipeline, f"globex/{how}.zip", PLAIN)
    assert (acme.verdict, acme.route) == (Verdict.COMPLETED, Route("acme"))
    body = pipeline.client("s3").get_object(Bucket=BUCKET, Key="in/a.txt")["Body"].read()
    assert body == b"of acme"
    assert (globex.verdict, globex.route) == (Verdict.COMPLETED, Route("globex"))
    assert (neither.verdict, neither.route) == (Verdict.COMPLETED, None)
    assert pipeline.members(f"globex/{how}/") == {f"globex/{how}/b.txt": b"of globex"}
    assert pipeline.members(f"{how}/") == {f"{how}/b.txt": b"of globex"}


def test_a_password_is_of_its_route(pipeline: DeployedPipeline) -> None:
    """An encrypted archive of another sender is not opened with it."""
    report = _extract(pipeline, "globex/sealed.zipx", SEALED)
    assert (report.verdict, report.reasons) == (Verdict.COMPLETED_WITH_ERRORS, {"encrypted": 1})
