"""Encrypted members: both ciphers in any cuts, and every way to be wrong."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from s3unzip.zip import Policy
from tests.corpus.codecs import SEALS
from tests.corpus.core import Cut, extract
from tests.corpus.labels import Member, extracted
from tests.support.encrypting import seal_aes, seal_zipcrypto
from tests.support.zips import DEFLATE, STORED, Entry, build

SECRET = b"p\xc3\xa4ss word\x00\xff"
OPENING = Policy(password=SECRET)
TEXT = b"The quick brown fox. " * 40


def _codes_of(raw: bytes, policy: Policy) -> set[str | None]:
    results = [extract(raw, policy, cut) for cut in (Cut(), Cut(7), Cut(1))]
    assert all(len(result.members) == 1 for result in results)
    return {result.members[0].code for result in results}


@settings(max_examples=60, deadline=None)
@given(
    content=st.binary(max_size=200),
    password=st.binary(min_size=1, max_size=80),
    seal=st.sampled_from(list(SEALS.values())),
    method=st.sampled_from([STORED, DEFLATE]),
    step=st.integers(1, 60),
)
def test_round_trip(
    content: bytes, password: bytes, seal: Callable[[Member, bytes], Member], method: int, step: int
) -> None:
    """Any content comes back with any password, cut anywhere."""
    raw = build(seal(Member("a", content, method), password))
    assert extract(raw, Policy(password=password), Cut(step)).members[0] == extracted("a", content)


def test_wrong_password_that_passes_the_check_byte() -> None:
    """One wrong password of 256 passes ZipCrypto's check: then the data tells."""
    raw = build(seal_zipcrypto(Entry("a", TEXT, DEFLATE), SECRET))
    guesses = (Policy(password=b"guess %d" % number) for number in range(700))
    codes = {extract(raw, policy).members[0].code for policy in guesses}
    assert "wrong-password" in codes
    assert codes > {"wrong-password"}
    assert None not in codes


def test_every_flipped_byte_is_noticed() -> None:
    """A stored AES member with any one byte altered fails, by salt, verifier, data or code."""
    sealed = seal_aes(Entry("a", b"0123456789", STORED), SECRET)
    for at in range(len(sealed.stored_data)):
        data = bytearray(sealed.stored_data)
        data[at] ^= 0x40
        code = extract(build(replace(sealed, data=bytes(data))), OPENING).members[0].code
        assert code == ("wrong-password" if at < 18 else "aes-mac-mismatch")


@pytest.mark.parametrize("seal", [seal_zipcrypto, seal_aes])
def test_a_member_that_is_cut_short_fails(seal: Callable[[Entry, bytes], Entry]) -> None:
    """A member cut short anywhere fails, whatever was cut off."""
    sealed = seal(Entry("a", TEXT, DEFLATE), SECRET)
    for length in range(len(sealed.stored_data)):
        raw = build(replace(sealed, data=sealed.stored_data[:length]))
        assert extract(raw, OPENING).members[0].code is not None


def test_password_is_in_no_representation() -> None:
    """What is logged of a policy does not hold its password."""
    assert "sesame" not in repr(Policy(password=b"open sesame"))
