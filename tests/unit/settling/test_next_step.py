"""The command that is offered after a run."""

import msgspec
import pytest

from s3unzip.explanations import OTHER, Help, explain, find_help
from s3unzip.model import GzipForm, Location, OnConflict, Options, Report, Verdict
from s3unzip.object_properties import ObjectProperties
from s3unzip.settling.next_command import MAX_COMMAND, next_command, repeat_command
from s3unzip.stores.config import StoreConfig
from s3unzip.zip import CHECKS

SOURCE, TARGET = Location("s3", "in", "my archive.zip"), Location("s3", "out", "to/")
REACHED = StoreConfig(
    endpoint_url="http://s3.local:9000",
    profile="a b",
    destination_region="eu-west-1",  # no option of a command says these two
    destination_owner="111122223333",
)
RUN_AGAIN = "run 's3://in/my archive.zip' s3://out/to/ --on-conflict skip-unchanged"
COMMANDS = {
    Help.RETRY: "s3unzip resume RUN --failed",
    Help.RETRY_WITH_PASSWORD: "s3unzip resume RUN --failed",
    Help.RUN_WITH_PASSWORD: "s3unzip run",
}


def failed(
    *codes: str, source: Location = SOURCE, options: Options | None = None, members: int = 6
) -> Report:
    """Return the report of a run with `members` that failed for each code."""
    return Report(
        run="run-1",
        verdict=Verdict.COMPLETED_WITH_ERRORS,
        source=source,
        pin=None,
        destination=TARGET,
        options=options or Options(),
        reasons=dict.fromkeys(codes, members),
    )


@pytest.mark.parametrize("code", sorted(CHECKS.keys() | OTHER.keys()))
def test_advice_and_next_command_agree(code: str) -> None:
    """Of every code: what the advice names is what is offered, and nothing else is."""
    offered, advice = next_command(failed(code)), explain(code).advice
    assert offered is not None
    found = find_help(code)
    if found in COMMANDS:
        assert COMMANDS[found] in advice
        assert offered.startswith(COMMANDS[found].partition(" RUN")[0])
    else:
        assert offered == "s3unzip show run-1 --failures"


@pytest.mark.parametrize(
    ("codes", "here", "there"),
    [
        (("crc-mismatch",), "show run-1 --failures", "show run-1 --failures --env dev"),
        (
            ("store-refused", "crc-mismatch"),
            "resume run-1 --failed",
            "resume run-1 --failed --env dev",
        ),
        (
            ("wrong-password",),
            "resume run-1 --failed --password-file FILE",
            "resume run-1 --failed --env dev",
        ),
        (("strong-encryption",), "show run-1 --failures", "show run-1 --failures --env dev"),
        (("encrypted",), f"{RUN_AGAIN} --password-file FILE", "show run-1 --failures --env dev"),
    ],
)
def test_the_next_command_follows_from_the_reason(
    codes: tuple[str, ...], here: str, there: str
) -> None:
    """On this machine and in an environment, whose password is in a secret."""
    assert next_command(failed(*codes)) == f"s3unzip {here}"
    assert next_command(failed(*codes), "dev") == f"s3unzip {there}"


def test_how_the_stores_are_reached() -> None:
    """A new run needs the options again, a run that is continued only its environment does."""
    options = "--endpoint-url http://s3.local:9000 --profile 'a b'"
    assert next_command(failed("encrypted"), None, REACHED) == (
        f"s3unzip {RUN_AGAIN} {options} --password-file FILE"
    )
    assert next_command(failed("store-refused"), None, REACHED) == "s3unzip resume run-1 --failed"
    assert next_command(failed("store-refused"), "dev", REACHED) == (
        f"s3unzip resume run-1 --failed --env dev {options}"
    )
    changed = msgspec.structs.replace(failed(), verdict=Verdict.SOURCE_CHANGED)
    assert next_command(changed, None, REACHED) == f"s3unzip {RUN_AGAIN} {options}"


@pytest.mark.parametrize(
    "options", [Options(password_ref="prompt"), Options(names=("n" * 9,) * MAX_COMMAND)]
)
def test_a_useless_next_command_is_not_printed(options: Options) -> None:
    """No password that was given helps, and nobody types a thousand names: failures are shown."""
    assert next_command(failed("encrypted", options=options)) == "s3unzip show run-1 --failures"


def test_failures_that_the_report_names_need_no_command() -> None:
    """The report names five members of each reason; only more than these are worth a list."""
    assert next_command(failed("crc-mismatch", members=5)) is None
    assert next_command(failed("crc-mismatch", members=6)) == "s3unzip show run-1 --failures"


def test_all_options_are_repeated() -> None:
    """Values with spaces are quoted; objects that are there are left alone."""
    options = Options(
        key_template="a b/{member}",
        on_conflict=OnConflict.NEVER,
        include=("*.csv", "x"),
        exclude=("y",),
        names=("n",),
        limit=3,
        strip_components=1,
        lenient=True,
        encoding="cp437",
        as_gzip=GzipForm.SUFFIX,
        trust_crc=True,
        nested_depth=2,
        marker=True,
        objects=ObjectProperties(
            "GLACIER_IR", "no-store", {"*": "a/b"}, {"m": "1"}, {"t": "2"}, "private"
        ),
    )
    assert repeat_command(failed(options=options)) == (
        "s3unzip run 's3://in/my archive.zip' s3://out/to/ --on-conflict never "
        "--key-template 'a b/{member}' --include '*.csv' --include x --exclude y "
        "--strip-components 1 --member n --limit 3 --lenient --encoding cp437 --as-gzip suffix "
        "--nested 2 --marker --storage-class GLACIER_IR --cache-control no-store "
        "--content-type '*=a/b' --metadata m=1 --tag t=2 --acl private"
    )
