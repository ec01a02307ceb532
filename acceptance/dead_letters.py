"""Finds the dead letters of this set by its token and deletes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from acceptance.site import Site

HIDDEN_SECONDS = 30  # visibility timeout of the other messages during the search
MAX_LOOKED = 100  # answers of ten messages each


def dead_letter_queues(site: Site) -> Iterator[str]:
    """Yield the URL of each queue of the stack except the queue of archives."""
    for name, value in site.runs.outputs.items():
        if name.endswith("Url") and name != "QueueUrl":
            yield value


def drop_dead_letters(site: Site) -> int:
    """Delete the dead letters that name this set's token; return how many there were."""
    return sum(_drop(site, url) for url in dead_letter_queues(site))


def _drop(site: Site, url: str) -> int:
    dropped = 0
    for _ in range(MAX_LOOKED):
        answer = site.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=HIDDEN_SECONDS
        )
        messages = answer.get("Messages", [])
        if not messages:
            break
        for message in messages:
            if site.token in message["Body"]:
                sent = message["ReceiptHandle"]
                site.sqs.delete_message(QueueUrl=url, ReceiptHandle=sent)
                dropped += 1
    return dropped
