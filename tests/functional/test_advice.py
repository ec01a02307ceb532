"""Advice works: what the help of each code names is typed here, and the outcome changes.

A help that names an option, a variable, a setting or a command without a trial fails
`test_everything_that_advice_names_is_tried`.
"""

import json
import os
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec import structs

from s3unzip.explanations import NOT_FROM_CHECKS, advise
from s3unzip.zip import CHECKS, Limits
from tests.corpus import families, labels, ways
from tests.support import memory_server, processes
from tests.support.servers import DENIED, Asked, Reply, s3_error
from tests.support.zips import (
    DEFLATE,
    Entry,
    build,
    build_split,
    part_names,
    seal_aes,
    seal_zipcrypto,
)

LENIENT = "--lenient"
LIMITS = "S3UNZIP_LIMITS"
# Commands, options, variables, and settings of an environment's file.
NAMES = re.compile(r"s3unzip [a-z]+|--[a-z-]+|S3UNZIP_[A-Z]+|\b[a-z]+_[a-z_]+\b")
ADVICE = {code: advise(code) for code in [*CHECKS, *NOT_FROM_CHECKS]}
NAMED = {code: set(NAMES.findall(advice)) for code, advice in ADVICE.items()}

PASSWORD = b"open sesame"
A = Entry("a.txt", b"content a", DEFLATE)
B = Entry("b.txt", b"content b")


class Shop(NamedTuple):
    """The command line, and a store that a test may spoil."""

    program: processes.Program
    s3: memory_server.MemoryS3

    def put(self, key: str, *entries: Entry) -> str:
        self.s3.buckets["from"].add(key, build(*entries))
        return f"s3://from/{key}"

    def run(self, *words: str) -> processes.Ended:
        return self.program.run(*words, "-w", "1", "--endpoint-url", self.s3.url)

    @property
    def extracted(self) -> set[str]:
        return set(self.s3.buckets["out"].objects)


def _codes_of(report: dict[str, Any]) -> set[str]:
    return {*report.get("reasons", ()), report.get("reason", "")}


def follow(shop: Shop, ended: processes.Ended, **places: str) -> processes.Ended:
    """Run the command that a report offers as the next one, with words for its place holders."""
    command = ended.err.rpartition("next: s3unzip ")[2].partition("\n")[0]
    for name, text in places.items():
        command = command.replace(name, text)
    return shop.program.run(*shlex.split(command), "-w", "1")


@pytest.fixture
def shop(program: processes.Program, s3: memory_server.MemoryS3) -> Shop:
    (program.folder / "pw").write_bytes(PASSWORD)
    program.variables["S3UNZIP_TUNING"] = json.dumps({"retry_seconds": 0.2})
    return Shop(program, s3)


# Matters of choice, and limits: each archive of the corpus that trips such a code


def _extract(shop: Shop, archive: labels.Archive, *words: str) -> dict[str, Any]:
    files = ways.name_files(archive, "x")
    for name, part in files.items():
        (shop.program.folder / name).write_bytes(part)
    (report,) = shop.program.extract(list(files)[-1], "out", "--json", *words).lines
    return dict(report)


# By their codes: archives of which the advice names the option.
SOFT = {
    case.code: case.bad
    for case in families.CASES.values()
    if case.code in CHECKS and CHECKS[case.code].is_policy and LENIENT in NAMED[case.code]
}
LIMITED = {
    case.code: case.bad
    for case in families.CASES.values()
    if case.bad.policy.limits != Limits() and LIMITS in NAMED[case.code]
}


@pytest.mark.parametrize("code", SOFT)
def test_lenient_makes_a_refusal_a_warning(shop: Shop, code: str) -> None:
    """The code refuses the archive or a member, and with the option it is a warning."""
    assert code in _codes_of(_extract(shop, SOFT[code]))
    report = _extract(shop, SOFT[code], LENIENT)
    assert code not in _codes_of(report)
    assert code in report["warnings"]


