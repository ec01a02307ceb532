"""What imports cost: a package loads a module only when one of its names is used."""

import ast
import inspect
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import s3unzip
import s3unzip.deflate
import s3unzip.zip
from tests.support.memory_server import MemoryS3
from tests.support.zips import Entry, build


def _loaded_by(statement: str, variables: Mapping[str, str] | None = None) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys; print(*sys.modules)"],
        env={**os.environ, **(variables or {})},
        check=True,
        capture_output=True,
        text=True,
    )
    return set(done.stdout.rpartition("\n")[0].rpartition("\n")[2].split())


def _loaded_by_command(*words: str, variables: Mapping[str, str] | None = None) -> set[str]:
    command = f"""
import sys
from s3unzip.__main__ import run_program
sys.argv = ["s3unzip", *{words!r}]
try:
    run_program()
except SystemExit as end:
    assert not end.code, end.code
print()
"""
    return _loaded_by(command, variables)


CLIENTS = {"boto3", "botocore.session", "botocore.client", "obstore", "urllib3", "http.client"}
SHOWS = {"rich", "xml.etree.ElementTree"}
RARE = {"numpy", "inflate64", "Crypto", "s3unzip.deflate.boundary", "s3unzip.stores.web"}
RUNS = {"s3unzip.local.workers", "s3unzip.settling.loop", "s3unzip.extraction.batch"}
AWS = {"aws_lambda_powertools", "s3unzip.operate.runs", "s3unzip.aws.events"}
COMMAND_LINE = {"click", "s3unzip.cli.main", *SHOWS}
BOTOCORE = {"boto3", "botocore.session", "botocore.client", "botocore.exceptions"}


@pytest.mark.parametrize(
    ("words", "absent"),
    [
        ("--version", {"msgspec", "s3unzip.cli.arguments", *CLIENTS, *SHOWS, *RARE, *RUNS, *AWS}),
        ("--help", {"msgspec", "s3unzip.cli.arguments", *CLIENTS, *SHOWS, *RARE, *RUNS, *AWS}),
        ("ls a.zip", {"hashlib", "isal", *CLIENTS, *SHOWS, *RARE, *RUNS, *AWS}),
        (
            "ls a.zip --json --include f --limit 1",
            {
                *("pydantic", "s3unzip.cli.runs", "s3unzip.cli.deployed"),
                *(*CLIENTS, *SHOWS, *RARE, *RUNS, *AWS),
            },
        ),
        ("cat a.zip f", {*CLIENTS, *SHOWS, *RARE, *RUNS, *AWS}),
        ("run --help", {*CLIENTS, *SHOWS, *RARE, *RUNS, *AWS}),
        ("run a.zip out -q", {*CLIENTS, *SHOWS, *RARE, *AWS}),
    ],
)
def test_a_command_loads_what_it_uses(
    words: str, absent: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each module of a list is absent where the command does not need it."""
    monkeypatch.chdir(tmp_path)
    Path("a.zip").write_bytes(build(Entry("f", b"1")))
    loaded = _loaded_by_command(*words.split(), variables={"S3UNZIP_HOME": str(tmp_path / "home")})
    assert sorted(absent & loaded) == []


@pytest.mark.parametrize("workers", ["1", "2"])
def test_batches_in_s3_load_no_botocore(workers: str, tmp_path: Path) -> None:
    """Not in the command, which does the tasks or starts a worker that does them."""
    archive = build(*(Entry(f"f{number}", b"%d" % number) for number in range(40)))
    with MemoryS3("from", "out") as s3:
        s3.buckets["from"].add("a.zip", archive)
        loaded = _loaded_by_command(
            *("run", "s3://from/a.zip", "s3://out", "-q", "-w", workers),
            variables={
                "AWS_ACCESS_KEY_ID": "key",
                "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_ENDPOINT_URL": s3.url,
                "S3UNZIP_HOME": str(tmp_path),
                "S3UNZIP_TUNING": '{"batch_members": 5, "min_worker_seconds": 0}',
            },
        )
    assert len(s3.buckets["out"].objects) == 40
    absent = {"urllib.request", *BOTOCORE, *SHOWS, *RARE, *AWS}
    assert sorted(loaded & {"obstore", *absent}) == ["obstore"]


OF_HANDLER = {*CLIENTS, *BOTOCORE, *COMMAND_LINE, *RARE, "s3unzip.local.workers"} | {
    "aws_xray_sdk",
    "wrapt",
}


@pytest.mark.parametrize(
    ("statement", "absent"),
    [
        # A cold start imports no client of AWS; it is made when the first request needs it.
        *(
            (f"import s3unzip.aws.{name}", OF_HANDLER)
            for name in ("intake", "plan", "extract", "settle")
        ),
        # The error tree has the cores' error classes; the ZIP core has no codec before it is used.
        ("import s3unzip.errors", {"isal", "s3unzip.zip", "s3unzip.deflate"}),
        ("import s3unzip.zip", {"isal", "numpy", "lzma", "s3unzip.zip.decode"}),
        ("import s3unzip.deflate", {"numpy"}),
        # A listing of a file needs no AWS, and no worker processes.
        (
            "import s3unzip; s3unzip.open_archive",
            {"boto3", "obstore", "numpy", "click", "s3unzip.local.workers"},
        ),
        # A worker process imports only what most workers need.
        (
            "import s3unzip.local.workers, s3unzip.stores.s3.destination",
            {*BOTOCORE, *COMMAND_LINE, *RARE, "s3unzip.extraction.split_members"},
        ),
    ],
)
def test_a_module_loads_what_it_uses(statement: str, absent: set[str]) -> None:
    """Each module of a list is absent where the statement does not need it."""
    assert sorted(absent & _loaded_by(statement)) == []


def test_lists_exactly_its_public_names() -> None:
    """`__all__`, `dir` and type checkers name the same, and each name is there."""
    names: list[str] = vars(s3unzip)["__all__"]
    typed = {
        alias.name
        for node in ast.walk(ast.parse(inspect.getsource(s3unzip)))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    assert (dir(s3unzip), set(names)) == (names, typed - {"__version__"})
    assert all(getattr(s3unzip, name) is not None for name in names)


def test_importing_the_package_loads_nothing() -> None:
    """`import s3unzip` costs two small modules; the public names come when they are used."""
    loaded = {name for name in _loaded_by("import s3unzip") if name.startswith("s3unzip")}
    assert loaded == {"s3unzip", "s3unzip.version"}


def test_all_but_the_functions_work_without_powertools() -> None:
    """It comes with the extra `functions`; neither commands nor the Python API import it."""
    script = """
import importlib, pkgutil, sys
sys.modules["aws_lambda_powertools"] = sys.modules["aws_xray_sdk"] = None
import s3unzip
for found in pkgutil.walk_packages(s3unzip.__path__, "s3unzip."):
    if not found.name.startswith("s3unzip.aws.") and not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""
    assert "s3unzip.cli.main" in _loaded_by(script)
