"""The ZIP core: bytes in, values out. It does no I/O and knows no object store.

To plan, `locate_directory` finds the central directory, a `DirectoryReader` reads its headers,
`finalize_index` (or an `IndexBuilder`) makes an `Index` of them, and `inspect_prefix` checks the
bytes before the first member. To extract, call `open_member`, then `decode_whole` or a
`MemberDecoder`, then `close_member`. `CHECKS` lists what is refused and why. `Policy` says what a
run tolerates. All errors are below `ZipFormatError`.

A function that needs bytes returns `Reads`, a generator that yields a `ByteRange` and is sent its
bytes. `drive` runs it with a function that reads a range:

>>> from s3unzip import zip as zipformat
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
    from s3unzip.finding import Finding as Finding
    from s3unzip.zip.checks import CHECKS as CHECKS
    from s3unzip.zip.checks import Action as Action
    from s3unzip.zip.checks import Check as Check
    from s3unzip.zip.checks import Phase as Phase
    from s3unzip.zip.coding import compression_of as compression_of
    from s3unzip.zip.coding import declares_crc as declares_crc
    from s3unzip.zip.coding import with_known_crc as with_known_crc
    from s3unzip.zip.decode import PIECE_LENGTH as PIECE_LENGTH
    from s3unzip.zip.decode import MemberDecoder as MemberDecoder
    from s3unzip.zip.decode import decode_whole as decode_whole
    from s3unzip.zip.directory.columns import Members as Members
    from s3unzip.zip.directory.findings import Failure as Failure
    from s3unzip.zip.directory.findings import Failures as Failures
    from s3unzip.zip.directory.findings import Index as Index
    from s3unzip.zip.directory.findings import Warnings as Warnings
    from s3unzip.zip.directory.headers import CentralHeader as CentralHeader
    from s3unzip.zip.directory.headers import HeaderNote as HeaderNote
    from s3unzip.zip.directory.index import IndexBuilder as IndexBuilder
    from s3unzip.zip.directory.index import finalize_index as finalize_index
    from s3unzip.zip.directory.judging import read_header as read_header
    from s3unzip.zip.directory.keys import fold_key as fold_key
    from s3unzip.zip.directory.locate import TAIL_LENGTH as TAIL_LENGTH
    from s3unzip.zip.directory.locate import DirectoryLocation as DirectoryLocation
    from s3unzip.zip.directory.locate import locate_directory as locate_directory
    from s3unzip.zip.directory.prefix import inspect_prefix as inspect_prefix
    from s3unzip.zip.directory.reader import DirectoryReader as DirectoryReader
    from s3unzip.zip.disks import ONE_DISK as ONE_DISK
    from s3unzip.zip.disks import Disks as Disks
    from s3unzip.zip.disks import count_disks as count_disks
    from s3unzip.zip.disks import count_entries as count_entries
    from s3unzip.zip.disks import first_members as first_members
    from s3unzip.zip.disks import join_disks as join_disks
    from s3unzip.zip.errors import MemberError as MemberError
    from s3unzip.zip.errors import RejectedError as RejectedError
    from s3unzip.zip.errors import ZipFormatError as ZipFormatError
    from s3unzip.zip.gzip import GzipMember as GzipMember
    from s3unzip.zip.gzip import gzip_length as gzip_length
    from s3unzip.zip.local import AFTER_LENGTH as AFTER_LENGTH
    from s3unzip.zip.local import HEAD_LENGTH as HEAD_LENGTH
    from s3unzip.zip.local import NeedMoreBytes as NeedMoreBytes
    from s3unzip.zip.local import OpenedMember as OpenedMember
    from s3unzip.zip.local import close_member as close_member
    from s3unzip.zip.local import open_member as open_member
    from s3unzip.zip.member import Member as Member
    from s3unzip.zip.policy import Limits as Limits
    from s3unzip.zip.policy import Policy as Policy
    from s3unzip.zip.ranges import ByteRange as ByteRange
    from s3unzip.zip.ranges import Reads as Reads
    from s3unzip.zip.ranges import drive as drive


if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "s3unzip.finding": ("Finding",),
            "s3unzip.zip.checks": ("CHECKS", "Action", "Check", "Phase"),
            "s3unzip.zip.coding": ("compression_of", "declares_crc", "with_known_crc"),
            "s3unzip.zip.decode": ("PIECE_LENGTH", "MemberDecoder", "decode_whole"),
            "s3unzip.zip.directory.columns": ("Members",),
            "s3unzip.zip.directory.findings": ("Failure", "Failures", "Index", "Warnings"),
            "s3unzip.zip.directory.headers": ("CentralHeader", "HeaderNote"),
            "s3unzip.zip.directory.index": ("IndexBuilder", "finalize_index"),
            "s3unzip.zip.directory.judging": ("read_header",),
            "s3unzip.zip.directory.keys": ("fold_key",),
            "s3unzip.zip.directory.locate": (
                "TAIL_LENGTH",
                "DirectoryLocation",
                "locate_directory",
            ),
            "s3unzip.zip.directory.prefix": ("inspect_prefix",),
            "s3unzip.zip.directory.reader": ("DirectoryReader",),
            "s3unzip.zip.errors": ("MemberError", "RejectedError", "ZipFormatError"),
            "s3unzip.zip.gzip": ("GzipMember", "gzip_length"),
            "s3unzip.zip.local": (
                "AFTER_LENGTH",
                "HEAD_LENGTH",
                "NeedMoreBytes",
                "OpenedMember",
                "close_member",
                "open_member",
            ),
            "s3unzip.zip.member": ("Member",),
            "s3unzip.zip.policy": ("Limits", "Policy"),
            "s3unzip.zip.ranges": ("ByteRange", "Reads", "drive"),
            "s3unzip.zip.disks": (
                "ONE_DISK",
                "Disks",
                "count_disks",
                "count_entries",
                "first_members",
                "join_disks",
            ),
        },
    )
