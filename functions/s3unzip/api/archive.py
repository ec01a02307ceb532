"""Look into an archive without extracting it.

>>> import io, zipfile
>>> import s3unzip
>>> file = io.BytesIO()
>>> with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
...     new.writestr("notes/today.txt", "Buy milk.")
>>> archive = s3unzip.open_archive(file)
>>> list(archive), "notes/today.txt" in archive
(['notes/today.txt'], True)
>>> member = archive["notes/today.txt"]
>>> member.size, member.method
(9, 'Defl')
>>> archive.read("notes/today.txt")
b'Buy milk.'
"""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import cached_property, partial
from heapq import merge
from itertools import chain
from typing import IO, Literal, Self, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from s3unzip.api.options import at_endpoint, open_context
from s3unzip.context import Progress
from s3unzip.errors import (
    Finding,
    MemberError,
    NotFoundError,
    NothingSelectedError,
    SourceChangedError,
    UsageError,
)
from s3unzip.model import Options, Pin, Report, Request
from s3unzip.planning.reading import open_local, read_directory, read_tail
from s3unzip.planning.select import PATHS, check_selection, near_names, parse_template
from s3unzip.stores.archives import Source
from s3unzip.stores.calls import read_ahead
from s3unzip.stores.config import StoreConfig, parse_source
from s3unzip.stores.files import BinaryReader, ReaderSource, explaining
from s3unzip.stores.open import NOWHERE
from s3unzip.zip import AFTER_LENGTH, METHODS, ByteRange, Limits, Member, close_member

T = TypeVar("T")
WHOLE_BYTES = 1024**2  # a member of at most this size is read with one request
HELD_BYTES = 64 * 1024**2  # `open` writes a larger member to a temporary file


class NoSuchMemberError(NotFoundError, KeyError):
    """No selected member has that name. The error is also a `KeyError`, as in other mappings."""

    __str__ = Exception.__str__  # `KeyError` would put the message in quotes


class ArchiveMember(Struct, frozen=True):
    """One member of an `Archive`. Directories are not members."""

    _stream: Callable[[Member], Generator[bytes, None, None]]  # a method of the `Archive`
    _member: Member
    _problem: Finding | None = None

    def __repr__(self) -> str:
        return f"<ArchiveMember {self.name!r}: {self.size} bytes>"

    def read(self) -> bytes:
        """Return the content after checking its size and CRC-32.

        The content must fit into memory; `size` is its length in bytes.

        Raises:
            MemberError: the member is refused, is corrupt, or needs another password.
            SourceChangedError: the archive has changed since it was opened.
            StorageError: the archive cannot be read.
            ServiceFaultError: the store failed temporarily; a later call may succeed.
        """
        return b"".join(self.stream())

    def stream(self) -> Generator[bytes, None, None]:
        """Yield the content in pieces of at most 1 MiB.

        If the member is refused, the error is raised by this call, not during the iteration. The
        size and the CRC-32 are checked after the last piece. Do not use the content until the
        iteration has finished without an error.

        Raises:
            MemberError, SourceChangedError, StorageError, ServiceFaultError: as for `read`.
        """
        if self._problem is not None:
            raise MemberError(self._problem)
        return self._stream(self._member)

    @property
    def index(self) -> int:
        """Position in the central directory, counted from 0."""
        return self._member.index

    @property
    def name(self) -> str:
        """The normalised path: segments joined by slashes, never absolute."""
        return self._member.path

    @property
    def size(self) -> int:
        """Size of the content in bytes, as the directory declares it.

        Archives from macOS may declare the size modulo 4 GiB. In that case, this size is the
        declared size plus as many times 4 GiB as the compressed data requires.
        """
        return self._member.size

    @property
    def compressed_size(self) -> int:
        """Size of the compressed data in bytes, as the directory declares it."""
        return self._member.compressed_size

    @property
    def offset(self) -> int:
        """Byte offset of the local header in the archive."""
        return self._member.offset

    @property
    def method(self) -> str | None:
        """Short name of the compression method; None if the member is refused."""
        return self._unless_refused(METHODS.get(self._member.method))

    @property
    def crc32(self) -> int | None:
        """CRC-32 of the content as the directory declares it; None if the member is refused."""
        return self._unless_refused(self._member.crc32)

    @property
    def mtime(self) -> int | None:
        """Modification time in Unix seconds; None if it is unknown."""
        return self._unless_refused(self._member.mtime)

    @property
    def mode(self) -> int | None:
        """Unix mode bits; None if they are unknown."""
        return self._unless_refused(self._member.mode)

    @property
    def problem(self) -> Finding | None:
        """Why the member is refused; None if it is not refused."""
        return self._problem

    def _unless_refused(self, value: T | None) -> T | None:
        if self._problem is not None:
            return None
        return value


