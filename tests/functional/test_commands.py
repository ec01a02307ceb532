"""The commands on archives as a user meets them: what they print, write and exit with.

docs/mistakes.toml has what they say of mistakes, and tests/docs makes each of them.
"""

import codecs
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import s3unzip
from tests.support.processes import COMMAND, Program
from tests.support.servers import HttpServer, WebFiles
from tests.support.zips import DEFLATE, Entry, build, seal_aes, seal_zipcrypto, with_wrong_crc

NAMES = ("top.txt", "a/one.txt", "a/b/two.txt")
CONTENTS = {name: name.encode() * 50 for name in NAMES}
SECRET = b"never-to-be-seen-7f3a"
TEXT = b"text " * 400


@pytest.fixture
def program(program: Program) -> Program:
    entries = [Entry(name, content, DEFLATE) for name, content in CONTENTS.items()]
    program.add("a.zip", *entries)
    program.add(
        "damaged.zip",
        *entries,
        with_wrong_crc("bad.txt", b"x" * 500, DEFLATE),
    )
    return program


def test_the_help(program: Program) -> None:
    """No arguments show what --help does; in 80 columns each command has its whole summary."""
    program.variables["COLUMNS"] = "80"
    ended = program.run()
    assert ended == program.run("--help") == (0, ended.out, "")
    assert ended.out.startswith("Usage: s3unzip")
    listed = [line for line in ended.out.partition("Commands:")[2].splitlines() if line]
    assert len(listed) > 10
    assert all(line.endswith(".") and "..." not in line for line in listed)


@pytest.mark.parametrize(
    ("command", "usage", "options"),
    [
        ("run", "SRC... DEST", ("-w, --workers N ", " <overwrite|skip-unchanged|never>")),
        ("ls", "SRC [MEMBER]...", ()),
        ("cat", "SRC MEMBER...", ()),
        ("show", "[RUN]", ()),
    ],
)
def test_the_help_speaks_of_values_not_of_types(
    program: Program, command: str, usage: str, options: tuple[str, ...]
) -> None:
    """A number is N, a text TEXT, a choice is spelled out; arguments are named as in manuals."""
    text = program.run(command, "--help").prints(*options).out
    assert text.splitlines()[0] == f"Usage: s3unzip {command} [OPTIONS] {usage}"
    for odd in ("INTEGER", "FLOAT", "PATH", "{"):
        assert odd not in text.replace("{archive_stem}/{member}", ""), odd


def test_the_version(program: Program) -> None:
    """One line on stdout, alone and before other words, also if a variable of a script is left."""
    program.variables["_S3UNZIP_COMPLETE"] = "bash_complete"
    for words in (["--version"], ["--version", "ls"]):
        assert program.run(*words) == (0, f"s3unzip {s3unzip.__version__}\n", "")


@pytest.mark.parametrize(
    ("shell", "line"),
    [("bash", "complete -o nosort"), ("zsh", "#compdef s3unzip"), ("fish", "complete --no-files")],
)
def test_completion(program: Program, shell: str, line: str) -> None:
    """The script is for the shell that is named."""
    program.variables["_S3UNZIP_COMPLETE"] = f"{shell}_source"
    program.run().ends(0).prints(line, "_S3UNZIP_COMPLETE")


def complete(program: Program, line: str) -> list[str]:
    """Return what the script of bash is answered at the end of a line."""
    program.variables |= {
        "_S3UNZIP_COMPLETE": "bash_complete",
        "COMP_WORDS": f"s3unzip {line}",
        "COMP_CWORD": str(len(line.split())),
    }
    return program.run().out.split()


