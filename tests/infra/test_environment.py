"""Environment files, and settings in place of theirs: all are typed, every mistake is one line."""

import json
import re
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from infra import RefusedError, environment as checks
from infra.bundle import ROOT
from infra.environment import Environment
from infra.environment_file import (
    FOLDER,
    load_environment,
    select_settings,
)
from infra.routes import key_patterns
from s3unzip.aws.environment import read_config
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
from tests.infra.conftest import Synthesized
from tests.support.assemblies import KMS_KEY, SECRET
from tests.support.processes import run_process

DEV = (FOLDER / "dev.toml").read_text()


def one_line(text: str) -> str:
    """Return a pattern for one line that has a text in it."""
    return rf"\A.*{re.escape(text)}.*\Z"


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
        ("# One", "# caf\udce9", "'utf-8' codec can't decode byte 0xe9"),  # saved as Latin-1
        ("# One", "tuning = 1 #", "tuning must be a table; it is 1"),  # a setting of it is typed
        ("max_workers = 100", f"max_workers = '{'x' * 900}'", "it is 'xxx"),
        (
            "members = 4_000_000",
            "",
            "functions.plan.memory: 2048 MB is too little for limits.members (10,000,000)",
        ),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, before: str, after: str, line: str) -> None:
    """The line names the file, the setting, and what it should be."""
    (tmp_path / "dev.toml").write_text(DEV.replace(before, after, 1), errors="surrogateescape")
    with pytest.raises(RefusedError, match=one_line(line)) as caught:
        load_environment("dev", tmp_path, settings={"tuning.batch_seconds": "5"})
    assert re.fullmatch(r"infra/environments/dev\.toml: .{1,300}", str(caught.value))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"runs.max_wrokers": "5"}, "-c runs.max_wrokers: there is no such setting"),
        ({"run.max_workers": "5"}, "-c run.max_workers: there is no such setting"),
        ({"functions.plan": "5"}, "-c functions.plan: this is a section"),
        ({"runs.max_workers.x": "5"}, "-c runs.max_workers.x: there is no such setting"),
        ({"runs.max_workers": "many"}, "-c runs.max_workers must be a whole number; it is 'many'"),
        ({"options.marker": "yes"}, "-c options.marker must be true or false; it is 'yes'"),
        (
            {"network.subnets": "s"},
            "-c network.subnets must be a list such as ['a','b']; it is 's'",
        ),
        (
            {"alarms.also": '["any"]'},
            "-c alarms.also.0 must be 'AbortedRuns', 'RejectedArchives' or",
        ),
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
        ({"functions.extract.timeout": 30}, "functions.extract.timeout: 30 s is too little for a"),
        ({"runs.max_cost": "inf"}, "runs.max_cost must be a number; it is inf"),
        ({"tuning.batch_seconds": "nan"}, "tuning 'batch_seconds' must be a positive number"),
        ({"tuning.max_workers": "5"}, "tuning.max_workers: an environment has runs.max_workers"),
        ({"destination.owner": "123456789012"}, "destination.owner: is the owner of an existing"),
        (
            {"options.objects.acl": "public-read"},
            "options.objects.acl: the stack creates the destination bucket without ACLs, so S3",
        ),
        ({"after_success.action": "burn"}, "after_success.action"),
        ({"after_success.action": "tag"}, "needs at least one"),
        ({"after_success.action": "delete", "after_success.tags.a": "b"}, "others have none"),
        (
            {"after_success.action": "tag", "after_success.tags.team": "R&D"},
            "after_success.tags: tag 'team': S3 takes no '&' in a tag",
        ),
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
        ({"ingest.prefix": "${aws:username}/"}, "ingest.prefix must match"),
        ({"work.prefix": "a\nb/"}, "work.prefix must match"),
        ({"ingest.existing": "my..bucket"}, "ingest.existing must match"),
        ({"ingest.existing": "my-.bucket"}, "ingest.existing must match"),
        (
            {"ingest.existing": "192.168.0.1"},
            "ingest.existing: 192.168.0.1 looks like an IP address",
        ),
        (
            {"work.prefix": "a(b]/"},
            "work.prefix: a(b]/: synthesis with CDK needs brackets in pairs",
        ),
        ({"destination.prefix": "a}b/"}, "destination.prefix must match"),
        ({"ingest.prefix": "żródło/"}, "ingest.prefix: żródło/: the policies of the roles contain"),
        ({"work.existing": "ab"}, "work.existing must have at least 3 characters; it is 'ab'"),
        ({"stack.tags.Team": "R&D"}, "stack.tags: tag 'Team': S3 takes no '&' in a tag"),
        (
            {"stack.tags": {f"t{n}": "" for n in range(50)}},
            "stack.tags must have at most 49 entries",
        ),
        ({"stack.tags": {"Team": "a", "team": "b"}}, "stack.tags: two keys differ only in upper"),
        (
            {"stack.tags.aws:x": "y"},
            "stack.tags: tag 'aws:x': keys that begin with aws: are reserved for",
        ),
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
        ({"password_secret": "hunter2"}, ")?$; it may be a password"),
        ({"password_secret": SECRET[:-7]}, "password_secret"),
        ({"password_secret": f"{SECRET}#"}, "password_secret"),
        ({"password_secret": f"{SECRET}#a#b"}, "password_secret"),
    ],
)
def test_a_wrong_setting_is_one_line(settings: dict[str, object], said: str) -> None:
    """The line says that it came from the command line, and what is wrong with which setting."""
    with pytest.raises(RefusedError, match=one_line(said)):
        load_environment("dev", settings=settings)


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
    settings = {
        "ingest.existing": "one-bucket",
        "ingest.prefix": ingest,
        "destination.existing": "one-bucket",
        "destination.prefix": destination,
    }
    refusal = pytest.raises(RefusedError, match=r"destination\.prefix: .* scope")
    with refusal if refused else nullcontext():
        load_environment("dev", settings=settings)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "nowhere",
            "environment 'nowhere': there is no infra/environments/nowhere.toml; known: dev, prod",
        ),
        ("../environments/dev", "infra/environments/../environments/dev.toml: name must match "),
    ],
)
def test_synthesis_stops_with_the_line(name: str, line: str) -> None:
    """`app.py` ends with one line and nothing else; of a name without a file, the known ones."""
    variables = {"CDK_CONTEXT_JSON": json.dumps({"env": name}), "PATH": "/nonexistent"}
    done = run_process([sys.executable, ROOT / "app.py"], ROOT, variables)
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1)
    assert done.stderr.startswith(line.encode())


