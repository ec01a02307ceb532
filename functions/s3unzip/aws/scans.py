"""The malware gate: with ``ingest.scan`` only a version without a known threat is opened.

The rules:

- An archive is taken by the result of its scan, not by its upload: S3's own events start nothing.
- The result names the version that was scanned. Only this version is opened: the run is pinned to
  it. Another version that is there now has a scan, and a result, of its own.
- Whoever starts an archive without a result (submit, the run after an archive was
  replaced) reads the tag with which GuardDuty marks the version. Without versions S3 cannot say
  of which object a tag is, so the tag is not read there.
- A version with any other result, or with none, is not opened. It is logged and counted.
- A result may come twice, late, and for several versions in any order.

The form of a result: docs.aws.amazon.com/guardduty/latest/ug/
monitor-with-eventbridge-s3-malware-protection.html. The tag and its values:
monitor-enable-s3-object-tagging-malware-protection.html.
"""

from typing import Any

from msgspec import Struct

from s3unzip.aws.environment import LambdaConfig
from s3unzip.aws.telemetry import record_withheld
from s3unzip.model import Location, Pin
from s3unzip.stores.calls import Calls

DETAIL_TYPE = "GuardDuty Malware Protection Object Scan Result"
SENDER = "aws.guardduty"
CLEAN = "NO_THREATS_FOUND"
NOT_SCANNED = "NOT_SCANNED"  # our word: there is no result
UNVERSIONED = (None, "null")  # version ids that name no bytes: an overwritten object keeps them
TAG = "GuardDutyMalwareScanStatus"


class ScanResult(Struct, frozen=True):
    """What the scan of one version came to."""

    status: str  # NO_THREATS_FOUND, THREATS_FOUND, UNSUPPORTED, ACCESS_DENIED, FAILED
    threats: tuple[str, ...] = ()  # their names

    @property
    def is_clean(self) -> bool:
        """Whether the version was scanned and no threat was found."""
        return self.status == CLEAN


def read_result(detail: dict[str, Any]) -> ScanResult:
    """Return the result in the detail of GuardDuty's event."""
    result = detail["scanResultDetails"]
    threats = result.get("threats") or ()
    return ScanResult(result["scanResultStatus"], tuple(threat["name"] for threat in threats))


def admit(source: Location, result: ScanResult) -> bool:
    """Return whether an archive may be opened by its result; log and count it if not."""
    if not result.is_clean:
        record_withheld(source, result.status, result.threats)
    return result.is_clean


def find_result(source: Location, pin: Pin, config: LambdaConfig, calls: Calls) -> ScanResult:
    """Return the result in the tag of a version; without versioning there is none."""
    if pin.version_id in UNVERSIONED:
        return ScanResult(NOT_SCANNED)
    store = config.stores.source(source)
    tags = calls.run("get", lambda: store.tags(source, pin))
    return ScanResult(tags.get(TAG, NOT_SCANNED))