@pytest.mark.parametrize(
    ("line", "answers"),
    [
        ("ru", ["plain,run", "plain,runs"]),
        ("r", ["plain,run", "plain,runs", "plain,resume"]),  # in the order of the help
        ("run a", ["file,a"]),
        ("run a.zip out --password-file sec", ["file,sec"]),
        ("run a.zip out --storage-class GLACIER", ["plain,GLACIER_IR", "plain,GLACIER"]),
        ("run a.zip out --on-conflict n", ["plain,never"]),
        ("plan a.zip --on a", ["plain,aws"]),
        ("show l", ["plain,latest"]),
    ],
)
def test_completion_of_paths_runs_and_values(
    program: Program, line: str, answers: list[str]
) -> None:
    """The shell completes paths; runs and values are completed by the command."""
    assert complete(program, line) == answers


def test_mistakes_with_the_order_of_arguments_name_dest(program: Program) -> None:
    """Members after the folder, and a help of another manner."""
    (program.folder / "out").mkdir()
    program.run("run", "a.zip", "out", "a.txt").ends(6, "The last argument is DEST, here a.txt")
    program.run("help", "run").ends(0).prints("Usage: s3unzip run")
    (program.folder / "a.7z").write_bytes(b"7z\xbc\xaf\x27\x1c" + bytes(99))
    program.run("ls", "a.7z").ends(3, "help: This looks like 7-Zip; s3unzip reads ZIP")
    with tarfile.open(program.folder / "a.tar", "w") as file:  # the ZIP archive is not the last
        for name in ("a.zip", "damaged.zip", "a.7z"):
            file.add(program.folder / name, name)
    with tarfile.open(program.folder / "last.tar", "w") as file:
        file.add(program.folder / "a.zip", "a.zip")
    for name in ("a.tar", "last.tar"):
        program.run("ls", name).ends(3, "help: This looks like tar; s3unzip reads ZIP")
    padded = bytes(99) + (program.folder / "a.zip").read_bytes() + b"x" * 99
    (program.folder / "a.doc").write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + padded)
    program.run("ls", "a.doc").ends(3, "help: This looks like an old or encrypted Office document")
    (program.folder / "a.exe").write_bytes(b"MZ" + padded)  # a self-extractor and its signature
    program.run("ls", "a.exe").ends(3, "appended to it. If you trust the archive, --lenient lets")


def test_a_run_is_listed_and_completed_by_its_id(program: Program) -> None:
    """The report names the page, and a shell completes the id of the run."""
    ended = program.extract("a.zip", "out")
    (page,) = (line.split()[1] for line in ended.err.splitlines() if line.startswith("  page "))
    assert f"{program.folder}/out/a/</bdi>" in Path(page).read_text()
    run = page.split("/runs/")[1].removesuffix("/report.html")
    assert complete(program, f"show {run[:7]}") == [f"plain,{run}"]


def test_a_day_that_is_being_pruned_hides_no_other_runs(program: Program) -> None:
    """Its folder is listed, but is gone when it is opened."""
    program.extract("a.zip", "out").ends(0)
    (program.home / "runs/2026-01-01").symlink_to("gone")
    assert "/out/a/" in program.run("runs").ends(0).out


def test_run_extracts_and_reports(program: Program) -> None:
    """Files in the folder that the report names, by the stem of any suffix; JSON if asked."""
    (program.folder / "a.zip").rename(program.folder / "app.jar")
    folder = f"-> {program.folder}/out/app/\n"
    ended = program.extract("app.jar", "out").ends(0, folder, "3 members: 3 extracted")
    assert (ended.hides("PUT").err[:9], ended.out) == ("COMPLETED", "")  # files alone
    for words in (["runs"], ["show", "latest"], ["verify", "app.jar", "out"]):
        program.run(*words).prints(folder)
    assert program.files("out/app") == CONTENTS
    ended = program.extract("app.jar", "out", "--json", "--quiet")
    (report,) = ended.lines
    assert (report["verdict"], report["extracted"], ended.err) == ("COMPLETED", 3, "")