class _MemberFile(io.RawIOBase):
    """The content of a member as a stream; the last read raises an error if a check failed."""

    def __init__(self, content: Generator[bytes, None, None]) -> None:
        self._content = content
        self._piece = io.BytesIO()

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._content.close()  # ends the threads that read ahead
        super().close()

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        size = self._piece.readinto(buffer)
        if size or not buffer:
            return size
        try:
            self._piece = io.BytesIO(next(self._content, b""))
        except BaseException:  # also on Ctrl-C
            self.close()  # otherwise, a later read would look like the end of the content
            raise
        return self._piece.readinto(buffer)


class Archive(Mapping[str, ArchiveMember]):
    """The members of one version of an archive, as a mapping from names to members.

    Iteration yields the names; ``values()`` yields the members. The directory is read only once. If
    the archive is overwritten before a member is read, reading raises `SourceChangedError`. Nothing
    stays open between two reads; the ``with`` statement is supported but not needed.
    """

    # Like a `ZipFile`, and unlike other mappings, an archive equals only itself and is hashable.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(  # noqa: PLR0913 - the arguments of `open_archive`
        self,
        source: str | ReaderSource,
        options: Options,
        *,
        password: bytes | str | None,
        limits: Limits | None,
        stores: StoreConfig,
        pin: Pin | None = None,
        warn: Callable[[str], object] | None = None,
    ) -> None:
        """Open an archive and read its directory; callers use `open_archive`.

        `pin` is the version that the archive must have. None means any version.

        Raises:
            SourceChangedError: the version of the archive is not `pin`.
        """
        self._options = options
        self._stores = stores
        self._context = open_context(options, stores, password, limits=limits)
        if isinstance(source, ReaderSource):
            self._location = source.location
            self._adapter: Source = source
        else:
            self._location = parse_source(source)
            if self._location.store.is_local:
                source = self._location.key  # absolute, so that a pickle works in another folder
            self._adapter = self._context.stores.source(self._location)
        self._source = source  # for `__reduce__`; this object reads through `_adapter`
        calls = self._context.calls()
        tail = read_tail(self._adapter, self._location, self._context, calls)
        self.pin = tail.pin  # `open_archive(..., pin=pin)` opens only this version
        if pin is not None:
            self._check_pin(pin)
        self._index = read_directory(
            self._adapter.pinned(self._location, tail.pin, tail.data),
            tail,
            Request(self._location, NOWHERE, options),
            self._context,
            calls=calls,
            template=PATHS,  # nothing is written, and keys are just the members' paths
        ).index
        check_selection(options, self._index, warn)
        # Members are read without `tail.data`, so that the archive does not keep it in memory.
        self._pinned = self._adapter.pinned(self._location, self.pin)

    def __repr__(self) -> str:
        return f"<Archive {self.source}: {len(self)} members>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing, because no file stays open between reads."""

    def __reduce__(self) -> tuple[Callable[[], Archive], tuple[()]]:
        """Pickle the arguments, including the password, to open the same version elsewhere."""
        if isinstance(self._source, ReaderSource):
            raise TypeError(f"{self!r} cannot be pickled: it reads an open file of this process")
        policy = self._context.policy
        return (
            partial(
                Archive,
                self._source,
                self._options,
                password=policy.password,
                limits=policy.limits,
                stores=self._stores,
                pin=self.pin,
            ),
            (),
        )

    def __len__(self) -> int:
        """Return the number of selected members, including refused ones but not directories."""
        return len(self._index.selected) + len(self._index.failures)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the selected members, including refused ones, in directory order."""
        return (member.name for member in self.members())

    def __getitem__(self, name: str) -> ArchiveMember:
        """Return the member with that name; the first call indexes all members by name.

        Raises:
            NotFoundError: no selected member has that name; the error is also a `KeyError`.
        """
        position = self._positions.get(name)
        if position is None:
            similar = near_names(str(name), self._positions)
            advice = "see s3unzip ls"
            if similar:
                advice = f"near: {', '.join(map(repr, similar))}"
            raise NoSuchMemberError(f"{name!r}: no such member in {self.source}; {advice}")
        failures = self._index.failures
        if position < len(failures):  # the positions of refused members come first
            member, problem = failures[position]
            return ArchiveMember(self._stream, member, problem)
        return ArchiveMember(self._stream, self._index.selected[position - len(failures)])

    @cached_property
    def _positions(self) -> dict[str, int]:
        """The position of each name, counted over the refused members and then the sound ones.

        If a refused and a sound member share a name, the name refers to the sound one.
        """
        members = chain((member for member, _ in self._index.failures), self._index.selected)
        return {member.path: position for position, member in enumerate(members)}

    def members(self) -> Iterator[ArchiveMember]:
        """Yield the selected members, including refused ones, in the order of the directory."""
        sound = (ArchiveMember(self._stream, member) for member in self._index.selected.in_order())
        refused = (
            ArchiveMember(self._stream, member, problem) for member, problem in self._index.failures
        )
        return merge(sound, refused, key=lambda member: member.index)

    def namelist(self) -> list[str]:
        """Return the names of the selected members, in the order of the directory."""
        return list(self)

    def infolist(self) -> list[ArchiveMember]:
        """Return the selected members, in the order of the directory."""
        return list(self.members())

    def getinfo(self, name: str | ArchiveMember) -> ArchiveMember:
        """Return the member with that name; raise `NotFoundError` if there is none.

        Like all methods that accept a name, this method also accepts a member.
        """
        if isinstance(name, ArchiveMember):
            return name
        return self[name]

    def read(self, name: str | ArchiveMember) -> bytes:
        """Return a member's content, as `ArchiveMember.read` does, or raise `NotFoundError`."""
        return self.getinfo(name).read()

    def extract(self, name: str | ArchiveMember, path: str | os.PathLike[str] | None = None) -> str:
        """Extract a member below `path`, as `extractall` does; return the path or URL of its file.

        Raises:
            VerdictError: the member failed.
            NotFoundError, UsageError, SourceChangedError: as for `extractall`.
        """
        report = self.extractall(path, [name])
        # At `NOWHERE`, keys have no prefix: the key of a member is its path below `path`.
        key_of = parse_template(Request(self._location, NOWHERE, report.options)).key_of()
        # `pathlib` would damage a URL.
        return os.path.join(os.path.expanduser(path or ""), key_of(self.getinfo(name).name))  # noqa: PTH111, PTH118

    def extractall(
        self,
        path: str | os.PathLike[str] | None = None,
        members: Iterable[str | ArchiveMember] | None = None,
    ) -> Report:
        """Extract the selected members, or only `members`, as the function `extract` does.

        Args:
            path: a folder or ``s3://bucket/prefix``. None means the current folder.
            members: members or their names. None means all members that the options select.

        Raises:
            VerdictError: a member failed, or the run did not complete.
            UsageError: the archive is an open file, which worker processes cannot share.
            NothingSelectedError: `members` is empty.
            NotFoundError: no selected member has one of the names.
            SourceChangedError: the archive has been overwritten since it was opened.
        """
        from s3unzip.api.extraction import extract  # noqa: PLC0415 - it loads the workers

        if isinstance(self._source, ReaderSource):
            raise UsageError(f"{self.source}: this is an open file; extract takes a path or a URL")
        options = replace(self._options, key_template="{member}")
        if members is not None:
            options = replace(options, names=tuple(self.getinfo(named).name for named in members))
            if not options.names:  # a run without names extracts all members
                raise NothingSelectedError(f"{self.source}: no members to extract were named")
        context = self._context
        # Check the version before the run begins: if the archive has changed, the run may replace
        # the records of an earlier run of the new version before it calls `planned`.
        self._check_pin(read_tail(self._adapter, self._location, context, context.calls()).pin)
        progress = Progress()
        progress.planned = lambda plan: self._check_pin(plan.run.pin)  # type: ignore[method-assign]  # called before any PUT
        report = extract(
            self._source,
            path or ".",
            options,
            password=context.policy.password,
            limits=context.policy.limits,
            stores=self._stores,
            progress=progress,
        )
        self._check_pin(report.pin)  # a rejected archive has no plan, so `planned` was not called
        report.raise_for_verdict()
        return report

    def _check_pin(self, pin: Pin | None) -> None:
        if pin != self.pin:
            raise SourceChangedError(
                f"{self.source}: the archive has been overwritten since it was opened"
            )

    def open(
        self,
        name: str | ArchiveMember,
        mode: str = "r",
        *,
        check: Literal["first", "last"] = "first",
    ) -> IO[bytes]:
        """Read a whole member, check it, and return it as a read-only, seekable file.

        A member larger than 64 MiB is stored in a temporary file.

        With ``check="last"``, return a stream that cannot seek. Reading the stream reads the
        archive, only a few ranges ahead of the caller. Reading raises the same errors as `read`;
        the last read checks the size and the CRC-32. An error closes the stream.

        Args:
            name: the name of the member.
            mode: ``"r"`` or ``"rb"``, as in `zipfile`.
            check: when to compare the size and the CRC-32.
        """
        if mode not in {"r", "rb"}:
            raise UsageError(f"mode {mode!r}: members can only be read; use 'r'")
        if check not in {"first", "last"}:
            raise UsageError(f"check must be 'first' or 'last'; it is {check!r}")
        content = self.getinfo(name).stream()
        if check == "last":
            return io.BufferedReader(_MemberFile(content))
        with explaining("TMPDIR, the folder for temporary files"), ExitStack() as stack:
            # `gzip.GzipFile` adopts the mode of the file. With the default mode, "w+b", `GzipFile`
            # would write.
            file = stack.enter_context(tempfile.SpooledTemporaryFile(HELD_BYTES, "r+b"))
            for chunk in content:  # `writelines` would check the limit only at the end
                file.write(chunk)
            stack.pop_all()  # no error: the caller receives the file and closes it
        file.seek(0)
        return io.BufferedReader(file)  # read-only; `file` is closed when it is freed

    @property
    def source(self) -> str:
        """The location of the archive, without secrets."""
        return str(self._location.public)

    @property
    def size(self) -> int:
        """The archive's size in bytes."""
        return self.pin.size

    @property
    def refused(self) -> int:
        """The number of selected members that have a `problem` and cannot be read."""
        return len(self._index.failures)

    @property
    def warnings(self) -> Mapping[str, int]:
        """The number of tolerated findings for each check code.

        The findings come from the directory and from the members that have been read so far.
        """
        return dict(self._index.warnings)

    def _stream(self, member: Member) -> Generator[bytes, None, None]:
        """Yield the content of a member and check it; add its warnings to those of the archive."""
        policy = self._context.policy
        tuning = self._context.tuning
        read = self._reader(member)
        opened = open_local(member, read, policy)
        self._index.warnings.update(opened.warnings)
        start = member.offset + opened.data_start
        stop = start + member.compressed_size
        from s3unzip.zip.decode import MemberDecoder  # noqa: PLC0415 - it loads the decompressors

        decoder = MemberDecoder(member, policy, opened)
        raw = read_ahead(read, ByteRange(start, stop), tuning.read_piece, tuning.reads_ahead)
        for data in decoder.decode(raw):
            yield bytes(data)  # copies only buffers that are not bytes
        self._index.warnings.update(decoder.warnings)
        # If neither a descriptor nor a gap follows the data, the range is empty. Reading an empty
        # range sends no request.
        descriptor = read(ByteRange(stop, min(member.stop, stop + AFTER_LENGTH)))
        self._index.warnings.update(close_member(member, opened, descriptor))

    def _reader(self, member: Member) -> Callable[[ByteRange], bytes]:
        """Return a function that reads ranges of a member; first, read all of a small member."""
        whole = ByteRange(member.offset, member.stop)
        # Each member has its own `Calls`, because a `Calls` with a spent budget never retries.
        read = partial(self._context.calls().read, self._pinned)
        if whole.length > WHOLE_BYTES:
            return read
        data = read(whole)
        return lambda span: data[span.start - whole.start : span.stop - whole.start]


