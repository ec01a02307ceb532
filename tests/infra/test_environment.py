"""Environment files, and settings in place of theirs: all are typed, every mistake is one line."""

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from infra import environment as checks
from infra.bundle import ROOT
from infra.environment import Environment
from infra.environment_file import (
    FOLDER,
    EnvironmentFileError,
    load_environment,
    select_settings,
)
from s3unzip.aws.environment import read_worker
from s3unzip.model import (
    AfterSuccess,
    GzipForm,
    Location,
    OnConflict,
    Options,
    Route,
    SourceAction,
    decode,
)
from s3unzip.object_properties import ObjectProperties
from s3unzip.settings import Variable
from s3unzip.zip import Limits
from tests.infra.templates import Synthesized
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


FUNCTIONS = ("intake", "plan", "extract", "settle")
INGEST, MEMBERS = "<StorageIngest.Arn>", "<StorageDestination.Arn>/*"
NEEDED = {
    Variable.TRIGGER_BUCKET.value: "in",
    Variable.DESTINATION.value: "s3://out/",
    Variable.WORK_BUCKET.value: "work",
}


def _variables_of(made: Synthesized, function: str = "intake") -> dict[str, str]:
    properties = made.properties("AWS::Lambda::Function", f"Functions{function.capitalize()}")
    return dict(properties["Environment"]["Variables"])


@pytest.mark.parametrize(
    ("variant", "prefix", "rule", "actions"),
    [
        ("options", "in/", AfterSuccess(SourceAction.DELETE), {"s3:DeleteObjectVersion"}),
        (
            "nested",
            "",
            AfterSuccess(SourceAction.TAG, tags={"state": "extracted"}),
            {"s3:GetObjectVersionTagging", "s3:PutObjectVersionTagging"},
        ),
    ],
)
def test_after_success(
    dev: Synthesized,
    synthesized: Callable[[str], Synthesized],
    variant: str,
    prefix: str,
    rule: AfterSuccess,
    actions: set[str],
) -> None:
    """The functions that end runs have the rights on the archives, and no other has."""
    made = synthesized(variant)
    wanted = {(action, f"{INGEST}/{prefix}*") for action in actions}
    for name in ("intake", "plan", "settle"):
        assert wanted <= made.rights(name)
        assert not {action for action, _ in dev.rights(name)} & actions
    assert not wanted & made.rights("extract")
    text = _variables_of(made, "settle")[Variable.AFTER_SUCCESS]
    assert read_worker({**NEEDED, Variable.AFTER_SUCCESS.value: text}).after_success == rule


def test_nested_archives(dev: Synthesized, nested: Synthesized) -> None:
    """Only with the option functions may read versions of members."""
    read = ("s3:GetObjectVersion", MEMBERS)
    for name in FUNCTIONS:
        assert {read, ("s3:GetObject", MEMBERS)} <= nested.rights(name)
        assert read not in dev.rights(name)


@pytest.mark.parametrize(("variant", "field"), [("acceptance", ""), ("nested", "#zip")])
def test_password(
    dev: Synthesized, synthesized: Callable[[str], Synthesized], variant: str, field: str
) -> None:
    """Who reads members gets the secret's ARN and may read exactly it; others may not."""
    made = synthesized(variant)
    told = {name for name in FUNCTIONS if SECRET in str(_variables_of(made, name))}
    right = ("secretsmanager:GetSecretValue", SECRET)
    assert told == {name for name in FUNCTIONS if right in made.rights(name)}
    assert told == {"intake", "plan", "extract"}
    assert _variables_of(made)[Variable.PASSWORD_SECRET] == SECRET + field
    assert "secretsmanager" not in json.dumps(dev.template)


def test_object_properties(dev: Synthesized, options: Synthesized) -> None:
    """The functions get the properties; who writes members may set tags and an ACL, if asked to."""
    told = decode(_variables_of(options)[Variable.OPTIONS], Options).objects
    assert told == ObjectProperties(
        "GLACIER_IR", tags={"team": "data"}, acl="bucket-owner-full-control"
    )
    for name in FUNCTIONS:
        for action in ("s3:PutObjectAcl", "s3:PutObjectTagging"):
            assert (action, MEMBERS) in options.rights(name)
            assert (action, MEMBERS) not in dev.rights(name)
    assert "objects" not in json.loads(_variables_of(dev)[Variable.OPTIONS])


