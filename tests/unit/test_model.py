"""Values and small tables: records, properties of objects, stages, globs, and words for codes."""

import pydoc
import re
import subprocess
import sys
from collections.abc import Callable
from enum import StrEnum
from textwrap import dedent
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import botocore.session
import pytest
from botocore.model import StringShape
from hypothesis import example, given, settings, strategies as st
from msgspec import UNSET, Struct
from msgspec.structs import replace

import s3unzip
from s3unzip import model
from s3unzip.cli.main import COMMANDS, load_command
from s3unzip.errors import UsageError
from s3unzip.explanations import NOT_FROM_CHECKS, advise, describe, explain
from s3unzip.globs import MAX_TRANSITIONS, compile_glob
from s3unzip.model import (
    AfterSuccess,
    Location,
    Options,
    Pin,
    Request,
    SourceAction,
    decode,
    encode,
)
from s3unzip.object_properties import (
    CANNED_ACLS,
    MAX_METADATA_BYTES,
    OWN_METADATA_BYTES,
    RESERVED_METADATA,
    STORAGE_CLASSES,
    ObjectProperties,
)
from s3unzip.options import read_options
from s3unzip.run_ids import execution_name, run_id, run_of_execution
from s3unzip.stages import Stage, current_stage
from s3unzip.zip import CHECKS


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda: decode(b'{"broken', model.Report), "not a Report"),
        (lambda: decode(b'{"broken', Options), "not a Options"),
        (lambda: model.decode_lines(b'{"broken\n', model.Outcome), "not lines of Outcome"),
    ],
    ids=["a report", "options", "lines"],
)
def test_nonsense_is_refused_by_name(read: Callable[[], object], words: str) -> None:
    """A damaged line says what it is not, and never a traceback."""
    with pytest.raises(UsageError, match=words):
        read()


def _request(key: str = "in/My archive (1).ZIP", **options: Any) -> Request:
    return Request(Location("s3", "b", key), Location("s3", "o", "x/"), Options(**options))


PUT = 1_795_466_132.0  # 2026-11-23 20:35:32


@given(st.text(min_size=1), st.integers(0, 20), st.sampled_from([PUT, -9e10, 3e11]))
def test_a_run_is_found_by_the_name_of_its_execution(key: str, number: int, put: float) -> None:
    """Step Functions takes 1-80 characters of [A-Za-z0-9_-]; those that resume have a suffix."""
    run = run_id(_request(key), Pin(1, '"e"'), put)
    for one in (run, run_id(replace(_request(key), again=run), Pin(2, '"f"'), put + 60)):
        name = execution_name(one)
        assert re.fullmatch("[A-Za-z0-9-]{1,75}", name)  # and the suffix of five characters
        assert run_of_execution(name) == run_of_execution(f"{name}-r{number}") == one


def test_a_run_id_tells_versions_and_options_apart() -> None:
    """Another version or another option is another run; the time of the event is not."""
    one = run_id(_request(), Pin(1, '"e"'), PUT)
    assert re.fullmatch("2026-11-23/203532-My-archive-1-[0-9a-f]{16}", one)
    assert one == run_id(replace(_request(), event_time=1.0), Pin(1, '"e"'), PUT)
    assert one not in {
        run_id(_request(), Pin(1, '"f"'), PUT),
        run_id(_request(lenient=True), Pin(1, '"e"'), PUT),
    }
    assert one < run_id(_request("in/A.zip"), Pin(1, '"e"'), PUT + 1)


def test_archives_whose_hashes_agree_in_32_bits_are_two_runs() -> None:
    """Devices upload archives of one name by the thousand in a second: each has its own run."""
    runs = {
        run_id(_request(f"customers/{number}/data.zip"), Pin(1, '"e"'), PUT)
        for number in ("075098", "077235")  # the first of 400,000 whose hashes begin alike
    }
    start = "2026-11-23/203532-data-5ca2dc7b"
    assert [run[: len(start)] for run in runs] == [start] * 2


