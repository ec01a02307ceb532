"""Commands that the acceptance set runs in its own process."""

import signal
import threading

import pytest

from acceptance.site import Mismatch, Site
from s3unzip.cli.terminal import Stopping
from tests.support.servers import Asked, HttpServer, Reply


def test_an_exit_code_that_no_case_expects() -> None:
    """The row of the case has it, with what the command said."""
    with pytest.raises(Mismatch, match=r"ls: exit code 6: s3unzip: .*no-such\.zip"):
        Site.call("ls", "no-such.zip")


def test_ctrl_c_during_a_command_ends_the_set() -> None:
    """The command ends as it does alone, and the set with it."""

    def interrupt(_: Asked) -> Reply:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return Reply(404)

    def call(url: str) -> None:
        with Stopping().like_ctrl_c():
            Site.call("ls", f"{url}/a.zip")

    with HttpServer(interrupt) as server, pytest.raises(KeyboardInterrupt):
        call(server.url)
