"""Commands that are given no endpoint: they reach Amazon S3, here a server in its place.

The variable HTTPS_PROXY leads the host names of AWS to it. It shows a certificate of its own, which
AWS_CA_BUNDLE names. As in AWS, an endpoint serves the buckets of its region only, and a signature
names this region. An access point has the name of its bucket. OTHER is a server of another vendor
that serves the buckets of us-east-1 by their host names only.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.functional.test_places import ARCHIVE, LARGE, NAMES
from tests.support.memory_server import MemoryS3
from tests.support.processes import Program
from tests.support.servers import Asked, Reply, make_tls, s3_error

US = "us-east-1"
EU = "eu-central-1"
OTHER = f"s3.{US}.example.com"
HOST_NAME = re.compile(
    r"(?:(?P<bucket>.+?)(-\d{12})?\.)?s3(-accesspoint)?\.(?P<region>[a-z0-9-]+)\."
    r"(?P<vendor>amazonaws|example)\.com(:443)?"
)
POINT = f"arn:aws:s3:{EU}:123456789012:accesspoint"


class AmazonS3(MemoryS3):
    """Buckets in memory; `regions` has the region of each bucket.

    With `variables`, a command takes this server for AWS.
    """

    def __init__(self, folder: Path, regions: dict[str, str]) -> None:
        super().__init__(*regions)
        self.regions = regions
        names = (f"s3.{US}", f"s3.{EU}", f"s3-accesspoint.{EU}")
        hosts = (OTHER, *(f"{name}.amazonaws.com" for name in names))
        self.tls = make_tls(folder, *hosts, *(f"*.{host}" for host in hosts))
        self.variables = {
            **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), self.url),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), ""),
            "AWS_CA_BUNDLE": f"{folder}/cert.pem",
            "AWS_DEFAULT_REGION": US,
        }

    def answer(self, asked: Asked) -> Reply:
        host = HOST_NAME.fullmatch(asked.headers["host"])
        assert host is not None
        if host["bucket"] is not None:
            headers = {
                name: re.sub(r"arn%3A.*accesspoint%3A(\w+)/object/", r"\1/", text)
                for name, text in asked.headers.items()
            }
            asked = replace(asked, path=f"/{host['bucket']}{asked.path}", headers=headers)
        elif host["vendor"] == "example":
            return s3_error(403, "SecondLevelDomainForbidden")
        region = self.regions[asked.bucket]
        if host["region"] != region:
            return s3_error(301, "PermanentRedirect", x_amz_bucket_region=region)
        if f"/{region}/s3/" not in asked.headers.get("authorization", ""):
            return s3_error(400, "AuthorizationHeaderMalformed", x_amz_bucket_region=region)
        if asked.method == "HEAD" and not asked.key:
            return Reply(200, headers={"x-amz-bucket-region": region})
        return super().answer(asked)


@pytest.fixture
def aws(program: Program, tmp_path: Path) -> Iterator[AmazonS3]:
    """Run AWS with an archive in each bucket; commands are set to the region us-east-1."""
    with AmazonS3(
        tmp_path, {"from": EU, "there": EU, "out": US, "eu.dotted": EU, "us.dotted": US}
    ) as aws:
        for bucket in aws.buckets.values():
            bucket.add("in/a.zip", ARCHIVE)
        program.variables |= aws.variables
        program.variables["S3UNZIP_TUNING"] = '{"small_member": 100000, "copy_from": 5242880}'
        yield aws


def test_commands_reach_buckets_in_aws(program: Program, aws: AmazonS3) -> None:
    """The archive is in another region than the one that is set, which all commands find out."""
    source, target = "s3://from/in/a.zip", "s3://out/to"
    for words in (["ls"], ["test", "-w", "1"], ["plan"]):
        program.run(*words, source).ends(0)
    program.run("cat", source, "small.txt").ends(0)
    for word in (source, "s3://from/in/", "s3://from/*/*.zip"):
        program.extract(word, target).ends(0)
    program.run("verify", source, target).ends(0)
    assert {asked.headers["host"].removesuffix(":443") for asked in aws.asked} == {
        f"{host}.amazonaws.com" for host in (f"from.s3.{US}", f"from.s3.{EU}", f"out.s3.{US}")
    }


@pytest.mark.parametrize(
    ("source", "target", "variable"),
    [
        ("out", "from", "AWS_CA_BUNDLE"),
        ("from", "eu.dotted", "REQUESTS_CA_BUNDLE"),
        ("eu.dotted", "us.dotted", "SSL_CERT_FILE"),
    ],
)
def test_a_run_between_two_buckets(
    program: Program, aws: AmazonS3, source: str, target: str, variable: str
) -> None:
    """PUTs, parts and copies go to the region of each; all trust the certificate of a variable."""
    program.variables |= {
        "AWS_CA_BUNDLE": "",
        "REQUESTS_CA_BUNDLE": "",
        variable: aws.variables["AWS_CA_BUNDLE"],
    }
    program.extract(f"s3://{source}/in/a.zip", f"s3://{target}/to").ends(0)
    assert aws.buckets[target].objects.keys() == NAMES | {"in/a.zip"}


@pytest.mark.parametrize("words", ["ls s3://from/in/a.zip", "run s3://out/in/a.zip s3://from/to"])
def test_an_endpoint_of_one_region(program: Program, aws: AmazonS3, words: str) -> None:
    """No other attempt helps where the bucket is in another region."""
    program.run(*words.split(), "--endpoint-url", f"https://s3.{US}.amazonaws.com").ends(
        6, "the bucket is in another region; check --endpoint-url"
    )


@pytest.mark.parametrize("mark", [":", "/"])
def test_access_points_are_places_like_buckets(program: Program, aws: AmazonS3, mark: str) -> None:
    """Both forms of an ARN name one; requests go to its host, and are signed for its region."""
    program.extract(f"s3://{POINT}{mark}from/in/a.zip", f"s3://{POINT}{mark}there/to").ends(0)
    assert aws.buckets["there"].objects.keys() == NAMES | {"in/a.zip"}
    assert {asked.headers["authorization"].split("/")[2] for asked in aws.asked} == {EU}
    assert any("x-amz-copy-source" in asked.headers for asked in aws.asked)
    program.extract(f"s3://{POINT}{mark}from/in/", "out").ends(0)
    assert program.files("out/a")["large.bin"] == LARGE


@pytest.mark.parametrize(
    ("words", "configuration"),
    [
        (("--addressing-style", "virtual"), ""),
        ((), "[default]\ns3 =\n  addressing_style = virtual\n"),
    ],
    ids=["option", "configuration"],
)
def test_a_server_that_wants_buckets_in_host_names(
    program: Program, aws: AmazonS3, words: tuple[str, ...], configuration: str
) -> None:
    """The option or the configuration reaches it; without both, the message names the option."""
    source, target = "s3://out/in/a.zip", "s3://out/to"
    program.variables["AWS_ENDPOINT_URL"] = f"https://{OTHER}"
    program.extract(source, target).ends(6, "add --addressing-style virtual")
    (program.folder / "no-config").write_text(configuration)
    program.start("run", source, target, "-w", "2", *words).ends(0)
    assert aws.buckets["out"].objects.keys() == NAMES | {"in/a.zip"}
    assert {asked.method for asked in aws.asked} == {"GET", "POST", "PUT"}
    program.run("verify", source, target, *words).ends(0)
    program.run("resume", "latest").says("already COMPLETED")
