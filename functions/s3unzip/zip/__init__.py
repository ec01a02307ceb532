"""The ZIP core: bytes in, values out. It does no I/O and knows no object store.

To plan, `locate_directory` finds the central directory, a `DirectoryReader` reads its headers into
an `Index`, and `inspect_prefix` checks the bytes before the first member. To extract, call
`open_member`, then `decode_whole` or a `MemberDecoder`, then `close_member`. `CHECKS` lists what is
refused and why. `Policy` says what a run tolerates. All errors are below `ZipFormatError`.

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

from typing import TYPE_CHECKING

from s3unzip.lazy import lazy_names

if TYPE_CHECKING:
    from s3unzip.finding import Finding as Finding
    from s3unzip.zip.checks import CHECKS as CHECKS
    from s3unzip.zip.checks import Action as Action
    from s3unzip.zip.checks import Check as Check
    from s3unzip.zip.checks import Limits as Limits
    from s3unzip.zip.checks import Phase as Phase
    from s3unzip.zip.checks import Policy as Policy
    from s3unzip.zip.decode import PIECE_LENGTH as PIECE_LENGTH
    from s3unzip.zip.decode import GzipMember as GzipMember
    from s3unzip.zip.decode import MemberDecoder as MemberDecoder
    from s3unzip.zip.decode import decode_whole as decode_whole
    from s3unzip.zip.decode import gzip_length as gzip_length
    from s3unzip.zip.directory import TAIL_LENGTH as TAIL_LENGTH
    from s3unzip.zip.directory import DirectoryLocation as DirectoryLocation
    from s3unzip.zip.directory import inspect_prefix as inspect_prefix
    from s3unzip.zip.directory import locate_directory as locate_directory
    from s3unzip.zip.disks import ONE_DISK as ONE_DISK
    from s3unzip.zip.disks import Disks as Disks
    from s3unzip.zip.disks import count_disks as count_disks
    from s3unzip.zip.disks import count_entries as count_entries
    from s3unzip.zip.disks import first_members as first_members
    from s3unzip.zip.disks import join_disks as join_disks
    from s3unzip.zip.index import DirectoryReader as DirectoryReader
    from s3unzip.zip.local import AFTER_LENGTH as AFTER_LENGTH
    from s3unzip.zip.local import HEAD_LENGTH as HEAD_LENGTH
    from s3unzip.zip.local import NeedMoreBytes as NeedMoreBytes
    from s3unzip.zip.local import OpenedMember as OpenedMember
    from s3unzip.zip.local import close_member as close_member
    from s3unzip.zip.local import open_member as open_member
    from s3unzip.zip.members import Index as Index
    from s3unzip.zip.members import Members as Members
    from s3unzip.zip.members import RefusedMember as RefusedMember
    from s3unzip.zip.members import RefusedMembers as RefusedMembers
    from s3unzip.zip.members import Warnings as Warnings
    from s3unzip.zip.names import fold_key as fold_key
    from s3unzip.zip.records import METHODS as METHODS
    from s3unzip.zip.values import ByteRange as ByteRange
    from s3unzip.zip.values import Cipher as Cipher
    from s3unzip.zip.values import Member as Member
    from s3unzip.zip.values import MemberError as MemberError
    from s3unzip.zip.values import Reads as Reads
    from s3unzip.zip.values import RejectedError as RejectedError
    from s3unzip.zip.values import ZipFormatError as ZipFormatError
    from s3unzip.zip.values import drive as drive

_VALUES = ("ByteRange", "Cipher", "Member", "MemberError", "Reads", "RejectedError", "drive")
_MEMBERS = ("Index", "Members", "RefusedMember", "RefusedMembers", "Warnings")
_LOCAL = ("AFTER_LENGTH", "HEAD_LENGTH", "NeedMoreBytes", "OpenedMember")
_DISKS = ("ONE_DISK", "Disks", "count_disks", "count_entries", "first_members", "join_disks")
_DECODE = ("PIECE_LENGTH", "GzipMember", "MemberDecoder", "decode_whole", "gzip_length")

if not TYPE_CHECKING:
    __getattr__, __dir__, __all__ = lazy_names(
        __name__,
        {
            "s3unzip.finding": ("Finding",),
            "s3unzip.zip.checks": ("CHECKS", "Action", "Check", "Limits", "Phase", "Policy"),
            "s3unzip.zip.decode": _DECODE,
            "s3unzip.zip.directory": (
                "TAIL_LENGTH", "DirectoryLocation", "inspect_prefix", "locate_directory",
            ),
            "s3unzip.zip.disks": _DISKS,
            "s3unzip.zip.index": ("DirectoryReader",),
            "s3unzip.zip.local": (*_LOCAL, "close_member", "open_member"),
            "s3unzip.zip.members": _MEMBERS,
            "s3unzip.zip.names": ("fold_key",),
            "s3unzip.zip.records": ("METHODS",),
            "s3unzip.zip.values": (*_VALUES, "ZipFormatError"),
        },
    )  # fmt: skip
