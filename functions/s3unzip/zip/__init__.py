"""The ZIP core: it parses and decodes bytes, does no I/O, and does not depend on an object store.

To plan a run, use `locate_directory` to find the central directory, a `DirectoryReader` to read its
headers into an `Index`, and `inspect_prefix` to check the bytes before the first member. To extract
a member, call `open_member`, then `decode.decode_member` or a `decode.MemberDecoder`, then
`close_member`. Import the module `s3unzip.zip.decode` separately, because it loads the
decompressors, which planning does not need. `CHECKS` maps the code of each reason and warning to
its check. `Policy` contains the limits, and determines the effect of each check. All errors are
instances of `ArchiveError`.

A function that needs bytes returns `Reads`. This generator yields a `ByteRange`, and receives the
bytes in this range. `drive` runs the generator with a function that reads a range:

>>> from s3unzip import zip as zipformat
>>> raw = bytes.fromhex("504b0506") + bytes(18)  # an archive without members
>>> reads = zipformat.locate_directory(len(raw), zipformat.Policy())
>>> location = zipformat.drive(reads, lambda want: raw[want.start : want.stop])
>>> location.entries
0
"""

from s3unzip.errors import (
    ArchiveError as ArchiveError,
    Finding as Finding,
    MemberError as MemberError,
    RejectedError as RejectedError,
)
from s3unzip.zip.central import DirectoryReader as DirectoryReader
from s3unzip.zip.checks import (
    CHECKS as CHECKS,
    Action as Action,
    Check as Check,
    Limits as Limits,
    Phase as Phase,
    Policy as Policy,
)
from s3unzip.zip.directory import (
    DirectoryLocation as DirectoryLocation,
    inspect_prefix as inspect_prefix,
    locate_directory as locate_directory,
)
from s3unzip.zip.eocd import (
    TAIL_LENGTH as TAIL_LENGTH,
    count_disks as count_disks,
)
from s3unzip.zip.keys import Selection as Selection
from s3unzip.zip.local import (
    AFTER_LENGTH as AFTER_LENGTH,
    HEAD_LENGTH as HEAD_LENGTH,
    MAX_HEADER as MAX_HEADER,
    OpenedMember as OpenedMember,
    close_member as close_member,
    find_data_stop as find_data_stop,
    open_member as open_member,
)
from s3unzip.zip.members import (
    Index as Index,
    Members as Members,
)
from s3unzip.zip.names import fold_key as fold_key
from s3unzip.zip.records import METHODS as METHODS
from s3unzip.zip.values import (
    ONE_DISK as ONE_DISK,
    ByteRange as ByteRange,
    Cipher as Cipher,
    Disks as Disks,
    Member as Member,
    Reads as Reads,
    drive as drive,
    find_boundaries as find_boundaries,
)