def _limit_of(archive: labels.Archive) -> str:
    (name,) = [
        name
        for name, value in structs.asdict(archive.policy.limits).items()
        if value != getattr(Limits(), name)
    ]
    return name


@pytest.mark.parametrize("code", LIMITED)
def test_a_limit_can_be_raised(shop: Shop, code: str) -> None:
    """The limit that the advice names refuses with its own code, and no more when it is raised."""
    archive = LIMITED[code]
    name = _limit_of(archive)
    for limits, is_refused in ((archive.policy.limits, True), (Limits(), False)):
        shop.program.variables[LIMITS] = json.dumps({name: getattr(limits, name)})
        assert (code in _codes_of(_extract(shop, archive))) == is_refused


# Options


class Trial(NamedTuple):
    """An archive whose run gives a code with some options, and no more with what is advised."""

    code: str
    entries: tuple[Entry, ...]
    advised: str
    typed: str = ""


LONG = "/".join(["n" * 203] * 5)
TWICE = (A, replace(A, content=b"another"), B)
TRIALS = [
    Trial("duplicate-name", TWICE, "--exclude a.txt"),
    Trial("duplicate-name", TWICE, "--lenient"),
    Trial(
        "duplicate-name",
        (Entry("x/a", b"1"), Entry("y/a", b"2")),
        "--key-template {dir}-{name}",
        "--key-template {name}",
    ),
    Trial(
        "name-guessed-backslash",
        (Entry("\u65b0/SJIS_835C_\u30bd.txt".encode("shift_jis")),),
        "--encoding shift_jis",
    ),
    Trial("name-guessed-backslash", (Entry("\u8b00".encode("gbk")),), "--encoding gbk"),
    Trial("name-guessed-backslash", (Entry("\u529f".encode("big5")),), "--encoding big5"),
    Trial("name-guessed-backslash", (Entry(b"\x82\\a"),), "--encoding cp437 --lenient"),
    Trial("name-encoding-guess", (Entry("\u00d8".encode("cp850")),), "--encoding cp850"),
    Trial("name-undecodable", (Entry(b"\x81\xff"),), "--encoding cp437", "--encoding shift_jis"),
    Trial("key-too-long", (Entry(LONG),), "--prefix p"),
    Trial("key-too-long", (Entry(LONG),), "--key-template {member}"),
    Trial("name-reserved", (Entry("_SUCCESS"), B), "", "--marker"),
    Trial("device", (replace(A, attributes=0o060644 << 16), B), "--exclude a.txt"),
    Trial("name-is-folder", (A, Entry("a.txt/b"), B), "--exclude /a.txt"),
    Trial("name-is-folder", (A, Entry("a.txt/b"), B), "--exclude a.txt/b"),
    Trial("name-refused", (Entry("n" * 256), B), "--exclude n*"),
    Trial("encrypted", (seal_zipcrypto(A, PASSWORD),), "--password-file pw"),
]


@pytest.mark.parametrize("trial", TRIALS, ids=lambda trial: f"{trial.code} {trial.advised}")
def test_an_option_helps(shop: Shop, trial: Trial) -> None:
    """All that is left is extracted."""
    shop.program.add("archive.zip", *trial.entries)
    words = ("archive.zip", "--json")
    (report,) = shop.program.extract(*words, "out", *trial.typed.split()).lines
    assert trial.code in {*_codes_of(report), *report.get("warnings", ())}
    (again,) = shop.program.extract(*words, "again", *trial.advised.split()).ends(0).lines
    left = _codes_of(again)
    if "--lenient" not in trial.advised:  # with it the warning stays
        left |= set(again.get("warnings", ()))
    assert trial.code not in left
    assert again["options"] != report["options"]


# Of 65,536 wrong passwords one passes the check before the data: then the code says so.
SEALED = {"wrong-password": "wrong", "aes-mac-mismatch": "wrong-18190"}


