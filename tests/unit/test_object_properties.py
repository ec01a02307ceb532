"""What S3 allows to be set on an object, and what is said about anything else."""

import botocore.session
import pytest
from botocore.model import StringShape

from s3unzip.errors import UsageError
from s3unzip.object_properties import (
    CANNED_ACLS,
    MAX_METADATA_BYTES,
    OWN_METADATA_BYTES,
    RESERVED_METADATA,
    STORAGE_CLASSES,
    ObjectProperties,
)

# Classes of botocore's model that objects of a general purpose bucket are not written as: other
# kinds of buckets and devices have them.
OF_OTHER_BUCKETS = {
    "AWS_BACKUP_LOW_COST_WARM",
    "AWS_BACKUP_WARM",
    "EXPRESS_ONEZONE",
    "FSX_ONTAP",
    "FSX_OPENZFS",
    "OUTPOSTS",
    "SNOW",
}
LONGEST_RUN = "a" * 40 + "-" + "0" * 20


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ObjectCannedACL", set(CANNED_ACLS)),
        ("StorageClass", set(STORAGE_CLASSES) | OF_OTHER_BUCKETS),
    ],
)
def test_canned_acls_and_storage_classes_are_botocores(name: str, values: set[str]) -> None:
    """A canned ACL or a storage class that AWS adds fails this test."""
    shape = botocore.session.get_session().get_service_model("s3").shape_for(name)
    assert isinstance(shape, StringShape)
    assert values == set(shape.enum)


@pytest.mark.parametrize(
    "chosen",
    [
        ObjectProperties(),
        *(ObjectProperties(storage_class=known) for known in STORAGE_CLASSES),
        *(ObjectProperties(acl=known) for known in CANNED_ACLS),
        ObjectProperties(cache_control="public, max-age=31536000, immutable"),
        ObjectProperties(content_types={"*.csv": 'text/csv; charset="utf-8"; header=present'}),
        ObjectProperties(content_types={"a/**": "application/vnd.x+json", "*": "a/b"}),
        ObjectProperties(metadata={"source.1_a-b": "x y", "empty": ""}),
        ObjectProperties(metadata={"m": "x" * (MAX_METADATA_BYTES - OWN_METADATA_BYTES - 1)}),
        ObjectProperties(tags={"Größe +-=._:/@": "é 1", "empty": ""}),
        ObjectProperties(tags={f"t{n}": "x" * 256 for n in range(9)} | {"k" * 128: "v"}),
    ],
)
def test_properties_up_to_the_limits_are_accepted(chosen: ObjectProperties) -> None:
    """Values up to the limits are let through."""
    chosen.check()


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (ObjectProperties(storage_class="standard_ia"), "storage class 'standard_ia': unknown"),
        (ObjectProperties(storage_class="EXPRESS_ONEZONE"), "known: STANDARD, STANDARD_IA"),
        (ObjectProperties(acl="public"), "acl 'public': unknown; known: private, public-read"),
        (ObjectProperties(cache_control=""), "cache control '': must be 1 to 1,024"),
        (ObjectProperties(cache_control="a\r\nx: y"), "printable ASCII"),
        (ObjectProperties(cache_control="x" * 1_025), "must be 1 to 1,024"),
        (ObjectProperties(content_types={"*": "csv"}), "'csv': not a media type"),
        (ObjectProperties(content_types={"*": "a/b;"}), "not a media type"),
        (ObjectProperties(content_types={"": "a/b"}), "its glob is empty"),
        (ObjectProperties(content_types={"*": "text/cßv"}), "printable ASCII"),
        (ObjectProperties(metadata={"zip-crc32": "0"}), "s3unzip writes it itself"),
        (ObjectProperties(metadata={"S3Unzip-Run": "0"}), "s3unzip writes it itself"),
        (ObjectProperties(metadata={"Content-Type": "a/b"}), "is an HTTP header"),
        (ObjectProperties(metadata={"Owner": "me"}), "in lower case"),
        (ObjectProperties(metadata={"": "me"}), "a name consists of"),
        (ObjectProperties(metadata={"a": "é"}), "the value must be printable ASCII"),
        (ObjectProperties(metadata={"a": " b"}), "without spaces at its ends"),
        (ObjectProperties(metadata={"m": "x" * 2_000}), "2,001 bytes of names and values"),
        (ObjectProperties(tags={f"t{n}": "" for n in range(11)}), "an object can have 10"),
        (ObjectProperties(tags={"": "v"}), "1 to 128 characters"),
        (ObjectProperties(tags={"k" * 129: "v"}), "1 to 128 characters"),
        (ObjectProperties(tags={"k": "v" * 257}), "has 257 characters; S3 allows 256"),
        (ObjectProperties(tags={"AWS:k": "v"}), "belong to AWS"),
        (ObjectProperties(tags={"k": "a&b"}), "S3 takes no '&' in a tag"),
        (ObjectProperties(tags={"k\n": "v"}), "S3 takes no '\\n' in a tag"),
    ],
)
def test_properties_beyond_the_limits_are_refused(chosen: ObjectProperties, said: str) -> None:
    """The message names the value and the limit."""
    with pytest.raises(UsageError) as caught:
        chosen.check()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_runs_own_metadata_fits_beside_it() -> None:
    """The bytes that are kept for the run's own metadata hold the longest of each."""
    longest = {
        "s3unzip-run": LONGEST_RUN,
        "zip-crc32": "ffffffff",
        "mtime": str(-(2**62)),
        "mode": "7777",
    }
    assert longest.keys() == RESERVED_METADATA
    assert sum(len(name) + len(value) for name, value in longest.items()) <= OWN_METADATA_BYTES