def test_a_directory_of_folders_fits_into_the_memory_of_a_plan() -> None:
    """What a plan compares folders with is part of the memory that is checked."""
    assert 2 * Limits().folder_memory == checks.FOLDERS_MB * 1024**2


def test_options_are_those_of_the_package() -> None:
    """The tables have the package's names, defaults and choices, and no others."""
    shown = checks.Environment.model_json_schema()["$defs"]
    options = shown["OptionsSection"]["properties"]
    assert options["on_conflict"]["enum"] == [choice.value for choice in OnConflict]
    assert options["as_gzip"]["anyOf"][0]["enum"] == [form.value for form in GzipForm]
    depth = {"default": 0, "minimum": 0, "maximum": 8, "type": "integer"}
    assert depth.items() <= options["nested_depth"].items()
    assert not {"names", "limit", "strip_components", "password_ref"} & options.keys()
    assert [
        set(shown[f"{section}Section"]["properties"]) for section in ("Limits", "ObjectProperties")
    ] == [set(Limits.__struct_fields__), set(ObjectProperties.__struct_fields__)]
    assert load_environment("dev").options == Options()


@pytest.mark.parametrize(
    ("reserved", "workers"),
    [(300, 150), (30_000, 10_000)],  # the last is what a Distributed Map takes
)
def test_a_run_gets_half_of_the_workers(reserved: int, workers: int) -> None:
    """By default, so that one run cannot take them all; a setting says otherwise."""
    settings = {"functions.extract.reserved_concurrency": reserved}
    values = load_environment("dev", settings=settings).model_dump()
    assert Environment.model_validate(values).max_workers == 100
    values["runs"]["max_workers"] = None
    assert Environment.model_validate(values).max_workers == workers


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
        ("stack.tags.Cost-Centre", "data", "data"),
        ("event_bus", "runs", "runs"),
        ("stack.region", "eusc-de-east-1", "eusc-de-east-1"),
    ],
)
def test_text_becomes_the_settings_type(setting: str, text: str, value: object) -> None:
    """A number is a number, a list a list, and an account of digits stays text."""
    found: object = load_environment("dev", settings=select_settings({setting: text}))
    for name in setting.split("."):
        found = found[name] if isinstance(found, dict) else getattr(found, name)
    assert found == value


