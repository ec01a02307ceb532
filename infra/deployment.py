"""`make bootstrap`, `synth`, `package`, `diff`, `deploy`, `put`, `unprotect`, `destroy`.

Before the CLI starts, this module checks the environment's file, the credentials, the region and
the bootstrap stack, and names what is missing. `cdk` does the rest, with cdk.json, on this
terminal.
"""

import argparse
import os
import re
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from boto3.exceptions import S3UploadFailedError
from botocore.exceptions import BotoCoreError, ClientError

from infra import RefusedError
from infra.account import (
    Account,
    DeployedStack,
    check_bootstrap,
    check_named,
    empty_bucket,
    explain,
    find_account,
    find_stack,
    list_runs,
    stop_runs,
)
from infra.cdk_cli import run_cdk
from infra.environment import DEFAULT_INTAKE, Environment
from infra.environment_file import (
    FOLDER,
    SETTING,
    EnvironmentFileError,
    load_environment,
)
from infra.routes import takes, widest
from infra.sections import BUCKET_NAME, StackSection
from s3unzip.model import Location
from s3unzip.printable import show_count
from s3unzip.settings import STACK

BEGIN_SECONDS = 300.0  # limit from a put to its run: event, queue, plan of a large archive
QUALIFIER = StackSection.model_fields["qualifier"].default
UNRESERVED = 100  # of the account's concurrency, which no function may reserve


@dataclass(frozen=True, slots=True)
class Wish:
    """The arguments of the command line."""

    environment: Environment
    settings: tuple[str, ...]  # ``section.setting=value``, replaces the file's value
    yes: bool  # do not ask for a confirmation
    archive: Path | None
    key: str = ""  # of the archive in the ingest bucket; "acme/" is a prefix
    bucket: str = ""  # that will hold a package's asset

    @property
    def context(self) -> list[str]:
        """The context options of the CLI."""
        pairs = (f"env={self.environment.name}", *self.settings)
        return [word for pair in pairs for word in ("-c", pair)]

    def make_arguments(self, *extra_settings: str) -> str:
        """Return the arguments of `make` for this environment with its settings, for a shell."""
        settings = " ".join((*self.settings, *extra_settings))
        return f"ENV={self.environment.name}" + (settings and f" SET={shlex.quote(settings)}")


def bootstrap(wish: Wish) -> int:
    """Prepare the account and region for CDK, once."""
    account = find_account(wish.environment)
    qualifier = wish.environment.stack.qualifier
    # Without an app, which would be synthesized for its accounts and regions: this one is known.
    options = ["--app", "", "--qualifier", qualifier]
    if qualifier != QUALIFIER:
        options += ["--toolkit-stack-name", f"CDKToolkit-{qualifier}"]
    return run_cdk(
        ["bootstrap", f"aws://{account.id}/{account.region}", *options, *wish.context],
        account.variables,
    )


def synth(wish: Wish) -> int:
    """Write the template to cdk.out; it needs no account."""
    return run_cdk(["synth", "--quiet", *wish.context])


def package(wish: Wish) -> int:
    """Write one template and the functions' asset; it needs no account."""
    environment = wish.environment
    if not wish.bucket:
        raise RefusedError(
            f"which bucket will hold the asset? make package {wish.make_arguments()} BUCKET=name"
        )
    if not re.fullmatch(BUCKET_NAME, wish.bucket):
        raise RefusedError(f"BUCKET={wish.bucket} is no name of a bucket: write BUCKET=artifacts")
    from infra.package import write_package  # noqa: PLC0415 - it starts jsii

    folder = write_package(environment, wish.bucket)
    shown = os.path.relpath(folder)
    (asset,) = folder.glob("*.zip")
    _say(
        f"{shown}/template.json and its asset, {asset.stat().st_size / 1e6:.0f} MB\n"
        f"aws s3 cp {shown}/{asset.name} s3://{wish.bucket}/{asset.name}\n"
        f"aws cloudformation deploy --stack-name {environment.stack.name} "
        f"--template-file {shown}/template.json --s3-bucket {wish.bucket} "
        "--capabilities CAPABILITY_IAM"
    )
    return 0


def diff(wish: Wish) -> int:
    """Print what a deployment would change."""
    account = find_account(wish.environment)
    check_bootstrap(account, wish.environment.stack.qualifier, wish.make_arguments())
    return run_cdk(["diff", *wish.context, *fit_account(account, wish)], account.variables)


