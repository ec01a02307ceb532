"""The synthesized stack, deployed into MiniStack: boto3 on the cloud assembly.

The template is deployed unchanged. One thing differs from `cdk deploy`: the functions' dependencies
are installed for this machine and are on `PYTHONPATH`, like a layer, because MiniStack unpacks the
asset again for each worker.
"""

import fcntl
import hashlib
import io
import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from embedded.ministack import PYTHON, REGION, EmbeddedAws, EmbeddedAwsError
from infra import RefusedError, bundle
from infra.bundle import ROOT, compile_folder, copy_package

BUILT = ROOT / "build" / "embedded"
DEPLOY_SECONDS = 300.0
QUALIFIER = "hnb659fds"  # CDK's default bootstrap


@dataclass(frozen=True, slots=True)
class Assembly:
    """What `cdk synth` wrote: one stack's template and its file assets."""

    folder: Path
    stack: str

    @property
    def template(self) -> Path:
        return self.folder / f"{self.stack}.template.json"

    def assets(self) -> Iterator[tuple[Path, str, str]]:
        """Yield path, bucket and key of each asset; the template is one of them."""
        files = json.loads((self.folder / f"{self.stack}.assets.json").read_text())["files"]
        places = {"${AWS::AccountId}": "000000000000", "${AWS::Region}": REGION}
        for file in files.values():
            for destination in file["destinations"].values():
                bucket = destination["bucketName"]
                for name, value in places.items():
                    bucket = bucket.replace(name, value)
                path = self.folder / file["source"]["path"]
                yield path, bucket, destination["objectKey"]


def prepare_dependencies() -> Path:
    """Install the functions' dependencies for MiniStack's interpreter, unless they exist."""
    digest = hashlib.sha256((ROOT / "uv.lock").read_bytes() + str(PYTHON).encode())
    digest.update(Path(bundle.__file__).read_bytes())
    folder = BUILT / f"site-{digest.hexdigest()[:16]}"
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / ".lock").open("wb") as file:
        # One process at a time installs: tests begin in several processes at once.
        fcntl.flock(file, fcntl.LOCK_EX)
        if folder.exists():
            return folder
        scratch = BUILT / f".making-{os.getpid()}"
        bundle.install_dependencies(scratch, ("--python", str(PYTHON)))
        # Each worker is a cold start: keep byte code, so that workers do not compile the same
        # files.
        compiled = [str(PYTHON), "-m", "compileall", "-q", "-j", "0", str(scratch)]
        subprocess.run(compiled, check=False, stdout=subprocess.DEVNULL)  # noqa: S603 - fixed arguments
        scratch.rename(folder)
    return folder


def make_asset(folder: Path) -> dict[str, str]:
    """Copy the package into `folder`; return the variable that makes it a synthesis' asset.

    The folder has byte code for MiniStack's interpreter. A function cannot write it, so without it
    each cold start would compile the package, which is more than half of its CPU time.
    """
    copy_package(folder)
    if PYTHON.exists():
        try:
            compile_folder(folder, str(PYTHON))
        except RefusedError as error:
            raise EmbeddedAwsError(str(error)) from error
    return {"S3UNZIP_ASSET": str(folder)}


