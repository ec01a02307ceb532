"""`make bootstrap`, `synth`, `package`, `diff`, `deploy`, `put`, `unprotect`, `destroy`.

This module checks the environment's file, the credentials, the region and the bootstrap stack, and
names what is missing. Then it runs the CDK CLI on this terminal, with the context of cdk.json.
"""

import argparse
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from boto3.exceptions import S3UploadFailedError

from infra import RefusedError
from infra.account import (
    AWS_ERRORS,
    Account,
    DeployedStack,
    check_bootstrap,
    check_records,
    check_resources,
    empty_bucket,
    explain,
    find_account,
    find_stack,
    list_runs,
    start_functions,
    stop_pipeline,
)
from infra.cdk_cli import run_cdk
from infra.environment import DEFAULT_INTAKE, Environment
from infra.environment_file import FOLDER, SETTING, load_environment
from infra.sections import BUCKET_NAME, IP_ADDRESS, StackSection
from s3unzip.model import Location
from s3unzip.printable import show_count
from s3unzip.settings import STACK_PREFIX, spellings

BEGIN_SECONDS = 300.0  # maximum time from a PUT to its run: event, queue, plan of a large archive
QUALIFIER = StackSection.model_fields["qualifier"].default
# What the command says after Ctrl-C. CloudFormation does not stop with the CDK CLI.
STOPPED = {
    "deploy": "stopped, but CloudFormation completes an update that has begun. `s3unzip doctor` "
    "shows its status. Then run `make deploy` again",
    "destroy": "stopped; the functions may be stopped and the buckets emptied, and CloudFormation "
    "completes a deletion that has begun. Run `make destroy` again; to keep the environment, run "
    "`make deploy`, which starts the functions again",
}
# What to do if CloudFormation hangs; a creation cannot be cancelled (API_CancelUpdateStack).
HANGING = {
    "CREATE_IN_PROGRESS": "; if the creation hangs, delete the stack with `make destroy`",
    "UPDATE_IN_PROGRESS": "; if the update hangs, cancel it: aws cloudformation "
    "cancel-update-stack --stack-name {}",
}
UNRESERVED = 100  # part of the account's concurrency that functions are not allowed to reserve


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of the command line."""

    environment: Environment
    settings: tuple[str, ...]  # each is ``section.setting=value`` and replaces the file's value
    yes: bool  # do not ask for confirmation
    archive: Path | None  # the archive for `put`
    key: str = ""  # key of the archive in the ingest bucket, or a prefix that ends in "/"
    bucket: str = ""  # name of the bucket that will hold the asset of a package

    @property
    def context(self) -> list[str]:
        """The context options of the CLI."""
        return [
            word
            for pair in (f"env={self.environment.name}", *self.settings)
            for word in ("-c", pair)
        ]

    def for_make(self, *extra_settings: str) -> str:
        """Return the arguments of `make` for this environment and settings, quoted for a shell."""
        settings = " ".join((*self.settings, *extra_settings))
        return f"ENV={self.environment.name}" + (settings and f" SET={shlex.quote(settings)}")


def bootstrap(arguments: Arguments) -> int:
    """Prepare the account and region for CDK, once."""
    account = find_account(arguments.environment)
    qualifier = arguments.environment.stack.qualifier
    # Without an app: it would be synthesized to find out the account, which is known here.
    options = ["--app", "", "--qualifier", qualifier]
    if qualifier != QUALIFIER:
        options += ["--toolkit-stack-name", f"CDKToolkit-{qualifier}"]
    return run_cdk(
        ["bootstrap", f"aws://{account.id}/{account.region}", *options, *arguments.context],
        account.variables,
    )


def synth(arguments: Arguments) -> int:
    """Write the template to cdk.out; no AWS account is needed."""
    return run_cdk(["synth", "--quiet", *arguments.context])


def package(arguments: Arguments) -> int:
    """Write one template and the functions' asset; no AWS account is needed."""
    environment = arguments.environment
    if not arguments.bucket:
        raise RefusedError(
            f"which bucket will hold the asset? make package {arguments.for_make()} BUCKET=name"
        )
    if not (
        3 <= len(arguments.bucket) <= 63
        and re.fullmatch(BUCKET_NAME, arguments.bucket)
        and not re.fullmatch(IP_ADDRESS, arguments.bucket)
    ):
        raise RefusedError(
            f"BUCKET={arguments.bucket} is not a bucket name: write BUCKET=artifacts"
        )
    from infra.package import write_package  # noqa: PLC0415 - starts jsii

    shown = os.path.relpath(write_package(environment, arguments.bucket))
    (asset,) = Path(shown).glob("*.zip")
    _say(
        f"{shown}/template.json and its asset, {asset.stat().st_size / 1e6:.0f} MB\n"
        f"aws s3 cp {shown}/{asset.name} s3://{arguments.bucket}/{asset.name}\n"
        f"aws cloudformation deploy --stack-name {environment.stack.name} "
        f"--template-file {shown}/template.json --s3-bucket {arguments.bucket} "
        "--capabilities CAPABILITY_IAM"
    )
    return 0