@pytest.mark.parametrize("attempt", range(3))
def test_threads_may_decode_a_type_at_the_same_time(attempt: int) -> None:
    """The first thread makes the type's reader ready; the others wait for it, and none crashes."""
    program = """
        import random, sys, threading, time
        from s3unzip.model import Report, decode
        from s3unzip.errors import UsageError

        TEXT = '{"timing": {}, "requests": {}, "source": {}, "destination": {}, "run": {"id": 1}}'

        def switch(*_):  # at each line, so that threads meet in the middle of it
            time.sleep(0)
            return switch

        def read():
            ready.wait()
            time.sleep(random.random() / 20)
            for _ in range(3):
                try:
                    decode(TEXT, Report)
                except UsageError:
                    refused.append(1)

        sys.setswitchinterval(1e-6)
        ready, refused = threading.Barrier(8), []
        threading.settrace(switch)
        threads = [threading.Thread(target=read) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(len(refused))
        """
    done = subprocess.run(
        [sys.executable, "-c", dedent(program)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "24\n"), done.stderr


VALUES = [
    kind
    for kind in vars(model).values()
    if isinstance(kind, type) and issubclass(kind, Struct) and kind is not Struct
]
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    type(None): st.none(),
    int: st.integers(0, 2**62),
    float: st.floats(allow_nan=False, allow_infinity=False),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=20),
    bool: st.booleans(),
    Any: st.none() | st.text(max_size=5),  # of JSON
}

SIMPLE[model.Pin] = st.builds(
    model.Pin,
    SIMPLE[int],
    *[st.none() | SIMPLE[str]] * 2,
    parts=st.just(UNSET)
    | st.lists(st.builds(model.Pin, SIMPLE[int], st.none(), SIMPLE[str]), max_size=2).map(tuple),
)

SIMPLE[AfterSuccess] = st.one_of(  # what fits the action
    st.just(AfterSuccess(SourceAction.DELETE)),
    st.builds(
        AfterSuccess,
        st.just(SourceAction.TAG),
        tags=st.dictionaries(SIMPLE[str], SIMPLE[str], min_size=1, max_size=2),
    ),
)
CHECKED = {  # options that are checked when they are made
    "key_template": st.sampled_from(["{member}", "x/{name}"]),
    "encoding": st.sampled_from([None, "cp437"]),
}


def _values(hint: Any) -> st.SearchStrategy[Any]:
    if hint in SIMPLE:
        return SIMPLE[hint]
    if get_origin(hint) is Literal:
        return st.sampled_from(get_args(hint))
    return _composed(hint)


def _composed(hint: Any) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        return st.one_of([_values(one) for one in arguments])
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(_values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(_values, arguments))
    if origin is dict:
        return st.dictionaries(_values(arguments[0]), _values(arguments[1]), max_size=2)
    if issubclass(hint, Struct) or hasattr(hint, "_fields"):  # or a named tuple
        return st.builds(
            hint, **{n: CHECKED.get(n, _values(h)) for n, h in get_type_hints(hint).items()}
        )
    assert issubclass(hint, StrEnum)
    return st.sampled_from(list(hint))


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_a_value_goes_through_json_unchanged(kind: type[Struct], data: st.DataObject) -> None:
    """What is written by one step is what the next step reads."""
    value = data.draw(_values(kind))
    line = encode(value)
    assert b"\n" not in line
    assert decode(line, kind) == value


def test_help_describes_options_and_results() -> None:
    """Each option has a line in the help of its class, and a result its figures."""
    for kind in (s3unzip.Options, s3unzip.ObjectProperties, s3unzip.StoreConfig):
        shown = pydoc.getdoc(kind)
        lines = [f"{row.field}: {row.help}" for row in read_options(kind)]
        assert all(len(line.split()) > 1 and line in shown for line in lines)
    shown = pydoc.getdoc(s3unzip.Report)
    assert all(figures in shown for figures in ("bytes_in, bytes_out: ", "started, finished: "))


# Classes of botocore's model that objects of a general purpose bucket are not written as: other
# kinds of buckets and devices have them.
OF_OTHER_BUCKETS = {
    "AWS_BACKUP_LOW_COST_WARM",
    "AWS_BACKUP_WARM",
    "EXPRESS_ONEZONE",
    "FSX_ONTAP",
    "FSX_OPENZFS",
    "OUTPOSTS",
    "SNOW",
}


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ObjectCannedACL", set(CANNED_ACLS)),
        ("StorageClass", set(STORAGE_CLASSES) | OF_OTHER_BUCKETS),
    ],
)
def test_canned_acls_and_storage_classes_are_botocores(name: str, values: set[str]) -> None:
    """A canned ACL or a storage class that AWS adds fails this test."""
    shape = botocore.session.get_session().get_service_model("s3").shape_for(name)
    assert isinstance(shape, StringShape)
    assert values == set(shape.enum)


