"""Credentials as boto3 finds them, for obstore."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from botocore.credentials import Credentials
    from obstore.store import S3Credential

# botocore renews role credentials at least 10 minutes before they expire, and obstore asks again 5
# minutes before the time given here. So no request is signed with expired ones.
CREDENTIALS_LAST = timedelta(minutes=10)


class BotoCredentials:
    """boto3's credentials chain for obstore."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def __call__(self) -> S3Credential:
        """Return the current credentials; obstore asks again before they expire."""
        now = self._credentials.get_frozen_credentials()
        return {
            "access_key_id": now.access_key or "",
            "secret_access_key": now.secret_key or "",
            "token": now.token,
            "expires_at": datetime.now(UTC) + CREDENTIALS_LAST,
        }