def diff(arguments: Arguments) -> int:
    """Print what a deployment would change."""
    account = find_account(arguments.environment)
    check_bootstrap(account, arguments.environment.stack.qualifier, arguments.for_make())
    return run_cdk(
        ["diff", *arguments.context, *fit_account(account, arguments)], account.variables
    )


def deploy(arguments: Arguments) -> int:
    """Create or update the stack; the CLI prints its outputs."""
    account = find_account(arguments.environment)
    check_bootstrap(account, arguments.environment.stack.qualifier, arguments.for_make())
    check_resources(account, arguments.environment)
    check_records(account, arguments.environment)
    _say(f"{arguments.environment.stack.name}: account {account.id}, region {account.region}")
    options = [*arguments.context, *fit_account(account, arguments)]
    if arguments.yes:
        options += ["--require-approval", "never"]
    code = run_cdk(["deploy", *options], account.variables)
    if code == 0:
        _, stack = _find(arguments)
        for name in start_functions(account, stack):
            _say(f"{name} was stopped, as by `make destroy`; Lambda calls it again")
        _say(f"\nTry it: make put {arguments.for_make()} ARCHIVE=archive.zip")
    elif not (arguments.yes or sys.stdin.isatty()):
        _say(
            "Changes of permissions must be confirmed on a terminal: look at them with "
            f"make diff {arguments.for_make()}, then add YES=1"
        )
    return code


def fit_account(account: Account, arguments: Arguments) -> list[str]:
    """Return the options of the CLI with which the environment fits the account's quotas.

    If the account has too little concurrency, reservations are left out, with a warning. At least
    100 concurrent executions stay free for functions without a reservation (Lambda guide,
    "Configuring reserved concurrency"). A new account may have only 10 in total, and less memory.
    If the credentials may not read the account's concurrency, there are no options.

    Raises:
        RefusedError: a function needs more memory than the account allows, or CloudFormation is
            changing the stack or cannot update it.
    """
    _check_memory(account, arguments)
    environment = arguments.environment
    reserved = {name: section.reserved_concurrency for name, section in environment.functions}
    stack = _find_own_stack(account, arguments)
    _refuse_busy(stack)
    if stack and stack.status == "DELETE_FAILED":
        raise RefusedError(
            f"the stack {stack.name} is DELETE_FAILED: some of its resources may be gone, and "
            f"CloudFormation cannot update it. Run `make destroy {arguments.for_make()}`, then "
            "this command again"
        )
    if stack and stack.status.startswith("ROLLBACK_"):
        _say(
            f"warning: the stack {stack.name} is {stack.status}: its creation failed, so it has no "
            "resources, although its template may show no difference. `make deploy` deletes the "
            "stack and creates all resources (docs/howto/first-deployment.md)"
        )
    free = account.unreserved_concurrency(stack.functions if stack else ())
    if free is None:
        return []
    settings = []
    intake_concurrency = environment.intake_concurrency
    total = sum(reserved.values())
    if total and total + UNRESERVED > free:
        settings = [f"functions.{name}.reserved_concurrency=0" for name in reserved]
        # Without a reservation, the default of intake is another one.
        intake_concurrency = environment.intake.concurrency or DEFAULT_INTAKE
        _say(
            f"warning: Lambda has {free:,} concurrent executions left in this account, too few for "
            f"the reservations of {environment.name} ({total:,}): they are left out, so runs can "
            "take what other functions need. Ask for a higher quota: docs/howto/bursts.md"
        )
    if intake_concurrency > free:
        # The event source of a queue has at least 2.
        settings.append(f"intake.concurrency={max(2, free // 2)}")
    return [word for setting in settings for word in ("-c", setting)]