def test_failed_members_are_told_in_words(program: Program) -> None:
    """Exit code 1, a line for each: its name, what is wrong, the code; JSON if asked."""
    program.add("up.zip", Entry("../up", b"x"), Entry("bad\x1b[31m", b"x"), Entry("ok", b"1"))
    program.extract("up.zip", "out").ends(1).hides("\x1b[31m")
    assert program.files("out") == {"up/ok": b"1"}
    assert re.fullmatch(
        r".*\.\./up: .*\(name-dotdot\)\n.*\(name-control-char\)\n",
        program.run("show", "--failures").out,
    )
    assert [
        one["outcome"]["reason"] for one in program.run("show", "--failures", "--json").lines
    ] == ["name-dotdot", "name-control-char"]


def test_ls_and_cat(program: Program) -> None:
    """Names, sizes and totals; members in the order of the arguments, a folder with all below."""
    program.run("ls", "a.zip").ends(0).prints(*NAMES, "3 files")
    assert (
        {line["name"] for line in program.run("ls", "a.zip", "a/b/", "*top*", "--json").lines},
        program.run("cat", "a.zip", "top.txt", "a/*.txt").ends(0).out.encode(),
    ) == ({"a/b/two.txt", "top.txt"}, b"".join(CONTENTS[name] for name in NAMES[:2]))
    program.run("cat", "a.zip", "").ends(7, "no member matches ''")  # of a variable that is not set


@pytest.mark.parametrize("words", ["plan a.zip out", "test a.zip", "run a.zip out --dry-run"])
def test_plan_test_and_dry_run_write_nothing(program: Program, words: str) -> None:
    """Neither a file nor a run."""
    assert program.run(*words.split()).code == 0
    assert program.files().keys() == {"a.zip", "damaged.zip"}


IGNORED = {"AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true"}


