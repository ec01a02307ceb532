"""An environment with two routes: runs take theirs along, and commands name it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from s3unzip.aws.environment import open_worker
from s3unzip.cli.main import main
from s3unzip.model import Route, Verdict
from s3unzip.operate.answers import FAILURE, OK
from s3unzip.operate.bucket_checks import check_route
from s3unzip.operate.doctor import diagnose
from s3unzip.settings import Variable
from tests.support.zips import Entry, build
from tests.unit.operate.site import GOOD, Site

KEY = "arn:aws:kms:us-east-1:123456789012:key/0f"
ROUTES: list[dict[str, Any]] = [
    {
        "name": "acme",
        "prefix": "acme/",
        "suffix": ".zip",
        "bucket": "acme-members",
        "destination": "in/",
        "owner": "123456789012",
        "kms_key": KEY,
        "options": {"key_template": "{member}"},
    },
    {"name": "globex", "prefix": "globex/", "suffix": ".zipx", "destination": "globex/"},
]


@pytest.fixture
def routed(deploy: Callable[..., Site], monkeypatch: pytest.MonkeyPatch) -> Site:
    site = deploy(**{Variable.ROUTES: json.dumps(ROUTES)})
    site.account.client("s3").create_bucket(Bucket="acme-members")
    monkeypatch.setenv("AWS_ENDPOINT_URL", site.account.url)
    return site


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """A function that types a command and returns what it prints."""

    def run(*words: str) -> str:
        capsys.readouterr()  # what the functions logged
        with pytest.raises(SystemExit):
            main([*words, "--env", "dev"])
        out, err = capsys.readouterr()
        return out + err

    return run


def test_a_run_writes_as_its_route_says(routed: Site) -> None:
    """The destination, the key and the options are the route's; the report has it."""
    run = routed.begin("acme/a.zip")
    routed.work(run)
    report = routed.runs.records(run).read_report()
    assert report.verdict is Verdict.COMPLETED
    assert report.route == Route("acme", "123456789012", KEY)
    assert set(routed.account.objects("acme-members")) == {"in/good", "in/other"}
    head = routed.account.client("s3").head_object(Bucket="acme-members", Key="in/good")
    assert (head["ServerSideEncryption"], head["SSEKMSKeyId"]) == ("aws:kms", KEY)


def test_a_run_keeps_its_route(routed: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deployment that changes the route meanwhile changes nothing of a run that has begun."""
    run = routed.begin("acme/a.zip")
    changed = [{**ROUTES[0], "bucket": "another", "kms_key": f"{KEY}1", "options": {}}]
    monkeypatch.setenv(Variable.ROUTES, json.dumps(changed))
    open_worker.cache_clear()
    routed.work(run)
    assert routed.runs.records(run).read_report().verdict is Verdict.COMPLETED
    head = routed.account.client("s3").head_object(Bucket="acme-members", Key="in/good")
    assert head["SSEKMSKeyId"] == KEY


def test_a_failed_execution_is_ended_with_the_rights_of_its_route(
    deploy: Callable[..., Site],
) -> None:
    """What follows its report reads nested archives, in a bucket of another owner."""
    route = {**ROUTES[0], "kms_key": None, "options": {"nested_depth": 1}}
    variables = {Variable.ROUTES: json.dumps([route]), Variable.DESTINATION_OWNER: "999999999999"}
    site = deploy(**variables)
    site.account.client("s3").create_bucket(Bucket="acme-members")
    run = site.begin("acme/outer.zip", build(Entry("a.zip", GOOD)))
    site.work(run)
    started = site.account.executions()
    site.fail(run)
    assert set(started) < set(site.account.executions())
    assert site.runs.records(run).read_report().verdict is Verdict.COMPLETED


@pytest.mark.parametrize(
    ("key", "place"),
    [
        ("acme/a.zip", "acme"),
        ("globex/a.ZIPX", "globex"),
        ("globex/a.zip", None),
        ("a.zip", None),
    ],
)
def test_the_first_route_that_fits(routed: Site, key: str, place: str | None) -> None:
    """Prefix and suffix decide; what no route takes goes the environment's own way."""
    report = routed.runs.defaults.request(key).route
    assert (None if report is None else report.name) == place
    run = routed.begin(key)
    routed.work(run)
    route = routed.runs.records(run).read_report().route
    assert (None if route is None else route.name) == place


def test_commands_name_the_route(routed: Site, typed: Callable[..., str]) -> None:
    """`runs`, `show` and `submit` do; a key that no route and no trigger takes is refused."""
    run = routed.begin("acme/a.zip")
    assert "route acme" in typed("runs")  # before it has a report
    routed.work(run)
    assert "route acme" in typed("runs")
    assert "  route acme\n" in typed("show", run)
    for key in ("globex/b.zipx", "acme/b.zip", "c.zip"):
        routed.account.put(key, b"archive")
    found = typed("submit", "s3://arrivals/", "--dry-run")
    assert "4 archives to extract" in found
    assert "by route: acme 2, globex 1" in found
    refused = typed("submit", "s3://arrivals/a.zipx", "--dry-run")
    assert "takes only s3://arrivals/acme/*.zip and s3://arrivals/globex/*.zipx and" in refused


def test_missing_archives_of_routes(routed: Site, typed: Callable[..., str]) -> None:
    """`submit --missing` looks below each route, and each archive is listed once."""
    for key in ("globex/b.zipx", "acme/b.zip", "c.zip"):
        routed.account.put(key, b"archive")
    assert typed("submit", "--missing", "--dry-run").count("no run") == 3


def test_doctor_checks_each_route(routed: Site) -> None:
    """A route whose bucket is gone is a failure with its name."""
    checks = {result.name: result for result in diagnose(routed.runs)}
    assert checks["route acme"].status is OK
    assert checks["route acme"].message == "s3://arrivals/acme/*.zip -> s3://acme-members/in/"
    assert checks["route globex"].status is OK
    routed.account.client("s3").delete_bucket(Bucket="acme-members")
    answer = check_route(routed.runs, 0)
    assert (answer.status, answer.message) == (FAILURE, "acme-members does not exist")