def _check_memory(account: Account, arguments: Arguments) -> None:
    """Refuse an environment whose functions need more memory than the account allows."""
    memories = {name: section.memory for name, section in arguments.environment.functions}
    limit = account.memory_limit(max(memories.values()))
    if limit is None:
        return
    too_large = [name for name, memory in memories.items() if memory > limit]
    names = ", ".join(f"functions.{name}.memory ({memories[name]:,} MB)" for name in too_large)
    settings = [f"functions.{name}.memory={limit}" for name in too_large]
    if "plan" in too_large:
        settings += arguments.environment.fit_plan(limit)
    raise RefusedError(
        f"Lambda allows functions of at most {limit:,} MB in this account, less than {names}. "
        "Nothing was deployed. Ask AWS Support for more memory, or deploy with smaller "
        f"functions: make deploy {arguments.for_make(*settings)}"
    )


def put(arguments: Arguments) -> int:
    """Upload an archive to the ingest bucket; wait until its run has begun."""
    archive = arguments.archive
    if archive is None:
        raise RefusedError(
            f"which archive? make put {arguments.for_make()} ARCHIVE=path/to/archive.zip"
        )
    if not archive.is_file():
        raise RefusedError(f"{archive}: there is no such file")
    account, stack = _find(arguments)
    bucket = stack.outputs.get("IngestBucket")
    if bucket is None:
        raise RefusedError(
            f"the stack {stack.name} was never created completely: docs/howto/first-deployment.md"
        )
    # The deployed settings count: the file may have changed, or `SET` replaced its settings. Each
    # route has a pair of a prefix and a suffix; the environment's own route is the last.
    routes = json.loads(stack.outputs["IngestKeys"])
    key = arguments.key or routes[-1][0]
    if key.endswith("/") or not arguments.key:
        key += archive.name
    if not any(key.startswith(prefix) and key.endswith(spellings(end)) for prefix, end in routes):
        patterns = " and ".join("*".join(pair) for pair in routes)
        raise RefusedError(
            f"{key}: only keys of {patterns} start runs: name another one, KEY=prefix/archive.zip, "
            f"or change infra/environments/{arguments.environment.name}.toml and deploy"
        )
    s3 = account.client("s3")
    # Whoever puts an archive into a Requester Pays bucket pays for it.
    payer = {"RequestPayer": "requester"} if "IngestPayer" in stack.outputs else {}
    s3.upload_file(str(archive), bucket, key, ExtraArgs=payer)
    _say(f"put to s3://{bucket}/{key}")
    put_at = s3.head_object(Bucket=bucket, Key=key, **payer)["LastModified"]
    deadline = time.monotonic() + BEGIN_SECONDS
    while not (run_ids := list_runs(account, stack, Location("s3", bucket, key), put_at)):
        if time.monotonic() > deadline:
            raise RefusedError(
                f"no run began in {BEGIN_SECONDS:.0f} s: run `s3unzip doctor`, read the log of "
                f"the function {stack.outputs['IntakeFunction']}, and docs/deploy.md, Where to look"
            )
        time.sleep(1)
    _say(
        f"run {min(run_ids)} began: .venv/bin/s3unzip watch "
        f"--env {stack.name.removeprefix(STACK_PREFIX)} --region {account.region}"
    )
    return 0


def unprotect(arguments: Arguments) -> int:
    """Turn off the stack's termination protection until the next deployment."""
    account, stack = _find(arguments)
    account.client("cloudformation").update_termination_protection(
        StackName=stack.name, EnableTerminationProtection=False
    )
    _say(f"{stack.name} can now be destroyed; the next deployment protects it again")
    return 0


def destroy(arguments: Arguments) -> int:
    """Delete the stack, its created buckets and all their objects."""
    account, stack = _find(arguments)
    # CloudFormation deletes a stack that it is creating, and continues a deletion.
    if stack.status not in {"CREATE_IN_PROGRESS", "DELETE_IN_PROGRESS"}:
        _refuse_busy(stack)
    if stack.protected:
        raise RefusedError(
            f"{stack.name} is protected against deletion (stack.retain = true): run "
            f"`make unprotect {arguments.for_make()}` first if you really want to delete it"
        )
    _say(
        f"This deletes the stack {stack.name} of account {account.id} in {account.region}"
        + (", and these buckets with all objects:" if stack.buckets else "; its buckets stay")
        + "".join(f"\n  {bucket}" for bucket in stack.buckets)
    )
    if not arguments.yes and _ask(f"Type {stack.name} to continue: ") != stack.name:
        raise RefusedError("nothing was deleted")
    stopped = stop_pipeline(account, stack)
    _say(f"functions stopped, {show_count(stopped, 'run')} stopped")
    for bucket in stack.buckets:
        _say(f"emptying {bucket}")  # many objects take long, and an error names no bucket
        _say(f"{bucket}: {show_count(empty_bucket(account, bucket), 'object')} deleted")
    return run_cdk(["destroy", *arguments.context, "--force"], account.variables)