def synthesize(
    environment: str,
    folder: Path,
    settings: Mapping[str, object] | None = None,
) -> Assembly:
    """Synthesize the stack of `environment` into `folder`.

    `settings` replace those of the environment's file, by ``section.setting``.

    The asset is the package only; `start_aws` provides the dependencies.

    `app.py` is what the CDK CLI runs, and takes the rest of the context from cdk.json itself.
    """
    assembly = folder / "cdk.out"
    done = subprocess.run(  # noqa: S603 - fixed arguments
        [sys.executable, str(ROOT / "app.py")],
        cwd=ROOT,
        env={
            **os.environ,
            **make_asset(folder / "code"),
            "CDK_OUTDIR": str(assembly),
            "CDK_CONTEXT_JSON": json.dumps({"env": environment, **(settings or {})}),
            "CDK_VALIDATION": "false",  # the linters: `cdk synth` and a test run them
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise EmbeddedAwsError(f"synthesis failed:\n{done.stdout[-2_000:]}{done.stderr[-2_000:]}")
    (template,) = assembly.glob("*.template.json")
    return Assembly(assembly, template.name.removesuffix(".template.json"))


def start_aws(
    *, auth: bool = False, port: int = 0, wait_scale: float = 1.0, slow_puts: str = ""
) -> EmbeddedAws:
    """Return a MiniStack, not started, whose functions find their dependencies.

    All waits of the state machine, including those before a retry, take `wait_scale` of their time.
    `slow_puts` is seconds, a space, and a pattern: PUT requests to such paths take so long.
    """
    variables = {
        "PYTHONPATH": str(prepare_dependencies()),
        "SFN_WAIT_SCALE": str(wait_scale),
        "EMBEDDED_SLOW_PUTS": slow_puts,
    }
    return EmbeddedAws(auth=auth, port=port, variables=variables)


def make_client(service: str, variables: Mapping[str, str]) -> Any:
    """Return a boto3 client of `service` at the endpoint that `variables` name."""
    return boto3.client(
        service,  # type: ignore[call-overload]  # the stubs want each service's name spelt out
        endpoint_url=variables["AWS_ENDPOINT_URL"],
        region_name=variables["AWS_REGION"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
        verify=variables.get("AWS_CA_BUNDLE"),
        config=Config(retries={"total_max_attempts": 2}, s3={"addressing_style": "path"}),
    )


def deploy(assembly: Assembly, variables: Mapping[str, str]) -> dict[str, str]:
    """Create the stack; return its outputs."""
    template = _publish(assembly, variables)
    cloudformation = make_client("cloudformation", variables)
    cloudformation.create_stack(
        StackName=assembly.stack,
        TemplateURL=template,
        Capabilities=["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM"],
    )
    deadline = time.monotonic() + DEPLOY_SECONDS
    while time.monotonic() < deadline:
        stack = cloudformation.describe_stacks(StackName=assembly.stack)["Stacks"][0]
        status = stack["StackStatus"]
        if status == "CREATE_COMPLETE":
            return {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}
        if status != "CREATE_IN_PROGRESS":
            raise EmbeddedAwsError(f"the stack is {status}: {_failures(cloudformation, assembly)}")
        time.sleep(0.05)
    raise EmbeddedAwsError(f"the stack was not created in {DEPLOY_SECONDS:.0f} s")


def _publish(assembly: Assembly, variables: Mapping[str, str]) -> str:
    """Do what `cdk bootstrap` and the publishing of `cdk deploy` do; return the template's URL."""
    parameter = f"/cdk-bootstrap/{QUALIFIER}/version"
    put_parameter = make_client("ssm", variables).put_parameter
    put_parameter(Name=parameter, Value="30", Type="String", Overwrite=True)
    s3 = make_client("s3", variables)
    url = ""
    for path, bucket, key in assembly.assets():
        s3.create_bucket(Bucket=bucket)
        s3.put_object(
            Bucket=bucket, Key=key, Body=_zipped(path) if path.is_dir() else path.read_bytes()
        )
        if path == assembly.template:
            url = f"{variables['AWS_ENDPOINT_URL']}/{bucket}/{key}"
    return url


def _zipped(folder: Path) -> bytes:
    body = io.BytesIO()
    # Not compressed: it goes to this machine only, and MiniStack unpacks it for each worker.
    with zipfile.ZipFile(body, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return body.getvalue()


def _failures(cloudformation: Any, assembly: Assembly) -> str:
    events = cloudformation.describe_stack_events(StackName=assembly.stack)["StackEvents"]
    failed = [event for event in events if event["ResourceStatus"].endswith("FAILED")]
    return "; ".join(
        f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason')}" for event in failed
    )