@pytest.mark.parametrize("code", SEALED)
def test_another_password_helps(shop: Shop, code: str) -> None:
    """The offered command, and the variable, open what a wrong password did not."""
    shop.program.add("sealed.zip", seal_aes(B, PASSWORD))
    (shop.program.folder / "wrong").write_text(SEALED[code])
    words = ("sealed.zip", "out", "--password-file", "wrong")
    follow(shop, shop.program.extract(*words).ends(1, code), FILE="pw").ends(0)
    shop.program.extract(*words).ends(1, code)
    shop.program.variables["S3UNZIP_PASSWORD"] = PASSWORD.decode()
    shop.program.run("resume", "latest", "--failed", "-w", "1").ends(0)
    assert shop.program.files("out") == {"sealed/b.txt": B.content}


@pytest.mark.parametrize(
    ("advised", "content"),
    [("--prefix other --on-conflict never", "old"), ("--on-conflict overwrite", "content a")],
)
def test_a_key_that_exists(shop: Shop, advised: str, content: str) -> None:
    """Another prefix, or the rule to overwrite, extracts all."""
    shop.program.add("a.zip", A, B)
    path = shop.program.write("out/a/a.txt", b"old")
    (report,) = shop.program.extract("a.zip", "out", "--on-conflict", "never", "--json").lines
    assert _codes_of(report) == {"exists", ""}
    shop.program.extract("a.zip", "out", *advised.split()).ends(0)
    assert path.read_text() == content


# Faults of a store


# By code: what a store answers, until it is mended, to PUTs of keys with an ending.
FAULTS: dict[str, tuple[Reply, str]] = {
    "access-denied": (DENIED, "b.txt"),
    "not-found": (s3_error(404, "NoSuchBucket"), "b.txt"),
    "tasks-failed": (s3_error(503, "SlowDown"), "b.txt"),
    "storage": (s3_error(400, "InvalidRequest"), ""),
    "store-refused": (s3_error(400, "InvalidRequest"), "b.txt"),
}


@pytest.mark.parametrize("code", FAULTS)
def test_a_run_goes_on_when_a_fault_is_mended(shop: Shop, code: str) -> None:
    """The offered command is the advised one, and completes the run."""
    names = ["b.txt", *(f"{number:02}" for number in range(30))]
    source = shop.put("a.zip", *(Entry(name, b"content") for name in names))
    answer, ending = FAULTS[code]
    shop.s3.spoil = lambda asked: (
        answer
        if asked.method == "PUT" and asked.key.startswith("a/") and asked.key.endswith(ending)
        else None
    )
    ended = shop.run("run", source, "s3://out")
    # Which of two codes a throttled run has depends on when the retries end.
    codes = {"tasks-failed", "service-fault"} if code == "tasks-failed" else {code}
    assert any(f"({code})" in ended.err for code in codes)
    assert "next: s3unzip resume " in ended.err
    assert ("--failed" in ended.err) == ("--failed" in ADVICE[code])
    assert follow(shop, ended).code == ended.code
    shop.s3.spoil = lambda _: None
    follow(shop, ended).ends(0)
    assert shop.extracted == {f"a/{name}" for name in names}


def test_a_run_whose_record_is_damaged_begins_anew(shop: Shop) -> None:
    """The first resume says that a record is damaged, and offers the one that begins anew."""
    shop.s3.spoil = lambda asked: DENIED if asked.key == "a/b.txt" else None
    ended = shop.run("run", shop.put("a.zip", A, B), "s3://out")
    shop.s3.spoil = lambda _: None
    (run,) = shop.program.runs()
    (shop.program.home / "runs" / run / "members.jsonl").write_bytes(b"damaged")
    follow(shop, follow(shop, ended).says("(record-unreadable)")).ends(0)
    assert shop.extracted == {"a/a.txt", "a/b.txt"}


