"""Cloud assemblies: environments of the repository, and variants of them, written once a session.

Most of a synthesis is the import of CDK and the start of jsii and of cdk-nag. One process,
`tests.support.synthesis`, does that for all of them, and no process of the tests does.
"""

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from embedded.deploy import Assembly, make_asset
from s3unzip.settings import MIB
from tests.support.processes import run_program
from tests.support.servers import require_embedded_aws


def make_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder of this session; `make` fills it unless another process has done so.

    A process that asks while another one fills the folder waits for it. If `make` fails, the next
    one that asks begins with an empty folder.
    """
    base = factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, made = root / f"once-{name}", root / f"once-{name}.made"
    with (root / f"once-{name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            made.touch()
    return folder


# Stands for the ARN of a secret, which only a running account has.
SECRET = "arn:aws:secretsmanager:us-east-1:000000000000:secret:archives/zip-AbCdEf"
KMS_KEY = "arn:aws:kms:eu-west-1:123456789012:key/0f"
BOUNDARY = "arn:aws:iam::123456789012:policy/company-boundary"
TOPIC = "arn:aws:sns:eu-west-1:123456789012:on-call"

# The environment's file, and settings in place of the file's, by the name of the variant.
VARIANTS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "dev": ("dev", {}),
    "prod": ("prod", {}),
    "told": ("prod", {"functions.extract.memory": "1769", "alarms.email": "ops@example.com"}),
    "nested": (
        "dev",
        {
            "after_success.action": "tag",
            "after_success.tags.state": "extracted",
            "options.nested_depth": 2,
            # The first match counts, which is not the first by its letters.
            "options.objects.content_types": {"two*": "text/two", "*": "text/other"},
            "password_secret": f"{SECRET}#zip",
            "logs.level": "DEBUG",  # at which botocore would log the secret's value
        },
    ),
    "acceptance": (
        "dev",
        {
            "password_secret": SECRET,
            "tuning.split_from": 2 * MIB,
            "tuning.segment_bytes": 1 * MIB,
            "tuning.part_bytes": 5 * MIB,
            "tuning.max_direct_bytes": 4 * MIB,  # so that larger members are copied and split
            "tuning.max_direct_members": 400,  # so few members take the state machine
        },
    ),
    "options": (
        "dev",
        {
            "after_success.action": "delete",
            "alarms.email": "on-call@example.com",
            "alarms.topic": TOPIC,
            "alarms.also": ["AbortedRuns", "RejectedArchives", "SourcesNotFinished"],
            "destination.versioned": True,
            "ingest.prefix": "in/",
            "ingest.request_payer": True,
            "logs.level": "WARNING",
            "options.objects.acl": "bucket-owner-full-control",
            "options.objects.storage_class": "GLACIER_IR",
            "options.objects.tags.team": "data",
        },
    ),
    "routes": (
        "dev",
        {
            "kms_key": KMS_KEY,
            "options.on_conflict": "skip-unchanged",
            "routes": [
                {
                    "name": "acme",
                    "prefix": "acme/",
                    "destination": {
                        "existing": "acme-members",
                        "prefix": "in/",
                        "owner": "444455556666",
                        "kms_key": f"{KMS_KEY}1",
                    },
                    "password_secret": SECRET,
                    "password_kms_key": f"{KMS_KEY}2",
                },
                {
                    "name": "globex-daily",
                    "prefix": "globex/daily/",
                    "destination": {"prefix": "daily/"},
                    "options": {
                        "key_template": "{member}",
                        "objects": {"tags": {"from": "globex"}},
                    },
                },
                {"name": "globex", "prefix": "globex/", "suffix": ".zipx"},
            ],
        },
    ),
    "partners": (
        "dev",
        {
            "routes": [
                {
                    "name": "acme",
                    "prefix": "acme/",
                    "destination": {"existing": "acme-members", "prefix": "in/"},
                    "options": {"key_template": "{member}"},
                    "password_secret": f"{SECRET}#zip",
                },
                {
                    "name": "globex",
                    "prefix": "globex/",
                    "suffix": ".zipx",
                    "destination": {"prefix": "globex/"},
                },
            ],
        },
    ),
    "scanned": ("dev", {"ingest.scan": "guardduty", "ingest.prefix": "in/"}),
    "company": (
        "dev",
        {
            "stack.permissions_boundary": BOUNDARY,
            "stack.qualifier": "acme",
            "after_success.action": "delete",
            "kms_key": KMS_KEY,
            "ingest.existing": "arrivals",
            "ingest.topic": TOPIC,
            "ingest.kms_key": f"{KMS_KEY}1",
            "destination.existing": "members",
            "destination.owner": "444455556666",
            "destination.kms_key": f"{KMS_KEY}2",
            "password_secret": SECRET,
            "password_kms_key": f"{KMS_KEY}3",
            "network.subnets": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
            "network.security_groups": ["sg-0123456789abcdef0"],
        },
    ),
    "existing": (
        "dev",
        {
            "ingest.existing": "arrivals",
            "ingest.prefix": "my zips/",
            "ingest.versioned": False,
            "destination.existing": "members",
            "destination.prefix": "out/",
            "destination.owner": "123456789012",
            "work.existing": "runs-of-it",
            "kms_key": KMS_KEY,
            "functions.intake.reserved_concurrency": 1_500,
            "options.on_conflict": "skip-unchanged",
        },
    ),
}


def synthesize_once(factory: pytest.TempPathFactory, variant: str) -> Assembly:
    """Return the assembly of a variant, as `cdk` writes it (tests/infra/test_deployment.py)."""
    folder = make_once(factory, "assemblies", _write) / variant
    (template,) = folder.glob("*.template.json")
    return Assembly(folder, template.name.removesuffix(".template.json"))


def for_embedded_aws(factory: pytest.TempPathFactory, variant: str, secret: str = "") -> Assembly:
    """Return the assembly of a variant to be deployed, with the ARN of a real secret.

    Skip the test where nothing can be deployed.
    """
    require_embedded_aws()
    made = synthesize_once(factory, variant)
    if not secret:
        return made
    folder = factory.mktemp(variant) / "cdk.out"
    shutil.copytree(made.folder, folder)
    named = Assembly(folder, made.stack)
    named.template.write_text(named.template.read_text().replace(SECRET, secret))
    return named


def _write(folder: Path) -> None:
    run_program(
        [sys.executable, "-m", "tests.support.synthesis", folder],
        {**os.environ, **make_asset(folder / "code")},
    )
