"""The registry of checks: all codes of reasons and warnings, and the policy for their effects.

Checks are numbered, and a check can have several codes. Each check is explained in the module that
performs it. The adapters for archive sources perform check 55, and the planner checks the parts of
a split archive; these checks are only registered here.
"""

from enum import Enum
from typing import NamedTuple

from msgspec import Struct, field

MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

# Each line contains a code, the number of its check, three letters, and a sentence about the
# finding. The first letter is the `Phase` of the check (Index, Local, Data, Key or Source). The
# second letter is the effect of a finding (Reject the archive, fail the Member, or Warn), and the
# third letter is its effect under a lenient policy.
_TABLE = """\
no-eocd 1 IRR This is not a ZIP archive, or its end is missing.
trailing-data 2 IRW Bytes follow the end of the archive.
trailing-padding 2 IWW Only NULs or one line break follow the end of the archive.
eocd-comment-truncated 3 IRR The archive's comment extends past the end of the file.
eocd-signature-in-comment 4 IRR The archive's comment contains a second end record.
multiple-eocd 4 IRR There are two end records, and both end where the archive ends.
multi-disk 5 IRR The file is one part of a split archive, or its disk numbers are wrong.
part-missing 5 SRR A part of the split archive is missing.
part-wrong 5 LRR A part of the split archive holds other bytes than the directory says.
too-many-parts 5 IRR The archive has more parts than the limit allows.
count-mismatch 6 IRR The directory does not contain the declared number of members.
count-wrapped 6 IWW Without a ZIP64 record, the number of members is declared modulo 65,536.
cd-size 7 IRR The directory is too short for the declared number of members.
cd-truncated 7 IRR The directory ends inside a header.
cd-bad-signature 7 IRR A header of the directory has no signature.
cd-trailing-bytes 7 IRR The directory has bytes after its last header.
cd-out-of-bounds 8 IRR The directory does not fit before the end record.
gap-before-eocd 9 IRR There are bytes between the directory and the end record.
cd-ambiguous 10 IRR There are two directories, so the archive can be read in two ways.
stacked-archive 11 IRR Another ZIP archive precedes this one.
offsets-ambiguous 11 IRR There is a ZIP record in the bytes before the archive.
prefix-unadjusted 12 IWW The offsets do not count the bytes before the archive.
prefix-adjusted 12 IWW There are bytes before the first member.
zip64-locator-mismatch 13 IRR The ZIP64 locator does not point to the ZIP64 end record.
zip64-locator-missing 13 IRR The end record requires ZIP64, but there is no ZIP64 locator.
offsets-wrapped 13 IWW Offsets are modulo 4 GiB, as macOS writes them without ZIP64.
offsets-unproven 13 IRR Offsets are modulo 4 GiB, as macOS writes them, and are ambiguous.
zip64-record-size 14 IRR The ZIP64 end record does not end at its locator.
zip64-record-length 14 IWW The length of the ZIP64 end record includes its first 12 bytes.
zip64-locator-gap 14 IRR There are bytes between the ZIP64 locator and the end record.
multiple-zip64-eocd 14 IRR There is a second ZIP64 end record.
zip64-extensible-data 15 IRW The ZIP64 end record has extensible data.
zip64-eocd-mismatch 16 IRR The end record and the ZIP64 end record disagree.
zip64-ambiguous 16 IRR The end record and a ZIP64 end record locate different directories.
zip64-extra-missing 17 IMM The header needs a ZIP64 field for a size, but has none.
zip64-extra-duplicate 17 IMM The header has two ZIP64 fields.
zip64-extra-malformed 17 IMM The ZIP64 field is too short for its values.
lfh-zip64-duplicate 17 LMM The local header has two ZIP64 fields.
member-out-of-bounds 18 IRR A member does not fit before the directory.
overlap 19 IRR A member shares bytes with another member or with the directory.
too-many-entries 20 IRR The archive has more members than the limit allows.
cd-too-large 20 IRR The directory is larger than the limit allows.
names-too-large 20 IRR The total length of the members' names is above the limit.
bomb-total 21 IRR The declared sizes add up to more than the limit.
bomb-member-size 21 IMM The member declares a larger size than the limit.
bomb-ratio 21 IMM The member declares more data than its compressed bytes can represent.
bomb-wrapped-size 21 DMM The size is modulo 4 GiB, and the data is longer than the limits allow.
high-ratio 21 IWW The member declares a very high compression ratio.
cd-extra-malformed 22 IWW An extra field is longer than its block.
lfh-extra-malformed 22 LWW An extra field of the local header is longer than its block.
extra-trailing-bytes 22 IWW One to three stray bytes follow the extra fields.
duplicate-name 23 KRW Two members would be written under one key.
dup-directory 23 KWW A directory is listed twice.
case-collision 24 KWW Two keys differ only in upper and lower case.
unicode-collision 24 KWW Two keys are equal after Unicode normalisation.
file-dir-prefix-conflict 24 KWW A key is also the folder of another key.
name-dotdot 25 KMM The name has a '..' segment.
name-absolute 26 KMW The name begins with a slash.
name-drive-letter 26 KMW The name begins with a drive letter.
name-backslash 27 KMW The name has a backslash where ZIP requires a slash.
name-nul 28 KMM The name has a NUL character.
name-control-char 28 KMW The name has a control character, which terminals and tools for S3 misread.
name-carriage-return 28 KWW The name has a carriage return, like the icon files of macOS.
name-combining-run 28 KMW The name has more than 30 combining marks in a row.
name-empty 29 KMM The name is empty, or has only dots and slashes.
name-bad-utf8 30 KMM The name is marked as UTF-8, but is not valid UTF-8.
name-encoding-guess 31 KWW The name does not declare its encoding.
name-guessed-backslash 31 KMM A backslash in the name may be half a character in another encoding.
lfh-flag11-mismatch 31 LWW Only one of the two headers marks the name as UTF-8.
name-undecodable 31 KMM The name is not valid in the encoding set with --encoding.
unicode-path-used 32 IWW The name comes from the Unicode path field.
unicode-path-stale 32 IWW The Unicode path field no longer matches the name.
unicode-path-duplicate 32 IRW The header has two Unicode path fields.
unicode-path-backslash 32 IWW The Unicode path field has backslashes where the name has slashes.
unicode-path-mismatch 32 IRW The UTF-8 name and the Unicode path field differ.
lfh-unicode-path-mismatch 32 LMW The Unicode path field of the local header names a different file.
lfh-unicode-path-duplicate 32 LWW One of several local Unicode path fields names a different file.
name-dot-normalised 33 KWW A '.' segment of the name was dropped.
name-empty-component-normalised 33 KWW An empty segment of the name was dropped.
dir-is-root 33 KWW A directory is the destination folder itself, so no folder is created.
key-too-long 34 KMM The key is longer than S3 allows.
name-s3-special 35 KWW Some S3 clients cannot address the key.
name-reserved 35 KMM The completion marker or the archive has the same key.
name-trailing-space-dot 35 KWW A name segment begins with a space, or ends with a space or a dot.
encrypted 36 IMM The member is encrypted.
encrypted-directory 36 IRR The central directory is encrypted, which is not supported.
strong-encryption 36 IMM The member uses the strong encryption of PKWARE, which is not supported.
encryption-malformed 36 IMM The member is encrypted, but its encryption data is incomplete.
wrong-password 36 DMM The password does not open the member.
unsupported-method 37 IMM The compression method is not supported.
patch-data 37 IMM The member contains compressed patch data, which is not supported.
version-needed 37 IWW The member requires a version of the ZIP format that does not exist.
symlink 38 IMW The member is a symbolic link.
reparse-point 38 IWW The member has the attribute of a Windows reparse point.
device 39 IMM The member is a device or a socket.
fifo-mode 39 IWW The member has the mode bits of a FIFO; zip writes them when it reads a pipe.
dir-with-data 40 IMW A directory has data.
dir-with-size 40 IWW A directory declares a size, but has no data.
dir-attr-without-slash 40 IWW The member is a directory by its attributes but not by its name.
lfh-bad-signature 41 LMM There is no local header at the member's offset.
lfh-truncated 41 LMM The local header is incomplete.
lfh-name-mismatch 42 LMM The two headers name different files.
lfh-name-variant 42 LWW The two headers spell the same path differently.
lfh-method-mismatch 43 LMM The two headers declare different compression methods.
lfh-size-crc-mismatch 44 LMM The two headers have different sizes or different CRC-32s.
lfh-encryption-mismatch 45 LMM The two headers declare different encryption.
dd-mismatch 46 LMM The data descriptor disagrees with the directory.
dd-absent 46 LWW The announced data descriptor is missing; both headers contain its values.
dd-cut 46 LWW The data descriptor is cut after 16 bytes.
dd-missing-signature 46 LWW The data descriptor has no signature.
lfh-flag3-mismatch 46 LWW Only one of the two headers announces a data descriptor.
hidden-local-header 47 LWW There is a local header that the directory does not list.
stored-size-mismatch 48 IMM The member is stored, but its two sizes differ.
size-overrun 49 DMM The data is longer than declared.
size-unproven 49 LMM The size is modulo 4 GiB, as macOS writes it, and is ambiguous.
size-wrapped 49 DWW The size is modulo 4 GiB, as macOS writes it without ZIP64.
stream-truncated 50 DMM The compressed data ends early.
stream-absent 50 IWW The member has no compressed data; its size and its CRC-32 are 0.
size-mismatch 50 DMM The data does not have the declared size.
compressed-trailing-bytes 51 DMW Bytes follow the end of the compressed data.
crc-mismatch 52 DMM The data does not have the declared CRC-32.
aes-mac-mismatch 52 DMM The data does not have the stored AES authentication code.
corrupt-stream 53 DMM The compressed data is damaged.
memory-bound 54 DMM The member needs more decoder memory than allowed.
source-changed 55 SRR The archive was replaced or deleted while it was read.
"""


