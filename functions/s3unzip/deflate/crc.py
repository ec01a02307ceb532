"""The CRC-32 of a whole from the CRC-32s of its parts.

A CRC is the remainder of a polynomial over GF(2), so appending `n` bytes
multiplies it by x to the 8n. Here that power is put together from a table by
the base-256 digits of `n`, each entry made when it is first needed. (zlib has
had `crc32_combine` for long; Python's module does not offer it before 3.15.)

Polynomials are held as CRC-32 holds them: reflected, the coefficient of x^0
in bit 31.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

_POLYNOMIAL: Final = 0xEDB88320  # x^32 + x^26 + ... + 1, reflected, without x^32
_ONE: Final = 1 << 31
_DIGITS: Final = 8  # of base 256 in a length below 2**64


def crc32_combine(crc1: int, crc2: int, len2: int) -> int:
    """Return the CRC-32 of A + B from those of A and B and the length of B in bytes.

    Args:
        crc1: CRC-32 of A.
        crc2: CRC-32 of B.
        len2: Length of B, from 0 up to 2**64 - 1.
    """
    if not 0 <= len2 < 1 << 8 * _DIGITS:
        raise ValueError(f"length {len2} is not between 0 and 2**{8 * _DIGITS} - 1")
    return _multiply(crc1, _shift(len2)) ^ crc2


@lru_cache(maxsize=4096)
def _shift(length: int) -> int:
    """Return x**(8 * length) modulo the polynomial. Parts of equal length are the common case."""
    power = _ONE
    for digit, value in enumerate(length.to_bytes(_DIGITS, "little")):
        if value:
            power = _multiply(power, _digit_shift(digit, value))
    return power


@lru_cache(maxsize=_DIGITS * 256)
def _digit_shift(digit: int, value: int) -> int:
    """Return x**(8 * value * 256**digit) modulo the polynomial."""
    if value > 1:
        half = _digit_shift(digit, value // 2)
        power = _multiply(half, half)
        return _multiply(power, _digit_shift(digit, 1)) if value % 2 else power
    if digit:
        return _multiply(_digit_shift(digit - 1, 128), _digit_shift(digit - 1, 128))
    return _ONE >> 8  # x**8


def _times_x(a: int) -> int:
    return a >> 1 ^ _POLYNOMIAL if a & 1 else a >> 1


def _times_x4(a: int) -> int:
    return _times_x(_times_x(_times_x(_times_x(a))))


_CARRIED: Final = tuple(_times_x4(four) for four in range(16))  # what four bits shifted out leave


def _multiply(a: int, b: int) -> int:
    """Return the product of two polynomials modulo the polynomial, four bits of `a` at a time."""
    c = _times_x(b)
    d = _times_x(c)
    e = _times_x(d)
    bc, de = b ^ c, d ^ e
    multiples = (
        *(0, e, d, de, c, c ^ e, c ^ d, c ^ de),
        *(b, b ^ e, b ^ d, b ^ de, bc, bc ^ e, bc ^ d, bc ^ de),
    )
    product = 0
    for shift in range(0, 32, 4):
        product = product >> 4 ^ _CARRIED[product & 15] ^ multiples[a >> shift & 15]
    return product