@pytest.mark.parametrize(
    "chosen",
    [
        ObjectProperties(),
        *(ObjectProperties(storage_class=known) for known in STORAGE_CLASSES),
        *(ObjectProperties(acl=known) for known in CANNED_ACLS),
        ObjectProperties(cache_control="public, max-age=31536000, immutable"),
        ObjectProperties(content_types={"*.csv": 'text/csv; charset="utf-8"; header=present'}),
        ObjectProperties(content_types={"a/**": "application/vnd.x+json", "*": "a/b"}),
        ObjectProperties(metadata={"source.1_a-b": "x y", "empty": ""}),
        ObjectProperties(metadata={"m": "x" * (MAX_METADATA_BYTES - OWN_METADATA_BYTES - 1)}),
        ObjectProperties(tags={"Größe +-=._:/@": "é 1", "empty": ""}),
        ObjectProperties(tags={f"t{n}": "x" * 256 for n in range(9)} | {"k" * 128: "v"}),
    ],
)
def test_properties_up_to_the_limits_are_accepted(chosen: ObjectProperties) -> None:
    """Values up to the limits are let through."""
    chosen.check()


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (ObjectProperties(storage_class="standard_ia"), "storage class 'standard_ia': unknown"),
        (ObjectProperties(storage_class="EXPRESS_ONEZONE"), "known: STANDARD, STANDARD_IA"),
        (ObjectProperties(acl="public"), "acl 'public': unknown; known: private, public-read"),
        (ObjectProperties(cache_control=""), "cache control '': must be 1 to 1,024"),
        (ObjectProperties(cache_control="a\r\nx: y"), "printable ASCII"),
        (ObjectProperties(cache_control="x" * 1_025), "must be 1 to 1,024"),
        (ObjectProperties(content_types={"*": "csv"}), "'csv': not a media type"),
        (ObjectProperties(content_types={"*": "a/b;"}), "not a media type"),
        (ObjectProperties(content_types={"": "a/b"}), "its glob is empty"),
        (ObjectProperties(content_types={"*": "text/cßv"}), "printable ASCII"),
        (ObjectProperties(metadata={"zip-crc32": "0"}), "s3unzip writes it itself"),
        (ObjectProperties(metadata={"S3Unzip-Run": "0"}), "s3unzip writes it itself"),
        (ObjectProperties(metadata={"Content-Type": "a/b"}), "is an HTTP header"),
        (ObjectProperties(metadata={"Owner": "me"}), "in lower case"),
        (ObjectProperties(metadata={"": "me"}), "a name consists of"),
        (ObjectProperties(metadata={"a": "é"}), "the value must be printable ASCII"),
        (ObjectProperties(metadata={"a": " b"}), "without spaces at its ends"),
        (ObjectProperties(metadata={"m": "x" * 2_000}), "2,001 bytes of names and values"),
        (ObjectProperties(tags={f"t{n}": "" for n in range(11)}), "an object can have at most 10"),
        (ObjectProperties(tags={"": "v"}), "1 to 128 characters"),
        (ObjectProperties(tags={"k" * 129: "v"}), "1 to 128 characters"),
        (ObjectProperties(tags={"k": "v" * 257}), "has 257 characters; S3 allows 256"),
        (ObjectProperties(tags={"AWS:k": "v"}), "are reserved for AWS"),
        (ObjectProperties(tags={"k": "a&b"}), "S3 takes no '&' in a tag"),
        (ObjectProperties(tags={"k\n": "v"}), "S3 takes no '\\n' in a tag"),
    ],
)
def test_properties_beyond_the_limits_are_refused(chosen: ObjectProperties, said: str) -> None:
    """The message names the value and the limit."""
    with pytest.raises(UsageError) as caught:
        chosen.check()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_runs_own_metadata_fits_beside_it() -> None:
    """The bytes that are kept for the run's own metadata hold the longest of each."""
    longest = {
        "s3unzip-run": "a" * 40 + "-" + "0" * 20,
        "zip-crc32": "ffffffff",
        "mtime": str(-(2**62)),
        "mode": "7777",
    }
    assert longest.keys() == RESERVED_METADATA
    assert sum(len(name) + len(value) for name, value in longest.items()) <= OWN_METADATA_BYTES