class Phase(Enum):
    """The kind of bytes that a check needs."""

    INDEX = "index"
    LOCAL = "local"
    DATA = "data"
    KEY = "key"
    SOURCE = "source"


class Action(Enum):
    """The effect of a finding."""

    REJECT = "reject"
    MEMBER = "member"
    WARN = "warn"


class Check(NamedTuple):
    """A code, the number of its check, the bytes that the check needs, and a sentence about it.

    `default` is the normal effect of a finding, and `lenient` is its effect under a lenient policy.
    The two effects differ only for findings that some users might accept and others refuse.
    """

    code: str
    number: int
    phase: Phase
    default: Action
    lenient: Action
    sentence: str

    @property
    def is_policy(self) -> bool:
        """Whether a lenient policy turns a finding with this code into a warning."""
        return self.lenient is not self.default


def _read_table() -> dict[str, Check]:
    # The table contains only the first letter of each name.
    phases = {phase.name[0]: phase for phase in Phase}
    actions = {action.name[0]: action for action in Action}
    checks = {}
    for line in _TABLE.splitlines():
        code, number, letters, sentence = line.split(" ", 3)
        checks[code] = Check(
            code=code,
            number=int(number),
            phase=phases[letters[0]],
            default=actions[letters[1]],
            lenient=actions[letters[2]],
            sentence=sentence,
        )
    return checks


