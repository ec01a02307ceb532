"""The ZIP core: bytes in, values out. It does no I/O and knows no object store.

To plan, `locate_directory` finds the central directory, a `DirectoryReader` reads its headers,
`finalize_index` (or an `IndexBuilder`) makes an `Index` of them, and `inspect_prefix` checks the
bytes before the first member. To extract, call `open_member`, then `decode_whole` or a
`MemberDecoder`, then `close_member`. `CHECKS` lists what is refused and why. `Policy` says what a
run tolerates. All errors are below `ZipFormatError`.

A function that needs bytes returns `Reads`, a generator that yields a `ByteRange` and is sent its
bytes. `drive` runs it with a function that reads a range:

>>> from s3unzip import zipformat
>>> raw = bytes.fromhex("504b0506") + bytes(18)  # an archive without members
>>> reads = zipformat.locate_directory(raw, len(raw), zipformat.Policy())
>>> location = zipformat.drive(reads, lambda want: raw[want.start : want.stop])
>>> location.entries
0

Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from s3unzip.lazy import lazy_names

if TYPE_CHECKING:
    from s3unzip.finding import Finding
    from s3unzip.zipformat.checks import CHECKS, Action, Check, Phase
    from s3unzip.zipformat.coding import compression_of, declares_crc, with_known_crc
    from s3unzip.zipformat.decode import PIECE_LENGTH, MemberDecoder, decode_whole
    from s3unzip.zipformat.directory.columns import Members
    from s3unzip.zipformat.directory.findings import Failure, Failures, Index, Warnings
    from s3unzip.zipformat.directory.headers import CentralHeader, HeaderNote
    from s3unzip.zipformat.directory.index import IndexBuilder, finalize_index
    from s3unzip.zipformat.directory.judging import read_header
    from s3unzip.zipformat.directory.keys import fold_key
    from s3unzip.zipformat.directory.locate import TAIL_LENGTH, DirectoryLocation, locate_directory
    from s3unzip.zipformat.directory.prefix import inspect_prefix
    from s3unzip.zipformat.directory.reader import DirectoryReader
    from s3unzip.zipformat.errors import MemberError, RejectedError, ZipFormatError
    from s3unzip.zipformat.gzip import GzipMember, gzip_length
    from s3unzip.zipformat.local import (
        AFTER_LENGTH,
        HEAD_LENGTH,
        NeedMoreBytes,
        OpenedMember,
        close_member,
        open_member,
    )
    from s3unzip.zipformat.member import Member
    from s3unzip.zipformat.policy import Limits, Policy
    from s3unzip.zipformat.ranges import ByteRange, Reads, drive
    from s3unzip.zipformat.split.declared import count_disks, first_members
    from s3unzip.zipformat.split.disks import ONE_DISK, Disks, join_disks

__all__ = [
    "AFTER_LENGTH",
    "CHECKS",
    "HEAD_LENGTH",
    "ONE_DISK",
    "PIECE_LENGTH",
    "TAIL_LENGTH",
    "Action",
    "ByteRange",
    "CentralHeader",
    "Check",
    "DirectoryLocation",
    "DirectoryReader",
    "Disks",
    "Failure",
    "Failures",
    "Finding",
    "GzipMember",
    "HeaderNote",
    "Index",
    "IndexBuilder",
    "Limits",
    "Member",
    "MemberDecoder",
    "MemberError",
    "Members",
    "NeedMoreBytes",
    "OpenedMember",
    "Phase",
    "Policy",
    "Reads",
    "RejectedError",
    "Warnings",
    "ZipFormatError",
    "close_member",
    "compression_of",
    "count_disks",
    "declares_crc",
    "decode_whole",
    "drive",
    "finalize_index",
    "first_members",
    "fold_key",
    "gzip_length",
    "inspect_prefix",
    "join_disks",
    "locate_directory",
    "open_member",
    "read_header",
    "with_known_crc",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "s3unzip.finding": ("Finding",),
            "s3unzip.zipformat.checks": ("CHECKS", "Action", "Check", "Phase"),
            "s3unzip.zipformat.coding": ("compression_of", "declares_crc", "with_known_crc"),
            "s3unzip.zipformat.decode": ("PIECE_LENGTH", "MemberDecoder", "decode_whole"),
            "s3unzip.zipformat.directory.columns": ("Members",),
            "s3unzip.zipformat.directory.findings": ("Failure", "Failures", "Index", "Warnings"),
            "s3unzip.zipformat.directory.headers": ("CentralHeader", "HeaderNote"),
            "s3unzip.zipformat.directory.index": ("IndexBuilder", "finalize_index"),
            "s3unzip.zipformat.directory.judging": ("read_header",),
            "s3unzip.zipformat.directory.keys": ("fold_key",),
            "s3unzip.zipformat.directory.locate": (
                "TAIL_LENGTH",
                "DirectoryLocation",
                "locate_directory",
            ),
            "s3unzip.zipformat.directory.prefix": ("inspect_prefix",),
            "s3unzip.zipformat.directory.reader": ("DirectoryReader",),
            "s3unzip.zipformat.errors": ("MemberError", "RejectedError", "ZipFormatError"),
            "s3unzip.zipformat.gzip": ("GzipMember", "gzip_length"),
            "s3unzip.zipformat.local": (
                "AFTER_LENGTH",
                "HEAD_LENGTH",
                "NeedMoreBytes",
                "OpenedMember",
                "close_member",
                "open_member",
            ),
            "s3unzip.zipformat.member": ("Member",),
            "s3unzip.zipformat.policy": ("Limits", "Policy"),
            "s3unzip.zipformat.ranges": ("ByteRange", "Reads", "drive"),
            "s3unzip.zipformat.split.declared": ("count_disks", "first_members"),
            "s3unzip.zipformat.split.disks": ("ONE_DISK", "Disks", "join_disks"),
        },
    )
