"""Environment files, and settings in place of theirs: all are typed, every mistake is one line."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from infra import environment as checks
from infra.bundle import ROOT
from infra.environment_file import (
    FOLDER,
    EnvironmentFileError,
    load_environment,
    select_settings,
)
from s3unzip.model import GzipForm, OnConflict, Options
from s3unzip.object_properties import ObjectProperties
from s3unzip.zip import Limits
from tests.support.assemblies import KMS_KEY, SECRET


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.toml")))
def test_shipped_environments_are_right(name: str) -> None:
    """Every environment file of the repository loads."""
    assert load_environment(name).name == name


@pytest.mark.parametrize(
    ("before", "after", "line"),
    [
        (
            "max_workers = 100",
            'max_workers = "many"',
            "runs.max_workers must be a whole number; it is 'many'",
        ),
        ('name = "s3unzip-dev"', "", "stack.name: this setting is missing"),
        ("expire_days = 30", "expires = 30", "ingest.expires: there is no such setting"),
        ("[logs]", "[tuning]\nbatch = 1\n[logs]", "tuning 'batch' is unknown"),
        ("[stack]", "[stack", "Expected ']'"),
        (
            "members = 4_000_000",
            "",
            "functions.plan.memory: 2048 MB is too little for limits.members (10,000,000)",
        ),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, before: str, after: str, line: str) -> None:
    """The line names the file, the setting, and what it should be."""
    (tmp_path / "dev.toml").write_text((FOLDER / "dev.toml").read_text().replace(before, after, 1))
    with pytest.raises(EnvironmentFileError) as caught:
        load_environment("dev", tmp_path)
    message = str(caught.value)
    assert message.startswith("infra/environments/dev.toml: ")
    assert line in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"runs.max_wrokers": "5"}, "-c runs.max_wrokers: there is no such setting"),
        ({"run.max_workers": "5"}, "-c run.max_workers: there is no such setting"),
        ({"functions.plan": "5"}, "-c functions.plan: this is a section"),
        ({"runs.max_workers.x": "5"}, "-c runs.max_workers.x: there is no such setting"),
        ({"runs.max_workers": "many"}, "-c runs.max_workers must be a whole number; it is 'many'"),
        ({"options.marker": "yes"}, "-c options.marker must be true or false; it is 'yes'"),
        ({"functions.plan.timeout": 901}, "functions.plan.timeout must be at most 900; it is 901"),
        ({"limits.members": 0}, "limits.members must be more than 0; it is 0"),
        (
            {"limits.members": 10_000_000},
            (
                "functions.plan.memory: 2048 MB is too little for limits.members (10,000,000) and "
                "limits.names_size (536,870,912 bytes), which take 3,694 MB: raise it, or set "
                "limits.members to at most 4,250,"
            ),
        ),
        (
            {"limits.names_size": 2_147_483_648},
            "which take 3,513 MB: raise it, or set limits.members to at most 0",
        ),
        (
            {"functions.extract.reserved_concurrency": 50},
            "runs.max_workers: 100 is more than functions.extract.reserved_concurrency (50)",
        ),
        (
            {"intake.concurrency": 9, "functions.intake.reserved_concurrency": 8},
            "intake.concurrency: 9 is more than functions.intake.reserved_concurrency (8): lower",
        ),
        ({"functions.intake.timeout": 20}, "functions.intake.timeout: 20 s is too little"),
        ({"after_success.action": "burn"}, "after_success.action"),
        ({"after_success.action": "tag"}, "needs at least one"),
        ({"after_success.action": "delete", "after_success.tags.a": "b"}, "others have none"),
        (
            {
                "after_success.action": "tag",
                "after_success.tags.a": "b",
                "ingest.existing": "my-archives",
                "ingest.versioned": False,
            },
            "bucket without versioning",
        ),
        (
            {"after_success.action": "delete", "options.include": ["*.csv"]},
            "delete: leave out options.include, because members that are not extracted",
        ),
        ({"options.nested_depth": 1, "options.as_gzip": "suffix"}, "nested_depth"),
        ({"ingest.existing": "in--use1-az4--x-s3"}, "ingest.existing: in--use1-az4--x-s3 is a dir"),
        ({"destination.existing": "out-1a2b3c-s3alias"}, "is the alias of an access point"),
        ({"ingest.scan": "clamav"}, "ingest.scan must be 'guardduty'; it is 'clamav'"),
        ({"ingest.scan": "guardduty", "limits.parts": 2}, "limits.parts: with ingest.scan split"),
        ({"ingest.scan": "guardduty", "options.nested_depth": 5}, "options.nested_depth: with"),
        ({"ingest.kms_key": KMS_KEY}, "ingest.kms_key: is the key of an existing bucket"),
        ({"password_kms_key": KMS_KEY}, "password_kms_key: is the key of password_secret"),
        ({"network.subnets": ["subnet-0123456789abcdef0"]}, "network.security_groups: functions"),
        ({"network.subnets": ["10.0.0.0/24"]}, "network.subnets.0 must match"),
        ({"stack.permissions_boundary": "boundary"}, "stack.permissions_boundary must match"),
        ({"ingest.prefix": "a\\b/"}, "ingest.prefix must match"),
        ({"functions.intake.reserved_concurrency": 1}, "reserved_concurrency: 1 is too little"),
        ({"options.objects.storage_class": "COLD"}, "storage class 'COLD': unknown"),
        ({"options.objects.tags.team": "R&D"}, "S3 takes no '&' in a tag"),
        ({"options.objects.metadata.mode": "1"}, "s3unzip writes it itself"),
        (
            {"options.objects.storage_class": "GLACIER", "options.nested_depth": 1},
            "GLACIER must be restored before it can be read",
        ),
        ({"options.objects.colour": "red"}, "there is no such setting"),
        # Only a full ARN, so that the right is exact and no password is in a file.
        ({"password_secret": "hunter2"}, "password_secret"),
        ({"password_secret": SECRET[:-7]}, "password_secret"),
        ({"password_secret": f"{SECRET}#"}, "password_secret"),
        ({"password_secret": f"{SECRET}#a#b"}, "password_secret"),
    ],
)
def test_a_wrong_setting_is_one_line(settings: dict[str, object], said: str) -> None:
    """The line says that it came from the command line, and what is wrong with which setting."""
    with pytest.raises(EnvironmentFileError) as caught:
        load_environment("dev", settings=settings)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("ingest", "destination", "refused"),
    [
        ("", "", True),
        ("", "out/", True),
        ("in/", "", True),
        ("in/", "in/out/", True),
        ("in/", "out/", False),  # one bucket may hold both
    ],
)
def test_destination_inside_the_trigger_is_refused(
    ingest: str, destination: str, *, refused: bool
) -> None:
    """Members must not start further runs."""
    settings = {"ingest.existing": "one-bucket", "destination.existing": "one-bucket"}
    settings |= {"ingest.prefix": ingest, "destination.prefix": destination}
    refusal = pytest.raises(EnvironmentFileError, match=r"destination\.prefix: .* scope")
    with refusal if refused else nullcontext():
        load_environment("dev", settings=settings)


def test_synthesis_stops_with_the_line() -> None:
    """`app.py` ends with one line and nothing else; of a name without a file, the known ones."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "app.py")],
        cwd=ROOT,
        env={"CDK_CONTEXT_JSON": '{"env": "nowhere"}', "PATH": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    line = "environment 'nowhere': there is no infra/environments/nowhere.toml; known: "
    assert done.stderr == f"{line}dev, prod, staging\n"


def test_a_directory_of_folders_fits_into_the_memory_of_a_plan() -> None:
    """What a plan compares folders with is part of the memory that is checked."""
    assert 2 * Limits().folder_memory == checks.FOLDERS_MB * 1024**2


def test_options_are_those_of_the_package() -> None:
    """The tables have the package's names, defaults and choices, and no others."""
    shown = checks.Environment.model_json_schema()["$defs"]
    options = shown["OptionsSection"]["properties"]
    assert options["on_conflict"]["enum"] == [choice.value for choice in OnConflict]
    assert options["as_gzip"]["anyOf"][0]["enum"] == [form.value for form in GzipForm]
    assert options["nested_depth"] | {"title": ""} == {
        "default": 0,
        "minimum": 0,
        "maximum": 8,
        "type": "integer",
        "title": "",
    }
    assert not {"names", "limit", "strip_components", "password_ref"} & options.keys()
    assert shown["LimitsSection"]["properties"].keys() == set(Limits.__struct_fields__)
    assert shown["ObjectPropertiesSection"]["properties"].keys() == set(
        ObjectProperties.__struct_fields__
    )
    assert load_environment("dev").options == Options()


def test_a_run_gets_half_of_the_workers() -> None:
    """By default, so that one run cannot take them all; a setting says otherwise."""
    dev = load_environment("dev", settings={"functions.extract.reserved_concurrency": "300"})
    assert dev.max_workers == 100
    values = dev.model_dump()
    values["runs"]["max_workers"] = None
    assert checks.Environment.model_validate(values).max_workers == 150


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("runs.max_workers", "50", 50),
        ("runs.max_cost", "2.5", 2.5),
        ("options.marker", "true", True),
        ("options.include", '["*.csv"]', ("*.csv",)),
        ("ingest.existing", "uploads", "uploads"),
        ("stack.account", "111122223333", "111122223333"),
        ("logs.level", "DEBUG", "DEBUG"),
        ("tuning.small_member", "1000000", 1_000_000),
        ("stack.tags.team", "data", "data"),
    ],
)
def test_text_becomes_the_settings_type(setting: str, text: str, value: object) -> None:
    """A number is a number, a list a list, and an account of digits stays text."""
    found: object = load_environment("dev", settings={setting: text})
    for name in setting.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert found == value


def test_contexts_of_cdk_are_no_settings() -> None:
    """Feature flags, lookups and the environment's name are left alone."""
    others = ("env", "@aws-cdk/aws-iam:minimizePolicies", "availability-zones:account=1:region=eu")
    assert select_settings(dict.fromkeys((*others, "runs.max_workers"))) == {
        "runs.max_workers": None
    }
