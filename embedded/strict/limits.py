"""The quotas that the rules enforce, each with the variable that makes it smaller for a test.

https://docs.aws.amazon.com/step-functions/latest/dg/service-quotas.html
"""

from __future__ import annotations

import os


def _limit(name: str, aws: float) -> float:
    return float(os.environ.get(f"EMBEDDED_{name}", aws))


PAYLOAD_BYTES = 262_144  # UTF-8, of each input, output and result
DEFINITION_BYTES = 1_048_576
NAME_CHARACTERS = 80
LABEL_CHARACTERS = 40
INLINE_MAP_CONCURRENCY = 40
# How many children run at once where the definition gives no limit. AWS: 10,000.
OPEN_MAP_CONCURRENCY = 64

EXPRESS_SECONDS = _limit("EXPRESS_SECONDS", 300)
HISTORY_EVENTS = int(_limit("HISTORY_EVENTS", 25_000))
REDRIVABLE_SECONDS = _limit("REDRIVABLE_SECONDS", 14 * 86_400)
REDRIVE_TOKEN_SECONDS = _limit("REDRIVE_TOKEN_SECONDS", 15 * 60)
REDRIVE_TOKENS = 10
CLOSED_NAME_SECONDS = _limit("CLOSED_NAME_SECONDS", 90 * 86_400)