def open_archive(  # noqa: PLR0913 - options of a public function
    source: str | os.PathLike[str] | BinaryReader,
    options: Options | None = None,
    *,
    password: bytes | str | None = None,
    limits: Limits | None = None,
    endpoint_url: str | None = None,
    stores: StoreConfig | None = None,
    warn: Callable[[str], object] | None = None,
    pin: Pin | None = None,
) -> Archive:
    """Read and check the directory of an archive without reading any member.

    Args:
        source: ``s3://bucket/key``, a path, an ``http://`` or ``https://`` URL, or a binary reader
            that can seek. A reader stays open; the caller must close it.
        options: `include`, `exclude`, `names` and `limit` select members. `lenient` and `encoding`
            determine how the directory is read. The other options are for `extract`.
        password: password for encrypted members. A string is encoded as UTF-8.
        limits: limits on the archive. None means the defaults, as changed by ``S3UNZIP_LIMITS``.
        endpoint_url: URL of the S3 server. None means the variable ``AWS_ENDPOINT_URL``, or AWS.
        stores: how to reach S3 and web servers. None means the defaults of boto3.
        warn: function called with a message for each glob that matches no member.
        pin: the required version, from `Archive.pin`; another version raises `SourceChangedError`.

    Raises:
        RejectedError: the source is not a ZIP archive, or the archive is broken or ambiguous.
        NothingSelectedError: no member has a requested name, or `options` select nothing.
        UsageError: `source` cannot be an archive, or an option is wrong.
        StorageError: the archive cannot be read.
        ServiceFaultError: the store failed temporarily; a later call may succeed.
    """
    if isinstance(source, (str, os.PathLike)):
        path_or_reader: str | ReaderSource = os.fsdecode(source)
    elif hasattr(source, "seek") and not hasattr(source, "encoding"):  # only text has an encoding
        path_or_reader = ReaderSource(source)
    else:
        raise UsageError(
            "open_archive takes a path, a URL or a binary file that can seek, not "
            f"{type(source).__name__}; to pass bytes, wrap them in io.BytesIO"
        )
    return Archive(
        path_or_reader,
        options or Options(),
        password=password,
        limits=limits,
        stores=at_endpoint(stores, endpoint_url),
        pin=pin,
        warn=warn,
    )