@pytest.mark.parametrize(
    ("ended", "stage"),
    [
        ({Stage.SCAN: False}, Stage.SCAN),
        ({Stage.SCAN: True}, Stage.LINK),
        ({Stage.LINK: False}, Stage.LINK),  # planned copies, which no worker does
        *(({stage: True}, stage) for stage in (Stage.LINK, Stage.FINISH)),  # settling ends these
        ({Stage.SCAN: True, Stage.SLICE: False}, Stage.SLICE),
        ({Stage.SCAN: False, Stage.SLICE: True}, Stage.FINISH),  # a scan that came late
        ({Stage.SLICE: True, Stage.STREAM: False}, Stage.STREAM),
        ({Stage.STREAM: True}, Stage.DONE),
        ({Stage.SLICE: False, Stage.DONE: True}, Stage.DONE),
    ],
)
def test_the_latest_stage_counts(ended: dict[Stage, bool], stage: Stage) -> None:
    """It goes on when all its tasks have ended; what earlier stages do late changes nothing."""
    assert current_stage(ended) is stage


TOKENS = ("a", "B", "/", ".", "*", "**", "**/", "?", "[ab]", "[!a]", "[+-9]", "[-a]", "[\\-b]", "[")


@pytest.mark.parametrize(
    ("pattern", "path", "match"),
    [
        ("*.json", "a/b/c.json", True),
        ("*.json", "a/b/c.jsonl", False),
        ("a/*.json", "a/b/c.json", False),
        ("a/**/*.json", "a/c.json", True),
        ("a/**/*.json", "a/x/y/c.json", True),
        ("a/", "a/x/y", True),
        ("/top", "top", True),
        ("/top", "a/top", False),
        ("//etc/a", "/etc/a", True),
        ("etc/a", "/etc/a", True),
        ("?.txt", "ab.txt", False),
        ("a?b", "a/b", False),
        ("[ab].txt", "b.txt", True),
        ("[!ab].txt", "b.txt", False),
        ("a.b", "aXb", False),
        ("**", "any/thing", True),
        ("a**z", "a\n/z", True),  # a newline is a character
        *((pattern, "d/a1.txt", False) for pattern in ("A*.Txt", "d/A?.txt", "**/a[1-3].TXT")),
        # A bracket that is not closed is itself, as in a shell.
        *((pattern, pattern, True) for pattern in ("a[", "a[]", "a[b")),
        *((pattern, "ab", False) for pattern in ("a[", "a[]", "a[b")),
    ],
)
def test_globs_match_as_in_gitignore(pattern: str, path: str, *, match: bool) -> None:
    """A pattern without a slash is about the last part; ** crosses folders."""
    assert bool(compile_glob(pattern)(path)) is match


