"""The secrets of a URL: in which files of a run they lie."""

from pathlib import Path

import pytest

from s3unzip.cli.main import main
from tests.servers import Asked, HttpServer, Reply, WebFiles
from tests.zips import Entry, build

SECRET = "X-Signature=very-secret"


def code_of(*arguments: str) -> object:
    """Run a command; return its exit code."""
    with pytest.raises(SystemExit) as end:
        main(arguments)
    return end.value.code


def test_only_one_file_of_a_run_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`run.json` has the query, because a redrive reads by it; nothing else has or shows it."""
    monkeypatch.setenv("S3UNZIP_HOME", str(tmp_path / "home"))
    files = WebFiles({"a.zip": build(Entry("x", b"1"))})
    refused: list[str] = []

    def answer(asked: Asked) -> Reply:
        if SECRET not in asked.path:
            refused.append(asked.path)
        return files(asked)

    with HttpServer(answer) as server:
        url = f"{server.url}/a.zip?{SECRET}"
        assert code_of("run", url, str(tmp_path / "out"), "-w", "1") == 0
        assert code_of("resume", "latest") == 0
    assert refused == []
    kept = [path for path in (tmp_path / "home").rglob("*") if path.is_file()]
    names = [path.name for path in kept if b"very-secret" in path.read_bytes()]
    assert names == ["run.json"]
    shown = capsys.readouterr()
    assert "very-secret" not in shown.out + shown.err