def test_a_run_without_its_plan_is_begun_by_the_same_command(shop: Shop) -> None:
    """Without run.json, `resume` does not know the archive."""
    shop.s3.spoil = lambda _: next(map(Path.unlink, shop.program.home.rglob("run.json")), None)
    ended = shop.run("run", shop.put("a.zip", A), "s3://out").says("(record-unreadable)")
    shop.s3.spoil = lambda _: None
    follow(shop, ended.says("next: s3unzip run ")).ends(0)


def test_an_archive_that_was_replaced_is_extracted_anew(shop: Shop) -> None:
    """The offered command extracts the new archive."""
    source = shop.put("a.zip", *(Entry(f"{number:02}", b"old" * 40_000) for number in range(30)))
    shop.program.variables["S3UNZIP_TUNING"] = json.dumps({"batch_members": 1, "gap_bytes": 1})

    def spoil(asked: Asked) -> None:
        if asked.method == "PUT" and asked.key.startswith("a/"):
            shop.put("a.zip", B)

    shop.s3.spoil = spoil
    ended = shop.run("run", source, "s3://out").ends(4, "source-changed")
    shop.s3.spoil = lambda _: None
    assert follow(shop, ended).code == 0
    assert "a/b.txt" in shop.extracted


# Archives inside archives


INNER = Entry("inner.zip", build(A))
# By the code: the key of the inner archive, and what the outer one holds.
NESTED = {
    "nested-budget": ("outer/inner.zip", (Entry("0.zip", build(B)), INNER)),
    "nested-no-stem": ("outer/d/.zip", (Entry("d/.zip", INNER.content),)),
    "nested-prefix-taken": ("outer/inner.zip", (INNER, Entry("inner/b.txt"))),
    "not-begun": ("outer/inner.zip", (INNER,)),
}


@pytest.mark.parametrize("code", NESTED)
def test_an_inner_archive_is_extracted_by_itself(shop: Shop, code: str) -> None:
    """It lies at the destination, and is an archive like any other.

    `resume` of the outer run extracts one that could not begin.
    """
    key, entries = NESTED[code]
    unread = ("not-begun", "GET", key)
    shop.s3.spoil = lambda asked: DENIED if (code, asked.method, asked.key) == unread else None
    shop.program.variables["S3UNZIP_TUNING"] = json.dumps(
        {"nested_archives": 1, "retry_seconds": 0.2}
    )
    shop.run("run", shop.put("outer.zip", *entries), "s3://out", "--nested", "1").ends(
        1, f"({code})"
    )
    shop.s3.spoil = lambda _: None
    shop.run("resume", "outer").ends(0)
    assert ("outer/inner/a.txt" in shop.extracted) is (code == "not-begun")
    shop.run("run", f"s3://out/{key}", "s3://out", "--prefix", "by-itself").ends(0)
    assert "by-itself/a.txt" in shop.extracted


BUDGET = ("nested_archives", "nested_members", "nested_bytes")


@pytest.mark.parametrize("name", BUDGET)
def test_the_budget_of_inner_archives_can_be_raised(shop: Shop, name: str) -> None:
    """Each of its three numbers."""
    source = shop.put("outer.zip", Entry("0.zip", build(B)), INNER)
    for limit, code in ((1, 1), (100, 0)):
        shop.program.variables["S3UNZIP_TUNING"] = json.dumps({name: limit})
        assert shop.run("run", source, "s3://out", "--nested", "1").code == code
    assert "outer/inner/a.txt" in shop.extracted


# What is tried


