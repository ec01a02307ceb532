"""The environment under test, as an operator sees it: its stack's outputs and boto3.

Everything that the set creates has the set's token in its key, its run's id or its name. So the set
can recognise and remove its own objects.
"""

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from acceptance.archives import Archive, upload
from s3unzip.api.verification import Effort, Verification, read_written, verify_objects
from s3unzip.aws.environment import read_secret
from s3unzip.cli.main import main as s3unzip
from s3unzip.context import Context
from s3unzip.errors import UsageError
from s3unzip.model import Location, Pin, Report, Request
from s3unzip.operate.doctor import count_messages
from s3unzip.operate.runs import DeployedRuns
from s3unzip.planning.select import parse_template
from s3unzip.run_ids import run_id
from s3unzip.runs.run_list import RUNNING
from s3unzip.settings import GIB, Variable
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.ports import Clock
from s3unzip.zip import Policy

FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0  # seconds between two looks
SIGNALLED = 128  # above it, an exit code names the signal that stopped a command
QUIET_READINGS = 3  # in a row; the queue's counts are approximate
IDLE_SECONDS = 60.0  # limit of waiting for a queue that others use too
HEADS = 64  # at once, of a verify
DEEP_BYTES = GIB  # of the largest archive whose objects are all read


class Mismatch(Exception):  # noqa: N818 - it is a finding, not a fault of the program
    """The unexpected result of a case, in one line."""


class NotApplicableError(Exception):
    """The reason why a case does not apply to this environment."""


@dataclass(frozen=True, slots=True)
class Put:
    """An archive in the ingest bucket, and the run that its event starts."""

    name: str
    archive: Archive
    request: Request
    pin: Pin
    run: str

    @property
    def key(self) -> str:
        return self.request.source.key


class Site:
    """One deployed environment, and the set's keys in it.

    Args:
        environment: its name; the stack is s3unzip-NAME.
        token: what everything of this set is called by.
        seconds: that a run may take until its report.
    """

    def __init__(self, environment: str, token: str, seconds: float) -> None:
        self.environment = environment
        self.token = token
        self.seconds = seconds
        self.runs = DeployedRuns(environment, StoreConfig(connections=HEADS))
        self.config = self.runs.config
        self.s3, self.sqs = self.runs.client("s3"), self.runs.client("sqs")
        self.ingest = self.config.environment_defaults.ingest_bucket
        self.event_bus = self.runs.variables.get(Variable.EVENT_BUS) or "default"
        options = self.config.environment_defaults.options
        if options.include or options.exclude:
            raise UsageError(
                f"environment {environment}: extracts only some members (options.include, "
                "options.exclude); run the set against one that extracts all"
            )
        if token not in self.member_prefix("any"):
            raise UsageError(
                f"environment {environment}: members of all archives go to the same keys "
                f"({options.key_template}); run the set against one with {{archive_stem}} in its "
                "key template, so that it can remove its own"
            )

    @cached_property
    def password(self) -> bytes | None:
        """The environment's password for encrypted archives, None if it has none."""
        secret = self.config.environment_defaults.options.password_ref
        return None if secret is None else read_secret(secret, self.runs.client("secretsmanager"))

    def key(self, name: str) -> str:
        own = self.config.environment_defaults
        return f"{own.ingest_prefix}{self.token}/{self.token}-{name}{own.ingest_suffix}"

    def request(self, key: str) -> Request:
        return Request(
            Location("s3", self.ingest, key),
            self.config.environment_defaults.destination,
            self.config.environment_defaults.options,
        )

    def member_prefix(self, name: str) -> str:
        return parse_template(self.request(self.key(name))).prefix

    def put(self, name: str, archive: Archive) -> Put:
        upload(self.s3, self.ingest, self.key(name), archive)
        return self.find(name, archive)

    def find(self, name: str, archive: Archive) -> Put:
        request = self.request(self.key(name))
        tail = self.runs.stores.source(request.source).tail(request.source, 1)
        return Put(name, archive, request, tail.pin, run_id(request, tail.pin, tail.modified))

    def wait_report(self, put: Put, after: float = 0.0) -> Report:
        """Return the run's report when it has ended.

        Args:
            put: the archive.
            after: a report that was finished earlier, in Unix seconds, is not it.
        """
        for _ in self.looks(self.seconds):
            report = self.runs.find_final_report(put.run)
            if report is not None and report.finished > after:
                return report
        state = self.runs.state(put.run)
        if state is not None:
            raise Mismatch(f"run {put.run} has no report after {self.seconds:.0f} s: {state}")
        raise Mismatch(
            f"no run of s3://{self.ingest}/{put.key} began in {self.seconds:.0f} s: is the "
            "EventBridge rule enabled, and what does the plan function log?"
        )

    def wait_running(self, put: Put) -> bool:
        """Wait until the execution is active and has a plan; return False if it has ended."""
        for _ in self.looks(self.seconds):
            state = self.runs.state(put.run)
            if state is not None and state != RUNNING:
                return False
            records = self.runs.records(put.run)
            if state == RUNNING and records.find_plan() is not None:
                return True
            if state is None and records.find_report() is not None:  # it had no execution
                return False
        raise Mismatch(f"no run of s3://{self.ingest}/{put.key} began in {self.seconds:.0f} s")

    def verify(self, put: Put, password: bytes | None = None) -> Verification:
        """Compare the destination with the archive, as `s3unzip verify` does."""
        options = self.config.environment_defaults.options
        context = Context(
            stores=self.runs.stores,
            clock=Clock(),
            policy=Policy(lenient=options.lenient, encoding=options.encoding, password=password),
        )
        deep = put.pin.size <= DEEP_BYTES
        written = read_written([self.runs.records(put.run)], put.request.destination)
        return verify_objects(put.request, context, Effort(HEADS, 3, deep=deep), written)

    @staticmethod
    def call(*words: str) -> tuple[int, str]:
        """Run the command line ``s3unzip`` with `words`; return its exit code and output."""
        out, error = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
                s3unzip(words)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        if code > SIGNALLED:
            raise KeyboardInterrupt
        if code not in {0, 1}:
            raise Mismatch(f"s3unzip {words[0]}: exit code {code}: {error.getvalue().strip()}")
        return code, out.getvalue()

    def wait_idle(self, quiet: float = 0.5) -> None:
        """Wait until the queue stays empty; the wait has a limit, because others may use the queue.

        `quiet` are the seconds between two readings.
        """
        url, empty = self.runs.outputs["QueueUrl"], 0
        until = time.monotonic() + IDLE_SECONDS
        while empty < QUIET_READINGS and time.monotonic() < until:
            time.sleep(quiet)
            empty = 0 if count_messages(self.runs, url) else empty + 1

    def looks(self, seconds: float) -> Iterator[None]:
        """Yield now and after growing pauses, until `seconds` are over."""
        until = time.monotonic() + seconds
        pause = FIRST_PAUSE
        while True:
            yield
            if time.monotonic() >= until:
                return
            time.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 1.3)

    def until(self, seconds: float, holds: Callable[[], bool]) -> bool:
        """Wait until `holds` returns true; return whether it did in time."""
        return any(holds() for _ in self.looks(seconds))
