"""Amazon S3 on this machine, for commands that are given no endpoint.

The variable HTTPS_PROXY leads the host names of AWS to it. It shows a certificate of its own, which
AWS_CA_BUNDLE names. As in AWS, an endpoint serves the buckets of its region only, and a signature
names this region. An access point has the name of its bucket. OTHER is a server of another vendor
that serves the buckets of us-east-1 by their host names only.
"""

import re
from dataclasses import replace
from pathlib import Path

from tests.support.memory_server import MemoryS3
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