@pytest.mark.parametrize(
    ("destination", "variables", "options", "code"),
    [
        ("s3://bucket/prefix", {}, (), 2),
        ("s3://bucket/prefix", {}, ("--on", "aws"), 2),
        ("s3://bucket/prefix", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, (), 0),
        ("s3://bucket/prefix", {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, (), 0),
        ("s3://bucket/prefix", {}, ("--dest-endpoint-url", "http://127.0.0.1:9"), 0),
        ("s3://bucket/prefix", {"AWS_CONFIG_FILE": "config"}, (), 0),
        ("s3://bucket/prefix", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", **IGNORED}, (), 2),
        (
            "s3://bucket/prefix",
            {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", **IGNORED},
            ("--endpoint-url", "http://127.0.0.1:9"),
            0,
        ),
        ("s3://bucket/prefix", {}, ("--endpoint-url", "https://s3.eu-west-1.amazonaws.com"), 2),
        ("out", {}, (), 0),
    ],
)
def test_plan_prices_what_aws_bills(
    program: Program,
    destination: str,
    variables: dict[str, str],
    options: tuple[str, ...],
    code: int,
) -> None:
    """PUTs to S3 cost money wherever the run works; PUTs to a server of one's own cost nothing."""
    (program.folder / "config").write_text("[default]\nendpoint_url = http://127.0.0.1:9\n")
    program.variables |= variables
    ended = program.run("plan", "a.zip", destination, *options, "--max-cost", "0.000001").ends(code)
    assert ("$0," in ended.out or "$0\n" in ended.out) == (code == 0)


def test_a_narrow_terminal_cuts_no_cost(program: Program) -> None:
    """At 40 columns every price of an estimate has all of its digits."""
    program.variables["COLUMNS"] = "40"
    costs = program.run("plan", "a.zip", "--on", "aws").out.partition("dollars ")[2]
    assert ("$0.0" in costs, "\u2026" in costs) == (True, False)


def test_test_checks_every_member_that_is_selected(program: Program) -> None:
    """Which one is damaged, the reason in words, and exit code 1; of a web server too."""
    assert (
        program.run("test", "a.zip", "-w", "1")
        .ends(0)
        .prints("3 members are sound, 0 are not")
        .out.startswith("SOUND")
    )
    damage = (
        "3 members are sound, 1 is not",
        "The data does not have the declared CRC-32. (crc-mismatch)",
        "bad.txt",
    )
    with HttpServer(WebFiles({"d.zip": (program.folder / "damaged.zip").read_bytes()})) as web:
        for source in ("damaged.zip", f"{web.url}/d.zip"):
            assert (
                program.run("test", source, "-w", "1")
                .ends(1)
                .prints(*damage)
                .out.startswith("NOT SOUND")
            )
    program.run("test", "damaged.zip", "-x", "bad.txt", "-w", "1").ends(0)


@pytest.mark.parametrize("words", ["run damaged.zip out", "test damaged.zip"])
def test_a_quiet_command_names_failures_on_standard_error(program: Program, words: str) -> None:
    """A failed member and the verdict are lines of stderr; a run that is right prints nothing."""
    ended = program.run(*words.split(), "-q", "-w", "1").ends(
        1, "bad.txt: The data does not have the declared CRC-32"
    )
    assert ended.out == program.extract("-q", "a.zip", "out").err == ""


@pytest.mark.parametrize(
    "words",
    ["run a.zip out", "run a.zip out --dry-run", "plan a.zip", "verify a.zip out", "test a.zip"],
)
def test_selecting_nothing_is_no_success(program: Program, words: str) -> None:
    """Exit code 7 and one line; nothing is written, and no run is left."""
    ended = program.run(*words.split(), "-i", "*.nomatch").ends(7, "no member matches '*.nomatch'")
    assert (ended.out, ended.err.count("\n")) == ("", 1)
    assert ((program.folder / "out").exists(), program.runs()) == (False, [])


def test_members_that_are_not_selected_do_not_count(program: Program) -> None:
    """A glob in vain beside another is a warning, a bad member left out no failure."""
    ended = program.extract("damaged.zip", "out", "-i", "a/**", "-i", "*.zip", "--json", "-q")
    assert ended.err.startswith("s3unzip: warning: no member matches '*.zip'\n")
    assert [(report["extracted"], report["excluded"]) for report in ended.ends(0).lines] == [(2, 2)]
    program.add("empty.zip")
    assert program.extract("empty.zip", "out").code == 0, "without a selection nothing is missed"


def test_a_dry_run_lists_decisions(program: Program) -> None:
    """Each key with what would be done, before and after a run."""
    ended = program.run("run", "a.zip", "out", "--dry-run", "--json")
    assert {
        one["key"]: one["action"] for one in ended.ends(0, "nothing is written: 3 write").lines
    } == {f"{program.folder}/out/a/{name}": "write" for name in NAMES}
    program.extract("a.zip", "out", "-q").ends(0)
    (program.folder / "out/a/top.txt").write_text("changed")
    for conflict, code, shown in (
        ("overwrite", 0, "3 overwrite"),
        ("skip-unchanged", 0, "2 unchanged, 1 overwrite"),
        ("never", 1, "2 unchanged, 1 refuse"),
    ):
        program.run("run", "a.zip", "out", "--dry-run", "--on-conflict", conflict).ends(
            code, f"nothing is written: {shown}\n"
        )
    assert (program.folder / "out/a/top.txt").read_text() == "changed"
    program.add("up.zip", Entry("../up", b"x"), Entry("ok", b"1"), Entry("ok/file/x"), Entry("l"))
    program.add("out/up/ok/file")  # in a folder, nothing can be written over it or below it
    (program.folder / "out/up/l").symlink_to(program.folder)  # a run replaces the link
    program.run("run", "up.zip", "out", "--dry-run").ends(1, "1 write, 3 fail").prints(
        "(name-dotdot)",
        "ok/file/x  a file, a folder or a symbolic link is in the way (store-refused)",
    )
    for prefix in ("up/ok/file/", "up/l/new"):  # a run follows no link below the destination
        program.run("run", "up.zip", "out", "--prefix", prefix, "--dry-run").ends(1, "4 fail")
    for words, shown in (["--dry-run"], "1 refuse, 3 fail"), ([], "1 failed: The key exists"):
        program.extract("up.zip", "out", "--on-conflict", "never", *words).ends(1, shown)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--strip-components", "1"), {"a/one.txt", "a/b/two.txt"}),
        (("--strip-components", "1", "--prefix", ""), {"one.txt", "b/two.txt"}),
        (("--strip-components", "2", "--prefix", "p"), {"p/two.txt"}),
        (("--key-template", "p/{name}"), {"p/top.txt", "p/one.txt", "p/two.txt"}),
        (("--prefix", "."), set(NAMES)),
        (("--prefix", "./p//q/./r."), {f"p/q/r./{name}" for name in NAMES}),
    ],
)
def test_folders_are_left_out(
    program: Program, options: tuple[str, ...], expected: set[str]
) -> None:
    """Of keys, and `verify` with the same options agrees."""
    assert program.extract("a.zip", "out", "-q", *options).code == 0
    assert program.files("out").keys() == expected
    assert program.run("verify", "a.zip", "out", *options).code == 0


def test_members_without_the_folders_collide_with_nothing(program: Program) -> None:
    """A member that is not extracted for want of folders does not make another a duplicate."""
    program.add("two.zip", Entry("x", b"above"), Entry("a/x", b"below"))
    words = ("two.zip", "out", "--strip-components", "1", "--prefix", "")
    program.extract(*words).ends(0)
    assert program.files("out") == {"x": b"below"}
    program.run("verify", *words).ends(0)


def test_the_path_of_a_folder_does_not_count_in_the_length_of_keys(program: Program) -> None:
    """A member of 991 bytes fits into any folder; one of 1,025 into none."""
    long, too_long = "d/" * 495 + "f", "e/" * 512 + "f"
    program.add("b.zip", Entry(long, b"1"), Entry(too_long, b"1"))
    out = "/".join(["out", *["n" * 200] * 5])
    program.extract("b.zip", out, "--prefix", "").ends(1, "key-too-long")
    assert program.files(out) == {long: b"1"}
    assert program.run("verify", "b.zip", out, "--prefix", "").code == 0


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ("", "a/ a/deep/ a/deep/below/ a/empty/ a/full/ a/full/x"),
        ("--prefix ''", "deep/ deep/below/ empty/ full/ full/x"),
        ("--strip-components 1", "a/ a/below/ a/x"),
        ("--exclude empty/", "a/ a/deep/ a/deep/below/ a/full/ a/full/x"),
        ("--include full/", "a/ a/full/ a/full/x"),
        ("--member full/x", "a/ a/full/ a/full/x"),
        ("--limit 1", "a/ a/full/ a/full/x"),
        ("--key-template a/{name}", "a/ a/x"),
    ],
)
def test_empty_folders_are_created(program: Program, options: str, found: str) -> None:
    """A folder destination gets the folders that the options select; `verify` finds it equal."""
    words, out = shlex.split(options), program.folder / "out"
    names = ("empty/", "deep/below/", "full/", "x" * 9000 + "/")  # one is longer than keys may be
    program.add("a.zip", *(Entry(name) for name in names), Entry("full/x", b"1"))
    program.extract("a.zip", "out", *words).ends(0)
    assert found.split() == sorted(
        f"{one.relative_to(out)}{'/' * one.is_dir()}" for one in out.rglob("*")
    )
    program.run("verify", "a.zip", "out", *words).ends(0)


