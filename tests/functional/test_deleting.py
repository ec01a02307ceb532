"""Commands that delete: objects that are not members, and the archive after success."""

import gzip
import json
import os
from pathlib import Path

import pytest
from msgspec import structs

import s3unzip
from s3unzip import errors, run_ids
from s3unzip.api.options import parse_after_success
from s3unzip.context import Progress
from s3unzip.model import (
    AfterSuccess,
    Location,
    Options,
    PlanSummary,
    Report,
    Request,
    SourceAction,
    SourceResult,
    SourceState,
    Verdict,
    decode,
    encode,
)
from s3unzip.runs.records import REPORT, RUN
from s3unzip.settling import loop, report as reports
from s3unzip.stores.config import StoreConfig, parse_destination
from tests.support import memory, memory_server, streams
from tests.support.processes import Ended, Program
from tests.support.zips import DEFLATE, Entry, build, seal_aes, with_wrong_crc

ENTRIES = tuple(Entry(name, name.encode() * 9, DEFLATE) for name in ("a.txt", "d/b.txt"))
BROKEN = with_wrong_crc("c.txt", b"c" * 99, DEFLATE)
MEMBERS = {"site/a.txt", "site/d/b.txt"}


class Place(Program):
    """A folder with archives, which are extracted below ``out/site/``."""

    def site(self, *words: str, source: str = "a.zip", answer: str | None = None) -> Ended:
        """Extract an archive; `answer` is typed on a terminal."""
        return self.extract(source, "out", "--prefix", "site", *words, answer=answer)

    def put(self, *names: str) -> None:
        for name in names:
            self.write(f"out/{name}", b"extra")

    @property
    def names(self) -> set[str]:
        return set(self.files("out"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.add("a.zip", *ENTRIES)
    place.add("broken.zip", *ENTRIES, BROKEN)
    return place


def test_deleting_needs_a_number_and_a_yes(place: Place) -> None:
    """A number must be given; on a terminal it is asked besides."""
    place.put("site/old.txt")
    place.site("--delete-extra").ends(2, "requires an argument (see s3unzip run --help)")
    assert place.names == {"site/old.txt"}
    place.site("--delete-extra", "1000", answer="n\n").ends(
        1,
        "1 object (5 B) is not a member of the archive:",
        "site/old.txt\n",
        "Delete them? [y/N] nothing is deleted",
    )
    assert place.names == MEMBERS | {"site/old.txt"}
    assert (place.site("--delete-extra", "1000", answer="y\n").code, place.names) == (0, MEMBERS)


def test_more_extra_objects_than_the_number_are_kept(place: Place) -> None:
    """Above the number nothing is deleted, and the exit code says so."""
    place.put(*(f"site/{n}" for n in range(12)))
    place.site("--delete-extra", "11").ends(
        1,
        "12 objects (60 B) are not members of the archive",
        "nothing is deleted, because --delete-extra allows only 11",
    )
    assert len(place.names) == 12 + len(MEMBERS)
    place.site("--delete-extra", "1000", answer="n\n").says("and 2 more; --dry-run lists them all")
    assert (place.site("--delete-extra", "12").code, place.names) == (0, MEMBERS)


@pytest.mark.parametrize(
    ("source", "rule", "doomed"), [("a.zip", "never", False), ("broken.zip", "overwrite", True)]
)
def test_a_run_with_failures_deletes_nothing(
    place: Place, source: str, rule: str, *, doomed: bool
) -> None:
    """Neither one that refuses to overwrite an object nor one with a member that is broken."""
    place.put("site/a.txt", "site/old.txt")
    words = ("--delete-extra", "1000", "--on-conflict", rule)
    assert ("delete" in place.site(*words, "--dry-run", source=source).err) is doomed, (
        "a dry run reads no data, so it knows no broken member"
    )
    place.site(*words, source=source).ends(1).hides("deleting")
    assert "site/old.txt" in place.names


def test_the_marker_is_not_extra(place: Place) -> None:
    """A run that writes the marker keeps it; one that does not deletes an old one."""
    assert place.site("--marker", "--delete-extra", "1000").code == 0
    assert place.names == MEMBERS | {"site/_SUCCESS"}
    assert "delete" not in place.site("--marker", "--delete-extra", "1000", "--dry-run").err
    assert (place.site("--delete-extra", "1000").code, place.names) == (0, MEMBERS)


def test_another_archives_prefix_is_left_alone(place: Place) -> None:
    """What a run of another archive wrote below or above the prefix is not extra."""
    place.add("other.zip", Entry("site/x/theirs.txt", b"1"))
    assert place.extract("other.zip", "out", "--prefix", "").code == 0
    for words in ((), ("--dry-run",)):
        place.site("--delete-extra", "1000", *words).ends(
            2, "extracted another archive", "give each archive a prefix of its own"
        )
    (run,) = place.runs()
    (place.home / "runs" / run / RUN).write_text("damaged")
    place.site("--delete-extra", "1000").ends(
        6, "--delete-extra needs the records of all runs", f"remove {place.home}/runs/{run}/"
    )
    assert place.names == {"site/x/theirs.txt"}


def test_a_run_that_began_meanwhile_keeps_its_members(place: Place) -> None:
    """Another archive that was extracted to the prefix since the run began ends the deletion."""
    place.add("other.zip", Entry("theirs.txt", b"1"))

    class Meanwhile(Progress):
        def planned(self, plan: PlanSummary) -> None:
            assert plan.selected == len(MEMBERS)
            place.site(source="other.zip").ends(0)

    with pytest.raises(errors.UsageError, match="extracted another archive"):
        s3unzip.extract(
            place.folder / "a.zip",
            place.folder / "out",
            Options(key_template="site/{member}"),
            stores=StoreConfig(parse_destination(str(place.home))),
            progress=Meanwhile(),
            delete_extra=lambda _: True,
        )
    assert place.names == MEMBERS | {"site/theirs.txt"}


def test_a_member_with_another_name_is_not_extra(place: Place) -> None:
    """A disk that ignores case lists a member under the name that its folder had before.

    The report of the run is shown, too.
    """
    verdicts: list[Verdict] = []

    class Renaming(Progress):
        def phase(self, name: str) -> None:
            if name == "report":
                (place.folder / "out/site/d").rename(place.folder / "out/site/D")

        def reported(self, report: Report) -> None:
            verdicts.append(report.verdict)

    with pytest.raises(errors.StorageError, match=r"does not list /.*/out/site/d/b\.txt, perhaps"):
        s3unzip.extract(
            place.folder / "a.zip",
            place.folder / "out",
            Options(key_template="site/{member}"),
            stores=StoreConfig(parse_destination(str(place.home))),
            progress=Renaming(),
            delete_extra=lambda _: True,
        )
    assert (place.names, verdicts) == ({"site/a.txt", "site/D/b.txt"}, [Verdict.COMPLETED])


def test_links_are_not_followed(place: Place) -> None:
    """A link below the prefix stays, and so does what it leads to."""
    root = place.folder
    (root / "outside").mkdir()
    (root / "outside/precious.txt").write_text("mine")
    place.put("site/old.txt")
    (root / "out/site/link").symlink_to(root / "outside")
    (root / "out/site/file").symlink_to(root / "outside/precious.txt")
    assert place.site("--delete-extra", "1000").code == 0
    assert (
        (root / "outside/precious.txt").read_text(),
        (root / "out/site/link").is_symlink(),
    ) == ("mine", True)
    assert "site/old.txt" not in place.names


def test_the_archive_and_the_records_are_not_extra(place: Place) -> None:
    """A prefix that holds the archive itself, or the runs of this machine, is refused."""
    home = place.folder
    place.put("site/x")
    (home / "out/site/a.zip").write_bytes((home / "a.zip").read_bytes())
    (home / "link.zip").symlink_to(home / "out/site/a.zip")
    place.site("--delete-extra", "1000", source="link.zip").ends(2, "the archive (")
    place.extract(
        "s3://same/site/a.zip", "s3://same", "--prefix", "site", "--delete-extra", "1"
    ).ends(2, "the archive (s3://same/site/a.zip)")
    (home / "out/root").symlink_to("/")
    place.extract("a.zip", "out", "--prefix", "root", "--delete-extra", "1").ends(
        2, "the archive ("
    )
    place.variables["S3UNZIP_HOME"] = str(home / "out/site/runs")
    place.site("--delete-extra", "1000").ends(2, "the records of runs (")


def test_the_archive_is_deleted_after_success(place: Place) -> None:
    """The archive is gone; the report says so, also that which counts what was extra."""
    place.put("site/old.txt")
    ended = place.site("--delete-extra", "1000", "--after-success", "delete", "--json").ends(
        0, "the archive is deleted"
    )
    for report in (*ended.lines, *place.run("show", "--json").lines):
        assert report["after_success"] == {"action": "delete", "state": "done"}
    assert not (place.folder / "a.zip").exists()
    assert place.names == MEMBERS
    assert place.site("--after-success", "delete", source="broken.zip").code == 1
    assert (place.folder / "broken.zip").exists(), "only COMPLETED is success"


def test_an_archive_with_a_member_that_is_nowhere_else_is_kept(place: Place) -> None:
    """Of two members with one key a lenient run writes the later one; the other would be lost."""
    place.add("twice.zip", Entry("1/a.txt", b"first"), Entry("2/a.txt", b"second"))
    place.extract(
        *("twice.zip", "out", "--lenient", "--key-template", "{name}", "--after-success", "delete")
    ).ends(0, "the archive was not deleted: the run left out 1 member of the archive")
    assert (place.folder / "twice.zip").exists()


def test_an_archive_is_kept_if_the_disk_would_merge_its_members(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that ignores case keeps one of two files; the archive of the other must stay."""
    place.add("twice.zip", Entry("a.txt", b"first"), Entry("A.txt", b"second"))
    find = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path, **more: find(str(path).lower(), **more))
    place.site("--lenient", "--after-success", "delete", source="twice.zip").ends(
        6, "this disk ignores upper and lower case"
    )
    assert place.files().keys() == {"a.zip", "broken.zip", "twice.zip"}
    place.site("--lenient", source="twice.zip").ends(0)


@pytest.mark.parametrize(
    ("source", "words", "said"),
    [
        *(
            ("a.zip", f"delete {words}", "members that are not extracted would be lost")
            for words in ("--limit 1", "-m a.txt", "-x a*", "--strip-components 1")
        ),
        ("a.zip", "burn", "'burn' must be delete or tag=NAME=VALUE"),
        ("a.zip", "delete=x", "must be delete or tag"),
        ("a.zip", "delete=", "must be delete or tag"),
        ("a.zip", "move=done", "must be delete or tag"),
        ("a.zip", "tag=a=b", "is a file, and files cannot be tagged"),
        ("s3://arrivals/a.zip", "tag=a", "'tag=a' must be delete or tag=NAME=VALUE"),
        ("s3://arrivals/a.zip", "tag=team=R&D", "tag 'team': S3 takes no '&' in a tag"),
        (
            "https://host/a.zip?key=secret",
            "delete",
            "https://host/a.zip?... cannot be deleted or tagged",
        ),
    ],
)
def test_an_impossible_after_success_is_refused(
    place: Place, source: str, words: str, said: str
) -> None:
    """It is refused before anything is read, in words that say what is possible."""
    place.site("--after-success", *words.split(), source=source).ends(2, said)
    assert place.files().keys() == {"a.zip", "broken.zip"}


def test_the_exit_code_says_that_the_action_failed(
    program: Program, s3: memory_server.MemoryS3
) -> None:
    """The verdict stays, and `resume` tries again: S3 tags no version without versioning.

    Extra objects that remain change nothing about this.
    """
    s3.buckets["out"].add("a.zip", build(*ENTRIES))
    program.variables["AWS_ENDPOINT_URL"] = s3.url
    program.write("out/a/extra", b"1")
    program.extract(
        "s3://out/a.zip", "out", "--after-success", "tag=a=b", "--delete-extra", "1", answer="n\n"
    ).ends(6, "nothing is deleted", "the archive was not tagged", "next: s3unzip resume")
    program.run("show").ends(0)
    program.run("resume", "latest").ends(6, "the archive was not tagged")


def test_an_archive_is_tagged_after_a_selection() -> None:
    """An archive is tagged after a selection, too; a value may have an equals sign."""
    assert parse_after_success(
        "tag=state=a=b", Location("s3", "arrivals", "t/a.zip"), Options(limit=1)
    ) == AfterSuccess(SourceAction.TAG, tags={"state": "a=b"})


@pytest.mark.parametrize("text", ['{"action": "tag"}', '{"action": "delete", "tags": {"a": "b"}}'])
def test_a_rule_that_says_too_little_or_too_much_is_refused(text: str) -> None:
    """Nothing is deleted that was to be tagged."""
    with pytest.raises(errors.UsageError, match=r"the action tag needs tags"):
        decode(text, AfterSuccess)


@pytest.mark.parametrize(
    "rule", [AfterSuccess(SourceAction.DELETE), AfterSuccess(SourceAction.TAG, tags={"a": "done"})]
)
@pytest.mark.parametrize("failed", [False, True])
def test_a_run_that_is_resumed_after_the_action_leaves_it(
    world: memory.World, rule: AfterSuccess, *, failed: bool
) -> None:
    """The report still says that it is done; the same bytes, put again, stay as they are."""
    asked = world.request(build(*ENTRIES))
    bucket = world.buckets.bucket(asked.source.bucket)
    ruled = Request(asked.source, asked.destination, asked.options, after_success=rule)
    report = world.machine.run(ruled)
    assert report.after_success == SourceResult(rule.action, SourceState.DONE)
    left = bucket.objects.get(asked.source.key)
    assert (left.facts.metadata if left else {}) == rule.tags
    assert report.pin is not None
    assert run_ids.run_id(asked, report.pin, 0.0) == run_ids.run_id(ruled, report.pin, 0.0)
    world.request(build(*ENTRIES))
    later = world.machine.resume(report.run, failed=failed)
    assert later.verdict is Verdict.COMPLETED
    assert later.after_success == report.after_success
    assert bucket.objects[asked.source.key].facts.metadata == {}


def test_a_run_without_a_plan_is_resumed_with_the_rule_of_its_environment(
    world: memory.World,
) -> None:
    """Its report names no rule: without this one the archive would stay as it is for ever."""
    rule = AfterSuccess(SourceAction.TAG, tags={"a": "done"})
    failed = structs.replace(
        world.machine.run(world.request(build(*ENTRIES))), verdict=Verdict.FAILED
    )
    store = world.records(failed.run).store
    store.delete([RUN])
    store.write(REPORT, [encode(failed)])
    resumed = world.finish(loop.resume(failed.run, world.context, after_success=rule))
    assert resumed.after_success == SourceResult(SourceAction.TAG, SourceState.PENDING)
    world.request(build(BROKEN))  # another archive, which the rule of this run must not touch
    assert reports.finish_source(rule, resumed, world.context).after_success == SourceResult(
        SourceAction.TAG, SourceState.KEPT, f"{failed.source}: a newer archive has replaced it"
    )


class Target:
    """A destination of the command: the folder ``out`` or a bucket; keys begin with ``to/``."""

    def __init__(
        self, program: Program, *destination: str, bucket: memory.MemoryBucket | None = None
    ) -> None:
        self.program = program
        self.bucket = bucket
        self._destination = destination

    def run(self, command: str, archive: Path, *words: str) -> Ended:
        return self.program.run(command, str(archive), *self._destination, "--prefix", "", *words)

    def extract(self, archive: Path, *words: str) -> Ended:
        return self.run("run", archive, "-w", "1", *words)

    def tune(self, **changes: int) -> None:
        self.program.variables["S3UNZIP_TUNING"] = json.dumps(changes)

    def write(self, name: str, body: bytes) -> None:
        """Write a file or an object without metadata, as another program does."""
        if self.bucket:
            self.bucket.add(f"to/{name}", body)
        else:
            self.program.write(f"out/to/{name}", body)

    @property
    def files(self) -> dict[str, bytes]:
        if self.bucket:
            return {key.removeprefix("to/"): body for key, body in self.bucket.bodies.items()}
        return self.program.files("out/to")


@pytest.fixture(params=["folder", "s3"])
def target(request: pytest.FixtureRequest, program: Program, s3: memory_server.MemoryS3) -> Target:
    if request.param == "folder":
        return Target(program, "out/to")
    return Target(program, "s3://out/to", "--endpoint-url", s3.url, bucket=s3.buckets["out"])


def test_only_extra_objects_below_the_prefix_are_deleted(target: Target) -> None:
    """Members and what is beside the prefix stay; a dry run tells it before and deletes nothing."""
    archive = target.program.add("a.zip", *ENTRIES)
    for name in ("site/old.txt", "site/d/old.txt", "site2/kept.txt", "kept.txt"):
        target.write(name, b"extra")
    words = ("--prefix", "site", "--delete-extra", "2")
    dry = target.extract(archive, *words, "--dry-run", "--json").ends(0, "2 delete")
    keys = [line["key"] for line in dry.lines if line["action"] == "delete"]
    assert [key.rpartition("site/")[2] for key in keys] == ["d/old.txt", "old.txt"]
    assert len(target.files) == 4
    target.extract(archive, *words).ends(0, "deleting 2 objects (10 B)")
    assert target.files.keys() == MEMBERS | {"site2/kept.txt", "kept.txt"}
    assert target.extract(archive, *words, "-q", "--on-conflict", "skip-unchanged") == (0, "", "")


def test_a_split_member_whose_last_segment_is_empty(target: Target) -> None:
    """Empty blocks at the end of a split member make a segment of no bytes: the member is right."""
    content = bytes(6 << 20)
    stretch = streams.flushed(content)
    data = stretch + streams.EMPTY_BLOCKS * (len(stretch) // 80) + streams.END_OF_STREAM
    archive = target.program.add("a.zip", Entry("big", content, DEFLATE, data=data), Entry("b"))
    target.tune(small_member=1_000, split_from=1_000, segment_bytes=len(data) // 2 + 1)
    target.extract(archive).ends(0)
    assert target.files == {"big": content, "b": b""}


def test_gzip_files_are_known_again(target: Target) -> None:
    """Verify compares the content of gzip files, and a second run leaves them alone."""
    archive = target.program.add(
        "a.zip",
        Entry("deflated.txt", b"hello " * 50, DEFLATE),
        Entry("large.txt", b"large " * 9_000, DEFLATE),
        Entry("stored.bin", b"stored"),
    )
    target.tune(small_member=1_000, copy_from=1_000)
    form = ("--as-gzip", "suffix")
    assert target.extract(archive, *form).code == 0
    for command in (("verify",), ("verify", "--deep")):
        target.run(command[0], archive, *form, *command[1:]).ends(0)
    for rule in ("never", "skip-unchanged"):
        target.extract(archive, *form, "--on-conflict", rule).ends(0, "3 unchanged")
    target.write("deflated.txt.gz", gzip.compress(b"other " * 50, mtime=0))
    assert target.run("verify", archive, *form).code == 1
    assert target.extract(archive, *form, "--on-conflict", "never").code == 1
    assert target.extract(archive, *form, "--on-conflict", "skip-unchanged").code == 0
    assert gzip.decompress(target.files["deflated.txt.gz"]) == b"hello " * 50


@pytest.mark.parametrize("words", [(), ("--as-gzip", "suffix")], ids=["plain", "gzip"])
def test_members_without_a_declared_crc_are_known_again(
    target: Target, words: tuple[str, ...]
) -> None:
    """Of AE-2 members, small and large, `never` says that they are unchanged or others."""
    contents = {"small": b"s" * 1_000, "large": b"l" * 20_000}
    sealed = [seal_aes(Entry(name, data), b"pw") for name, data in contents.items()]
    archive = target.program.add("a.zip", *sealed)
    (target.program.folder / "pw").write_bytes(b"pw\n")
    target.tune(small_member=10_000)
    words += ("--password-file", "pw")
    assert target.extract(archive, *words).code == 0
    names = sorted(target.files)
    for small_member in (10_000, 100_000):  # the same members as small ones, too
        target.tune(small_member=small_member)
        target.extract(archive, *words, "--on-conflict", "never").ends(0, "2 unchanged")
    target.tune(small_member=10_000)
    assert "1 unchanged" in target.extract(archive, *words, "--on-conflict", "skip-unchanged").err
    for name in names:
        target.write(name, b"x" * len(target.files[name]))
    target.extract(archive, *words, "--on-conflict", "never").ends(1, "2 failed")


def test_a_member_that_is_also_a_folder(target: Target) -> None:
    """An empty one is the folder; one with content fails, always itself, and S3 keeps all."""
    contents = {"d/a": b"1", "e": b"", "e/b": b"2", "f": b"content", "f/g/c": b"3", "h": b""}
    archive = target.program.add("a.zip", *map(Entry, *zip(*contents.items(), strict=True)))
    is_folder = target.bucket is None
    codes = {"plan": 0, "run": int(is_folder), "verify": 0}
    for command, code in codes.items():
        ended = target.run(command, archive, *["-w", "1"][: 2 * (command == "run")]).ends(code)
        words = ("name-is-folder", "1 refused, not compared; s3unzip run --dry-run shows why")
        assert any(text in "".join(ended[1:]) for text in words) is is_folder
    assert ("(name-is-folder)" in target.run("run", archive, "--dry-run").out) is is_folder
    for name in ["e", "f"] * is_folder:
        del contents[name]
    assert target.files == contents
    warning = "2 with a warning: A key is also the folder of another key."
    target.program.run("ls", str(archive)).ends(0, warning)
    target.program.run("test", str(archive)).ends(0).prints(warning)
    target.program.run("resume", "latest", "--failed", "-w", "1").ends(codes["run"]).hides(
        "next: s3unzip resume"
    )
    target.extract(archive, "--exclude", "f").ends(0)


def test_names_that_a_file_system_does_not_take(target: Target) -> None:
    """However many they are: each member fails alone, and nobody is told to try it again."""
    names = [f"{number:0256}" for number in range(30)]
    archive = target.program.add("a.zip", *(Entry(name, b"x") for name in [*names, "z"]))
    ended = target.extract(archive)
    if target.bucket:
        assert (ended.code, len(target.files)) == (0, 31)
        return
    ended.ends(1, "30 failed: The file system does not accept the name. (name-refused)")
    ended.hides("s3unzip resume")
    assert target.files == {"z": b"x"}
    target.run("verify", archive).ends(1).prints("30 missing")
