"""How locations find their adapters."""

import subprocess
import sys
from pathlib import Path

import pytest

from s3unzip.errors import UsageError
from s3unzip.model import Location, Pin
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores

S3 = Location("s3", "bucket", "prefix/")
WEB = Location("https", "example.org", "a.zip")


def test_an_unknown_scheme_is_refused() -> None:
    """The message says what there is."""
    stores = OpenedStores(StoreConfig(WEB))
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
from s3unzip.stores.config import StoreConfig
from s3unzip.stores.open import OpenedStores
from s3unzip.model import Location
stores = OpenedStores(StoreConfig(Location("file", "", {f"{tmp_path}/"!r})))
stores.destination(Location("file", "", {f"{tmp_path}/"!r}))
stores.run_store("run")
print([name for name in ("boto3", "botocore", "obstore", "urllib3") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
