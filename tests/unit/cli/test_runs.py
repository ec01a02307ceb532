"""Commands on runs whose output is no terminal."""

from pathlib import Path

from s3unzip.model import Report, decode
from tests.processes import Program
from tests.zips import Entry, build


def test_an_ended_run_without_failures_says_so(tmp_path: Path) -> None:
    """One line for a person, and not a byte but JSON where JSON is expected."""
    (tmp_path / "a.zip").write_bytes(build(Entry("a.txt", b"1")))
    program = Program(tmp_path)
    assert program.run("run", "a.zip", "out", "-w", "1").code == 0
    shown, watched = program.run("show", "--failures").out, program.run("watch").out
    run, end = shown.split(": ")
    assert (end, watched) == ("COMPLETED, no member failed\n", f"{run}: COMPLETED\n")
    ended = program.run("show", "--failures", "--json")
    assert (ended.out, ended.err) == ("", shown)
    *_, last = program.run("watch", "--json").out.splitlines()
    assert decode(last, Report).run == run