def test_a_file_with_the_name_of_a_folder_stays(program: Program) -> None:
    """A warning names the folder that cannot be created; the run completes."""
    program.add("e.zip", Entry("empty/"), Entry("deep/below/"))
    program.write("out/e/empty", b"mine")
    program.start("run", "e.zip", "out", "-w", "1").ends(
        0, "folders not created: 1; ", "out/e/empty: a file is where a folder is needed"
    )
    assert program.files("out") == {"e/empty": b"mine"}
    assert (program.folder / "out/e/deep/below").is_dir()


@pytest.fixture
def sealed(program: Program) -> Program:
    inner = build(seal_aes(Entry("deep.txt", b"deep"), SECRET))
    program.add(
        "my secret.zip",
        seal_zipcrypto(Entry("a.txt", TEXT, DEFLATE), SECRET),
        seal_aes(Entry("inner.zip", inner, DEFLATE), SECRET, version=1),
    )
    for name, content in (
        ("password", SECRET + b"\n"),
        ("by-notepad", codecs.BOM_UTF8 + SECRET + b"\r\n"),
        ("by-powershell", f"{SECRET.decode()}\r\n".encode("utf-16")),
        ("wrong", b"hunter2"),
    ):
        (program.folder / name).write_bytes(content)
    return program


def test_passwords(sealed: Program) -> None:
    """All commands that read members take the file; what they say and keep has no password."""
    outputs = [
        sealed.start(*shlex.split(line), "--password-file", password).ends(code)
        for line, password, code in (
            ("run 'my secret.zip' out --nested 1 --json -w 1 -vv", "password", 0),
            ("cat 'my secret.zip' a.txt", "password", 0),
            ("cat 'my secret.zip' a.txt", "wrong", 1),
            ("run 'my secret.zip' other -w 1", "wrong", 1),
            ("run 'my secret.zip' out --nested 1 --as-gzip suffix", "password", 2),
            ("test 'my secret.zip'", "by-notepad", 0),
            ("test 'my secret.zip'", "by-powershell", 0),
        )
    ]
    assert outputs[1].out.encode() == TEXT
    outputs[2].says("wrong-password")
    assert sealed.files("out/my secret")["inner/deep.txt"] == b"deep"
    sealed.variables["S3UNZIP_PASSWORD"] = SECRET.decode()
    sealed.extract("my secret.zip", "third").ends(0)
    for secret in (SECRET, b"hunter2"):
        assert secret not in repr(outputs).encode()
        assert sealed.records_with(secret) == []