CHECKS = _read_table()


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits that no archive can change; sizes are in bytes.

    `ratio` applies to deflate, which cannot exceed 1,032:1, so a higher declared ratio is false.
    Other methods have no maximum ratio, so a high ratio is only a warning. `decoder_memory` limits
    the memory that a stream header can request for an LZMA dictionary or a zstd window. `parts`
    limits the number of files in a split archive, because the input of each worker contains the
    names of all files.

    Reading a directory needs at most about 300 bytes of memory for each member, plus `names_size`,
    plus twice `folder_memory`. Failed members need no more memory: the first 10,000 failed members
    keep a message, and later failed members keep only a code. `names_size` limits the total length
    of all names in UTF-8. A name that cannot be a key is cut, and only the remaining part counts.
    `folder_memory` limits the memory for comparing keys with folders, and directories with each
    other. If this memory is used up, a clash might be counted twice, and a directory that is listed
    twice might not be noticed.
    """

    members: int = 10_000_000
    total_size: int = 5 * TIB
    member_size: int = 5 * TIB
    ratio: int = 1_100
    directory_size: int = 2 * GIB
    key_bytes: int = 1_024
    names_size: int = 1 * GIB
    folder_memory: int = 32 * MIB
    decoder_memory: int = 128 * MIB
    parts: int = 500


class Policy(Struct, frozen=True):
    """The effects of findings, and the limits.

    If `lenient` is True, some findings only cause warnings: for example, a backslash becomes a
    slash, trailing bytes are ignored, and a symbolic link is written as a file that contains the
    path of its target. `encoding` is the encoding of names that are not ASCII and do not declare
    UTF-8. Without an encoding, such a name is read as UTF-8 if it is valid UTF-8, and as cp437
    otherwise. `password` decrypts encrypted members; without a password, such members fail. The
    password is left out of `repr`, so it does not appear in any log.
    """

    lenient: bool = False
    encoding: str | None = None
    limits: Limits = field(default_factory=Limits)
    password: bytes | None = None

    def __repr__(self) -> str:
        names = (name for name in self.__struct_fields__ if name != "password")
        return f"Policy({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def tolerates(self, code: str) -> bool:
        """Return whether `code` is only a warning under this policy."""
        check = CHECKS[code]
        return (check.lenient if self.lenient else check.default) is Action.WARN
