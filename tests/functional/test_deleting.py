"""Commands that delete: objects that are not members, and the archive after success."""

from pathlib import Path

import pytest
from msgspec import structs

from s3unzip.api.options import parse_after_success
from s3unzip.errors import UsageError
from s3unzip.model import (
    AfterSuccess,
    Location,
    Options,
    Request,
    SourceAction,
    SourceResult,
    SourceState,
    Verdict,
    decode,
    encode,
)
from s3unzip.run_ids import run_id
from s3unzip.runs.records import REPORT, RUN
from s3unzip.settling import loop
from tests.support.memory import World
from tests.support.processes import Ended, Program
from tests.support.zips import DEFLATE, Entry, build

ENTRIES = tuple(Entry(name, name.encode() * 9, DEFLATE) for name in ("a.txt", "d/b.txt"))
BROKEN = Entry("c.txt", b"c" * 99, DEFLATE, local={"crc32": 1}, central={"crc32": 1})
MEMBERS = {"site/a.txt", "site/d/b.txt"}
DELETE = AfterSuccess(SourceAction.DELETE)


class Place(Program):
    """A folder with archives, which are extracted below ``out/site/``."""

    def site(self, *words: str, source: str = "a.zip", answer: str | None = None) -> Ended:
        """Extract an archive; `answer` is typed on a terminal."""
        return self.extract(source, "out", "--prefix", "site", *words, answer=answer)

    def put(self, *names: str) -> None:
        for name in names:
            path = self.folder / "out" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("extra")

    @property
    def names(self) -> set[str]:
        return set(self.files("out"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path)
    place.add("a.zip", *ENTRIES)
    place.add("broken.zip", *ENTRIES, BROKEN)
    return place


def test_only_extra_objects_below_the_prefix_are_deleted(place: Place) -> None:
    """Members and what is beside the prefix stay; a dry run tells it before and deletes nothing."""
    place.put("site/old.txt", "site/d/old.txt", "site2/kept.txt", "kept.txt")
    before = place.names
    dry = place.site("--delete-extra", "1000", "--dry-run", "--json").ends(0)
    keys = [one["key"] for one in dry.lines if one["action"] == "delete"]
    assert [key.rpartition("site/")[2] for key in keys] == ["d/old.txt", "old.txt"]
    assert "2 delete" in dry.err
    assert place.names == before
    place.site("--delete-extra", "1000").ends(0, "deleting 2 objects (10 B)")
    assert place.names == MEMBERS | {"site2/kept.txt", "kept.txt"}
    again = place.site("--delete-extra", "1000", "-q", "--on-conflict", "skip-unchanged")
    assert (again.code, again.err) == (0, "")


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
    assert place.site("--delete-extra", "1000", answer="y\n").code == 0
    assert place.names == MEMBERS


def test_more_extra_objects_than_the_number_are_kept(place: Place) -> None:
    """Above the number nothing is deleted, and the exit code says so."""
    place.put(*(f"site/{n}" for n in range(12)))
    place.site("--delete-extra", "11").ends(
        1,
        "12 objects (60 B) are not members of the archive",
        "nothing is deleted, because --delete-extra is 11",
    )
    assert len(place.names) == 12 + len(MEMBERS)
    place.site("--delete-extra", "1000", answer="n\n").says("and 2 more; --dry-run lists them all")
    assert place.site("--delete-extra", "12").code == 0
    assert place.names == MEMBERS


@pytest.mark.parametrize(
    ("source", "rule", "doomed"), [("a.zip", "never", False), ("broken.zip", "overwrite", True)]
)
def test_a_run_with_failures_deletes_nothing(
    place: Place, source: str, rule: str, *, doomed: bool
) -> None:
    """Neither one that refuses to overwrite an object nor one with a member that is broken."""
    place.put("site/a.txt", "site/old.txt")
    words = ("--delete-extra", "1000", "--on-conflict", rule)
    dry = place.site(*words, "--dry-run", source=source)
    assert ("delete" in dry.err) is doomed, "a dry run reads no data, so it knows no broken member"
    place.site(*words, source=source).ends(1).hides("deleting")
    assert "site/old.txt" in place.names


def test_the_marker_is_not_extra(place: Place) -> None:
    """A run that writes the marker keeps it; one that does not deletes an old one."""
    assert place.site("--marker", "--delete-extra", "1000").code == 0
    assert place.names == MEMBERS | {"site/_SUCCESS"}
    assert "delete" not in place.site("--marker", "--delete-extra", "1000", "--dry-run").err
    assert place.site("--delete-extra", "1000").code == 0
    assert place.names == MEMBERS


def test_another_archives_prefix_is_left_alone(place: Place) -> None:
    """What a run of another archive wrote below or above the prefix is not extra."""
    place.add("other.zip", Entry("site/x/theirs.txt", b"1"))
    assert place.extract("other.zip", "out", "--prefix", "").code == 0
    for words in ((), ("--dry-run",)):
        place.site("--delete-extra", "1000", *words).ends(
            2, "extracted another archive", "give each archive a prefix of its own"
        )
    assert place.names == {"site/x/theirs.txt"}


def test_links_are_not_followed(place: Place) -> None:
    """A link below the prefix stays, and so does what it leads to."""
    root = place.folder
    (root / "outside").mkdir()
    (root / "outside/precious.txt").write_text("mine")
    place.put("site/old.txt")
    (root / "out/site/link").symlink_to(root / "outside")
    (root / "out/site/file").symlink_to(root / "outside/precious.txt")
    assert place.site("--delete-extra", "1000").code == 0
    assert (root / "outside/precious.txt").read_text() == "mine"
    assert (root / "out/site/link").is_symlink()
    assert "site/old.txt" not in place.names


def test_the_archive_and_the_records_are_not_extra(place: Place) -> None:
    """A prefix that holds the archive itself, or the runs of this machine, is refused."""
    home = place.folder
    place.put("site/x")
    (home / "out/site/a.zip").write_bytes((home / "a.zip").read_bytes())
    (home / "link.zip").symlink_to(home / "out/site/a.zip")
    place.site("--delete-extra", "1000", source="link.zip").ends(2, "the archive (")
    place.variables["S3UNZIP_HOME"] = str(home / "out/site/runs")
    place.site("--delete-extra", "1000").ends(2, "the records of runs (")


def test_the_archive_is_deleted_after_success(place: Place) -> None:
    """The archive is gone; the report says so, also that which counts what was extra."""
    place.put("site/old.txt")
    ended = place.site("--delete-extra", "1000", "--after-success", "delete", "--json").ends(0)
    done = {"action": "delete", "state": "done"}
    assert ended.lines[0]["after_success"] == done
    assert "the archive is deleted" in ended.err
    assert place.run("show", "--json").lines[0]["after_success"] == done
    assert not (place.folder / "a.zip").exists()
    assert place.names == MEMBERS
    assert place.site("--after-success", "delete", source="broken.zip").code == 1
    assert (place.folder / "broken.zip").exists(), "only COMPLETED is success"


@pytest.mark.parametrize(
    ("source", "words", "said"),
    [
        *(
            ("a.zip", f"delete {words}", "members that are not extracted would be lost")
            for words in ("--limit 1", "-m a.txt", "-x a*", "--strip-components 1")
        ),
        ("a.zip", "burn", "'burn' must be delete or tag=NAME=VALUE"),
        ("a.zip", "delete=x", "must be delete or tag"),
        ("a.zip", "move=done", "must be delete or tag"),
        ("a.zip", "tag=a=b", "is a file, and files have no tags"),
        ("s3://arrivals/a.zip", "tag=a", "a tag is NAME=VALUE, not 'a'"),
        ("https://host/a.zip?key=secret", "delete", "https://host/a.zip?... is only read"),
    ],
)
def test_an_impossible_after_success_is_refused(
    place: Place, source: str, words: str, said: str
) -> None:
    """It is refused before anything is read, in words that say what is possible."""
    place.site("--after-success", *words.split(), source=source).ends(2, said)
    assert place.files().keys() == {"a.zip", "broken.zip"}


def test_an_archive_is_tagged_after_a_selection() -> None:
    """An archive is tagged after a selection, too; a value may have an equals sign."""
    tagged = parse_after_success(
        "tag=state=a=b", Location("s3", "arrivals", "t/a.zip"), Options(limit=1)
    )
    assert tagged == AfterSuccess(SourceAction.TAG, tags={"state": "a=b"})


@pytest.mark.parametrize("text", ['{"action": "tag"}', '{"action": "delete", "tags": {"a": "b"}}'])
def test_a_rule_that_says_too_little_or_too_much_is_refused(text: str) -> None:
    """Nothing is deleted that was to be tagged."""
    with pytest.raises(UsageError, match=r"tags are for the action tag"):
        decode(text, AfterSuccess)


@pytest.mark.parametrize("rule", [DELETE, AfterSuccess(SourceAction.TAG, tags={"a": "done"})])
@pytest.mark.parametrize("failed", [False, True])
def test_a_run_that_is_resumed_after_the_action_leaves_it(
    world: World, rule: AfterSuccess, *, failed: bool
) -> None:
    """The report still says that it is done; the same bytes, put again, stay as they are."""
    asked = world.request(build(*ENTRIES))
    bucket = world.buckets.bucket(asked.source.bucket)
    ruled = Request(asked.source, asked.destination, asked.options, after_success=rule)
    report = world.run_here(ruled)
    assert report.after_success is not None
    assert report.after_success.state is SourceState.DONE
    left = bucket.objects.get(asked.source.key)
    assert (left.facts.metadata if left else {}) == rule.tags
    assert report.pin is not None
    assert run_id(asked, report.pin, 0.0) == run_id(ruled, report.pin, 0.0)
    world.request(build(*ENTRIES))
    later = world.resume_here(report.run, failed=failed)
    assert later.verdict is Verdict.COMPLETED
    assert later.after_success == report.after_success
    assert bucket.objects[asked.source.key].facts.metadata == {}


def test_a_run_without_a_plan_is_resumed_with_the_rule_of_its_environment(world: World) -> None:
    """Its report names no rule: without this one the archive would stay as it is for ever."""
    rule = AfterSuccess(SourceAction.TAG, tags={"a": "done"})
    failed = structs.replace(world.run_here(world.request(build(*ENTRIES))), verdict=Verdict.FAILED)
    store = world.records(failed.run).store
    store.delete([RUN])
    store.write(REPORT, [encode(failed)])
    report = world.finish(loop.resume(failed.run, world.context, after_success=rule))
    assert report.after_success == SourceResult(SourceAction.TAG, SourceState.PENDING)