def test_the_next_command_opens_encrypted_members(sealed: Program) -> None:
    """It is offered where the password was forgotten, and works as it stands; resuming does not."""
    ended = sealed.extract("my secret.zip", "to here", "--prefix", "p q").ends(
        1, "s3unzip resume does not read encrypted members"
    )
    offered = ended.err.rpartition("next: s3unzip ")[2]
    (sealed.folder / "password").rename(sealed.folder / "FILE")
    (report,) = sealed.run(*shlex.split(offered), "-w", "1", "--json").lines
    assert report["verdict"] == "COMPLETED"
    assert sealed.files("to here").keys() == {"p q/a.txt", "p q/inner.zip"}
    (sealed.home / "runs" / report["run"] / "report.json").unlink()  # as if it had not ended
    assert sealed.run("resume", report["run"]).code == 2, "no password is given"
    (sealed.folder / "my secret.zip").rename(sealed.folder / "a\nb.zip")  # cannot be typed
    sealed.extract("a\nb.zip", "to here").ends(1).hides("next:")


@pytest.mark.parametrize(
    ("variable", "value", "code", "said"),
    [
        (
            "TUNING",
            '{"nope": 1}',
            2,
            "tuning 'nope' is unknown; see docs/reference/settings.md#tuning",
        ),
        ("TUNING", '{"part_byte": 1}', 2, "tuning 'part_byte' is unknown; near: part_bytes"),
        ("TUNING", '{"puts_in_flight": "many"}', 2, "must be a positive number, not 'many'"),
        ("TUNING", '{"max_few_tasks": -1}', 2, "not -1; only max_direct_members, max_few"),
        ("TUNING", '{"puts_in_flight": 0.5}', 2, "must be at least 1, not 0.5"),
        ("TUNING", '{"put_seconds": 1e-320}', 2, "must be at least 1e-06, not 1e-320"),
        ("TUNING", '{"max_workers": 1e308}', 2, "must be at most 1,000,000,000,000,000, not 1e"),
        ("TUNING", "puts_in_flight=8", 2, "S3UNZIP_TUNING=puts_in_flight=8: not a JSON object"),
        ("TUNING", '{"\udcff": 1}', 2, r'TUNING={"\udcff": 1}: not a JSON object'),
        ("TUNING", '{"puts_in_flight": 8}', 0, "COMPLETED"),
        ("LIMITS", '{"nope": 1}', 2, "limit 'nope' is unknown; known: members, total_size"),
        ("LIMITS", '{"members": "many"}', 2, 'S3UNZIP_LIMITS={"members": "many"}: not a JSON'),
        ("LIMITS", '{"members": 0}', 2, "Expected `int` >= 1"),
        ("LIMITS", "members=8", 2, "S3UNZIP_LIMITS=members=8: not a JSON object of limits"),
        ("LIMITS", '{"\udcff": 1}', 2, r'LIMITS={"\udcff": 1}: not a JSON object'),
        ("LIMITS", '{"members": 1}', 3, "too-many-entries"),
        ("PASSWORD", "\udcff", 0, "COMPLETED"),
    ],
)
def test_settings_are_variables(
    program: Program, variable: str, value: str, code: int, said: str
) -> None:
    """A wrong tuning or limit is one line that names it; a right one is taken, and any password."""
    program.variables[f"S3UNZIP_{variable}"] = value
    ended = program.extract("a.zip", "out").ends(code, said)
    assert code != 2 or ended.err.count("\n") == 1