def test_contexts_of_cdk_are_no_settings() -> None:
    """Feature flags, lookups and the environment's name are left alone."""
    others = ("env", "@aws-cdk/aws-iam:minimizePolicies", "ssm:account=1:parameterName=a.b")
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


@pytest.mark.parametrize(
    ("variant", "archives", "rule", "actions"),
    [
        (
            "options",
            f"{INGEST}/in/*",
            AfterSuccess(SourceAction.DELETE),
            {"s3:DeleteObjectVersion"},
        ),
        # An archive of an existing bucket may be older than its versioning.
        (
            "company",
            "arn:<AWS::Partition>:s3:::arrivals/*",
            AfterSuccess(SourceAction.DELETE),
            {"s3:DeleteObject", "s3:DeleteObjectVersion"},
        ),
        (
            "nested",
            f"{INGEST}/*",
            AfterSuccess(SourceAction.TAG, tags={"state": "extracted"}),
            {"s3:GetObjectVersionTagging", "s3:PutObjectVersionTagging"},
        ),
    ],
)
def test_after_success(
    made: Synthesized,
    archives: str,
    rule: AfterSuccess,
    actions: set[str],
) -> None:
    """The functions that end runs have the rights on the archives, and no other has."""
    wanted = {(action, archives) for action in actions}
    assert {name: wanted & made.rights(name) for name in FUNCTIONS} == {
        **dict.fromkeys(("intake", "plan", "settle"), wanted),
        "extract": set(),
    }
    name = Variable.AFTER_SUCCESS
    assert read_config({**NEEDED, name.value: made.variables("settle")[name]}).after_success == rule


@pytest.mark.parametrize("name", FUNCTIONS)
def test_nested_archives(nested: Synthesized, name: str) -> None:
    """With the option functions may read versions of members."""
    assert {("s3:GetObjectVersion", MEMBERS), ("s3:GetObject", MEMBERS)} <= nested.rights(name)


@pytest.mark.parametrize(("variant", "field"), [("acceptance", ""), ("nested", "#zip")])
def test_password(dev: Synthesized, made: Synthesized, field: str) -> None:
    """Who reads members gets the secret's ARN and may read exactly it; others may not."""
    readers = {name for name in FUNCTIONS if SECRET in str(made.variables(name))}
    right = ("secretsmanager:GetSecretValue", SECRET)
    assert readers == {name for name in FUNCTIONS if right in made.rights(name)}
    assert readers == {"intake", "plan", "extract"}
    assert made.variables("intake")[Variable.PASSWORD_SECRET] == SECRET + field
    assert "secretsmanager" not in json.dumps(dev.template)


def test_object_properties(dev: Synthesized, options: Synthesized) -> None:
    """The functions get the properties; who writes members may set tags and an ACL, if asked to."""
    assert decode(options.variables("intake")[Variable.OPTIONS], Options).objects == (
        ObjectProperties("GLACIER_IR", tags={"team": "data"}, acl="bucket-owner-full-control")
    )
    rights = {("s3:PutObjectAcl", MEMBERS), ("s3:PutObjectTagging", MEMBERS)}
    assert [name for name in FUNCTIONS if not rights <= options.rights(name)] == []
    assert "objects" not in json.loads(dev.variables("intake")[Variable.OPTIONS])


