"""The canary, step by step, with the functions called in this process; moto runs no Maps."""

import json
from collections.abc import Callable

import pytest

from s3unzip.errors import AccessDeniedError
from s3unzip.operate.canary import Canary, remove_versions, try_canary
from s3unzip.operate.checks import FAILURE, OK, WARNING
from s3unzip.operate.runs import DeployedRuns
from s3unzip.settings import Variable
from tests.support.account import Account
from tests.support.servers import Asked, Reply
from tests.unit.operate.site import Site, answering, deny, expect

PATIENCE = 60.0  # seconds; the report is there before it is waited for
Deploy = Callable[..., tuple[DeployedRuns, Site]]


@pytest.fixture(name="deploy")
def deploy_versioned(deploy: Callable[..., Site]) -> Deploy:
    """A function that deploys the environment, whose buckets keep versions."""

    def make(**variables: str) -> tuple[DeployedRuns, Site]:
        site = deploy(**variables)
        for bucket in ("arrivals", "members"):
            site.account.client("s3").put_bucket_versioning(
                Bucket=bucket, VersioningConfiguration={"Status": "Enabled"}
            )
        return site.runs, site

    return make


def _put(runs: DeployedRuns) -> Canary:
    canary = Canary(runs)
    assert canary.put().status is OK
    return canary


def begin(site: Site) -> str:
    """Take the event of the archive that lies there; return its run if it is not done at once."""
    (key,) = site.account.objects("arrivals")
    return site.notify(key)


def _left(account: Account) -> list[str]:
    return [
        version["Key"]
        for bucket in ("arrivals", "members", "work")
        for kind, versions in account.client("s3").list_object_versions(Bucket=bucket).items()
        if kind in {"Versions", "DeleteMarkers"}
        for version in versions
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"marker": True},
        {"as_gzip": "suffix"},
        {"key_template": "all/{name}"},
        {"on_conflict": "never"},
    ],
)
def test_the_canary_is_extracted_and_removed(
    deploy: Deploy, account: Account, options: dict[str, object]
) -> None:
    """This holds for all options of the environment."""
    runs, site = deploy(**{Variable.OPTIONS: json.dumps(options)})
    canary = _put(runs)
    site.work(begin(site))
    answer = canary.check(PATIENCE)
    assert (answer.status, answer.message[:14]) == (OK, "5 of 5 members")
    assert (canary.remove(keep_run=False).status, _left(account)) == (OK, [])


def test_a_run_that_is_refused(deploy: Deploy, account: Account) -> None:
    """The result has the report's message, and the run's records are kept."""
    runs, site = deploy(**{Variable.LIMITS: '{"members": 2}'})
    canary = _put(runs)
    assert not begin(site)
    expect(canary.check(PATIENCE), FAILURE, "REJECTED", "5 declared, the limit is 2")
    assert "is kept for diagnosis" in canary.remove(keep_run=True).message
    left = _left(account)
    assert {key.partition("/")[0] for key in left} == {"runs"}
    assert any(key.endswith("report.json") for key in left)


def test_an_object_that_is_not_what_was_put(deploy: Deploy, account: Account) -> None:
    """The objects are read, not only listed; one that may not be read leaves the run unjudged."""
    runs, site = deploy()
    canary = _put(runs)
    site.work(begin(site))
    with answering(runs, deny, "s3"), pytest.raises(AccessDeniedError, match="s3:GetObject"):
        canary.check(PATIENCE)
    key = next(key for key in account.objects("members") if key.endswith("stored.bin"))
    account.put(key, b"something else", bucket="members")
    expect(canary.check(PATIENCE), FAILURE, key)
    canary.remove(keep_run=False)
    assert _left(account) == []


def test_filters_that_select_nothing(deploy: Deploy, account: Account) -> None:
    """The run completes but proves little, which is a warning."""
    runs, site = deploy(**{Variable.OPTIONS: '{"include": ["*.none"]}'})
    canary = _put(runs)
    assert not begin(site)  # a run without tasks ends at once
    assert canary.check(PATIENCE).status is WARNING
    canary.remove(keep_run=False)
    assert _left(account) == []


def test_a_run_that_does_not_end(deploy: Deploy) -> None:
    """The result has its state, and the command to watch it."""
    runs, site = deploy()
    canary = _put(runs)
    begin(site)
    expect(canary.check(0.0), FAILURE, "its run is RUNNING", " -> s3unzip watch ")


def test_a_marker_that_archives_share(deploy: Deploy, account: Account) -> None:
    """The canary would replace it, so it is not tried."""
    runs, _ = deploy(**{Variable.OPTIONS: json.dumps({"marker": True, "key_template": "{member}"})})
    (result,) = try_canary(runs, 1.0)
    assert (result.status, "_SUCCESS" in result.message, _left(account)) == (WARNING, True, [])


def test_an_archive_that_may_not_be_put(deploy: Deploy) -> None:
    """The missing action is named, and nothing is to be removed."""
    runs, _ = deploy()
    with answering(runs, deny, "s3"):
        (found,) = try_canary(runs, 1.0)
    assert (found.status, found.message[:31]) == (WARNING, "not checked: s3:PutObject: Acce"), found


def test_objects_that_may_not_be_deleted(deploy: Deploy) -> None:
    """The result names what is left, with the token to search for."""
    runs, _ = deploy()
    results = try_canary(runs, 0.1)
    assert next(results).status is FAILURE
    with answering(runs, deny, "s3"):
        removal = next(results)
    expect(removal, WARNING, "s3:ListBucketVersions", "s3unzip-doctor-")


def test_a_canary_without_a_run_is_explained(deploy: Deploy, account: Account) -> None:
    """Where no event arrives the checks before the canary say why; the archive is removed."""
    runs, _ = deploy()
    canary, removal = try_canary(runs, 0.1)
    expect(canary, FAILURE, "no run began for the canary")
    assert (removal.status, _left(account)) == (OK, [])


def test_a_refused_delete_is_not_silent(deploy: Deploy) -> None:
    """DeleteObjects answers 200 with errors inside."""
    runs, _ = deploy()
    listing = (
        "<ListVersionsResult><Version><Key>a</Key><VersionId>1</VersionId></Version>"
        "<Version><Key>ab</Key><VersionId>2</VersionId></Version></ListVersionsResult>"
    )
    refusal = "<DeleteResult><Error><Key>a</Key><Code>AccessDenied</Code></Error></DeleteResult>"

    def answer(asked: Asked) -> Reply:
        if asked.method == "POST":
            assert b"<Key>ab</Key>" not in asked.body
            return Reply(200, refusal.encode())
        return Reply(200, listing.encode())

    with (
        answering(runs, answer, "s3"),
        pytest.raises(AccessDeniedError, match="1 objects of bucket stay: AccessDenied for a"),
    ):
        remove_versions(runs, "bucket", "a", "a".__eq__)
