"""``plan``: forecast a run, nothing written."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from s3unzip.cli.figures import print_json, warn
from s3unzip.cli.options import (
    DestinationConnection,
    Layout,
    Power,
    Reading,
    Selection,
    argument,
    as_gzip,
    environment,
    json,
    max_cost,
    option,
    source,
)
from s3unzip.cli.run import asking_for_a_prefix
from s3unzip.errors import UsageError
from s3unzip.model import GzipForm, Options, Request
from s3unzip.stores.locations import parse_destination, parse_source

if TYPE_CHECKING:
    from s3unzip.context import Context
    from s3unzip.estimate import Estimate, Platform
    from s3unzip.operate.runs import DeployedRuns


@dataclass(frozen=True)
class Plan(Selection, Layout, Reading, DestinationConnection, Power):
    """Estimate a run: its work, time and cost; nothing is written."""

    src: str = source()
    dest: str | None = argument("[DEST]", default=None, help="Where members would go.")
    on: str | None = option("--on", help="Estimate for aws or local; default: local.")
    env: str | None = environment()
    as_gzip: str | None = as_gzip()
    max_cost: float | None = max_cost()
    json: bool = json()

    def act(self) -> int:
        """Print the estimate; return the exit code."""
        from s3unzip.api.options import make_policy
        from s3unzip.context import Context
        from s3unzip.estimate import check_budget
        from s3unzip.stores.clock import LocalClock
        from s3unzip.stores.factory import open_stores

        deployed = None if self.env is None else self._deployed(self.env)
        options = self._chosen(Options() if deployed is None else deployed.orders.options)
        target = parse_destination(self.dest or ".")
        if deployed is not None and self.dest is None:
            target = deployed.orders.destination
        platform = self._platform(deployed)
        base = None if deployed is None else deployed.scale.tuning
        tuning = self.tuning(platform.workers, base)
        policy = make_policy(options, self.read_password(), target)
        request = Request(parse_source(self.src), target, options)
        self.check_source(request.source)
        context = Context(open_stores(self.config()), LocalClock(), policy, tuning)
        with asking_for_a_prefix(request.source):
            made = _estimate(request, context, platform)
        if self.json:
            print_json(made)
        else:
            from s3unzip.cli.estimates import print_estimate

            print_estimate(made, sys.stdout)
        limit = None if deployed is None else deployed.scale.max_cost
        check_budget(made, limit if self.max_cost is None else self.max_cost)
        return 0

    def _deployed(self, env: str) -> DeployedRuns:
        from s3unzip.cli.runs import open_deployed

        if self.on not in {None, "aws"}:
            raise UsageError(f"--env {env} is on aws, not on {self.on}")
        return open_deployed(env, self.config())

    def _chosen(self, ruled: Options) -> Options:
        """Return the options that are typed, else those of the environment."""
        typed = self.options()
        form = None if self.as_gzip is None else GzipForm(self.as_gzip)
        return replace(
            typed,
            key_template=self.template() or ruled.key_template,
            lenient=typed.lenient or ruled.lenient,
            encoding=typed.encoding or ruled.encoding,
            as_gzip=form or ruled.as_gzip,
        )

    def _platform(self, deployed: DeployedRuns | None) -> Platform:
        """Return the platform with its usual limits, or that of the environment."""
        from s3unzip.estimate import aws, local

        if deployed is not None:
            scale = deployed.scale
            return replace(scale.platform, workers=self.workers or scale.tuning.max_workers)
        if self.on in {None, "local"}:
            return local(workers=self.processes)
        if self.on == "aws":
            return aws(workers=self.workers or aws().workers)
        raise UsageError(f"--on takes aws or local, not {self.on!r}")


def _estimate(request: Request, context: Context, platform: Platform) -> Estimate:
    from s3unzip.api.options import judge_selection
    from s3unzip.estimate import Terms, count_sizes, estimate_archive
    from s3unzip.planning.cut import choose_workers
    from s3unzip.planning.plan import preview_plan

    preview = preview_plan(request, context)
    judge_selection(request.options, warn)(preview.reading)
    objects, where = request.options.objects, request.source
    selected = preview.reading.selected
    terms = Terms(
        members=len(selected),
        title=str(where),
        storage_class=(objects and objects.storage_class) or "STANDARD",
        sends_events=where.scheme == "s3" and where.bucket == request.destination.bucket,
        at_once=choose_workers(preview.tasks, context.tuning),
        sizes=count_sizes(member.size for member in selected),
    )
    return estimate_archive(preview.tasks, platform, context.tuning, terms)
