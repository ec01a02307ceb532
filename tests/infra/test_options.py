"""Options and routes of an environment: what the functions are told, and what they may do."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.environment import Environment
from infra.environment_file import FOLDER, EnvironmentFileError, load_environment
from s3unzip.aws.environment import read_worker
from s3unzip.model import AfterSuccess, Location, OnConflict, Options, Route, SourceAction, decode
from s3unzip.object_properties import ObjectProperties
from s3unzip.settings import Variable
from tests.infra.templates import Synthesized
from tests.support.assemblies import KMS_KEY, SECRET

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