def _find(arguments: Arguments) -> tuple[Account, DeployedStack]:
    """Return the account and the stack of an environment; refuse it if it is not deployed."""
    account = find_account(arguments.environment)
    stack = _find_own_stack(account, arguments)
    if stack is None:
        raise RefusedError(
            f"there is no stack {arguments.environment.stack.name} in account {account.id}, region "
            f"{account.region}: create it with `make deploy {arguments.for_make()}`; if it is "
            "elsewhere, check AWS_PROFILE and AWS_DEFAULT_REGION"
        )
    return account, stack


def _find_own_stack(account: Account, arguments: Arguments) -> DeployedStack | None:
    """Return the stack of an environment; None if it does not exist.

    Raises:
        RefusedError: the stack with this name belongs to another environment or program.
    """
    name = arguments.environment.name
    stack = find_stack(account, arguments.environment.stack.name)
    if stack is not None and not stack.is_own:
        raise RefusedError(
            f"the stack {stack.name} in account {account.id}, region {account.region} is not a "
            f"stack of s3unzip: give infra/environments/{name}.toml a stack.name of its own"
        )
    if stack is not None and stack.outputs.get("Environment", name) != name:
        raise RefusedError(
            f"the stack {stack.name} in account {account.id}, region {account.region} belongs to "
            f"the environment {stack.outputs['Environment']}: give infra/environments/{name}.toml "
            "a stack.name of its own; if the file was renamed, run once: "
            f".venv/bin/cdk deploy {shlex.join(arguments.context)}"
        )
    return stack


def _refuse_busy(stack: DeployedStack | None) -> None:
    """Refuse a stack that CloudFormation is changing: it would refuse another change.

    `destroy` would otherwise empty the buckets of a stack that stays. CloudFormation accepts a
    stack whose creation nobody has confirmed yet.
    """
    if stack and re.fullmatch("(?!REVIEW).*_IN_PROGRESS", stack.status):
        raise RefusedError(
            f"CloudFormation is at work on the stack {stack.name} ({stack.status}), perhaps for "
            "another operator, or for a command that was stopped. Nothing was changed: wait until "
            "`s3unzip doctor` shows another status, then run this command again"
            + HANGING.get(stack.status, "").format(stack.name)
        )


def _ask(question: str) -> str:
    try:
        return input(question).strip()
    except EOFError:
        return ""


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


COMMANDS: dict[str, Callable[[Arguments], int]] = {
    command.__name__: command
    for command in (bootstrap, synth, package, diff, deploy, put, unprotect, destroy)
}


def _read_arguments() -> tuple[Callable[[Arguments], int], Arguments]:
    parser = argparse.ArgumentParser(prog="infra.deployment", description=__doc__)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("--env", default="", help="the environment, a file of infra/environments")
    parser.add_argument("--set", default="", metavar="SETTING=VALUE...", help="separated by spaces")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--archive", type=Path)
    parser.add_argument("--key", default="", help="the archive's key, or a prefix that ends in /")
    parser.add_argument("--bucket", default="", help="the bucket that will hold a package's asset")
    parsed = parser.parse_args()
    if not parsed.env:
        known = ", ".join(sorted(path.stem for path in FOLDER.glob("*.toml")))
        raise RefusedError(f"which environment? make {parsed.command} ENV=dev (known: {known})")
    settings: dict[str, object] = {}
    for pair in parsed.set.split():
        setting, equals, value = pair.partition("=")
        if not equals or not SETTING.fullmatch(setting):
            raise RefusedError(f"SET={pair}: write section.setting=value")
        settings[setting] = value
    return COMMANDS[parsed.command], Arguments(
        environment=load_environment(parsed.env, settings=settings),
        settings=tuple(parsed.set.split()),
        yes=parsed.yes,
        archive=parsed.archive,
        key=parsed.key,
        bucket=parsed.bucket,
    )


def main() -> None:
    """Run one command; exit with its exit code, or with one line that says what is wrong."""
    try:
        command, arguments = _read_arguments()
        sys.exit(command(arguments))
    except (RefusedError, S3UploadFailedError) as error:
        sys.exit(str(error))
    except AWS_ERRORS as error:
        sys.exit(explain(error))
    except KeyboardInterrupt:
        _say(f"\n{STOPPED.get(sys.argv[1], 'stopped')}")
        sys.exit(130)


if __name__ == "__main__":
    main()
