"""derive_chunk_seed: the same values from Python, the operator and the reference; properties of the hash."""

import csv

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from support import ROOT

from chunked_noise import derive_chunk_seed, reference

KNOWN = [
    (int(row["seed"]), int(row["chunk_index"]), int(row["derived"], 16))
    for row in csv.DictReader((ROOT / "tests/data/chunk_seeds.csv").read_text().splitlines())
]


def signed(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def op(seed: int, chunk_index: int) -> int:
    return torch.ops.chunked_noise.derive_chunk_seed(signed(seed), signed(chunk_index)) % 2**64


@pytest.mark.parametrize(("seed", "chunk_index", "derived"), KNOWN)
@pytest.mark.parametrize("function", [derive_chunk_seed, reference.derive_chunk_seed, op])
def test_known_values(function, seed, chunk_index, derived):
    assert function(seed, chunk_index) == derived


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
@example(2**63, 2**63)
@example(2**64 - 1, 2**64 - 1)
def test_all_forms_agree(seed, chunk_index):
    derived = derive_chunk_seed(seed, chunk_index)
    assert derived == reference.derive_chunk_seed(seed, chunk_index) == op(seed, chunk_index)
    assert 0 <= derived < 2**64
    torch.Generator().manual_seed(derived)


@given(st.integers(), st.integers(0, 2**64 - 1))
@example(10**30, 0)
@example(-(2**63) - 1, 0)
@example(2**64 + 7, 3)
@example(-1, 3)
def test_seeds_are_reduced_modulo_2_64(seed, chunk_index):
    assert derive_chunk_seed(seed, chunk_index) == derive_chunk_seed(seed % 2**64, chunk_index)


@pytest.mark.parametrize("chunk_index", [-1, 2**64, -(2**70)])
@pytest.mark.parametrize("function", [derive_chunk_seed, reference.derive_chunk_seed])
def test_chunk_index_out_of_range(function, chunk_index):
    with pytest.raises(ValueError, match=f"chunk_index must be in .* got {chunk_index}"):
        function(0, chunk_index)


def test_a_number_that_python_does_not_print():
    with pytest.raises(ValueError, match="got one of 16610 bits"):
        derive_chunk_seed(0, 10**5000)


@pytest.mark.parametrize("value", [1.5, "5", None, 1.0, torch.tensor(1.0), [1]])
def test_no_integer(value):
    with pytest.raises(TypeError, match="seed must be an integer"):
        derive_chunk_seed(value, 0)
    with pytest.raises(TypeError, match="chunk_index must be an integer"):
        derive_chunk_seed(0, value)


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (np.int64(5), 5),
        (np.uint64(2**63 + 1), 2**63 + 1),
        (torch.tensor(2**63 + 1, dtype=torch.uint64), 2**63 + 1),
        (np.int32(-1), -1),
        (np.uint8(255), 255),
        (True, 1),
        (torch.tensor(5), 5),
        (type("Five", (), {"__index__": lambda self: 5})(), 5),
        (type("Int", (int,), {})(5), 5),
    ],
)
def test_integers_of_other_types(value, same):
    assert derive_chunk_seed(value, 3) == derive_chunk_seed(same, 3)
    if same >= 0:
        assert derive_chunk_seed(3, value) == derive_chunk_seed(3, same)


def test_keyword_names():
    assert derive_chunk_seed(seed=0, chunk_index=1) == 0xB382A3058D1E9194


def test_neighbouring_seeds_share_no_chunk():
    assert len({derive_chunk_seed(s, i) for s in range(64) for i in range(64)}) == 4096
    sets = [{derive_chunk_seed(s, i) for i in range(256)} for s in range(256)]
    assert len(set().union(*sets)) == 256 * 256


def test_arguments_do_not_commute():
    assert all(derive_chunk_seed(a, b) != derive_chunk_seed(b, a) for a in range(40) for b in range(a))


def test_low_half_is_a_permutation():
    """2^22 chunks: a random function would repeat about 2,048 times. The C++ test covers other seeds."""
    index = np.arange(2**22, dtype=np.uint32)
    key = reference.mix64(7 + reference.GOLDEN_GAMMA)

    def fmix32(h):
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
        h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
        return h ^ (h >> np.uint32(16))

    low = fmix32(fmix32(index ^ np.uint32(key & 0xFFFFFFFF)) + np.uint32(key >> 32))
    sample = range(0, 2**22, 40_009)
    assert [int(low[i]) for i in sample] == [derive_chunk_seed(7, i) & 0xFFFFFFFF for i in sample]
    assert len(np.unique(low)) == 2**22


def test_low_half_depends_on_every_input_bit():
    base = derive_chunk_seed(5, 0) & 0xFFFFFFFF
    others = [derive_chunk_seed(5 ^ 1 << bit, 0) & 0xFFFFFFFF for bit in range(64)]
    others += [derive_chunk_seed(5, 1 << bit) & 0xFFFFFFFF for bit in range(64)]
    assert base not in others
    assert len(set(others)) == 128


def test_avalanche(generator):
    """Flipping an input bit flips half of the bits of each half of the result."""
    inputs = torch.randint(-(2**63), 2**63 - 1, (400, 2), generator=generator).tolist()
    for half in (0, 32):
        flips = [
            ((op(s, i) ^ op(s ^ a, i ^ b)) >> half & 0xFFFFFFFF).bit_count()
            for s, i in ((s % 2**64, i % 2**64) for s, i in inputs)
            for bit in range(0, 64, 3)
            for a, b in ((1 << bit, 0), (0, 1 << bit))
        ]
        assert abs(sum(flips) / len(flips) - 16) < 0.25
