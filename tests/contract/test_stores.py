"""How locations find their adapters."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from s3unzip.errors import UsageError
from s3unzip.model import Location, Pin
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.stores.files import FileSource
from s3unzip.stores.folder import FolderDestination
from s3unzip.stores.s3.destination import S3Destination
from s3unzip.stores.s3.source import S3Source
from s3unzip.stores.web import WebSource

S3 = Location("s3", "bucket", "prefix/")
WEB = Location("https", "example.org", "a.zip")


def test_each_scheme_has_its_adapter(tmp_path: Path) -> None:
    """The scheme decides, and nothing is requested."""
    folder = Location("file", "", f"{tmp_path}/")
    config = StoreConfig(folder, endpoint_url="http://127.0.0.1:9")
    stores = open_stores(pickle.loads(pickle.dumps(config)))  # noqa: S301 - our own
    for location, kind in ((S3, S3Source), (folder, FileSource), (WEB, WebSource)):
        assert isinstance(stores.source(location), kind)
    assert isinstance(stores.destination(S3), S3Destination)
    assert isinstance(stores.destination(folder), FolderDestination)


def test_what_has_no_adapter() -> None:
    """The message says what there is."""
    stores = open_stores(StoreConfig(WEB))
    for ask in (
        lambda: stores.source(Location("ftp", "host", "a.zip")),
        lambda: stores.destination(WEB),
        lambda: stores.run_store("run"),
        lambda: stores.source(WEB).delete(WEB, Pin(1)),
    ):
        with pytest.raises(UsageError, match="s3://"):
            ask()


def test_a_folder_needs_no_aws(tmp_path: Path) -> None:
    """Neither boto3 nor obstore is imported until S3 is named."""
    script = f"""
import sys
from s3unzip.stores.factory import StoreConfig, open_stores
from s3unzip.model import Location
stores = open_stores(StoreConfig(Location("file", "", {f"{tmp_path}/"!r})))
stores.destination(Location("file", "", {f"{tmp_path}/"!r}))
stores.run_store("run")
print([name for name in ("boto3", "botocore", "obstore", "urllib3") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