def _make_latin_locale(folder: Path) -> dict[str, str]:
    locale = ["localedef", "-i", "de_DE", "-f", "ISO-8859-1", str(folder / "de_DE.latin1")]
    if shutil.which("localedef") is None or subprocess.run(locale, check=False).returncode:
        pytest.skip("localedef has no sources of locales here: Debian's package locales")
    return {"LOCPATH": str(folder), "LC_ALL": "de_DE.latin1"}


@pytest.mark.parametrize("variables", [{}, {"PYTHONUTF8": "0"}])
def test_a_locale_runs_no_module_of_the_folder(
    tmp_path: Path, program: Program, variables: dict[str, str]
) -> None:
    """The command starts again for UTF-8, and not by way of a module beside the archive."""
    program.add("uni.zip", Entry("\N{GRINNING FACE}", b"1"))
    (program.folder / "msgspec.py").write_text("raise SystemExit('planted')\n")
    ended = subprocess.run(
        [Path(sys.executable).with_name("s3unzip"), "run", "uni.zip", "out", "-q"],
        cwd=program.folder,
        env={**os.environ, **program.variables, **_make_latin_locale(tmp_path), **variables},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


@pytest.mark.parametrize("words", ["ls uni.zip", "run uni.zip out", "run uni.zip out --dry-run"])
@pytest.mark.parametrize("kind", ["pipe", "locale"])
def test_names_that_the_terminal_cannot_show(
    tmp_path: Path, program: Program, words: str, kind: str
) -> None:
    """They are printed as escapes, and written as they are, whatever the locale."""
    name = "größe-Ω-日本.txt"
    program.add("uni.zip", Entry(name, b"x"), Entry("z.txt", b"y"))
    variables = {"PYTHONIOENCODING": "ascii"}
    if kind == "locale":
        variables = _make_latin_locale(tmp_path)
    ended = subprocess.run(
        [*COMMAND, *words.split()],
        cwd=program.folder,
        env={**os.environ, **program.variables, **variables},
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, b"internal error" in ended.stderr) == (0, False), ended.stderr
    if words == "ls uni.zip":
        assert rb"-\u03a9-\u65e5\u672c.txt" in ended.stdout
    if words == "run uni.zip out":
        assert (program.folder / "out" / "uni" / name).read_bytes() == b"x"