def deploy(wish: Wish) -> int:
    """Create or update the stack; the CLI prints its outputs."""
    account = find_account(wish.environment)
    check_bootstrap(account, wish.environment.stack.qualifier, wish.make_arguments())
    check_named(account, wish.environment)
    _say(f"{wish.environment.stack.name}: account {account.id}, region {account.region}")
    options = [*wish.context, *fit_account(account, wish)]
    if wish.yes:
        options += ["--require-approval", "never"]
    code = run_cdk(["deploy", *options], account.variables)
    if code == 0:
        _say(f"\nTry it: make put {wish.make_arguments()} ARCHIVE=archive.zip")
    elif not (wish.yes or sys.stdin.isatty()):
        _say(
            "There is no terminal on which somebody could confirm changes of rights: look with "
            f"make diff {wish.make_arguments()}, then add YES=1"
        )
    return code


def fit_account(account: Account, wish: Wish) -> list[str]:
    """Return context options with which the environment fits the account's quotas.

    Lambda keeps at least 100 for functions without a reservation (developer guide of Lambda,
    "Configuring reserved concurrency"), and new accounts have as few as 10 in all, and less memory.

    Raises:
        RefusedError: a function needs more memory than the account allows.
    """
    _check_memory(account, wish)
    environment = wish.environment
    reserved = {name: section.reserved_concurrency for name, section in environment.functions}
    stack = _find_own_stack(account, wish)
    free = account.unreserved_concurrency(stack.functions if stack else ())
    if free is None:
        return []
    settings = []
    at_once = environment.intake_concurrency
    wanted = sum(reserved.values())
    if wanted and wanted + UNRESERVED > free:
        settings = [f"functions.{name}.reserved_concurrency=0" for name in reserved]
        at_once = environment.intake.concurrency or DEFAULT_INTAKE
        _say(
            f"warning: Lambda has {free:,} concurrent executions left in this account, too few for "
            f"the reservations of {environment.name} ({wanted:,}): they are left out, so runs can "
            "take what other functions need. Ask for a higher quota: docs/howto/bursts.md"
        )
    if at_once > free:
        # The event source of a queue has at least 2.
        settings.append(f"intake.concurrency={max(2, free // 2)}")
    return [word for setting in settings for word in ("-c", setting)]


def _check_memory(account: Account, wish: Wish) -> None:
    """Refuse an environment whose functions need more memory than the account allows."""
    memories = {name: section.memory for name, section in wish.environment.functions}
    limit = account.memory_limit(max(memories.values()))
    if limit is None:
        return
    too_large = [name for name, memory in memories.items() if memory > limit]
    names = ", ".join(f"functions.{name}.memory ({memories[name]:,} MB)" for name in too_large)
    settings = [f"functions.{name}.memory={limit}" for name in too_large]
    if "plan" in too_large:
        settings += wish.environment.fit_plan(limit)
    raise RefusedError(
        f"Lambda allows functions of at most {limit:,} MB in this account, less than {names}. "
        "Nothing was deployed. Ask AWS Support for more memory, or deploy with smaller "
        f"functions: make deploy {wish.make_arguments(*settings)}"
    )


def put(wish: Wish) -> int:
    """Put an archive into the ingest bucket; wait until its run has begun."""
    archive = wish.archive
    if archive is None:
        raise RefusedError(
            f"which archive? make put {wish.make_arguments()} ARCHIVE=path/to/archive.zip"
        )
    if not archive.is_file():
        raise RefusedError(f"{archive}: there is no such file")
    key = wish.key or wish.environment.ingest.prefix
    if key.endswith("/") or not wish.key:
        key += archive.name
    routes = wish.environment.all_routes
    if not any(takes(route, key) for route in routes):
        patterns = " and ".join(f"{route.prefix}*{route.suffix}" for route in widest(routes))
        raise RefusedError(
            f"{key}: only keys of {patterns} start runs: name another one, KEY=prefix/archive.zip, "
            f"or change infra/environments/{wish.environment.name}.toml"
        )
    account, stack = _find(wish)
    bucket = stack.outputs.get("IngestBucket")
    if bucket is None:
        raise RefusedError(
            f"the stack {stack.name} was never created to its end: docs/howto/first-deployment.md"
        )
    s3 = account.client("s3")
    s3.upload_file(str(archive), bucket, key)
    _say(f"put to s3://{bucket}/{key}")
    put_at = s3.head_object(Bucket=bucket, Key=key)["LastModified"]
    deadline = time.monotonic() + BEGIN_SECONDS
    while not (begun := list_runs(account, stack, Location("s3", bucket, key), put_at)):
        if time.monotonic() > deadline:
            raise RefusedError(
                f"no run began in {BEGIN_SECONDS:.0f} s: read the log of the function "
                f"{stack.outputs['IntakeFunction']}, and docs/deploy.md, Where to look"
            )
        time.sleep(1)
    _say(
        f"run {min(begun)} began: .venv/bin/s3unzip watch --env {stack.name.removeprefix(STACK)} "
        f"--region {account.region}"
    )
    return 0


