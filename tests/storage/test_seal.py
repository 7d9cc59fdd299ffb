"""A seal notices every flipped bit, another run, and another name."""

from __future__ import annotations

from io import BytesIO

import pytest

from edgesim.storage.seal import BLANK, SealError, check_seal, seal_file, sealed

DATA = b"before " + BLANK.encode() + b" after"


def test_what_is_sealed_is_as_long_and_passes():
    data = sealed(DATA, "run", "name")
    assert len(data) == len(DATA)
    assert data.startswith(b"before edgesim-seal-1:")
    assert data.endswith(b" after")
    check_seal(data, "run", "name")


def test_every_flipped_bit_and_every_shorter_file_is_noticed():
    data = sealed(DATA, "run", "name")
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(SealError, match="damaged"):
            check_seal(bytes(flipped), "run", "name")
    for length in range(len(data)):
        with pytest.raises(SealError, match="damaged"):
            check_seal(data[:length], "run", "name")


def test_another_run_and_another_name_are_told_apart():
    data = sealed(DATA, "run", "name")
    with pytest.raises(SealError, match="of another run"):
        check_seal(data, "run 2", "name")
    with pytest.raises(SealError, match="another file's content"):
        check_seal(data, "run", "name 2")


def test_of_several_blanks_the_last_one_counts():
    data = sealed(DATA + DATA, "run", "name")
    assert data.startswith(DATA)
    check_seal(data, "run", "name")


@pytest.mark.parametrize("length", [0, 10, 2**16, 2**16 + 5, 3 * 2**20])
def test_a_long_file_is_sealed_as_a_short_one(length):
    data = bytes(length) + DATA
    file = BytesIO(data)
    seal_file(file, "run", "name")
    assert file.getvalue() == sealed(data, "run", "name")
