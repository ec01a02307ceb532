"""Settings of the command line in place of the file's."""

import pytest

from infra.environment import EnvironmentFileError, load_environment, select_settings


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("runs.max_workers", "50", 50),
        ("runs.max_cost", "2.5", 2.5),
        ("options.marker", "true", True),
        ("options.include", '["*.csv"]', ["*.csv"]),
        ("ingest.existing", "uploads", "uploads"),
        ("stack.account", "111122223333", "111122223333"),
        ("logs.days", "30", 30),
        ("logs.level", "DEBUG", "DEBUG"),
        ("functions.plan.memory", "3008", 3008),
        ("limits.members", "7", 7),
    ],
)
def test_text_becomes_the_settings_type(setting: str, text: str, value: object) -> None:
    """A number is a number, a list a list, and an account of digits stays text."""
    found: object = load_environment("dev", settings={setting: text})
    for name in setting.split("."):
        found = getattr(found, name)
    assert found == value


def test_tables_of_free_names() -> None:
    """Names below tuning and tags are those of settings or of the user."""
    environment = load_environment(
        "dev", settings={"tuning.small_member": "1000000", "stack.tags.team": "data"}
    )
    assert environment.tuning == {"small_member": 1_000_000}
    assert environment.stack.tags == {"team": "data"}


@pytest.mark.parametrize(
    ("setting", "text", "line"),
    [
        ("runs.max_wrokers", "5", "-c runs.max_wrokers: there is no such setting"),
        ("run.max_workers", "5", "-c run.max_workers: there is no such setting"),
        ("functions.plan", "5", "-c functions.plan: this is a section"),
        ("kms_key.x", "5", "-c kms_key.x: there is no such setting"),
        ("runs.max_workers.x", "5", "-c runs.max_workers.x: there is no such setting"),
        ("runs.max_workers", "many", "-c runs.max_workers must be a whole number; it is 'many'"),
        ("options.marker", "yes", "-c options.marker must be true or false; it is 'yes'"),
    ],
)
def test_a_wrong_one_is_one_line(setting: str, text: str, line: str) -> None:
    """The line says that it came from the command line, and what is wrong."""
    with pytest.raises(EnvironmentFileError) as caught:
        load_environment("dev", settings={setting: text})
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


def test_contexts_of_cdk_are_no_settings() -> None:
    """Feature flags, lookups and the environment's name are left alone."""
    context = {
        "env": "dev",
        "cli-telemetry": False,
        "@aws-cdk/aws-iam:minimizePolicies": True,
        "aws:cdk:bundling-stacks": ["**"],
        "availability-zones:account=1:region=eu-west-1": [],
        "runs.max_workers": "50",
    }
    assert select_settings(context) == {"runs.max_workers": "50"}
