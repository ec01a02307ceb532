"""Raw deflate streams from several encoders: each cuts its blocks in its own way."""

import ctypes
import ctypes.util
import random
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from isal import isal_zlib

Encoder = Callable[[bytes], bytes]

GO = """package main

import (
	"compress/flate"
	"io"
	"os"
)

func main() {
	out, _ := flate.NewWriter(os.Stdout, 6)
	if _, err := io.Copy(out, os.Stdin); err != nil {
		panic(err)
	}
	out.Close()
}
"""


def encode_zlib(level: int, strategy: int = zlib.Z_DEFAULT_STRATEGY, memory: int = 8) -> Encoder:
    """Return zlib at a level; level 0 writes stored blocks, `Z_FIXED` fixed ones."""

    def encode(data: bytes) -> bytes:
        stream = zlib.compressobj(level, zlib.DEFLATED, -15, memory, strategy)
        return stream.compress(data) + stream.flush()

    return encode


def encode_flushed(data: bytes) -> bytes:
    """Deflate as pigz does: a sync flush each 128 KiB of input."""
    stream = zlib.compressobj(6, zlib.DEFLATED, -15)
    output = b""
    for at in range(0, len(data), 128 << 10):
        output += stream.compress(data[at : at + (128 << 10)])
        output += stream.flush(zlib.Z_SYNC_FLUSH)
    return output + stream.flush()


def encode_isal(data: bytes) -> bytes:
    """Deflate by ISA-L."""
    stream = isal_zlib.compressobj(2, isal_zlib.DEFLATED, -15)
    return stream.compress(data) + stream.flush()


def encode_libdeflate(data: bytes) -> bytes:
    """Deflate by libdeflate, where the machine has it."""
    name = ctypes.util.find_library("deflate")
    if name is None:
        pytest.skip("libdeflate is not installed")
    library = ctypes.CDLL(name)
    library.libdeflate_alloc_compressor.restype = ctypes.c_void_p
    library.libdeflate_deflate_compress.restype = ctypes.c_size_t
    library.libdeflate_deflate_compress.argtypes = [
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t)
    ]
    library.libdeflate_free_compressor.argtypes = [ctypes.c_void_p]
    room = ctypes.create_string_buffer(len(data) + 65_536)
    compressor = library.libdeflate_alloc_compressor(6)
    size = library.libdeflate_deflate_compress(compressor, data, len(data), room, len(room))
    library.libdeflate_free_compressor(compressor)
    return room.raw[:size]


def encode_go(data: bytes) -> bytes:
    """Deflate by Go's compress/flate, an encoder of its own."""
    return _pipe(_go_program(), data)


ENCODERS: dict[str, Encoder] = {
    "zlib-1": encode_zlib(1),
    "zlib-6": encode_zlib(6),
    "zlib-9": encode_zlib(9),
    "sync-flushed": encode_flushed,
    "isal": encode_isal,
    "libdeflate": encode_libdeflate,
    "go": encode_go,
}


@cache
def log_lines(size: int, seed: int = 1) -> bytes:
    """Return log lines: copies reach back over every window for ever."""
    dice = random.Random(seed)
    paths = [f"/api/{dice.getrandbits(20):x}" for _ in range(50)]
    lines = [
        f"2026-01-{dice.randrange(28) + 1:02d} {dice.choice(paths)} {dice.getrandbits(24):06x}\n"
        for _ in range(size // 30)
    ]
    return "".join(lines).encode().ljust(size, b".")[:size]


@cache
def mixed_files(size: int, seed: int = 2) -> bytes:
    """Return stretches of text, of noise, of zeros and of text again."""
    dice = random.Random(seed)
    pieces = bytearray()
    while len(pieces) < size:
        pieces += log_lines(200_000, dice.randrange(4))
        pieces += dice.randbytes(30_000)
        pieces += bytes(20_000)
    return bytes(pieces[:size])


def _pipe(command: str, data: bytes) -> bytes:
    return subprocess.run(command.split(), input=data, stdout=subprocess.PIPE, check=True).stdout


@cache
def _go_program() -> str:
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    folder = _scratch()
    (folder / "main.go").write_text(GO)
    target = folder / "encode"
    if not target.exists():
        subprocess.run([go, "build", "-o", str(target), str(folder / "main.go")], check=True)
    return str(target)


@cache
def _scratch() -> Path:
    # One folder for all runs: building the Go program takes longer than its tests.
    folder = Path(tempfile.gettempdir(), "s3unzip-test-encoders")
    folder.mkdir(exist_ok=True)
    return folder
