"""`make package`: one template and the functions' asset, for deployments without the CDK CLI.

The template names the bucket of the asset and needs no bootstrap, so the CloudFormation CLI, a
StackSet or Terraform can deploy it unchanged: docs/howto/package.md.
"""

import json
import shutil
import zipfile
from pathlib import Path

import aws_cdk as cdk

from infra.application import Application, build
from infra.bundle import ROOT
from infra.environment import Environment

FOLDER = ROOT / "build" / "package"
FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # time of every file, so that the same files give the same bytes
EXECUTABLE = 0o100755 << 16  # mode of every file, in the upper 16 bits of its external attributes


def write_package(environment: Environment, bucket: str, folder: Path = FOLDER) -> Path:
    """Write the template and the asset of an environment; return their folder.

    Args:
        environment: the environment.
        bucket: the bucket that will hold the asset, in the region of the stack.
        folder: the parent of the package's folder, which has the name of the environment.
    """
    package = folder / environment.name
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    assembly = build(
        Application(package / "cdk.out"),
        environment,
        cdk.DefaultStackSynthesizer(
            file_assets_bucket_name=bucket, generate_bootstrap_version_rule=False
        ),
    )
    template = Path(assembly.stacks[0].template_full_path)
    shutil.copyfile(template, package / "template.json")
    for source, key in _list_assets(template):
        _zip_folder(source, package / key)
    shutil.rmtree(package / "cdk.out")
    return package


def _list_assets(template: Path) -> list[tuple[Path, str]]:
    """Return the folder and the key of each asset of the functions."""
    manifest = template.with_name(template.name.replace(".template.json", ".assets.json"))
    return [
        (template.parent / file["source"]["path"], destination["objectKey"])
        for file in json.loads(manifest.read_text(encoding="utf-8"))["files"].values()
        if file["source"]["packaging"] == "zip"
        for destination in file["destinations"].values()
    ]


def _zip_folder(source: Path, target: Path) -> None:
    """Write a folder as a ZIP archive; the same files give the same bytes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(source.rglob("*")):
            if path.is_file():
                info = zipfile.ZipInfo(str(path.relative_to(source)), FIRST_DAY)
                info.external_attr = EXECUTABLE
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, path.read_bytes())
