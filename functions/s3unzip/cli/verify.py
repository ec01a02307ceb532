"""``verify``: compare the objects in a destination with an archive."""

import os
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import BinaryIO, TextIO

from msgspec.structs import replace

import s3unzip
from s3unzip.cli.arguments import Arguments
from s3unzip.cli.commands import MEMBER_OPTIONS, ODD, PLACES, WHERE, command
from s3unzip.cli.progress import VERIFYING, RunDisplay
from s3unzip.cli.terminal import print_json, warn
from s3unzip.errors import UsageError
from s3unzip.figures import show_count, show_seconds
from s3unzip.local.process_setup import yield_to_others
from s3unzip.model import Location, encode
from s3unzip.printable import printable, printable_name
from s3unzip.runs.records import RunRecords
from s3unzip.stores.locations import parse_destination, parse_source
from s3unzip.verification import Verification

DIFFERENCES = {
    "missing": "missing",
    "size": "of another size",
    "crc": "of other content",
    "no-crc": "without zip-crc32",
    "extra": "extra",
}
PROOFS = {
    "record": "by the store: the ETag is the one that it gave a run for the member's bytes",
    "checksum": "by the store: its own CRC-32 of the object",
    "read": "by this verify: it read the objects",
    "metadata": "by their writer: the zip-crc32 that stands beside the objects",
    "size": "by their size only: the archive does not tell the CRC-32",
}


@command(
    *("src dest", MEMBER_OPTIONS, WHERE, "as_gzip", ODD, PLACES, "dest_no_sign_request"),
    "deep no_records env listed at_once objects json",
    dest={"required": True, "help": "Where members went: s3://bucket/prefix or a folder."},
)
def verify(arguments: Arguments) -> int:
    """Compare the objects in DEST with the archive.

    An object in S3 is not read if it is still the one that a run of this machine, or of the
    environment, wrote. For other objects S3 returns its checksum or the CRC-32 from the writer.

    Exit code: 0 all equal, 1 something is missing, different or extra.
    """
    yield_to_others()
    source = parse_source(arguments.src)
    arguments.check_places(source, parse_destination(arguments.dest))
    # The environment comes first: if it does not exist, the file of --objects is not overwritten.
    records = _find_records(arguments, source)
    with _open_proofs(arguments.objects) as file, RunDisplay() as display:
        write_proof = None
        if arguments.objects is not None:
            write_proof = partial(_write_proof, file)
        display.phase(VERIFYING)
        verification = s3unzip.verify(
            arguments.src,
            arguments.dest,
            arguments.options(),
            deep=arguments.deep,
            records=records,
            at_once=arguments.at_once,
            max_listed=arguments.listed,
            each=write_proof,
            password=arguments.password(),
            stores=arguments.config(),
            progress=display,
            warn=warn,
        )
    if arguments.json:
        print_json(verification)
    else:
        print_verification(verification, sys.stdout)
    return verification.verdict.exit_code


def _find_records(arguments: Arguments, source: Location) -> Iterable[RunRecords] | None:
    """Return the records to compare with; None: those that this machine has of the archive."""
    if arguments.no_records:
        return ()
    if arguments.env is None:
        return None
    runs = arguments.deployed()
    return map(runs.records, runs.of_archive(source))


def _open_proofs(name: str | None) -> BinaryIO:
    """Open the file for the line of each object; without a name, open the null device."""
    try:
        return Path(name or os.devnull).open("wb")
    except OSError as error:
        raise UsageError(f"--objects {name}: {error.strerror}") from error


def _write_proof(file: BinaryIO, proof: object) -> None:
    file.write(encode(proof) + b"\n")


def print_verification(verification: Verification, out: TextIO) -> None:
    """Print the verdict, the counts and the listed differences."""
    counts = verification.counts
    differing = "".join(f", {count:,} {DIFFERENCES[kind]}" for kind, count in counts.items())
    prefix = verification.prefix
    folder = replace(verification.destination, key=prefix[: prefix.rfind("/") + 1])
    places = f"{verification.source} -> {folder}"
    out.write(
        f"{verification.verdict}  {printable(places)}\n"
        f"  {show_count(verification.members, 'member')}: {verification.equal:,} equal{differing}\n"
    )
    if verification.refused:
        out.write(
            f"  {verification.refused:,} more are refused by the archive's directory: s3unzip ls\n"
        )
    out.writelines(f"  {count:,} {PROOFS[proof]}\n" for proof, count in verification.proofs.items())
    requests = verification.requests
    rate = verification.members / max(verification.seconds, 0.001)
    out.write(
        f"  in {show_seconds(verification.seconds)}: {rate:,.0f} objects/s, "
        f"{requests.list:,} LIST, {requests.head:,} HEAD, {requests.get:,} GET\n"
    )
    for difference in verification.differences:
        expected = difference.expected and f"should be {difference.expected}"
        facts = ", ".join(filter(None, (difference.found, expected)))
        line = f"{difference.kind:8} {printable_name(difference.key)}"
        out.write(f"  {': '.join(filter(None, (line, facts)))}\n")
    not_listed = sum(counts.values()) - len(verification.differences)
    if not_listed:
        out.write(f"  and {not_listed:,} more: --list {max(counts.values())} lists them all\n")