@pytest.mark.parametrize(("variant", "payer"), [("options", "requester"), ("dev", "")])
def test_the_request_payer_is_a_variable(made: Synthesized, payer: str) -> None:
    """`ingest.request_payer` is in the variables of the functions and of the stack."""
    assert [one[Variable.REQUEST_PAYER] for one in map(made.variables, ("intake", "extract"))] == [
        payer
    ] * 2
    assert made.template["Outputs"].get("IngestPayer", {"Value": ""}) == {"Value": payer}


ACME = '[[routes]]\nname = "acme"\nprefix = "acme/"\n'
EXISTING = (
    '[ingest]\nexisting = "arrivals"\nprefix = "other/"\n'
    '[[routes]]\nname = "acme"\nprefix = "in/"\ndestination.existing = "arrivals"\n'
)
WIDE = "".join(
    f'[[routes]]\nname = "p{number}"\nprefix = "{"x" * 200}/{number:02}/"\nsuffix = ".z"\n'
    for number in range(12)
)


def load(folder: Path, text: str) -> Environment:
    """Load an environment that is dev with this text at its end, in place of its own `[ingest]`."""
    dev = DEV
    if text.startswith("[ingest]"):
        dev = re.sub(r"\[ingest\].*(?=\[destination\])", "", DEV, flags=re.DOTALL)
    (folder / "dev.toml").write_text(f"{dev}\n{text}", encoding="utf-8-sig")  # as Notepad does
    return load_environment("dev", folder)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[[routes]]\nprefix = "acme/"\n', "routes.0.name: this setting is missing"),
        ('[[routes]]\nname = "Acme"\n', "routes.0.name must match"),
        ('[[routes]]\nname = "a"\nprefix = "a(/"\n', "routes.0.prefix: a(/: synthesis with CDK"),
        (f'{ACME}colour = "red"\n', "routes.0.colour: there is no such setting"),
        (f'{ACME}options.marker = "yes"\n', "routes.0.options.marker must be true or false"),
        (f"{ACME}options.nested_depth = 1\noptions.as_gzip = 'suffix'\n", "nested_depth"),
        (f'{ACME}password_secret = "hunter2"\n', "routes.0.password_secret must match"),
        (f'{ACME}password_kms_key = "{KMS_KEY}"\n', "routes.0.password_kms_key: is the key of"),
        (f'{ACME}destination.kms_key = "{KMS_KEY}"\n', "routes.0.destination.kms_key: is the key"),
        (f'{ACME}destination.existing = "a--x-s3"\n', "routes.0.destination.existing: a--x-s3 is"),
        (ACME + ACME, "routes.1.name: two routes have the name acme"),
        # The second one would never get an archive.
        (
            f'{ACME}[[routes]]\nname = "daily"\nprefix = "acme/daily/"\n',
            "routes.1.prefix: no archive takes this route, because the route acme before it takes",
        ),
        (WIDE, "routes: their prefixes and suffixes make a pattern of about 2,"),
        # A key may fit both, and nothing says which one is meant.
        (
            f'{ACME}suffix = ".x.zip"\n[[routes]]\nname = "b"\nprefix = "acme/b/"\n',
            "routes.1.prefix: some archives fit this route and the route acme before it",
        ),
        (
            '[[routes]]\nname = "all"\n',
            "ingest.prefix: no archive takes this route, because the route all before it takes",
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
    with pytest.raises(RefusedError, match=one_line(line)):
        load(tmp_path, text)


def test_routes_of_one_prefix_share_a_pattern(tmp_path: Path) -> None:
    """The pattern of the rule, whose length is limited, has each prefix once."""
    taken = [("acme/", ".jar"), ("acme/", ".war"), ("acme/b/", ".ear")]
    routes = load(
        tmp_path,
        "".join(
            f'[[routes]]\nname = "{suffix[1:]}"\nprefix = "{prefix}"\nsuffix = "{suffix}"\n'
            for prefix, suffix in taken
        ),
    ).all_routes
    assert [pattern.get("prefix") for pattern in key_patterns(routes)] == ["acme/", *[None] * 3]


def test_a_route_takes_over_what_it_leaves_out(tmp_path: Path) -> None:
    """Options, the destination and the password are those of the environment, one by one."""
    own = DEV
    for default, changed in (
        ("[stack]", f'password_secret = "{SECRET}"\n[stack]'),
        ("marker = false", "marker = true\nlenient = true"),
        ('[destination]\nprefix = ""', '[destination]\nprefix = "out/"'),
    ):
        own = own.replace(default, changed, 1)
    (tmp_path / "dev.toml").write_text(f"{own}\n{ACME}options.marker = false\n")
    (route,) = load_environment("dev", tmp_path).routes
    assert (route.options, route.destination.prefix, route.password_secret) == (
        *(Options(lenient=True), "out/"),
        SECRET,
    )


def test_the_functions_read_routes(routes: Synthesized) -> None:
    """The first route that fits takes an archive; its destination, options and key are values."""
    text = {
        name: value for name, value in routes.variables("intake").items() if isinstance(value, str)
    }
    buckets = {
        Variable.TRIGGER_BUCKET.value: "arrivals",
        Variable.DESTINATION.value: "s3://members/",
    }
    config = read_config({**text, **NEEDED, **buckets})
    acme, daily = config.request("acme/a.zip"), config.request("globex/daily/a.ZIP")
    assert (acme.destination, acme.options, acme.route) == (
        Location("s3", "acme-members", "in/"),
        Options(on_conflict=OnConflict.SKIP_UNCHANGED, password_ref=f"secretsmanager:{SECRET}"),
        Route("acme", destination_owner="444455556666"),
    )
    assert (daily.destination, daily.route, daily.options.key_template, daily.options.objects) == (
        Location("s3", "members", "daily/"),
        Route("globex-daily", destination_kms_key=KMS_KEY),
        "{member}",
        ObjectProperties(tags={"from": "globex"}),
    )
    assert config.request("globex/a.zipx").route == Route("globex", destination_kms_key=KMS_KEY)
    assert config.request("globex/a.zip").route is None
    assert [
        config.covers(Location("s3", "arrivals", key)) for key in ("globex/a.zipx", "acme/a.zipx")
    ] == [True, False]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rights_follow_from_the_routes(routes: Synthesized, name: str) -> None:
    """Each destination, key and secret is allowed exactly, and tags only where they are set."""
    members = "arn:<AWS::Partition>:s3:::acme-members"
    own = "<StorageDestination.Arn>"
    secret, key = (set(), set()) if name == "settle" else ({SECRET}, {f"{KMS_KEY}2"})
    allowed = {
        "s3:PutObject": {
            f"{members}/in/*",
            f"{own}/*",
            f"{own}/daily/*",
            "<StorageWork.Arn>/runs/*",
        },
        "s3:PutObjectTagging": {f"{own}/daily/*"},
        "s3:GetObjectVersion": {f"{INGEST}/*"},
        "kms:Decrypt": {KMS_KEY, f"{KMS_KEY}1"} | key,
        "secretsmanager:GetSecretValue": secret,
    }
    assert {action: routes.allowed(name, action) for action in allowed} == allowed
    assert members in routes.allowed(name, "s3:ListBucket")
    assert (SECRET in routes.variables(name)[Variable.ROUTES]) == bool(secret)


def test_outputs_of_routes(routes: Synthesized) -> None:
    """A bucket of another account has its policy ready; commands learn of keys of both kinds."""
    outputs = routes.template["Outputs"]
    assert "acme-members/in/*" in str(outputs["Route0DestinationPolicy"]["Value"])
    assert outputs["IngestKeys"]["Value"] == '[["globex/", ".zipx"], ["", ".zip"]]'
    assert [outputs[f"Route{number}DestinationKey"]["Value"] for number in (0, 1)] == [
        f"{KMS_KEY}1",
        KMS_KEY,
    ]
    assert "DestinationPolicy" not in outputs


def test_without_routes_nothing_is_said(dev: Synthesized) -> None:
    """An environment without routes has an empty variable and no output of one."""
    assert [dev.variables(name)[Variable.ROUTES] for name in FUNCTIONS] == [""] * 4
    assert not [name for name in dev.template["Outputs"] if name.startswith("Route")]