def test_the_request_payer_is_a_variable(dev: Synthesized, options: Synthesized) -> None:
    """`ingest.request_payer` is in the variables of the functions."""
    for name in ("intake", "extract"):
        assert _variables_of(options, name)[Variable.REQUEST_PAYER] == "requester"
        assert _variables_of(dev, name)[Variable.REQUEST_PAYER] == ""


DEV = (FOLDER / "dev.toml").read_text()
ACME = '[[routes]]\nname = "acme"\nprefix = "acme/"\n'
EXISTING = (
    '[ingest]\nexisting = "arrivals"\nprefix = "other/"\n'
    '[[routes]]\nname = "acme"\nprefix = "in/"\ndestination.existing = "arrivals"\n'
)
WIDE = "".join(
    f'[[routes]]\nname = "p{number}"\nprefix = "{"x" * 60}/{number:02}/"\nsuffix = ".z"\n'
    for number in range(12)
)


def load(folder: Path, text: str) -> Environment:
    """Load an environment that is dev with this text at its end, in place of its own `[ingest]`."""
    dev = DEV
    if text.startswith("[ingest]"):
        dev = DEV[: DEV.index("[ingest]")] + DEV[DEV.index("[destination]") :]
    (folder / "dev.toml").write_text(f"{dev}\n{text}")
    return load_environment("dev", folder)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[[routes]]\nprefix = "acme/"\n', "routes.0.name: this setting is missing"),
        ('[[routes]]\nname = "Acme"\n', "routes.0.name must match"),
        (f'{ACME}colour = "red"\n', "routes.0.colour: there is no such setting"),
        (f'{ACME}options.marker = "yes"\n', "routes.0.options.marker must be true or false"),
        (f"{ACME}options.nested_depth = 1\noptions.as_gzip = 'suffix'\n", "nested_depth"),
        (f'{ACME}password_secret = "hunter2"\n', "routes.0.password_secret must match"),
        (f'{ACME}password_kms_key = "{KMS_KEY}"\n', "routes.0.password_kms_key: is the key of"),
        (f'{ACME}destination.kms_key = "{KMS_KEY}"\n', "routes.0.destination.kms_key: is the key"),
        (f'{ACME}destination.existing = "a--x-s3"\n', "routes.0.destination.existing: a--x-s3 is"),
        (ACME + ACME, "routes.1.name: there are two routes acme"),
        # The second one would never get an archive.
        (
            f'{ACME}[[routes]]\nname = "daily"\nprefix = "acme/daily/"\n',
            "routes.1.prefix: no archive comes here, because the route acme before it takes all of",
        ),
        (WIDE, "routes: their prefixes and suffixes make a pattern of about 2,"),
        # A key may fit both, and nothing says which one is meant.
        (
            f'{ACME}suffix = ".x.zip"\n[[routes]]\nname = "b"\nprefix = "acme/b/"\n',
            "routes.1.prefix: some archives fit this route and the route acme before it",
        ),
        (
            '[[routes]]\nname = "all"\n',
            "ingest.prefix: no archive comes here, because the route all before it takes all of",
        ),
        # Members could start runs, of whichever route.
        (
            f'{EXISTING}destination.prefix = "in/out/"\n',
            "routes.0.destination.prefix: s3://arrivals/in/out/ is inside the scope of the route",
        ),
        (
            f'{EXISTING}destination.prefix = "other/out/"\n',
            "routes.0.destination.prefix: s3://arrivals/other/out/ is inside the trigger's scope",
        ),
    ],
)
def test_a_wrong_route_is_one_line(tmp_path: Path, text: str, line: str) -> None:
    """The line names the setting by the number of the route."""
    with pytest.raises(EnvironmentFileError) as caught:
        load(tmp_path, text)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_route_takes_over_what_it_leaves_out(tmp_path: Path) -> None:
    """Options, the destination and the password are those of the environment, one by one."""
    own = DEV.replace("[stack]", f'password_secret = "{SECRET}"\n[stack]', 1)
    own = own.replace("marker = false", "marker = true\nlenient = true", 1)
    own = own.replace('[destination]\nprefix = ""', '[destination]\nprefix = "out/"', 1)
    text = f"{own}\n{ACME}options.marker = false\n"
    (tmp_path / "dev.toml").write_text(text)
    (route,) = load_environment("dev", tmp_path).routes
    assert route.options == Options(lenient=True)
    assert route.destination.prefix == "out/"
    assert route.password_secret == SECRET


