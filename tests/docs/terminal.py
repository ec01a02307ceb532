"""A terminal as a reader has one: a shell that keeps its state, and questions that get answers."""

import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

# The shell takes commands from a pipe, so that the terminal is the commands' own.
LOOP = 'while IFS= read -r -u "$1" line; do eval "$line"; printf "\\n%s%d\\n" "$2" "$?"; done'
DONE = "::the command ended with "
SIZE = (24, 80)  # rows and columns, of a terminal that nobody enlarged
ENDED = re.compile(re.escape(DONE) + r"(\d+)\r?\n")
COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What the documented commands ask, and what a reader who goes on types.
QUESTIONS = ((re.compile(r"\(y/n\)[^\n]*$"), "y"), (re.compile(r"Type (\S+) to go on: $"), r"\1"))


@dataclass(frozen=True, slots=True)
class Answer:
    """How a command ended, and all that it printed, without colours."""

    exit_code: int
    text: str


class Terminal:
    """One shell in `folder` with exactly these `variables`; a context manager."""

    def __init__(self, folder: Path, variables: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        # Without a size the CDK CLI wraps its tables after a few letters, and writes megabytes.
        termios.tcsetwinsize(slave, SIZE)
        commands, self._commands = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", LOOP, "bash", str(commands), DONE],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env=dict(variables),
            pass_fds=(commands,),
            start_new_session=True,
        )
        os.close(slave)
        os.close(commands)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._commands)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._master)

    def run(self, command: str, seconds: float) -> Answer:
        os.write(self._commands, f"{command}\n".encode())
        deadline = time.monotonic() + seconds
        text, answered, line = "", 0, 0
        while not (ended := ENDED.search(text, line)):
            if not select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise TimeoutError(f"{command}: not ended in {seconds:.0f} s\n{text[-2_000:]}")
            line = text.rfind("\n") + 1  # the one that goes on: those before it have been searched
            text += COLOURS.sub("", os.read(self._master, 65_536).decode(errors="replace"))
            for question, reply in QUESTIONS:
                found = question.search(text, max(answered, line))
                if found:
                    os.write(self._master, f"{found.expand(reply)}\n".encode())
                    answered = len(text)
        return Answer(int(ended[1]), text[: ended.start()])