def unprotect(wish: Wish) -> int:
    """Turn off the stack's termination protection until the next deployment."""
    account, stack = _find(wish)
    account.client("cloudformation").update_termination_protection(
        StackName=stack.name, EnableTerminationProtection=False
    )
    _say(f"{stack.name} can now be destroyed; the next deployment protects it again")
    return 0


def destroy(wish: Wish) -> int:
    """Delete the stack, its created buckets and all their objects."""
    account, stack = _find(wish)
    if stack.protected:
        raise RefusedError(
            f"{stack.name} is protected against deletion (stack.retain = true): run "
            f"`make unprotect {wish.make_arguments()}` first if you really want to delete it"
        )
    _say(
        f"This deletes the stack {stack.name} of account {account.id} in {account.region}"
        + (", and with all their objects the buckets" if stack.buckets else "; its buckets stay")
    )
    for bucket in stack.buckets:
        _say(f"  {bucket}")
    if not wish.yes and _ask(f"Type {stack.name} to go on: ") != stack.name:
        raise RefusedError("nothing was deleted")
    stopped = stop_runs(account, stack)
    if stopped:
        _say(f"{show_count(stopped, 'run')} stopped")
    for bucket in stack.buckets:
        _say(f"{bucket}: {empty_bucket(account, bucket):,} objects deleted")
    return run_cdk(["destroy", *wish.context, "--force"], account.variables)


def _find(wish: Wish) -> tuple[Account, DeployedStack]:
    """Return the account and the stack of an environment; refuse one that is not deployed."""
    account = find_account(wish.environment)
    stack = _find_own_stack(account, wish)
    if stack is None:
        raise RefusedError(
            f"there is no stack {wish.environment.stack.name} in account {account.id}, region "
            f"{account.region}: create it with `make deploy {wish.make_arguments()}`; if it is "
            "elsewhere, check AWS_PROFILE and AWS_DEFAULT_REGION"
        )
    return account, stack


def _find_own_stack(account: Account, wish: Wish) -> DeployedStack | None:
    """Return the stack of an environment, None if there is none; refuse another environment's."""
    name = wish.environment.name
    stack = find_stack(account, wish.environment.stack.name)
    if stack is not None and stack.outputs.get("Environment", name) != name:
        raise RefusedError(
            f"the stack {stack.name} in account {account.id}, region {account.region} is of the "
            f"environment {stack.outputs['Environment']}: give infra/environments/{name}.toml a "
            "stack.name of its own; if the file was renamed, run once: "
            f".venv/bin/cdk deploy {shlex.join(wish.context)}"
        )
    return stack


def _ask(question: str) -> str:
    try:
        return input(question).strip()
    except EOFError:
        return ""


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


COMMANDS: dict[str, Callable[[Wish], int]] = {
    command.__name__: command
    for command in (bootstrap, synth, package, diff, deploy, put, unprotect, destroy)
}


def _read_arguments() -> tuple[Callable[[Wish], int], Wish]:
    parser = argparse.ArgumentParser(prog="infra.deployment", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--env", default="", help="the environment, a file of infra/environments")
    parser.add_argument("--set", default="", metavar="SETTING=VALUE...", help="separated by spaces")
    parser.add_argument("--yes", action="store_true", help="ask nothing")
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--key", default="", help="of the archive, or a prefix that ends in /")
    parser.add_argument("--bucket", default="", help="that will hold a package's asset")
    chosen = parser.parse_args()
    if not chosen.env:
        known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.toml")))
        raise RefusedError(f"which environment? make {chosen.command} ENV=dev (known: {known})")
    settings: dict[str, object] = {}
    for pair in chosen.set.split():
        setting, equals, value = pair.partition("=")
        if not equals or not SETTING.fullmatch(setting):
            raise RefusedError(f"SET={pair}: write section.setting=value")
        settings[setting] = value
    return COMMANDS[chosen.command], Wish(
        environment=load_environment(chosen.env, settings=settings),
        settings=tuple(chosen.set.split()),
        yes=chosen.yes,
        archive=chosen.archive,
        key=chosen.key,
        bucket=chosen.bucket,
    )


def main() -> None:
    """Run one command; exit with its exit code, or with one line that says what is wrong."""
    try:
        command, wish = _read_arguments()
        code = command(wish)
    except (EnvironmentFileError, RefusedError, S3UploadFailedError) as error:
        sys.exit(str(error))
    except (BotoCoreError, ClientError) as error:
        sys.exit(explain(error))
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(code)


if __name__ == "__main__":
    main()