def test_the_functions_read_routes(synthesized: Callable[[str], Synthesized]) -> None:
    """The first route that fits takes an archive; its destination, options and key are values."""
    properties = synthesized("routes").properties("AWS::Lambda::Function", "FunctionsIntake")
    variables = properties["Environment"]["Variables"]
    text = {name: value for name, value in variables.items() if isinstance(value, str)}
    named = {
        Variable.TRIGGER_BUCKET.value: "arrivals",
        Variable.DESTINATION.value: "s3://members/",
        Variable.WORK_BUCKET.value: "work",
    }
    config = read_worker({**text, **named})
    acme = config.request("acme/a.zip")
    assert acme.destination == Location("s3", "acme-members", "in/")
    assert acme.options == Options(
        on_conflict=OnConflict.SKIP_UNCHANGED, password_ref=f"secretsmanager:{SECRET}"
    )
    assert acme.route == Route("acme", destination_owner="444455556666")
    daily = config.request("globex/daily/a.ZIP")
    assert daily.route == Route("globex-daily", destination_kms_key=KMS_KEY)
    assert daily.destination == Location("s3", "members", "daily/")
    assert daily.options.key_template == "{member}"
    assert daily.options.objects == ObjectProperties(tags={"from": "globex"})
    assert config.request("globex/a.zipx").route == Route("globex", destination_kms_key=KMS_KEY)
    assert config.request("globex/a.zip").route is None
    assert config.covers(Location("s3", "arrivals", "globex/a.zipx"))
    assert not config.covers(Location("s3", "arrivals", "acme/a.zipx"))


def test_rights_follow_from_the_routes(synthesized: Callable[[str], Synthesized]) -> None:
    """Each destination, key and secret is allowed exactly, and tags only where they are set."""
    made = synthesized("routes")
    members = "arn:<AWS::Partition>:s3:::acme-members"
    own = "<StorageDestination.Arn>"
    for name in ("intake", "plan", "extract", "settle"):
        rights = made.rights(name)
        puts = {place for action, place in rights if action == "s3:PutObject"}
        assert puts == {f"{members}/in/*", f"{own}/*", f"{own}/daily/*", "<StorageWork.Arn>/runs/*"}
        assert {place for action, place in rights if action == "s3:PutObjectTagging"} == {
            f"{own}/daily/*"
        }
        assert ("s3:ListBucket", members) in rights
        reads = {place for action, place in rights if action == "s3:GetObjectVersion"}
        assert reads == {"<StorageIngest.Arn>/*"}
        keys = {KMS_KEY, f"{KMS_KEY}1"} | (set() if name == "settle" else {f"{KMS_KEY}2"})
        assert {place for action, place in rights if action == "kms:Decrypt"} == keys
        is_reader = name != "settle"
        assert (("secretsmanager:GetSecretValue", SECRET) in rights) == is_reader
        function = made.properties("AWS::Lambda::Function", f"Functions{name.capitalize()}")
        assert (SECRET in function["Environment"]["Variables"][Variable.ROUTES]) == is_reader


def test_the_rule_has_the_widest_patterns(synthesized: Callable[[str], Synthesized]) -> None:
    """Routes below the environment's own prefix need no pattern; others have theirs."""
    rule = synthesized("routes").properties("AWS::Events::Rule", "IntakeArchivePut")
    assert rule["EventPattern"]["detail"]["object"]["key"] == [
        {"wildcard": pattern}
        for pattern in (
            *("globex/*.zipx", "globex/*.ZIPX", "globex/*.Zipx"),
            *("*.zip", "*.ZIP", "*.Zip"),
        )
    ]


def test_outputs_of_routes(synthesized: Callable[[str], Synthesized]) -> None:
    """A bucket of another account has its policy ready, and doctor learns of each key."""
    outputs = synthesized("routes").template["Outputs"]
    assert "acme-members/in/*" in str(outputs["Route0DestinationPolicy"]["Value"])
    assert outputs["Route0DestinationKey"]["Value"] == f"{KMS_KEY}1"
    assert outputs["Route1DestinationKey"]["Value"] == KMS_KEY
    assert "DestinationPolicy" not in outputs


def test_without_routes_nothing_is_said(dev: Synthesized) -> None:
    """An environment without routes has an empty variable and no output of one."""
    for function in dev.resources("AWS::Lambda::Function").values():
        assert function["Environment"]["Variables"][Variable.ROUTES] == ""
    assert not [name for name in dev.template["Outputs"] if name.startswith("Route")]