TRIED_HERE = {
    **{
        code: {"--password-file", "S3UNZIP_PASSWORD", "s3unzip resume", "--failed"}
        for code in SEALED
    },
    "exists": {"--prefix", "--on-conflict"},
    "name-reserved": {"--prefix"},
    **{code: {"s3unzip resume"} for code in FAULTS},
    "store-refused": {"s3unzip resume", "--failed"},
    "record-unreadable": {"s3unzip resume", "s3unzip run"},
    "source-changed": {"s3unzip run"},
    **{code: {"s3unzip run", "--prefix"} for code in NESTED},
    "nested-budget": {"s3unzip run", "--nested", "S3UNZIP_TUNING", *BUDGET},
    "not-begun": {"s3unzip resume"},
}
TRIED_ELSEWHERE = {
    # test_passwords is of the variable, tests/unit/aws/test_functions.py of the secret.
    "encrypted": ("functional/test_commands.py", "test_the_next_command_opens_encrypted_members"),
    "bomb-wrapped-size": ("unit/zip/test_wrapped.py", "test_a_wrapped_size_is_proved_by_the_data"),
    "execution-failed": (
        "unit/settling/test_loop.py",
        "test_the_report_of_a_failed_execution_replaces_no_better_and_no_newer_one",
    ),
    "not-readable": (
        "unit/operate/test_runs.py",
        "test_an_archive_that_must_be_restored_has_a_verdict",
    ),
    "link-refused": (
        "functional/test_credentials.py",
        "test_a_new_link_goes_on_where_the_old_one_expired",
    ),
    "stopped": ("functional/test_processes.py", "test_sigterm_and_sighup_are_as_ctrl_c"),
    "store-full": ("functional/test_rights.py", "test_a_disk_that_becomes_full"),
    "service-fault": ("functional/test_places.py", "test_a_destination_that_dies"),
}


def _names_tried(code: str) -> set[str]:
    if code in TRIED_ELSEWHERE:
        path, test = TRIED_ELSEWHERE[code]
        assert f"def {test}(" in (Path(__file__).parents[1] / path).read_text("utf-8")
        return NAMED[code]
    names = {
        name
        for trial in TRIALS
        if trial.code == code
        for name in NAMES.findall(f"{trial.typed} {trial.advised}")
    }
    if code in SOFT:
        names.add(LENIENT)
    if code in LIMITED:
        names |= {LIMITS, _limit_of(LIMITED[code])}
    return names | TRIED_HERE.get(code, set())


@pytest.mark.parametrize("name", ["own.z01", "own.zip", "OWN.ZIP"])
@pytest.mark.parametrize(
    ("source", "folder"),
    [("own.zip", "."), ("own.zip", "alias"), ("alias/own.zip", "."), ("link.zip", ".")],
)
def test_a_member_does_not_overwrite_its_archive(
    shop: Shop, source: str, folder: str, name: str
) -> None:
    """A member with a path of the archive, or of a part, fails; what is advised extracts it."""
    program = shop.program
    (program.folder / "alias").symlink_to(".")
    (program.folder / "link.zip").symlink_to("own.zip")
    (program.folder / "link.z01").symlink_to("own.z01")
    for part_name, part in zip(
        part_names("own", 2),
        build_split(Entry("b" * 99), Entry(name, b"1"), sizes=[100]),
        strict=True,
    ):
        (program.folder / part_name).write_bytes(part)
    os.link(program.folder / "own.zip", program.folder / "OWN.ZIP")  # as on disks without case
    raw = program.files()
    program.extract(source, folder, "--prefix", "").ends(1, "name-reserved")
    assert program.files().items() >= raw.items()
    (program.folder / "another").mkdir()
    (program.folder / "another" / name).symlink_to(f"../{name}")  # a link is replaced
    program.extract(source, ".", "--prefix", "another").ends(0)
    assert program.files("another")[name] == b"1"
    assert program.files().items() >= raw.items()


def test_a_member_without_a_name(shop: Shop) -> None:
    """7-Zip and Perl write one from standard input; no tool renames it."""
    shop.program.add("a.zip", Entry("", b"content"))
    shop.program.run("test", "a.zip").ends(1).prints("with 7-Zip, which names this member after")


@pytest.mark.parametrize("code", [code for code, names in NAMED.items() if names])
def test_everything_that_advice_names_is_tried(code: str) -> None:
    """No help has an option, a variable or a command that nobody has typed."""
    assert NAMED[code] - _names_tried(code) == set()