def translate(pattern: str) -> str:
    """Return the regular expression that defines a glob; it is not fast."""
    wild = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}

    def token(match: re.Match[str]) -> str:
        text = match[0]
        if len(text) > 1 and text[0] == "[":
            inside = text[1:-1].replace("\\", "\\\\")
            return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"
        return wild.get(text) or re.escape(text)

    whole = pattern + "**" if pattern.endswith("/") else pattern
    text = re.sub(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|.", token, whole.lstrip("/"))
    return rf"\A/*(?:{text})\Z" if "/" in whole else rf"\A(?:.*/)?(?:{text})\Z"


@given(
    st.lists(st.sampled_from(TOKENS), max_size=6),
    st.text("aaB/.-\\", max_size=8),
    st.sampled_from([re.DOTALL, re.DOTALL | re.IGNORECASE]),
)
@example(["*", "/", "a"], "//a", re.DOTALL)
@example(["**/", "/", "a"], "//a", re.DOTALL)
@example(["[!a]", "*", "B"], "/aB", re.DOTALL)
@example(["A", "*", ".Txt"], "d/a1.txt", re.DOTALL | re.IGNORECASE)
@example(["A", "**", "Z"], "a\n/z", re.DOTALL | re.IGNORECASE)
@pytest.mark.filterwarnings("ignore:Possible nested set")
def test_a_glob_fits_what_its_definition_fits(
    tokens: list[str], path: str, flags: re.RegexFlag
) -> None:
    """The quick regular expressions and the automata fit the same paths as the definition.

    A glob can be compared with upper case as lower case.
    """
    pattern = "".join(tokens)
    assert bool(compile_glob(pattern, any_case=bool(flags & re.IGNORECASE))(path)) is (
        re.search(translate(pattern), path, flags) is not None
    )


@given(
    st.lists(st.sampled_from([*TOKENS, "*", "**", "**/"]), max_size=8),
    st.text("aB/.", min_size=1, max_size=3),
)
@example(["*", "a", "*", "a", "*", "a"], "a")
@example(["**/", "a", "*", "/", "**/", "B", "*", "a"], "a/")
@example(["*", "/", "**/", "B"], "/")
@example(["a", "**", "a", "**", "a", "**", "B"], "a")
def test_no_name_takes_longer_than_its_length(tokens: list[str], unit: str) -> None:
    """A match that takes the square of this name's length ends tomorrow."""
    compile_glob("".join(tokens))(unit * 300_000 + "\0")


def test_the_memory_of_an_automaton_is_bounded() -> None:
    """Ever new characters do not fill the memory, and change no answer."""
    glob = compile_glob("**a*b")
    assert not any(glob(f"a{chr(0x10000 + number)}c") for number in range(3 * MAX_TRANSITIONS))
    assert glob("xaxb")


@pytest.mark.parametrize("pattern", ["[z-a].csv", "*[9-0]*"])
@pytest.mark.parametrize(
    "use",
    [
        lambda pattern: Options(exclude=(pattern,)),
        lambda pattern: ObjectProperties(content_types={pattern: "text/csv"}).check(),
    ],
    ids=["a selection", "a content type"],
)
def test_an_empty_range_is_a_mistake(use: Callable[[str], object], pattern: str) -> None:
    """Whoever makes the options is told, before an archive is read."""
    with pytest.raises(UsageError, match="bad character range"):
        use(pattern)


@pytest.mark.parametrize("pattern", ["[[]2024].zip", "[a&&b]", "[!]", "[^]"])
def test_a_character_class_raises_no_warning(pattern: str) -> None:
    """Python's warnings about sets of characters are errors here; a class of nothing is itself."""
    compile_glob(pattern)("x")


CODES = sorted(CHECKS.keys() | NOT_FROM_CHECKS.keys())


@pytest.mark.parametrize("code", CODES)
def test_a_code_has_a_sentence_and_an_advice(code: str) -> None:
    """Both are whole sentences, and neither repeats the code."""
    for text in (explain(code), advise(code)):
        assert re.fullmatch(r"(?!See docs)(--|[A-Z]).*\.", text)
        assert "-" not in code or code not in text.replace("--", "")


def test_commands_and_options_of_the_advice_exist() -> None:
    """What an advice tells to type is there."""
    options = {name for one in COMMANDS for p in load_command(one).params for name in p.opts}
    text = " ".join(map(advise, CODES))
    assert set(re.findall(r"s3unzip ([a-z]+)\b", text)) <= COMMANDS.keys()
    assert set(re.findall(r"--[a-z-]+", text)) <= options


def test_an_unknown_code_is_still_said() -> None:
    """A report that another version wrote has codes that this one does not know."""
    assert (explain("of-tomorrow"), advise("of-tomorrow")) == (
        "of-tomorrow.",
        "See docs/reference/checks.md.",
    )


@pytest.mark.parametrize(
    ("code", "fact", "words"),
    [
        (
            "wrong-password",
            "the check byte differs",
            "The password does not open the member: the check byte differs",
        ),
        ("access-denied", "s3:PutObject s3://b/k: no", "s3:PutObject s3://b/k: no"),
        ("encrypted", None, explain("encrypted")),
    ],
)
def test_the_sentence_of_a_check_precedes_its_fact(code: str, fact: str | None, words: str) -> None:
    """A check's fact follows its sentence; a store's answer is a sentence of its own."""
    assert describe(code, fact) == words


def test_summaries_are_the_commands_own() -> None:
    """The list of commands says what the help of each command begins with."""
    found = {name: load_command(name).get_short_help_str(300) for name in COMMANDS}
    assert found == {name: summary for name, (_, summary) in COMMANDS.items()}
